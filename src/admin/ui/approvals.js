// Calls that wait for a person: what they would do, who asked, why they are held; and the decision.

import { ApiError, get, post } from "./api.js";
import { badge, copyable, empty, facts, fill, h } from "./dom.js";
import { pretty, visible } from "./json.js";
import { changes } from "./live.js";
import { fullTime, shortTime } from "./words.js";

const EVERY_MS = 1500;
const WHY = {
  "tools.require_approval": "its policy asks a person (tools.require_approval)",
  "contract.approval": "the tool's contract asks a person (approval)",
};

export async function approvals(content, { operator, signal }) {
  const told = h("div", { role: "status" });
  const waiting = h("div", { class: "waiting" });
  const decided = h("div");
  const cards = new Map();
  fill(content, h("div", { class: "title" }, h("h1", null, "Approvals")), told, waiting, decided);
  const decides = operator.role !== "viewer";
  const change = changes("approvals", signal);
  let drawn = "";
  for (;;) {
    if (!document.hidden) await refresh();
    await change(EVERY_MS);
  }

  async function refresh() {
    const { approvals: all, now } = await get("/admin/v1/approvals", { status: "all" }, signal);
    const open = all.filter((one) => one.status === "pending" && one.expires_at > now);
    for (const [id, card] of cards) {
      if (!open.some((one) => one.id === id)) {
        card.element.remove();
        cards.delete(id);
      }
    }
    // The oldest waits longest: it stands first. What somebody is writing into stays as it is.
    for (const one of open.toReversed()) {
      if (!cards.has(one.id)) {
        const card = await draw(one);
        cards.set(one.id, card);
        waiting.append(card.element);
      }
      cards.get(one.id).tick(now);
    }
    waiting.querySelector(":scope > .empty")?.remove();
    if (!open.length) waiting.append(nothing());
    const rest = JSON.stringify(all.filter((one) => !open.includes(one)));
    if (rest !== drawn) {
      drawn = rest;
      fill(decided, history(JSON.parse(rest)));
    }
  }

  async function draw(one) {
    const left = h("span", { class: "muted" });
    const place = h("div", null, h("p", { class: "muted" }, decides ? "…" : "Approvers see what the call would do."));
    const problem = h("p", { class: "problem", role: "alert" });
    const reason = h("input", { type: "text", maxlength: "500", placeholder: "Reason (told to the client when rejected)", "aria-label": "Reason" });
    const buttons = [["approve", "Approve", "primary"], ["reject", "Reject", "danger"]].map(([wish, name, tone]) =>
      h("button", { type: "button", class: tone, onclick: () => decide(one, wish) }, name));
    const element = h("section", { class: "card approval", "aria-label": `Call of ${one.tool}` },
      h("div", { class: "approval-head" }, h("h2", null, h("code", null, visible(one.tool))), left),
      facts([
        ["Asked by", `key ${one.key}, tenant ${one.tenant}`],
        ["Run", one.run],
        ["Held since", h("time", { title: fullTime(one.created_at) }, shortTime(one.created_at))],
        ["Because", WHY[one.rule] ?? one.rule],
        ["Policy", h("a", { href: `#/policies/${encodeURIComponent(one.policy)}` }, one.policy)],
        ["Request", h("a", { href: `#/requests/${encodeURIComponent(one.request_id)}` }, one.request_id)],
      ]),
      place,
      decides ? h("div", { class: "decision" }, reason, buttons, problem) : null);
    if (decides) {
      const full = await get(`/admin/v1/approvals/${encodeURIComponent(one.id)}`, null, signal).catch(() => null);
      if (full?.arguments !== null && full?.arguments !== undefined) fill(place, pretty(full.arguments));
      else fill(place, h("p", { class: "muted" }, "The arguments are gone: it was decided meanwhile."));
    }
    return { element, tick: (now) => { left.textContent = `${span(one.expires_at - now)} left`; } };

    async function decide({ id, tool }, wish) {
      buttons.forEach((button) => { button.disabled = true; });
      problem.textContent = "";
      try {
        await post(`/admin/v1/approvals/${encodeURIComponent(id)}`, { decision: wish, reason: reason.value });
        fill(told, h("p", { class: "banner good" }, wish === "approve" ? "Approved: " : "Rejected: ", h("code", null, visible(tool))));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        problem.textContent = error.message;
        fill(told, h("p", { class: "banner warn" }, h("code", null, visible(tool)), `: ${error.message}`));
        buttons.forEach((button) => { button.disabled = false; });
      }
      await refresh();
    }
  }
}

function nothing() {
  return empty("No call waits for a person.",
    h("p", null, "A policy holds calls back with ", h("code", null, "require_approval"), " in ", h("code", null, "[tools]"), ", a tool's contract with ", h("code", null, "approval = \"always\""), ". They appear here by themselves. On the command line:"),
    copyable("tallygate approvals list"));
}

const TONE = { approved: "good", used: "good", rejected: "bad", void: "bad", expired: "warn", pending: "warn" };

function history(all) {
  if (!all.length) return null;
  return [h("h2", null, "Decided"), h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", null, h("tr", null, ["Asked", "Key", "Tool", "State", "By", "Reason"].map((name) => h("th", null, name)))),
    h("tbody", null, all.map((one) => h("tr", null,
      h("td", null, h("time", { title: fullTime(one.created_at) }, shortTime(one.created_at))),
      h("td", null, one.key, h("span", { class: "muted" }, ` ${one.tenant}`)),
      h("td", null, h("code", null, visible(one.tool))),
      h("td", null, badge(TONE[one.status] ?? "plain", one.status)),
      h("td", null, one.decided_by ?? "–"),
      h("td", { class: "muted break" }, one.reason || "–"))))))];
}

function span(ms) {
  const minutes = Math.max(0, Math.floor(ms / 60_000));
  if (minutes >= 120) return `${Math.floor(minutes / 60)} h`;
  if (minutes >= 2) return `${minutes} min`;
  return `${Math.max(0, Math.ceil(ms / 1000))} s`;
}
