// Attention: all layers and heads as thumbnails, lines between tokens, and matrices with the numbers behind them.

import { bytes, choice, colour, empty, field, h, onScheme, palette, rgb, roving, select, short, tipped, unpack } from "./dom.js";
import { matrix } from "./matrix.js";

const ALL_LINES = 64; // tokens up to which the lines of all are drawn; beyond, those of the chosen one
const FAINT = 64; // tokens from which on small weights are strengthened, as each of many is small
const KEPT = 64e6; // numbers that are kept; beyond, the heads that were not looked at for longest are asked for again

/**
 * data   the output of `visualize.attention.overview`; with "unit", the name of what attends in place of tokens, which
 *        are too many for lines
 * load   moved(state), if any, is told of each change; the others load weights: layer(layer, heads) promises [{"heads", "weights"}, …] for these heads; rollout() promises
 *        {"rollout"}
 * start  the first view: {mode, layer, heads, token}, counted from 0; what is not given is chosen here
 */
export function attentionView(root, data, load, start = {}) {
  const { rows, columns } = data;
  const T = rows.length, S = columns.length;
  const modes = { model: "All heads", ...(data.unit ? {} : { heads: "Lines" }), matrix: "Matrix", ...(data.rolls ? { rollout: "Rollout" } : {}) };
  const state = {
    mode: modes[start.mode] ? start.mode : start.layer !== undefined && !data.unit ? "heads" : "model",
    layer: Math.min(start.layer ?? 0, data.layers - 1),
    heads: new Set((start.heads ?? [0]).filter((head) => head < data.heads)),
    token: Math.max(0, rows.indexOf(start.token ?? rows.find((_, i) => data.words[i] >= 0) ?? rows[0])),
    faint: T > FAINT,
  };
  if (!state.heads.size) state.heads.add(0);
  const kept = new Map(); // "layer head" -> Float32Array
  const stage = h("div", { class: "stage", "aria-live": "off" });
  const controls = h("div", { class: "controls" });
  const shared = h("p", { class: "note" });
  let turn = 0, rollout = null;

  /** The weights of the chosen heads of a layer; requests only those that are not loaded yet. */
  async function weights(layer, heads) {
    const missing = heads.filter((head) => !kept.has(`${layer} ${head}`));
    if (missing.length) {
      for (const part of await load.layer(layer, missing)) {
        const values = unpack(part.weights);
        part.heads.forEach((head, i) => kept.set(`${layer} ${head}`, values.slice(i * T * S, (i + 1) * T * S)));
      }
    }
    const found = new Map(heads.map((head) => [head, kept.get(`${layer} ${head}`)]));
    for (const [head, values] of found) {
      kept.delete(`${layer} ${head}`); // and at the end again: what is looked at now goes last
      kept.set(`${layer} ${head}`, values);
    }
    for (const other of [...kept.keys()].slice(0, -Math.max(data.heads, KEPT / (T * S)))) kept.delete(other);
    return found;
  }

  const moved = () => load.moved?.({ ...state, heads: [...state.heads].sort((a, b) => a - b), token: rows[state.token] });

  async function show() {
    const mine = ++turn;
    const single = state.mode === "model" || state.mode === "rollout";
    empty(
      controls,
      choice("View", modes, state.mode, (mode) => ((state.mode = mode), show())),
      single ? null : field("Layer", select(numbers(data.layers), state.layer, (value) => ((state.layer = Number(value)), show()))),
      single ? null : headChips(),
      state.mode === "model" ? null : faintBox(),
    );
    moved();
    shared.textContent = NOTES[state.mode].replaceAll("token", data.unit ?? "token");
    if (state.mode === "model") return void empty(stage, thumbnails());
    const heads = [...state.heads].sort((a, b) => a - b);
    const wait = setTimeout(() => mine === turn && empty(stage, h("p", { class: "busy", role: "status" }, "Computing …")), 120);
    let sheets;
    try {
      if (state.mode === "rollout") {
        rollout ??= unpack((await load.rollout()).rollout);
        sheets = [{ name: "rollout", colour: "--s0", values: rollout }];
      } else {
        const found = await weights(state.layer, heads);
        sheets = heads.map((head) => ({ name: `head ${head + 1}`, colour: `--s${head % 8}`, values: found.get(head) }));
      }
    } catch (error) {
      if (mine === turn) empty(stage, h("p", { class: "error", role: "alert" }, error.message));
      return;
    } finally {
      clearTimeout(wait);
    }
    if (mine !== turn) return;
    empty(stage, state.mode === "heads" ? lines(sheets) : grid(sheets));
  }

  function headChips() {
    const chips = Array.from({ length: data.heads }, (_, head) => {
      const chip = h(
        "button",
        { type: "button", class: "chip", "aria-pressed": state.heads.has(head), "aria-label": `Head ${head + 1}`, style: { "--chip": colour(head) } },
        String(head + 1),
      );
      chip.addEventListener("click", () => {
        if (state.heads.has(head) && state.heads.size > 1) state.heads.delete(head);
        else state.heads.add(head);
        show().then(() => controls.querySelectorAll(".chip")[head]?.focus());
      });
      return chip;
    });
    if (data.heads === 1) return null;
    const all = h("button", { type: "button", class: "chip plain" }, state.heads.size === data.heads ? "one" : "all");
    all.addEventListener("click", () => {
      state.heads = new Set(state.heads.size === data.heads ? [0] : chips.keys());
      show();
    });
    return h("div", { class: "chips", role: "group", "aria-label": "Heads" }, h("span", {}, "Heads"), chips, all);
  }

  function faintBox() {
    const box = h("input", { type: "checkbox", checked: state.faint, onchange: () => ((state.faint = box.checked), show()) });
    return h("label", { class: "check" }, box, "enhance small weights");
  }

  // -- all heads

  function thumbnails() {
    const values = bytes(data.thumbnails);
    const [, , t, s] = data.thumbnails.shape;
    const colours = palette(rgb("--card"), rgb("--s0"), state.faint ? Math.sqrt : null);
    const picture = new ImageData(s, t), pixels = new Uint32Array(picture.data.buffer);
    const cells = [];
    for (let layer = 0; layer < data.layers; layer++) {
      for (let head = 0; head < data.heads; head++) {
        const canvas = h("canvas", { width: s, height: t, "aria-hidden": "true" });
        const first = (layer * data.heads + head) * t * s;
        for (let i = 0; i < t * s; i++) pixels[i] = colours[values[first + i]];
        canvas.getContext("2d").putImageData(picture, 0, 0);
        const name = `Layer ${layer + 1}, head ${head + 1}`;
        const cell = h("button", { type: "button", class: "thumb", "aria-label": name, tabindex: cells.length ? -1 : 0 }, canvas);
        cell.addEventListener("click", () => {
          Object.assign(state, { mode: T > ALL_LINES || data.unit ? "matrix" : "heads", layer, heads: new Set([head]) });
          show();
        });
        tipped(cell, `${name}: click to open`);
        cells.push(cell);
      }
    }
    const group = h("div", { class: "thumbs", role: "group", "aria-label": "Layers from top to bottom, heads from left to right", style: { "--heads": data.heads } });
    for (let head = 0; head <= data.heads; head++) group.append(h("span", { class: "side", "aria-hidden": "true" }, head ? String(head) : ""));
    for (let layer = 0; layer < data.layers; layer++) {
      group.append(h("span", { class: "side", "aria-hidden": "true" }, String(layer + 1)), ...cells.slice(layer * data.heads, (layer + 1) * data.heads));
    }
    roving(group, cells, () => {}, data.heads);
    onScheme(group, show);
    return h("div", { class: "scroll" }, group);
  }

  // -- matrix

  function grid(sheets) {
    return matrix({ rows, columns, sheets, faint: state.faint, label: "Attention weights", pick: data.unit ? null : (i) => ((state.token = i), (state.mode = state.mode === "rollout" ? "rollout" : "heads"), show()) });
  }

  // -- lines

  function lines(sheets) {
    const left = rows.map((name, i) => token(name, i));
    const right = columns.map((name) => h("span", { class: "token" }, name));
    const canvas = h("canvas", { "aria-hidden": "true" });
    const list = h("div", { class: "tokens from", role: "listbox", "aria-label": "Attending tokens" }, left);
    const box = h("div", { class: "lines" }, list, canvas, h("div", { class: "tokens to" }, right));
    const readout = h("p", { class: "readout", "aria-live": "polite" });

    function token(name, i) {
      const one = h("button", { type: "button", class: "token", role: "option", tabindex: i === state.token ? 0 : -1 }, name);
      one.addEventListener("click", () => (choose(i), moved()));
      one.addEventListener("focus", () => choose(i));
      one.addEventListener("pointerenter", () => choose(i));
      return one;
    }

    function choose(i) {
      state.token = i;
      left.forEach((one, k) => {
        one.setAttribute("aria-selected", k === i);
        one.tabIndex = k === i ? 0 : -1;
      });
      const sum = new Float32Array(S);
      for (const { values } of sheets) for (let j = 0; j < S; j++) sum[j] += values[i * S + j] / sheets.length;
      right.forEach((one, j) => one.style.setProperty("--share", `${Math.round(45 * (state.faint ? Math.sqrt(sum[j]) : sum[j]))}%`));
      const top = [...sum.keys()].sort((a, b) => sum[b] - sum[a]).slice(0, 5);
      readout.textContent = `“${rows[i]}” attends to ${top.map((j) => `${columns[j]} ${short(sum[j])}`).join(", ")}${sheets.length > 1 ? " (mean of the heads)" : ""}`;
      draw();
    }

    right.forEach((one, j) =>
      tipped(one, () => `${rows[state.token]} → ${columns[j]}\n${sheets.map((s) => `${s.name} ${short(s.values[state.token * S + j])}`).join("\n")}`),
    );
    roving(list, left);

    function draw() {
      const width = canvas.clientWidth, height = box.clientHeight;
      if (!width || !height) return;
      const ratio = height > 8000 ? 1 : devicePixelRatio || 1;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      const edge = canvas.getBoundingClientRect().top;
      const middle = (one) => one.getBoundingClientRect().top + one.offsetHeight / 2 - edge;
      const from = left.map(middle), to = right.map(middle);
      const paint = (i, strength) => {
        sheets.forEach((sheet, k) => {
          const [r, g, b] = rgb(sheet.colour);
          const shift = (k - (sheets.length - 1) / 2) * Math.min(3, 14 / sheets.length);
          for (let j = 0; j < S; j++) {
            const raw = sheet.values[i * S + j];
            const weight = state.faint ? Math.sqrt(raw) : raw;
            if (weight * strength < 0.015) continue;
            context.strokeStyle = `rgba(${r},${g},${b},${weight * strength})`;
            context.lineWidth = 1 + 2.5 * weight * strength;
            context.beginPath();
            context.moveTo(0, from[i] + shift);
            context.bezierCurveTo(width * 0.4, from[i] + shift, width * 0.6, to[j] + shift, width, to[j] + shift);
            context.stroke();
          }
        });
      };
      if (T <= ALL_LINES) rows.forEach((_, i) => i === state.token || paint(i, 0.18));
      paint(state.token, 1);
    }

    let seen = "";
    new ResizeObserver(() => {
      const now = `${box.clientWidth} ${box.clientHeight}`;
      if (now !== seen) ((seen = now), choose(state.token));
    }).observe(box);
    onScheme(box, draw);
    return [box, readout];
  }

  empty(
    root,
    controls,
    shared,
    stage,
    h("p", { class: "note" }, `${capital(data.kinds[data.kind].replaceAll("token", data.unit ?? "token"))}. `, h("em", {}, data.caution)),
  );
  return show();
}

const numbers = (count) => Object.fromEntries(Array.from({ length: count }, (_, i) => [i, `${i + 1} of ${count}`]));

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const NOTES = {
  model: "One row of pictures for each layer, one column for each head. In a picture, the token of a row attends to the tokens of the columns; a stronger colour is a larger weight. Click a picture or press Enter to open it.",
  heads: "Left: the attending token; right: the tokens that it attends to. Point at a token on the left, or use the arrow keys.",
  matrix: "The token of a row attends to the tokens of the columns; each row sums to 1. The colours of several heads are mixed.",
  rollout:
    "Attention rollout (Abnar & Zuidema 2020): the product over layers of the attention weights, each averaged with the identity for the residual connection. It estimates how much of the token of each column reaches each row at the last layer.",
};
