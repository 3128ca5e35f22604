// JSON as people read it: indented, its parts told apart. Whatever it holds stays text.

import { h } from "./dom.js";

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;
// They turn the order of what is read around, or cannot be seen.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** A text as it was written, with what cannot be seen made visible. */
export function visible(text) {
  return text.replace(HIDDEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The pretty form of a JSON text; the text itself where it is none. */
export function pretty(text) {
  let told = text;
  try {
    // Numbers that JavaScript would round are shown as they were written.
    const exact = JSON.stringify(JSON.parse(text)) === text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
    told = exact ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    // Free text of a custom tool.
  }
  return h("pre", { class: "code json" }, parts(visible(told)));
}

function parts(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    found.push(text.slice(at, match.index));
    const [whole, string, colon, number, word] = match;
    const kind = string ? (colon ? "name" : "text") : number ? "number" : word ? "word" : "";
    found.push(h("span", { class: `json-${kind}` }, string ?? whole), colon ?? "");
    at = match.index + whole.length;
  }
  found.push(text.slice(at));
  return found;
}
