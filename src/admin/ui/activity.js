// What happens, as it happens.

import { get } from "./api.js";
import { badge, copyable, empty, fill, h, segmented } from "./dom.js";
import { changes } from "./live.js";
import { KIND, count, duration, fullTime, nanoDollars, outcome, shortTime } from "./words.js";

const SHOWN = {
  requests: "request_settled,request_refused",
  calls: "call_judged,approval_opened,approval_decided,approval_used",
  system: "started,configuration_reloaded,configuration_refused,policy_published,policy_archived,refusals_summed,lease_recovered",
  everything: "",
};
const SPANS = { "": "any time", 3600: "last hour", 86400: "last 24 hours", 604800: "last 7 days", 2592000: "last 30 days" };
const EVERY_MS = 2000;
const AT_ONCE = 200;
const FIELDS = [["key", "Key"], ["tenant", "Tenant"], ["model", "Model"], ["code", "Code"], ["run", "Run"], ["request_id", "Request id"]];

export async function activity(content, { query, signal }) {
  const filter = Object.fromEntries(query);
  filter.show ??= filter.request_id ? "everything" : "requests";
  const body = h("tbody");
  const table = h("div", { class: "scroll" }, h("table", { class: "list activity" }, head(), body));
  const note = h("div");
  const older = h("button", { type: "button", hidden: true, onclick: () => load(true) }, "Older");
  const live = h("span", { class: "live", title: "New records appear by themselves" }, "live");
  let newest = 0;
  let next = null;

  fill(content, h("div", { class: "title" }, h("h1", null, "Activity"), live), filters(filter), table, note, h("p", { class: "more" }, older));
  const change = changes("activity", signal);
  await load(false);
  while (!signal.aborted) {
    await change(EVERY_MS);
    if (!document.hidden) await follow().catch(stale);
  }

  function asked() {
    const { show, span, ...rest } = filter;
    const from = span && new Date(Date.now() - span * 1000).toISOString();
    return { ...rest, kind: SHOWN[show], from };
  }

  async function load(more) {
    older.disabled = true;
    const page = await get("/admin/v1/activity", { ...asked(), before: more ? next : null, limit: 50 }, signal);
    if (!more) newest = page.newest;
    body.append(...page.records.map(row));
    next = page.next;
    older.hidden = next === null;
    older.disabled = false;
    older.textContent = body.children.length ? "Older" : "Look further back";
    hint();
  }

  async function follow() {
    const page = await get("/admin/v1/activity", { ...asked(), after: newest, limit: AT_ONCE }, signal);
    newest = page.newest;
    live.classList.remove("stale");
    const fresh = page.records.map(row);
    // So many that there may be more below them: the list begins anew, without a gap.
    if (fresh.length >= AT_ONCE) {
      body.replaceChildren();
      next = page.next ?? page.records.at(-1).seq;
    }
    fresh.forEach((line) => line.classList.add("fresh"));
    body.prepend(...fresh);
    // A page that stays open for days does not grow without end.
    while (body.children.length > 1000) body.lastElementChild.remove();
    if (fresh.length) hint();
  }

  function stale(error) {
    if (error.name === "AbortError") throw error;
    live.classList.add("stale");
  }

  function hint() {
    table.hidden = body.children.length === 0;
    if (!table.hidden) return fill(note);
    const narrowed = FIELDS.some(([name]) => filter[name]) || filter.span;
    fill(note, narrowed || filter.show !== "requests"
      ? empty("Nothing matches.", h("p", null, h("a", { href: "#/activity" }, "Show all requests")))
      : empty("No request has come through yet.",
          h("p", null, "Point a client at Tallygate and it appears here. With the shipped configuration:"),
          copyable(example())));
  }
}

function example() {
  return `curl http://127.0.0.1:8080/v1/chat/completions -H 'Authorization: Bearer tg-demo-key' -H 'Content-Type: application/json' -d '{"model":"sandbox-echo","messages":[{"role":"user","content":"Hello, Tallygate"}]}'`;
}

function filters(filter) {
  const go = () => {
    const kept = Object.entries(filter).filter(([name, value]) => value && !(name === "show" && value === "requests"));
    location.hash = "#/activity" + (kept.length ? "?" + new URLSearchParams(kept) : "");
  };
  const show = segmented("What to show", [["requests", "Requests"], ["calls", "Tool calls"], ["system", "System"], ["everything", "Everything"]], filter.show, (value) => {
    filter.show = value;
    go();
  });
  const span = h("select", { "aria-label": "Time", onchange: () => { filter.span = span.value; go(); } },
    Object.entries(SPANS).sort(([a], [b]) => a - b).map(([value, text]) => h("option", { value, selected: value === (filter.span ?? "") }, text)));
  const fields = FIELDS.map(([name, label]) => {
    const field = h("input", { type: "search", "aria-label": label, placeholder: label, value: filter[name] ?? "", spellcheck: "false", autocomplete: "off", onchange: () => { filter[name] = field.value.trim(); go(); } });
    if (name === "request_id") field.classList.add("long");
    return field;
  });
  return h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); go(); } }, show, h("div", { class: "fields" }, fields, span));
}

function head() {
  return h("thead", null, h("tr", null,
    h("th", null, "Time"), h("th", null, "Key"), h("th", null, "What"), h("th", null, "Outcome"),
    h("th", { class: "number" }, "Tokens"), h("th", { class: "number" }, "Cost"), h("th", { class: "number" }, "Took")));
}

function row(record) {
  const [tone, words] = outcome(record);
  const time = h("time", { title: fullTime(record.at), datetime: new Date(record.at).toISOString() }, shortTime(record.at));
  const link = record.request_id ? h("a", { class: "row", href: `#/requests/${encodeURIComponent(record.request_id)}?near=${record.seq}` }, time) : time;
  const settled = record.kind === "request_settled";
  return h("tr", null,
    h("td", null, link),
    h("td", null, record.key ?? h("span", { class: "muted" }, record.source ?? "–"), record.tenant && record.tenant !== record.key ? h("span", { class: "muted" }, ` ${record.tenant}`) : null),
    h("td", null, what(record)),
    h("td", null, badge(tone, words), record.rule ? h("span", { class: "muted" }, ` ${record.rule}`) : null),
    h("td", { class: "number" }, settled ? count(record.input_tokens + record.output_tokens) : "", settled && record.estimated ? h("span", { class: "muted", title: "The provider reported no usage; this is our own count" }, " ≈") : null),
    h("td", { class: "number" }, settled ? nanoDollars(record.cost_nano_usd) : ""),
    h("td", { class: "number" }, record.duration_ms === undefined ? "" : duration(record.duration_ms)));
}

function what(record) {
  if (record.tool) return h("code", null, record.tool);
  if (record.kind === "configuration_refused") return h("span", { class: "wrap" }, record.first);
  const model = record.requested_model ?? record.resolved_model;
  if (model) {
    const other = record.resolved_model && record.resolved_model !== model;
    return [model, other ? h("span", { class: "muted" }, ` → ${record.resolved_model}`) : null];
  }
  if (record.kind === "refusals_summed") return `${count(record.count)} refusals`;
  if (record.account) return `${KIND[record.kind]}: ${record.account}`;
  if (record.kind === "request_refused") return h("span", { class: "muted" }, "–");
  return KIND[record.kind] ?? record.kind;
}
