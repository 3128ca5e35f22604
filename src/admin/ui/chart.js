// Stacked columns over time, as SVG. Every figure is in the table below the picture too, for who
// cannot see it.

import { h, svg } from "./dom.js";
import { dayName, hourName } from "./words.js";

const HEIGHT = 220;
const LEFT = 56;
const BOTTOM = 24;
const TOP = 8;
const HOUR = 3_600_000;

/** `series`: [{label, points: [{at, value}]}]; `tell` writes a value. */
export function columns({ series, from, to, bucket, tell }) {
  // Drawn as wide as it is shown, about, so that its letters keep their size.
  const width = matchMedia("(max-width: 760px)").matches ? 400 : 960;
  const step = bucket === "day" ? 24 * HOUR : HOUR;
  const starts = [];
  for (let at = from; at < to; at += step) starts.push(at);
  const sums = new Map(starts.map((at) => [at, 0]));
  for (const { points } of series) {
    for (const { at, value } of points) sums.set(at, (sums.get(at) ?? 0) + value);
  }
  const top = ceiling(Math.max(...sums.values(), 0));
  const name = bucket === "day" ? dayName : hourName;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const slot = (width - LEFT) / Math.max(starts.length, 1);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": "Columns over time; the table below has the figures" });
  for (const part of [0, 0.5, 1]) {
    const at = y(top * part);
    picture.append(
      svg("line", { class: "grid", x1: String(LEFT), x2: String(width), y1: String(at), y2: String(at) }),
      svg("text", { class: "axis", x: String(LEFT - 8), y: String(at + 4), "text-anchor": "end" }, tell(top * part)),
    );
  }
  const every = Math.ceil(starts.length / (width / 120));
  starts.forEach((at, index) => {
    const x = LEFT + index * slot;
    if (index % every === 0) {
      picture.append(svg("text", { class: "axis", x: String(x + slot / 2), y: String(HEIGHT - 6), "text-anchor": index === 0 ? "start" : "middle" }, name(at)));
    }
    picture.append(column(at, x, slot));
  });
  return picture;

  function column(at, x, slot) {
    const group = svg("g", { class: "column" });
    let base = 0;
    const told = [];
    series.forEach(({ label, points }, place) => {
      const value = points.find((point) => point.at === at)?.value ?? 0;
      if (value <= 0) return;
      const [low, high] = [y(base), y(base + value)];
      const gap = Math.min(slot * 0.2, 6);
      group.append(svg("rect", { class: `s${place}`, x: String(x + gap / 2), width: String(Math.max(slot - gap, 1)), y: String(high), height: String(Math.max(low - high, 0.75)), rx: "1.5" }));
      told.push(`${label}: ${tell(value)}`);
      base += value;
    });
    group.append(svg("rect", { class: "catch", x: String(x), width: String(slot), y: String(TOP), height: String(HEIGHT - TOP - BOTTOM) }));
    const title = told.length > 1 ? [...told, `together: ${tell(base)}`] : told;
    group.append(svg("title", null, [name(at), ...title].join("\n")));
    return group;
  }
}

/** A round number that nothing passes. */
function ceiling(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((times) => times * size).find((round) => round >= value) ?? value;
}

/** What each colour is, with its sum and share. */
export function legend(series, tell) {
  const sum = (one) => one.points.reduce((all, point) => all + point.value, 0);
  const total = series.reduce((all, one) => all + sum(one), 0);
  const rows = series.map((one, place) => {
    const share = total > 0 ? Math.round((100 * sum(one)) / total) : 0;
    return h("tr", null,
      h("td", null, h("span", { class: `swatch s${place}` }), one.label),
      h("td", { class: "number" }, tell(sum(one))),
      h("td", { class: "number muted" }, `${share}%`));
  });
  return h("table", { class: "legend" }, h("tbody", null, rows));
}
