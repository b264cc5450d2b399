// Word vectors: a projection, neighbours, analogies, one word in several sentences.

import { bar, colour, empty, h, onScheme, percent, rgb, sheet, short, tipAt, tipAway } from "./dom.js";
import { matrix } from "./matrix.js";

/** data: the output of `visualize.words.cloud`; a click on a word calls `pick(word)`. */
export function wordsView(root, data, pick = null) {
  const shares = data.shares.length ? ` The plane shows ${percent(data.shares[0] + data.shares[1])} of the variance.` : "";
  const groups = grouped(data.points), several = Object.keys(groups).length > 1;
  const legend = several ? h("div", { class: "legend", role: "group", "aria-label": "Clusters" }, Object.entries(groups).map(([index, some]) => h("span", {}, h("i", { class: "spot", style: { background: colour(index) } }), `${some.length}: ${some.slice(0, 3).map((p) => p.word).join(", ")} …`))) : null;
  empty(root, cloud(data.points.map((p) => ({ ...p, label: p.word })), pick), legend, h("p", { class: "note" }, `${data.methods[data.method]}.${shares} ${data.points.length} of ${short(data.total)} words. Use the wheel or + and − to zoom, and drag or use the arrow keys to move.${several ? " The colours are clusters by k-means on the whole vectors, scaled to length 1." : ""}`));
}

/** number of a cluster -> its points. */
function grouped(points) {
  const found = {};
  for (const p of points) (found[p.cluster ?? 0] ??= []).push(p);
  return found;
}

/** Bars for words and cosines. */
export function neighbours(found, pick = null) {
  return h("ol", { class: "bars" }, found.map((one) => bar(pick ? h("button", { type: "button", class: "word", onclick: () => pick(one.word) }, one.word) : one.word, Math.max(0, one.cosine), { text: short(one.cosine) })));
}

/** data: the output of `visualize.context`; choosing another layer calls `pick(layer)`. */
export function contextView(root, data, pick = null) {
  const list = h("ol", {}, data.occurrences.map((one) => {
    const letters = [...one.sentence];
    return h("li", {}, letters.slice(0, one.begin).join(""), h("mark", {}, letters.slice(one.begin, one.end).join("")), letters.slice(one.end).join(""));
  }));
  const most = Math.max(...data.spreads, 1e-6);
  const layers = data.spreads.map((spread, layer) => {
    const name = layer ? `layer ${layer}` : "before the first";
    const label = pick ? h("button", { type: "button", class: "word", "aria-pressed": layer === data.layer, onclick: () => pick(layer) }, name) : name;
    return bar(label, spread / most, { strong: layer === data.layer, text: short(spread) });
  });
  const names = data.occurrences.map((_, i) => String(i + 1));
  const points = data.occurrences.map((one, i) => ({ x: one.x, y: one.y, label: String(i + 1), asked: true, say: one.sentence }));
  empty(
    root,
    list,
    data.without.length ? h("p", { class: "note" }, `Without the word: ${data.without.join(" · ")}`) : null,
    h("h3", {}, "Spread of the word's vectors over the sentences"),
    h("ol", { class: "bars" }, layers),
    h("p", { class: "note" }, "The spread is 1 minus the mean cosine of the vectors of the word. 0 means that the context does not change the vector; the longest bar is the largest spread."),
    h("h3", {}, `“${data.word}” ${data.layer ? `after layer ${data.layer} of ${data.layers}` : "before the first layer"}`),
    h("div", { class: "cards" }, cloud(points), h("div", {}, h("h3", {}, "Cosines"), matrix({ rows: names, columns: names, sheets: [{ name: "cosine", colour: "--s0", values: Float32Array.from(data.cosines.flat()) }], signed: true, label: "Cosines" }))),
  );
}

