// Compare: two texts, or two models, side by side, with the differences of answers and of attention.

import { given, keep } from "./address.js";
import { bytes, empty, field, h, percent, select, short, table, unpack } from "./dom.js";
import { chips, into } from "./forms.js";
import { matrix } from "./matrix.js";
import { ask } from "./service.js";

/** A form for two texts and two models; below it the answers and the attention of both. */
export function compareTab(root, model, models) {
  const at = given().fields, items = (model.examples.items ?? []).filter((item) => item.text);
  const first = h("textarea", { rows: 2 }, at.text ?? items[0]?.text ?? "");
  const second = h("textarea", { rows: 2 }, at.second ?? swapped(first.value));
  const other = select(Object.fromEntries(models.map((one) => [one.name, one.name])), at.other ?? model.name, () => {});
  const answers = h("div", {}), attention = h("div", {});
  const show = (push = true) => {
    const sides = [{ model: model.name, text: first.value }, { model: other.value, text: second.value }];
    const otherKind = models.find((one) => one.name === other.value)?.kind;
    keep({ text: first.value, second: second.value, other: other.value === model.name ? "" : other.value }, push);
    const names = model.name === other.value ? ["first text", "second text"] : sides.map((side) => side.model);
    into(answers, Promise.all(sides.map((side, i) => answerOf(side, i ? otherKind : model.kind))), (found) => answersView(answers, found, names));
    into(attention, Promise.all(sides.map((side) => ask("attention", side))), (found) => attentionsView(attention, sides, found, names));
  };
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), show()) },
    h("div", { class: "cards" }, field("First text", first), field("Second text", second)),
    h("div", { class: "row" }, models.length > 1 ? field("Model of the second text", other) : null, h("button", { class: "main" }, "Compare")),
  );
  empty(root, h("p", { class: "note" }, "Change the second text, in which two words are swapped at first, or choose another model for the same text."), form, chips(model, ["text"], (item) => ((first.value = item.text), (second.value = swapped(item.text)), show())), answers, attention);
  if (first.value.trim()) show(false);
}

/** A text with its two middle words swapped: as many tokens, in another order. */
function swapped(text) {
  const parts = text.split(/(\s+)/), middle = 2 * Math.floor((parts.length - 1) / 4);
  if (parts.length > 2) [parts[middle], parts[middle + 2]] = [parts[middle + 2], parts[middle]];
  return parts.join("");
}

// ---------------------------------------------------------------------------------------------------- answers

const PATHS = { translation: "translate", generation: "next" };

/** The answer to one side as {name: number or text}. */
async function answerOf({ model, text }, kind) {
  const path = PATHS[kind] ?? "predict";
  const found = await ask(path, path === "next" ? { model, text } : { model, texts: [text] });
  if (path === "next") return Object.fromEntries(found.candidates.map((one) => [one.token, one.probability]));
  return flat(found.answers[0]);
}

function flat(answer) {
  if (answer.scores && !Array.isArray(answer.scores)) return answer.scores;
  if (answer.masks) return Object.fromEntries(answer.masks.flatMap((guesses, i) => guesses.map((one) => [answer.masks.length > 1 ? `${i + 1}: ${one.token}` : one.token, one.probability])));
  if (answer.words) return Object.fromEntries(answer.words.map((one, i) => [`${i + 1} ${one.word}`, one.tag]));
  if (answer.translations) return Object.fromEntries(answer.translations.map((one, i) => [`translation ${i + 1}`, one.text]));
  return Object.fromEntries(Object.entries(answer).filter(([, value]) => typeof value === "number" || typeof value === "string"));
}

function answersView(root, [a, b], names) {
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const share = (value) => (typeof value === "number" ? (value >= 0 && value <= 1 ? percent(value) : short(value)) : value ?? "–");
  const change = (key) => {
    const size = Math.abs(b[key] - a[key]), shares = [a[key], b[key]].every((value) => value >= 0 && value <= 1);
    if (!Number.isNaN(size)) return `${b[key] >= a[key] ? "+" : "−"}${shares ? `${short(100 * size)} points` : short(size)}`;
    if (a[key] === undefined || b[key] === undefined) return "not among the first";
    return a[key] === b[key] ? "same" : "different";
  };
  empty(root, h("h2", {}, "Answers"), keys.length ? table(["answer", ...names, "difference"], keys.map((key) => [key, share(a[key]), share(b[key]), change(key)])) : h("p", { class: "note" }, "These models give no answers that can be put side by side."));
}

