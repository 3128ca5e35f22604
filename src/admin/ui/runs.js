// Runs: the last ones, and one with its chain of steps and escalations.

import { get } from "./api.js";
import { badge, empty, facts, fill, h } from "./dom.js";
import { KIND, count, duration, fullTime, nanoDollars, outcome, shortTime } from "./words.js";

const TOLD = { success: "good", failure: "bad", abandoned: "warn" };

export async function runs(content, { path: [id], query, signal }) {
  if (id) return one(content, id, query.get("key"), signal);
  const { runs: all } = await get("/admin/v1/runs", { limit: 100 }, signal);
  fill(content, h("div", { class: "title" }, h("h1", null, "Runs")),
    all.length ? table(all) : empty("No run is on record.", h("p", null, "Requests that name their task in the header X-Run-Id make one.")));
}

async function one(content, id, key, signal) {
  const { runs: found, records } = await get(`/admin/v1/runs/${encodeURIComponent(id)}`, { key }, signal);
  fill(content,
    h("p", { class: "back" }, h("a", { href: "#/runs" }, "← Runs")),
    h("h1", { class: "mono break" }, id),
    found.map(summary),
    h("h2", null, "Chain"),
    h("ol", { class: "path" }, records.map(step)));
}

function table(all) {
  const columns = ["Run", "Key", "Steps", "Tool calls", "Cost", "Took", "Ended with", "Outcome", "Last"];
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, all.map(row))));
}

const link = (run) => `#/runs/${encodeURIComponent(run.run)}?${new URLSearchParams({ key: run.key })}`;
const told = (run) => (run.outcome ? badge(TOLD[run.outcome] ?? "plain", run.outcome) : "–");
const code = (run) => (run.code ? badge("bad", run.code) : "–");

function row(run) {
  return h("tr", null,
    h("td", null, h("a", { class: "mono", href: link(run) }, run.run), run.tags.map((tag) => [" ", badge("plain", tag)])),
    h("td", null, run.key),
    h("td", null, count(run.steps)),
    h("td", null, count(run.tool_calls), run.blocked_calls ? h("span", { class: "muted" }, ` + ${run.blocked_calls} blocked`) : null),
    h("td", null, nanoDollars(run.cost_nano_usd)),
    h("td", null, duration(run.duration_ms)),
    h("td", null, code(run)),
    h("td", null, told(run)),
    h("td", null, shortTime(run.last_at)));
}

function summary(run) {
  return h("section", { class: "card" }, facts([
    ["Key", run.key],
    ["Policy", run.policy],
    ["Models", run.models.join(", ")],
    ["Tags", run.tags.join(", ")],
    ["Steps", count(run.steps)],
    ["Model calls", count(run.model_calls)],
    ["Tool calls", `${count(run.tool_calls)} passed, ${count(run.blocked_calls)} blocked`],
    ["Tokens", count(run.tokens)],
    ["Cost", nanoDollars(run.cost_nano_usd)],
    ["Took", duration(run.duration_ms)],
    ["Ended with", code(run)],
    ["Outcome", told(run)],
    ["Escalations", count(run.escalations)],
  ]));
}

function step(record) {
  const [tone, words] = outcome(record);
  return h("li", { class: tone },
    h("div", { class: "step-head" },
      h("strong", null, KIND[record.kind] ?? record.kind, record.step ? ` ${record.step}` : ""),
      badge(tone, words),
      h("time", { class: "muted", datetime: new Date(record.at).toISOString() }, fullTime(record.at)),
      h("a", { class: "muted seq", href: `#/requests/${encodeURIComponent(record.request_id)}?${new URLSearchParams({ near: record.seq })}` }, `#${record.seq}`)),
    about(record));
}

function about(record) {
  const plain = (text) => text.replaceAll("_", " ");
  switch (record.kind) {
    case "call_judged": return h("p", { class: "mono" }, record.tool);
    case "escalation": return h("p", null, `${plain(record.reason)} → ${plain(record.action)}`);
    case "request_settled": return h("p", { class: "muted" }, `${record.resolved_model}, ${nanoDollars(record.cost_nano_usd)}`);
    case "attempt_failed": return h("p", { class: "muted" }, `${record.provider} → ${record.next_provider}`);
    default: return null;
  }
}
