// Signing in with a token; and, where nobody could, how to make one.

import { get, post } from "./api.js";
import { copyable, fill, h } from "./dom.js";

const COMMAND = "tallygate keys new --operator --name me --role operator";

export async function signIn(root, entered) {
  const problem = h("p", { class: "problem", role: "alert" });
  const field = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false", autofocus: true, placeholder: "tgo-…" });
  const button = h("button", { class: "primary", type: "submit" }, "Sign in");
  const form = h("form", { class: "card signin", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      entered(await post("/admin/v1/session", { token: field.value }));
    } catch (error) {
      problem.textContent = error.message;
      field.select();
    } finally {
      button.disabled = false;
    }
  } },
    h("div", { class: "mark" }, h("img", { src: "/console/icon.svg", alt: "", width: "36", height: "36" })),
    h("h1", null, "Tallygate"),
    h("label", { for: "token" }, "Operator token"),
    field, problem, button,
    h("p", { class: "hint" }, "Made by ", h("code", null, "tallygate keys new --operator")));
  fill(root, h("main", { class: "centre" }, form));
  field.focus();
}

/** The configuration names no operators. */
export function noOperators(root) {
  const again = h("button", { class: "primary", type: "button", onclick: () => location.reload() }, "Try again");
  fill(root, h("main", { class: "centre" },
    h("section", { class: "card signin wide" },
      h("div", { class: "mark" }, h("img", { src: "/console/icon.svg", alt: "", width: "36", height: "36" })),
      h("h1", null, "Nobody may sign in yet"),
      h("p", null, "The console shows what passed through Tallygate, so it opens for operators only. There is no default password. Three steps:"),
      h("ol", { class: "steps" },
        h("li", null, "Make yourself a token:", copyable(COMMAND)),
        h("li", null, "Put the ", h("code", null, "[[operators]]"), " lines that it prints into the configuration. They are taken over within a second, without a restart."),
        h("li", null, "Sign in here with the token.")),
      again)));
}

/** Who is signed in; null if nobody; "nobody" if nobody can be. */
export async function session() {
  try {
    return await get("/admin/v1/session");
  } catch (error) {
    if (error.code === "no_operators") return "nobody";
    if (error.status === 401) return null;
    throw error;
  }
}
