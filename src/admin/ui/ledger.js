// The ledger as a whole: how far it goes, whether its chain holds, and a copy of it.

import { get, lines } from "./api.js";
import { badge, facts, fill, h } from "./dom.js";
import { count, fullTime } from "./words.js";

export async function ledger(content, { operator, signal }) {
  const all = await get("/admin/v1/ledger", null, signal);
  const result = h("div", { class: "result", "aria-live": "polite" });
  const check = h("button", { class: "primary", type: "button", onclick: () => verify(check, result, signal) }, "Verify the chain");
  fill(content,
    h("h1", null, "Ledger"),
    h("p", { class: "lead" }, "Every decision is a record, and each record carries the digest of the one before. It holds names, counts, codes and digests: never a prompt, an argument or an answer."),
    h("section", { class: "card" }, facts([
      ["Records", count(all.records)],
      ["First", all.first_at === null ? "–" : fullTime(all.first_at)],
      ["Last", all.last_at === null ? "–" : fullTime(all.last_at)],
      ["Head", h("span", { class: "mono break" }, all.head ?? "–")],
    ])),
    h("section", { class: "card" },
      h("h2", null, "Verify"),
      h("p", { class: "muted" }, "Follows the chain from the first record to the last. A changed, missing or added record breaks it. Note the head elsewhere now and then: a cut tail shows by it."),
      check, result),
    h("section", { class: "card" },
      h("h2", null, "Export"),
      h("p", { class: "muted" }, "All records as JSON Lines, each with its place in the chain."),
      operator.role === "operator"
        ? h("a", { class: "button", href: "/admin/v1/ledger/export", download: "tallygate-ledger.jsonl" }, "Export")
        : h("p", null, "The role operator may export; yours is ", badge("plain", operator.role), ".")));
}

async function verify(button, result, signal) {
  button.disabled = true;
  const meter = h("progress", { max: 1, value: 0 });
  const words = h("span", { class: "muted" }, "Begins…");
  fill(result, meter, " ", words);
  let last = {};
  try {
    await lines("/admin/v1/ledger/verify", (line) => {
      last = line;
      if (line.of) meter.value = line.checked / line.of;
      words.textContent = `${count(line.checked)} of ${count(line.of ?? line.checked)} records`;
    }, signal);
    fill(result, told(last));
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(result, h("p", { class: "problem" }, error.message));
  } finally {
    button.disabled = false;
  }
}

function told({ checked, holds, head, broken_at: broken, error }) {
  if (holds) return [badge("good", "the chain holds"), ` ${count(checked)} records, head `, h("span", { class: "mono break" }, head)];
  if (broken) return [badge("bad", "broken"), ` Record ${count(broken)} does not follow from the one before it. ${count(checked)} records before it are in order.`];
  return [badge("bad", "not finished"), ` ${error ?? "The answer broke off."}`];
}
