// One request's whole path: what it asked for, which guards it met, what was reserved, which calls
// were judged, what it cost.

import { get } from "./api.js";
import { badge, empty, facts, fill, h } from "./dom.js";
import { pause } from "./live.js";
import { GUARDS, KIND, LAYERS, count, duration, fullTime, nanoDollars, outcome } from "./words.js";

const EVERY_MS = 2000;

export async function request(content, { path: [id], query, signal }) {
  const place = h("div");
  fill(content,
    h("p", { class: "back" }, h("a", { href: "#/activity" }, "← Activity")),
    h("h1", { class: "mono" }, id ?? ""),
    place);
  let known = 0;
  for (;;) {
    const records = await path(id, query.get("near"), signal);
    if (records.length === 0) {
      fill(place, empty("The ledger knows no such request.", h("p", null, "One that has just been made appears within a moment.")));
    }
    if (records.length !== known) {
      known = records.length;
      fill(place, summary(records), h("h2", null, "Path"), h("ol", { class: "path" }, records.map(step)));
    }
    // What has ended is not asked about again.
    if (records.some((record) => ["request_settled", "request_refused"].includes(record.kind))) return;
    await pause(EVERY_MS, signal);
  }
}

/** Records are written a moment after they were made: what is not there yet is waited for. */
async function path(id, near, signal) {
  try {
    return (await get(`/admin/v1/requests/${encodeURIComponent(id)}`, { near }, signal)).records;
  } catch (error) {
    if (error.code === "not_found") return [];
    throw error;
  }
}

function summary(records) {
  const of = (kind) => records.find((record) => record.kind === kind);
  const opened = of("request_started");
  const settled = of("request_settled");
  const refused = of("request_refused");
  const first = opened ?? settled ?? refused ?? records[0];
  const end = settled ?? refused ?? first;
  const [tone, words] = outcome(end);
  const blocked = records.filter((record) => record.blocked).length;
  const model = first.requested_model ?? end.requested_model;
  const resolved = settled?.answered_model ?? first.resolved_model;
  return h("section", { class: "card" }, facts([
    ["Outcome", badge(tone, words), end.status ? h("span", { class: "muted" }, ` ${end.status}`) : null],
    ["Calls", blocked ? badge("bad", `${blocked} blocked`) : null],
    ["Key", first.key, first.tenant ? h("span", { class: "muted" }, ` ${first.tenant}`) : null],
    ["Run", first.run ? h("a", { href: `#/runs/${encodeURIComponent(first.run)}?${new URLSearchParams({ key: first.key })}` }, first.run) : null, first.step ? h("span", { class: "muted" }, ` step ${first.step}`) : null],
    ["Policy", first.policy ? h("a", { href: `#/policies/${encodeURIComponent(first.policy)}` }, first.policy) : null],
    ["Model", model, resolved && resolved !== model ? h("span", { class: "muted" }, ` → ${resolved}`) : null],
    ["Provider", first.provider],
    ["Tokens", settled ? `${count(settled.input_tokens)} in, ${count(settled.output_tokens)} out` : null],
    ["Cost", settled ? nanoDollars(settled.cost_nano_usd) : null],
    ["Took", end.duration_ms === undefined ? null : duration(end.duration_ms)],
  ]));
}

function step(record) {
  const [tone] = outcome(record);
  return h("li", { class: tone },
    h("div", { class: "step-head" },
      h("strong", null, KIND[record.kind] ?? record.kind),
      h("time", { class: "muted", datetime: new Date(record.at).toISOString() }, fullTime(record.at)),
      h("span", { class: "muted seq", title: "Number in the ledger" }, `#${record.seq}`)),
    detail(record),
    h("details", null, h("summary", null, "Record"), h("pre", null, JSON.stringify(record, null, 2))));
}

function detail(record) {
  switch (record.kind) {
    case "request_started": return admitted(record);
    case "request_refused": return refused(record);
    case "attempt_failed": return attempt(record);
    case "escalation": return escalation(record);
    case "call_judged": return call(record);
    case "request_settled": return settled(record);
    case "approval_opened":
    case "approval_decided":
    case "approval_used": return approval(record);
    default: return null;
  }
}

function admitted(record) {
  const tools = record.tools ?? {};
  return [
    chips(GUARDS.map(([name]) => [name, "passed"])),
    facts([
      ["Reserved", record.resumes ? "nothing: the parked answer of an earlier request" : `${nanoDollars(record.reserved_nano_usd)}, ${count(record.reserved_tokens)} tokens`],
      ["Output cap", record.output_cap === null ? "none" : `${count(record.output_cap)} tokens`],
      ["Streamed", record.stream ? "yes" : "no"],
      ["Resumes", record.resumes ? h("a", { class: "mono", href: `#/requests/${encodeURIComponent(record.resumes)}` }, record.resumes) : null],
      ["Warnings", (record.warnings ?? []).join(", ")],
      ["Would refuse", (record.would_refuse ?? []).map(({ rule, subject }) => `${rule} of ${subject}`).join(", ")],
      ["Tools cut out", (tools.stripped ?? []).join(", ")],
      ["Tools observed", (tools.observed ?? []).join(", ")],
      ["Made to ask", (tools.made_to_ask ?? []).join(", ")],
    ]),
    limits(record),
  ];
}