/** Points with labels on a canvas; labels that would overlap are left out. */
function cloud(points, pick = null) {
  const canvas = h("canvas", { class: "cloud", tabindex: 0, role: "img", "aria-label": `${points.length} words in the plane: ${points.slice(0, 40).map((p) => p.label).join(", ")}` });
  const view = { x: 0, y: 0, zoom: 1 };
  const low = { x: Math.min(...points.map((p) => p.x)), y: Math.min(...points.map((p) => p.y)) };
  const high = { x: Math.max(...points.map((p) => p.x)), y: Math.max(...points.map((p) => p.y)) };
  let size = { width: 0, height: 0 }, drag = null, hovered = null;

  const at = (p) => [
    size.width / 2 + (((p.x - low.x) / (high.x - low.x || 1) - 0.5) * 0.86 + view.x) * view.zoom * size.width,
    size.height / 2 - (((p.y - low.y) / (high.y - low.y || 1) - 0.5) * 0.86 + view.y) * view.zoom * size.height,
  ];

  function draw() {
    size = { width: canvas.clientWidth, height: canvas.clientHeight };
    if (!size.width) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = size.width * ratio;
    canvas.height = size.height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "13px system-ui, sans-serif";
    const [ink, asked, ...dots] = ["--ink", "--s1", ...Array.from({ length: 8 }, (_, i) => `--s${i}`)].map((name) => `rgb(${rgb(name).join(",")})`);
    const taken = [];
    for (const p of [...points].sort((a, b) => Number(b.asked) - Number(a.asked) || Number(b === hovered) - Number(a === hovered))) {
      const [x, y] = at(p);
      if (x < -50 || y < -20 || x > size.width + 50 || y > size.height + 20) continue;
      context.fillStyle = p.cluster === undefined ? (p.asked ? asked : dots[0]) : dots[p.cluster % 8];
      context.beginPath();
      context.arc(x, y, p.asked ? 5 : 3, 0, 7);
      context.fill();
      const width = context.measureText(p.label).width;
      const left = x + 9 + width > size.width ? x - 7 - width : x + 7; // to the left of its point where the plane ends
      const area = [left - 1, y - 8, left + 1 + width, y + 8];
      const free = p === hovered || !taken.some((t) => area[0] < t[2] && area[2] > t[0] && area[1] < t[3] && area[3] > t[1]);
      if (!free) continue;
      taken.push(area);
      context.fillStyle = ink;
      context.fillText(p.label, left, y + 4);
      if (p.asked && p.cluster !== undefined) context.fillRect(left, y + 7, width, 1.5); // a word that was asked for
    }
  }

  const near = (event) => {
    const box = canvas.getBoundingClientRect();
    let best = null, least = 14;
    for (const p of points) {
      const [x, y] = at(p);
      const distance = Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top);
      if (distance < least) ((best = p), (least = distance));
    }
    return best;
  };
  const zoom = (factor) => ((view.zoom = Math.max(1, Math.min(40, view.zoom * factor))), draw());
  canvas.addEventListener("wheel", (event) => (event.preventDefault(), zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2)), { passive: false });
  canvas.addEventListener("pointerdown", (event) => ((drag = [event.clientX, event.clientY, 0]), canvas.setPointerCapture(event.pointerId)));
  canvas.addEventListener("pointerup", (event) => {
    const p = near(event);
    if (drag && drag[2] < 4 && p && pick) pick(p.label);
    drag = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const [dx, dy] = [event.clientX - drag[0], event.clientY - drag[1]];
      view.x += dx / size.width / view.zoom;
      view.y -= dy / size.height / view.zoom;
      drag = [event.clientX, event.clientY, drag[2] + Math.abs(dx) + Math.abs(dy)];
      return draw();
    }
    const p = near(event);
    if (p !== hovered) ((hovered = p), draw());
    if (p) tipAt(event.clientX, event.clientY, p.say ?? `${p.label}\n${short(p.x)}, ${short(p.y)}`);
    else tipAway();
  });
  canvas.addEventListener("pointerleave", tipAway);
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") (Object.assign(view, { x: 0, y: 0, zoom: 1 }), draw());
    else if (event.key in moves) {
      view.x += moves[event.key][0] / view.zoom;
      view.y += moves[event.key][1] / view.zoom;
      draw();
    } else return;
    event.preventDefault();
  });
  new ResizeObserver(draw).observe(canvas);
  onScheme(canvas, draw);
  return sheet(canvas, () => [["name", "x", "y", "cluster"], ...points.map((p) => [p.label, p.x, p.y, (p.cluster ?? 0) + 1])]);
}