// ---------------------------------------------------------------------------------------------------- attention

function attentionsView(root, sides, [a, b], names) {
  const layers = Math.min(a.layers, b.layers), heads = Math.min(a.heads, b.heads), same = a.rows.length === b.rows.length && a.columns.length === b.columns.length;
  const at = given().fields, stage = h("div", {});
  const state = { layer: Math.min(Number(at.layer ?? 1), layers) - 1, head: Math.min(Number(at.head ?? 1), heads) - 1 };
  const numbers = (count) => Object.fromEntries(Array.from({ length: count }, (_, i) => [i, `${i + 1} of ${count}`]));

  function show() {
    keep({ layer: state.layer + 1, head: state.head + 1 });
    const asked = sides.map((side, i) => ask("attention", { ...side, kind: [a, b][i].kind, layer: state.layer, heads: [state.head] }));
    into(stage, Promise.all(asked), (found) => {
      const [left, right] = found.map((one) => unpack(one.weights));
      const drawn = [a, b].map((one, i) => h("div", {}, h("h3", {}, names[i]), matrix({ rows: one.rows, columns: one.columns, sheets: [{ name: names[i], colour: "--s0", values: [left, right][i] }], label: `Attention, ${names[i]}` })));
      const labels = (x, y) => x.map((name, i) => (name === y[i] ? name : `${name} / ${y[i]}`));
      const difference = same ? [h("h3", {}, "Difference: second minus first; blue is more, orange is less"), matrix({ rows: labels(a.rows, b.rows), columns: labels(a.columns, b.columns), sheets: [{ name: "difference", colour: "--s0", values: right.map((value, i) => value - left[i]) }], signed: true, label: "Difference of attention" })] : h("p", { class: "note" }, `The texts have ${a.rows.length} and ${b.rows.length} tokens: their matrices have no cells in common, so there is no difference to draw.`);
      empty(stage, h("div", { class: "cards" }, drawn), difference);
    });
  }

  const controls = h("div", { class: "controls" });
  function redraw() {
    empty(controls, field("Layer", select(numbers(layers), state.layer, (value) => ((state.layer = Number(value)), show()))), field("Head", select(numbers(heads), state.head, (value) => ((state.head = Number(value)), show()))));
    show();
  }
  empty(root, h("h2", {}, "Attention"), same ? changes(a, b, layers, heads, (layer, head) => (Object.assign(state, { layer, head }), redraw())) : null, controls, stage);
  redraw();
}

/** A cell for each head: half the mean absolute difference of the rows of both thumbnails, from 0 to 1. */
function changes(a, b, layers, heads, pick) {
  const [, , t, s] = a.thumbnails.shape, left = bytes(a.thumbnails), right = bytes(b.thumbnails), values = new Float32Array(layers * heads);
  const sum = (data, from) => data.subarray(from, from + t * s).reduce((total, value) => total + value, 0);
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const [i, j] = [(layer * a.heads + head) * t * s, (layer * b.heads + head) * t * s];
      const [whole, other] = [sum(left, i) || 1, sum(right, j) || 1];
      for (let k = 0; k < t * s; k++) values[layer * heads + head] += Math.abs(left[i + k] / whole - right[j + k] / other) / 2;
    }
  }
  const named = (word, count) => Array.from({ length: count }, (_, i) => (count > 12 ? String(i + 1) : `${word} ${i + 1}`));
  return [h("h3", {}, "Where the heads differ"), h("p", { class: "note" }, "A row for each layer, a column for each head: the share of the weights that lies elsewhere (total variation). Click a cell, or press Enter, to open it."), matrix({ rows: named("layer", layers), columns: named("head", heads), sheets: [{ name: "differs", colour: "--s1", values }], label: "Differences of heads", pick })];
}
