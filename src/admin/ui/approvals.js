// Calls that wait for a person.

import { get } from "./api.js";
import { badge, copyable, empty, fill, h } from "./dom.js";
import { fullTime, outcome, shortTime } from "./words.js";

const KINDS = "approval_opened,approval_decided,approval_used";

export async function approvals(content, { signal }) {
  const { records } = await get("/admin/v1/activity", { kind: KINDS, limit: 100 }, signal);
  // Newest first: the first record of each tells how it stands.
  const latest = new Map();
  for (const record of records) if (!latest.has(record.approval)) latest.set(record.approval, record);
  fill(content,
    h("div", { class: "title" }, h("h1", null, "Approvals")),
    latest.size
      ? [h("p", { class: "lead" }, "Decide on the command line:"), copyable("tallygate approvals list"), table([...latest.values()])]
      : empty("No call has waited for a person.",
          h("p", null, "A policy holds calls back with ", h("code", null, "require_approval"), " in ", h("code", null, "[tools]"), ", a tool's contract with ", h("code", null, "approval = \"always\""), ".")));
}

function table(records) {
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", null, h("tr", null, ["Time", "Key", "Tool", "State", "By", "Because of"].map((name) => h("th", null, name)))),
    h("tbody", null, records.map((record) => h("tr", null,
      h("td", null, h("time", { title: fullTime(record.at) }, shortTime(record.at))),
      h("td", null, record.key, h("span", { class: "muted" }, ` ${record.tenant}`)),
      h("td", null, h("code", null, record.tool)),
      h("td", null, badge(...outcome(record))),
      h("td", null, record.by ?? "–"),
      h("td", { class: "muted" }, record.rule))))));
}
