// Money: what was used over time, what each limit holds, what limits refused.

import { get } from "./api.js";
import { columns, legend } from "./chart.js";
import { empty, fill, h, segmented } from "./dom.js";
import { pause } from "./live.js";
import { amount, count, dollars, fullTime, limitName, shortTime, span } from "./words.js";

const EVERY_MS = 5000;
const HOUR = 3_600_000;
const PAGE = 24;
// More are found by their names.
const MOST = 192;
const SPANS = [[24, "24 h"], [7 * 24, "7 days"], [30 * 24, "30 days"], [90 * 24, "90 days"]];
const COUNTED = {
  cost: [(point) => Number(point.cost_usd), (value) => dollars(value)],
  tokens: [(point) => point.tokens, (value) => short(value)],
  requests: [(point) => point.requests, (value) => short(value)],
};

export async function spend(content, { signal }) {
  const asked = { hours: 24, by: "model", counted: "cost" };
  const plot = h("section", { class: "card" });
  const search = h("input", { type: "search", "aria-label": "Find keys and tenants", placeholder: "Key or tenant", oninput: () => { shown = PAGE; draw(); } });
  const limits = h("div");
  const more = h("button", { type: "button", hidden: true, onclick: () => { shown += PAGE; draw(); } }, "More keys");
  let shown = PAGE;
  const refusals = h("section");
  const draw = () => refresh().catch((error) => { if (error.name !== "AbortError") throw error; });
  fill(content,
    h("div", { class: "title" }, h("h1", null, "Spend")),
    h("div", { class: "controls" },
      segmented("Span", SPANS, asked.hours, (hours) => { asked.hours = hours; draw(); }),
      segmented("Told apart by", [["model", "By model"], ["key", "By key"]], asked.by, (by) => { asked.by = by; draw(); }),
      segmented("Counted", [["cost", "Cost"], ["tokens", "Tokens"], ["requests", "Requests"]], asked.counted, (counted) => { asked.counted = counted; draw(); })),
    plot,
    h("div", { class: "title second" }, h("h2", null, "Limits"), search), limits, h("p", { class: "more" }, more), refusals);
  for (;;) {
    if (!document.hidden) await refresh();
    await pause(EVERY_MS, signal);
  }

  async function refresh() {
    const to = new Date();
    const from = new Date(to - asked.hours * HOUR).toISOString();
    const span = { from, to: to.toISOString() };
    const [history, now, refused] = await Promise.all([
      get("/admin/v1/spend/history", { ...span, by: asked.by }, signal),
      get("/admin/v1/spend", { find: search.value.trim(), limit: shown }, signal),
      get("/admin/v1/spend/refusals", span, signal),
    ]);
    fill(plot, curve(history, asked));
    fill(limits, budgets(now));
    more.hidden = now.next === null || shown >= MOST;
    fill(refusals, hits(refused.refusals));
  }
}

function curve(history, { counted, by }) {
  const [value, tell] = COUNTED[counted];
  const series = history.series.map((one) => ({
    label: one.name ?? `${one.others} others`,
    points: one.points.map((point) => ({ at: point.at, value: value(point) })),
  }));
  if (series.length === 0) {
    return empty("Nothing was used in this time.", h("p", null, "Settled requests are added up here by the hour, for each ", by, "."));
  }
  const total = series.flatMap((one) => one.points).reduce((sum, point) => sum + point.value, 0);
  return [
    h("p", { class: "figure" }, h("strong", null, tell(total)), h("span", { class: "muted" }, ` by the ${history.bucket}`)),
    columns({ ...history, series, tell }),
    legend(series, tell),
  ];
}

function budgets({ at, keys, tenants, global }) {
  const cards = [
    global.length ? card("Everything", "all keys together", global, at) : null,
    ...tenants.filter(({ limits }) => limits.length).map(({ tenant, limits }) => card(tenant, "tenant", limits, at)),
    ...keys.map(({ key, tenant, policy, limits }) => card(key, `key of ${tenant}, policy ${policy}`, limits, at)),
  ].filter(Boolean);
  return cards.length ? h("div", { class: "cards" }, cards) : empty("No key or tenant is called that.");
}

function card(name, about, limits, at) {
  return h("article", { class: "card limits" },
    h("h3", null, name, h("span", { class: "muted" }, ` ${about}`)),
    limits.length ? limits.map((limit) => bar(limit, at)) : h("p", { class: "muted" }, "No limit is set."));
}

function bar(limit, at) {
  const whole = Number(limit.limit);
  const part = (value) => (whole > 0 ? Math.min(100, (100 * Number(value)) / whole) : 100);
  const [used, reserved] = [part(limit.used), part(limit.reserved)];
  const tone = used + reserved >= 100 ? "full" : used + reserved >= 80 ? "near" : "";
  const resets = limit.resets_at ? `resets in ${span(Date.parse(limit.resets_at) - at)}` : limit.window === "minute" ? "any 60 seconds" : "";
  const words = `${amount(limit.unit, limit.used)} used, ${amount(limit.unit, limit.reserved)} reserved of ${amount(limit.unit, limit.limit)}`;
  const fills = [["used", used], ["reserved", Math.min(reserved, 100 - used)]].map(([kind, width]) => {
    const part = h("span", { class: kind });
    part.style.width = `${width}%`;
    return part;
  });
  return h("div", { class: `limit ${tone}` },
    h("span", { class: "limit-name" }, limitName(limit), limit.mode === "observe" ? h("span", { class: "muted" }, " (only observed)") : ""),
    h("div", { class: "bar", role: "img", "aria-label": words, title: words }, fills),
    h("span", { class: "limit-used" },
      h("strong", null, amount(limit.unit, limit.used)),
      Number(limit.reserved) > 0 ? ` + ${amount(limit.unit, limit.reserved)} reserved` : "",
      h("span", { class: "muted" }, ` of ${amount(limit.unit, limit.limit)}`)),
    h("span", { class: "limit-resets muted", title: limit.resets_at ? fullTime(Date.parse(limit.resets_at)) : null }, resets));
}

function hits(refusals) {
  const title = h("h2", null, "Refused in this time");
  if (refusals.length === 0) return [title, empty("Nothing was refused.")];
  return [title, h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", null, h("tr", null, h("th", null, "Code"), h("th", null, "Rule"), h("th", null, "Key"), h("th", { class: "number" }, "Times"), h("th", null, "Last in the hour of"))),
    h("tbody", null, refusals.map((row) => h("tr", null,
      h("td", null, h("a", { href: `#/activity?${new URLSearchParams({ code: row.code, ...(row.key ? { key: row.key } : {}) })}` }, row.code)),
      h("td", { class: "muted" }, row.rule ?? "–"),
      h("td", null, row.key ?? h("span", { class: "muted" }, "unknown")),
      h("td", { class: "number" }, count(row.count)),
      h("td", { class: "muted" }, shortTime(row.last_hour)))))))];
}

function short(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${Math.round(value / 1e3)} k`;
  return count(Math.round(value * 10) / 10);
}
