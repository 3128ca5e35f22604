// Elements. Text is always text: strings become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("a", {href: "#/", class: "x", onclick: f}, "text", child, [more]) */
export function h(tag, members, ...children) {
  return build(document.createElement(tag), members, children);
}

export function svg(tag, members, ...children) {
  return build(document.createElementNS(SVG, tag), members, children);
}

function build(element, members, children) {
  for (const [name, value] of Object.entries(members ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replaces what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Some choices of which one is taken. */
export function segmented(label, choices, taken, pick) {
  const group = h("div", { class: "segmented", role: "group", "aria-label": label });
  for (const [value, text] of choices) {
    const button = h("button", { type: "button", "aria-pressed": String(value === taken), onclick: () => {
      for (const other of group.children) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", "true");
      pick(value);
    } }, text);
    group.append(button);
  }
  return group;
}

export function badge(tone, text, title) {
  return h("span", { class: `badge ${tone}`, title }, text);
}

/** What is shown where there is nothing yet. */
export function empty(title, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), more);
}

export function facts(pairs) {
  const list = h("dl", { class: "facts" });
  for (const [name, ...value] of pairs) {
    if (value.every((part) => part === null || part === undefined || part === "")) continue;
    list.append(h("div", null, h("dt", null, name), append(h("dd"), value)));
  }
  return list;
}

/** A command or another text that one wants to paste. */
export function copyable(text) {
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return h("div", { class: "copyable" }, h("pre", null, text), navigator.clipboard ? button : null);
}
