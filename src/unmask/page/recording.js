// Views of a recording: what a model made of it along the time axis, and which frames attend to which.

import { attentionView } from "./attention.js";
import { chart } from "./chart.js";
import { empty, field, h, percent, select, short, unpack } from "./dom.js";
import { clamp, map } from "./lanes.js";
import { matrix } from "./matrix.js";
import { timeline } from "./timeline.js";

/** data: the output of `visualize.recordings.recording`. */
export function recordingView(root, data) {
  empty(
    root,
    data.lead ? h("p", {}, data.lead) : null,
    timeline(data).box,
    data.charts.length ? h("div", { class: "cards" }, data.charts.map(chart)) : null,
    data.note ? h("p", { class: "note" }, data.note) : null,
  );
}

/**
 * The frames that a frame attends to, in each head, along the recording; below it, all layers and heads.
 *
 * data   the output of `visualize.recording_attention.over_recording`
 * load, start  as for `attentionView`
 */
export function recordingAttentionView(root, data, load, start = {}) {
  const F = data.rows.length, { begin, end } = data.frames;
  const state = { layer: String(start.layer ?? data.layers - 1), frame: 0 };
  const row = map({ title: "Attention", values: new Float32Array(F), shape: [1, F], begin, end });
  const along = timeline(data.recording, { live: [row], moved: (seconds) => follow(seconds) });
  const layers = { ...Object.fromEntries(Array.from({ length: data.layers }, (_, i) => [i, `${i + 1} of ${data.layers}`])), ...(data.rolls ? { rollout: "all: rollout" } : {}) };
  const matrices = h("div", {}), wrong = h("p", { class: "error", role: "alert" });
  let weights = [], turn = 0; // [F, F] of each head

  async function read() {
    const mine = ++turn;
    try {
      const found = state.layer === "rollout" ? [unpack((await load.rollout()).rollout)] : await heads(Number(state.layer));
      if (mine === turn) ((weights = found), empty(wrong), show());
    } catch (error) {
      if (mine === turn) empty(wrong, error.message);
    }
  }

  async function heads(layer) {
    const parts = await load.layer(layer, Array.from({ length: data.heads }, (_, head) => head));
    return parts.flatMap((part) => {
      const values = unpack(part.weights);
      return part.heads.map((_, i) => values.subarray(i * F * F, (i + 1) * F * F));
    });
  }

  function show() {
    const values = new Float32Array(weights.length * F);
    weights.forEach((head, k) => values.set(head.subarray(state.frame * F, (state.frame + 1) * F), k * F));
    const most = Math.max(1e-12, ...values);
    const what = state.layer === "rollout" ? "rollout over all layers" : `layer ${Number(state.layer) + 1}, a row for each of ${weights.length} heads`;
    Object.assign(row, { title: `Attention of the frame at ${data.rows[state.frame]}: ${what}; full colour ${short(most)}`, values: values.map((value) => value / most), shape: [weights.length, F], scale: most, names: weights.map((_, k) => (state.layer === "rollout" ? "rollout" : `head ${k + 1}`)) });
    along.paint();
  }

  function follow(seconds) {
    const frame = clamp(Math.floor(((seconds - begin) / (end - begin)) * F), 0, F - 1);
    if (frame === state.frame || !weights.length) return;
    state.frame = frame;
    show();
  }

  empty(
    root,
    h("p", {}, "Click a place of the recording, or use the arrow keys: the last row shows what the frame there attends to."),
    h("div", { class: "controls" }, field("Layer", select(layers, state.layer, (value) => ((state.layer = value), read())))),
    wrong,
    along.box,
    data.recording.note ? h("p", { class: "note" }, data.recording.note) : null,
    h("h3", {}, "All layers and heads"),
    matrices,
  );
  read();
  return attentionView(matrices, data, load, start);
}

// ---------------------------------------------------------------------------------------------------- clusters

/** data: the output of `visualize.clusters.clusters`. */
export function clustersView(root, data) {
  const values = unpack(data.values), { rows, columns, frames } = data;
  const say = (i, j) => `cluster ${columns[j]}, ${short(frames[j])} frames\n${rows[i]} ${percent(values[i * columns.length + j])}`;
  empty(root, h("p", {}, data.lead), matrix({ rows, columns, sheets: [{ name: "share", colour: "--s0", values }], figures: false, label: "Labels of clusters", say }));
}