function escalation(record) {
  const words = (text) => text.replaceAll("_", " ");
  return facts([
    ["Reason", words(record.reason)],
    ["Action", words(record.action)],
    ["Outcome", words(record.outcome)],
    ["Escalation", h("span", { class: "mono" }, record.escalation)],
  ]);
}

function attempt(record) {
  return facts([
    ["At", `${record.provider}, ${record.resolved_model}`],
    ["Because", record.failure.replaceAll("_", " ") + (record.status ? `, status ${record.status}` : "")],
    ["Charged", record.charged_nano_usd ? nanoDollars(record.charged_nano_usd) : "nothing"],
    ["Then", `${record.next_provider}, ${record.next_model}` + (record.after_ms ? ` after ${duration(record.after_ms)}` : "")],
  ]);
}

function refused(record) {
  // A burst is refused before the body is read.
  const early = record.code === "rate_limit_exceeded" && !record.rule;
  const at = early ? -1 : GUARDS.findIndex(([, codes]) => codes.includes(record.code));
  return [
    at < 0 ? null : chips(GUARDS.map(([name], place) => [name, place < at ? "passed" : place === at ? "blocked" : "unasked"])),
    facts([["Code", h("code", null, record.code)], ["Rule", record.rule], ["From", record.source]]),
    limits(record),
  ];
}

function call(record) {
  const said = new Map();
  for (const result of record.results ?? []) {
    const before = said.get(result.code);
    if (!before || before.outcome === "passed") said.set(result.code, result);
  }
  const extra = [...said.keys()].filter((code) => !LAYERS.some(([known]) => known === code));
  const asked = [...LAYERS, ...extra.map((code) => [code, code])].filter(([code]) => said.has(code));
  const loud = (record.results ?? []).filter((result) => result.outcome !== "passed");
  return [
    h("p", null, h("code", { class: "tool" }, record.tool), " ", record.delivered ? badge("good", "delivered") : badge("bad", "not delivered")),
    chips(asked.map(([code, name]) => [name, said.get(code).outcome, `${code}: ${said.get(code).rule}`])),
    facts([
      ...loud.map((result) => [result.outcome === "warn" ? "Noted" : result.outcome === "paused" ? "Held" : "Blocked", h("code", null, result.code), result.rule === result.code ? "" : ` by ${result.rule}`]),
      ["Judged by", record.policy],
      ["Approval", record.approval],
      ["Arguments", h("span", { class: "mono muted", title: "SHA-256 of the canonical arguments; the ledger holds no content" }, (record.arguments_sha256 ?? "").slice(0, 16) + "…")],
    ]),
    (record.inner ?? []).length ? h("div", { class: "inner" }, record.inner.map((inner) => call({ ...inner, delivered: record.delivered }))) : null,
  ];
}

function settled(record) {
  return [facts([
    ["Cost", nanoDollars(record.cost_nano_usd), record.estimated ? h("span", { class: "muted" }, " estimated: the provider reported no usage") : null],
    ["Input", `${count(record.input_tokens)} tokens`, record.cached_tokens ? h("span", { class: "muted" }, `, ${count(record.cached_tokens)} of them cached`) : null],
    ["Output", `${count(record.output_tokens)} tokens`, record.reasoning_tokens ? h("span", { class: "muted" }, `, ${count(record.reasoning_tokens)} of them reasoning`) : null],
    ["Answered by", record.answered_model ?? record.resolved_model],
    ["Tool calls", record.tool_calls ? count(record.tool_calls) : null],
    ["Usage", record.usage_suspect ? badge("warn", "suspect") : null],
  ]), limits(record)];
}

/** What was left of each limit before and after, with what makes up the difference. */
function limits(record) {
  if (!record.limits?.length) return null;
  return facts(record.limits.map((limit) => {
    const of = (amount) => (limit.unit === "usd" ? nanoDollars(amount) : count(amount));
    const left = (used, reserved) => h("span", { title: `${of(used)} used, ${of(reserved)} reserved` }, of(Math.max(0, limit.limit - used - reserved)));
    const refused = limit.needed !== undefined;
    return [
      limit.name,
      left(limit.used, limit.reserved),
      refused ? null : " → ",
      refused ? null : left(limit.used_after, limit.reserved_after),
      h("span", { class: "muted" }, ` left of ${of(limit.limit)}`),
      refused ? `, needed ${of(limit.needed)}` : null,
    ];
  }));
}

function approval(record) {
  return facts([
    ["Tool", h("code", null, record.tool)],
    ["Approval", h("span", { class: "mono" }, record.approval)],
    ["Status", record.status],
    ["By", record.by],
    ["Because of", record.rule],
  ]);
}

function chips(all) {
  const SIGN = { passed: "✓", blocked: "✕", warn: "!", paused: "⏸", unasked: "·" };
  return h("ul", { class: "chips" }, all.map(([name, state, title]) =>
    h("li", { class: state, title }, h("span", { "aria-hidden": "true" }, SIGN[state] ?? "·"), name, h("span", { class: "unseen" }, ` ${state}`))));
}
