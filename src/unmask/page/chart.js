// Line charts with axes, a legend and the values at the pointer.

import { colour, h, sheet, short, svg, tipAt, tipAway } from "./dom.js";

const W = 420, H = 240, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 34;

/**
 * series  [{name, points: [[x, y], …], index: of its colour, dash, faint}]
 * bands   areas behind them: [{name, points: [[x, low, high], …], index}]
 * log     whether both axes are logarithmic, or {x, y}; points that are not above 0 are left out on such an axis
 */
export function chart({ title, series, bands = [], x = "step", y = "", log = false }) {
  const logs = typeof log === "boolean" ? { x: log, y: log } : log;
  series = series.map((one) => ({ ...one, points: one.points.filter((p) => (!logs.x || p[0] > 0) && (!logs.y || p[1] > 0)) }));
  const edges = bands.flatMap((one) => one.points.flatMap(([at, low, high]) => [[at, low], [at, high]]));
  const points = [...series.flatMap((one) => one.points), ...edges];
  const caption = h("figcaption", {}, title, y ? h("small", {}, ` ${y}`) : null);
  if (!points.length) return h("figure", {}, caption, h("p", { class: "note" }, "No numbers yet."));
  const scaleX = scale(points.map((p) => p[0]), LEFT, W - RIGHT, logs.x);
  const scaleY = scale(points.map((p) => p[1]), H - BOTTOM, TOP, logs.y);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${series.map((s) => s.name).join(", ")}`, tabindex: 0 });
  for (const tick of scaleY.ticks) {
    const at = scaleY(tick);
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: at, y2: at }), svg("text", { class: "soft", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, mark(tick)));
  }
  for (const tick of scaleX.ticks) picture.append(svg("text", { class: "soft", x: scaleX(tick), y: H - 14, "text-anchor": scaleX(tick) > W - 24 ? "end" : "middle" }, mark(tick)));
  picture.append(
    svg("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: H - BOTTOM, y2: H - BOTTOM }),
    svg("text", { class: "soft", x: W - RIGHT, y: H - 3, "text-anchor": "end" }, x),
  );
  for (const one of bands) {
    const around = [...one.points.map(([at, low]) => [at, low]), ...one.points.map(([at, , high]) => [at, high]).reverse()];
    picture.append(svg("polygon", { points: around.map((p) => `${scaleX(p[0]).toFixed(1)},${scaleY(p[1]).toFixed(1)}`).join(" "), style: { fill: colour(one.index), opacity: 0.2 } }));
  }
  for (const one of series) {
    const path = one.points.map((p, i) => `${i ? "L" : "M"}${scaleX(p[0]).toFixed(1)} ${scaleY(p[1]).toFixed(1)}`).join("");
    picture.append(svg("path", { class: "line", d: path, style: { stroke: colour(one.index), opacity: one.faint ? 0.3 : 1 }, "stroke-dasharray": one.dash ? "6 4" : null }));
    const dots = one.points.length === 1 || log === true ? one.points : [];
    for (const p of dots) picture.append(svg("circle", { cx: scaleX(p[0]), cy: scaleY(p[1]), r: 3.5, style: { fill: colour(one.index) } }));
  }
  const rule = svg("line", { class: "axis", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  picture.append(rule);
  const steps = [...new Set(points.map((p) => p[0]))].sort((a, b) => a - b);
  let at = steps.length - 1;

  function say(step, left, top) {
    rule.setAttribute("x1", scaleX(step));
    rule.setAttribute("x2", scaleX(step));
    rule.setAttribute("visibility", "visible");
    const rows = series.filter((one) => !one.faint).map((one) => [one.name, nearest(one.points, step)]).filter(([, p]) => p && (!bands.length || p[0] === step));
    const ranges = bands.flatMap((one) => one.points.filter((p) => p[0] === step).map((p) => `${one.name}: ${short(p[1])} to ${short(p[2])}`));
    tipAt(left, top, [`${x} ${short(step)}`, ...rows.map(([name, p]) => `${name} ${short(p[1])}${p[0] === step ? "" : ` (at ${short(p[0])})`}`), ...ranges].join("\n"));
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const near = ((event.clientX - box.left) / box.width) * W;
    at = steps.reduce((best, step, i) => (Math.abs(scaleX(step) - near) < Math.abs(scaleX(steps[best]) - near) ? i : best), 0);
    say(steps[at], event.clientX, event.clientY);
  });
  const away = () => (rule.setAttribute("visibility", "hidden"), tipAway());
  picture.addEventListener("pointerleave", away);
  picture.addEventListener("blur", away);
  picture.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    at = Math.max(0, Math.min(steps.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)));
    const box = picture.getBoundingClientRect();
    say(steps[at], box.left + (scaleX(steps[at]) / W) * box.width, box.top + box.height / 2);
  });
  const legend = h("div", { class: "legend" }, [...series, ...bands].filter((one) => !one.faint).map((one) => h("span", {}, h("i", { class: one.dash ? "dash" : null, style: { "border-color": colour(one.index) } }), one.name)));
  return sheet(h("figure", {}, caption, legend, picture), () => [["series", x, title], ...series.flatMap((one) => one.points.map((p) => [one.name, ...p]))]);
}

const mark = (tick) => (Math.abs(tick) >= 10000 ? tick.toLocaleString("en", { notation: "compact" }) : String(Number(tick.toPrecision(3))));

const nearest = (points, step) => points.reduce((best, p) => (!best || Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best), null);

/** A scale from values to pixels, with ticks at round values. */
function scale(values, from, to, log) {
  let low = Infinity, high = -Infinity;
  for (const value of values) ((low = Math.min(low, value)), (high = Math.max(high, value)));
  if (log) {
    const [a, b] = [Math.log(low), Math.log(high === low ? low * 2 : high)];
    const map = (value) => from + ((Math.log(value) - a) / (b - a)) * (to - from);
    map.ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const digit of [1, 2, 5]) {
        const tick = digit * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) map.ticks.push(tick);
      }
    }
    while (map.ticks.length > 7) map.ticks = map.ticks.filter((_, i) => i % 2 === 0);
    return map;
  }
  if (low === high) ((low -= 0.5), (high += 0.5));
  const raw = (high - low) / 4, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= raw);
  const map = (value) => from + ((value - low) / (high - low)) * (to - from);
  map.ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) map.ticks.push(Number(tick.toPrecision(10)));
  return map;
}
