// The shell: who is signed in, where we are, and the page for it.

import { onSignedOut, remove } from "./api.js";
import { badge, empty, fill, h } from "./dom.js";
import { noOperators, session, signIn } from "./signin.js";
import { activity } from "./activity.js";
import { request } from "./request.js";
import { runs } from "./runs.js";
import { approvals } from "./approvals.js";
import { spend } from "./spend.js";
import { policies } from "./policies.js";
import { ledger } from "./ledger.js";

/** Each page: (place to draw in, {operator, path, query, signal}). `signal` ends with the page. */
const PAGES = [
  ["activity", "Activity", activity],
  ["runs", "Runs", runs],
  ["approvals", "Approvals", approvals],
  ["spend", "Spend", spend],
  ["policies", "Policies", policies],
  ["ledger", "Ledger", ledger],
];
const HIDDEN = [["requests", "Request", request]];

const root = document.getElementById("app");
let leave = new AbortController();
let shown = null;

async function begin() {
  leave.abort();
  shown = null;
  try {
    const operator = await session();
    if (operator === "nobody") noOperators(root);
    else if (operator === null) signIn(root, shell);
    else shell(operator);
  } catch (error) {
    fill(root, h("main", { class: "centre" }, h("section", { class: "card signin" }, h("h1", null, "Tallygate"), h("p", { class: "problem" }, error.message), h("button", { class: "primary", type: "button", onclick: begin }, "Try again"))));
  }
}

function shell(operator) {
  const content = h("main", { id: "content", tabindex: "-1" });
  const links = PAGES.map(([name, title]) => h("a", { href: `#/${name}` }, title));
  const out = h("button", { type: "button", class: "quiet", onclick: async () => {
    await remove("/admin/v1/session").catch(() => {});
    begin();
  } }, "Sign out");
  fill(root,
    h("a", { class: "skip", href: "#content", onclick: (event) => { event.preventDefault(); content.focus(); } }, "Skip to the content"),
    h("div", { class: "frame" },
      h("header", { class: "side" }, h("div", { class: "rail" },
        h("a", { class: "brand", href: "#/activity" }, h("img", { src: "/console/icon.svg", alt: "", width: "22", height: "22" }), "Tallygate"),
        h("nav", { "aria-label": "Pages" }, links),
        h("div", { class: "who" }, h("span", { class: "name" }, operator.operator), badge("plain", operator.role), out))),
      content));
  shown = { operator, content, links };
  show();
}

function show() {
  if (!shown) return;
  leave.abort();
  leave = new AbortController();
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  const page = [...PAGES, ...HIDDEN].find(([known]) => known === (name || "activity"));
  const { operator, content, links } = shown;
  links.forEach((link, place) => {
    const here = PAGES[place] === page || (name === "requests" && place === 0);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  document.title = page ? `${page[1]} – Tallygate` : "Tallygate";
  fill(content);
  window.scrollTo(0, 0);
  if (!page) {
    fill(content, empty("There is no such page.", h("p", null, h("a", { href: "#/activity" }, "Go to Activity"))));
    return;
  }
  const { signal } = leave;
  Promise.resolve(page[2](content, { operator, path: rest, query: new URLSearchParams(query), signal })).catch((error) => {
    if (signal.aborted || error.name === "AbortError") return;
    fill(content, h("h1", null, page[1]), h("p", { class: "banner bad", role: "alert" }, error.message));
  });
}

onSignedOut(begin);
addEventListener("hashchange", show);
begin();
