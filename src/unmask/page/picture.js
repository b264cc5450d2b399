// Attention over a picture: bright patches are attended to by the class token, or by the patch that is chosen.

import { bytes, choice, empty, field, h, select, short, unpack } from "./dom.js";

const SIDE = 384, SMALL = 96; // pixels of the large picture and of a head's
const DARKEST = 0.85; // opacity over a patch that gets no attention

/**
 * data  the output of `visualize.picture_attention.over_picture`
 * load  layer(layer, heads) promises [{"heads", "weights"}, …]
 * start  the first view: {mode, layer, heads}, counted from 0
 */
export function pictureAttentionView(root, data, load, start = {}) {
  const { grid, summaries } = data, first = summaries.length, T = first + grid * grid;
  const state = { mode: start.mode ?? "rollout", layer: start.layer ?? data.layers - 1, head: start.heads?.length === 1 ? start.heads[0] : "mean", query: 0 };
  const source = original(data.picture), mixed = unpack(data.rollout);
  const controls = h("div", { class: "controls" }), stage = h("div", { class: "stage" });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  let turn = 0;

  const name = (place) => (place < first ? `the ${summaries[place]} token` : `the patch in row ${1 + Math.floor((place - first) / grid)}, column ${1 + ((place - first) % grid)}`);
  const numbers = (count) => Object.fromEntries(Array.from({ length: count }, (_, i) => [i, String(i + 1)]));

  /** [T, T] of the mean of a layer's heads, and of each head. */
  async function layer() {
    const parts = await load.layer(state.layer, Array.from({ length: data.heads }, (_, head) => head));
    const heads = parts.map((part) => unpack(part.weights));
    const mean = new Float32Array(T * T);
    for (const values of heads) values.forEach((value, i) => (mean[i] += value / heads.length));
    return { mean, heads };
  }

  async function show() {
    const mine = ++turn;
    const found = state.mode === "rollout" ? { mean: mixed, heads: [] } : await layer();
    if (mine !== turn) return;
    empty(
      controls,
      choice("View", { rollout: "Rollout", heads: "Heads" }, state.mode, (mode) => ((state.mode = mode), (state.head = "mean"), show())),
      state.mode === "rollout" ? null : field("Layer", select(numbers(data.layers), state.layer, (value) => ((state.layer = Number(value)), show()))),
      field("Attention of", select(Object.fromEntries(queries()), state.query, (value) => ((state.query = Number(value)), show()))),
    );
    const values = state.head === "mean" ? found.mean : found.heads[state.head];
    const large = h("canvas", { width: SIDE, height: SIDE, tabindex: 0, role: "img", "aria-label": "Attention over the picture" });
    large.addEventListener("click", (event) => choose(patchAt(event, large)));
    large.addEventListener("pointermove", (event) => say(values, patchAt(event, large)));
    large.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: grid, ArrowUp: -grid }[event.key];
      const next = event.key === "Escape" ? 0 : step === undefined ? null : state.query < first ? first : state.query + step;
      if (next === null || next >= T || (next < first && event.key !== "Escape")) return;
      event.preventDefault();
      choose(next);
    });
    draw(large, values, SIDE);
    const small = found.heads.map((head, i) => {
      const canvas = h("canvas", { width: SMALL, height: SMALL });
      draw(canvas, head, SMALL);
      return h("button", { type: "button", class: "patches", "aria-pressed": state.head === i, onclick: () => ((state.head = state.head === i ? "mean" : i), show()) }, canvas, h("small", {}, `head ${i + 1}`));
    });
    const plain = h("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": "The picture" }), context = plain.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(source, 0, 0, SIDE, SIDE);
    empty(stage, h("div", { class: "over" }, large, plain), readout, small.length ? [h("h3", {}, `Heads of layer ${state.layer + 1}; click one to enlarge it`), h("div", { class: "row" }, small)] : null);
    say(values, null);
  }

  const queries = () => [...summaries.map((_, i) => [i, name(i)]), ...Array.from({ length: grid * grid }, (_, i) => [first + i, name(first + i)])];
  const choose = (place) => ((state.query = place), show().then(() => stage.querySelector("canvas")?.focus()));
  const row = (values) => values.subarray(state.query * T, (state.query + 1) * T);

  function patchAt(event, canvas) {
    const box = canvas.getBoundingClientRect();
    const at = (offset, size) => Math.min(grid - 1, Math.max(0, Math.floor((offset / size) * grid)));
    return first + at(event.clientY - box.top, box.height) * grid + at(event.clientX - box.left, box.width);
  }

  /** The share of a place, or of the patch with the largest one. */
  function say(values, place) {
    const shares = row(values);
    let at = place;
    if (at === null) for (at = first, place = first; place < T; place++) if (shares[place] > shares[at]) at = place;
    const what = { rollout: "rollout", heads: state.head === "mean" ? `layer ${state.layer + 1}, mean of the heads` : `layer ${state.layer + 1}, head ${state.head + 1}` }[state.mode];
    const text = `${name(state.query)} → ${name(at)} · ${what} ${short(shares[at])}`;
    readout.textContent = text[0].toUpperCase() + text.slice(1);
  }

  function draw(canvas, values, side) {
    const context = canvas.getContext("2d"), shares = row(values).subarray(first), most = Math.max(...shares, 1e-12), size = side / grid;
    context.imageSmoothingEnabled = false;
    context.drawImage(source, 0, 0, side, side);
    shares.forEach((share, i) => {
      context.fillStyle = `rgb(0 0 0 / ${DARKEST * (1 - share / most)})`;
      context.fillRect((i % grid) * size, Math.floor(i / grid) * size, size, size);
    });
    if (state.query < first || side === SMALL) return;
    const i = state.query - first;
    context.strokeStyle = "#ff8a3d";
    context.lineWidth = 3;
    context.strokeRect((i % grid) * size + 1.5, Math.floor(i / grid) * size + 1.5, size - 3, size - 3);
  }

  empty(
    root,
    h("p", {}, "The brighter a patch is, the more of it is attended to, relative to the brightest. Click a patch, or use the arrow keys, to see what it attends to; Escape returns to the class token."),
    controls,
    stage,
    h("p", { class: "note" }, data.caution),
  );
  show();
}

/** A canvas with the picture as the model reads it. */
function original({ side, data }) {
  const canvas = h("canvas", { width: side, height: side }), raw = bytes({ data }), pixels = new ImageData(side, side);
  for (let i = 0; i < side * side; i++) pixels.data.set([raw[3 * i], raw[3 * i + 1], raw[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
