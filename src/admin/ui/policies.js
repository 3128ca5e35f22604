// The rules in force, what differs between their versions, and what came of the last reload.

import { get, post } from "./api.js";
import { badge, facts, fill, h } from "./dom.js";
import { pause } from "./live.js";
import { fullTime } from "./words.js";

const EVERY_MS = 3000;

export async function policies(content, { operator, path: [wanted], signal }) {
  const banner = h("div");
  const place = h("div");
  const again = h("button", { type: "button", onclick: async () => {
    again.disabled = true;
    try {
      await post("/admin/v1/reload");
      await refresh();
    } finally {
      again.disabled = false;
    }
  } }, "Read the files again");
  fill(content, h("div", { class: "title" }, h("h1", null, "Policies"), operator.role === "operator" ? again : null), banner, place);
  let drawn = "";
  for (;;) {
    if (!document.hidden) await refresh();
    await pause(EVERY_MS, signal);
  }

  async function refresh() {
    const all = await get("/admin/v1/policies", null, signal);
    fill(banner, configuration(all.configuration));
    const now = JSON.stringify([all.policies, all.keys]);
    // Drawn anew only when something has changed: nobody loses what they have open.
    if (now === drawn) return;
    drawn = now;
    fill(place, [...grouped(all.policies)].map(([id, versions]) => policy(id, versions, wanted)), keys(all.keys));
  }
}

function configuration({ file, in_force_since: since, rejected, warnings }) {
  return [
    rejected
      ? h("section", { class: "banner bad", role: "alert" },
          h("strong", null, "The newest files are refused; the last good ones stay in force."),
          h("span", { class: "muted" }, ` ${fullTime(rejected.at)}`),
          h("pre", null, rejected.problems.join("\n")))
      : null,
    warnings.length ? h("section", { class: "banner warn" }, h("strong", null, "Odd, but no mistake"), h("pre", null, warnings.join("\n"))) : null,
    h("p", { class: "muted break" }, `${file}, in force since ${fullTime(since)}`),
  ];
}

function grouped(all) {
  const groups = new Map();
  for (const one of all) groups.set(one.id, [...(groups.get(one.id) ?? []), one]);
  return groups;
}

const TONE = { published: "good", draft: "warn", archived: "plain" };

function policy(id, versions, wanted) {
  return h("section", { class: "card policy" }, h("h2", null, id), versions.map((one, place) => {
    const label = `${one.id}@${one.version}`;
    return h("details", { open: label === wanted },
      h("summary", null,
        h("strong", null, `version ${one.version}`), badge(TONE[one.status] ?? "plain", one.status),
        h("span", { class: "muted" }, one.keys.length ? `keys: ${one.keys.join(", ")}` : "no key is bound to it")),
      facts([["File", one.file], ["SHA-256", h("span", { class: "mono" }, one.sha256)]]),
      texts(one, versions, place));
  }));
}

function texts(one, versions, place) {
  const shown = h("pre", { class: "code" }, one.text);
  if (versions.length < 2) return shown;
  const others = versions.filter((_, other) => other !== place);
  const pick = h("select", { "aria-label": "Compare with", onchange: () => {
    const other = others.find((other) => String(other.version) === pick.value);
    shown.classList.toggle("diff", Boolean(other));
    if (other) fill(shown, difference(other.text, one.text));
    else fill(shown, one.text);
  } }, h("option", { value: "" }, "as written"), others.map((other) => h("option", { value: String(other.version) }, `changes since version ${other.version}`)));
  return [h("p", null, pick), shown];
}

/** Lines that went, that came, and that stayed: by the longest common part. */
export function difference(before, after) {
  const [old, fresh] = [before.split("\n"), after.split("\n")];
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = fresh.length - 1; j >= 0; j--) {
      common[i][j] = old[i] === fresh[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      lines.push(h("span", null, `  ${old[i]}\n`));
      i++;
      j++;
    } else if (i < old.length && (j === fresh.length || common[i + 1][j] >= common[i][j + 1])) {
      lines.push(h("del", null, `- ${old[i++]}\n`));
    } else {
      lines.push(h("ins", null, `+ ${fresh[j++]}\n`));
    }
  }
  return lines;
}

function keys(all) {
  return [h("h2", null, "Keys"), h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", null, h("tr", null, ["Key", "Tenant", "Policy", "State"].map((name) => h("th", null, name)))),
    h("tbody", null, all.map((key) => h("tr", null,
      h("td", null, key.name), h("td", null, key.tenant),
      h("td", null, key.policy ? h("a", { href: `#/policies/${encodeURIComponent(key.policy)}` }, key.policy) : h("span", { class: "muted" }, key.unusable)),
      h("td", null, state(key)))))))];
}

function state({ disabled, expires, policy }) {
  if (disabled) return badge("bad", "disabled");
  if (!policy) return badge("bad", "answers 503");
  if (expires && Date.parse(expires) <= Date.now()) return badge("bad", "expired");
  return [badge("good", "in use"), expires ? h("span", { class: "muted" }, ` until ${fullTime(Date.parse(expires))}`) : null];
}
