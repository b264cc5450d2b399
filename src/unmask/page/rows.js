// Dev rows: a table with the largest errors first, the confusion matrix, and scores of slices.

import { given, go, keep } from "./address.js";
import { empty, field, h, percent, select, short, table } from "./dom.js";
import { into } from "./forms.js";
import { picture } from "./gallery.js";
import { matrix } from "./matrix.js";
import { ask } from "./service.js";

const AT_ONCE = 50; // rows that the table shows, and adds
const CLASSES = 30; // most classes of a confusion matrix

/** A tab over the dev rows of the run of a model. */
export function rowsTab(root, model) {
  into(root, ask("rows", { model: model.name }), ({ rows }) => rowsView(root, model, rows.filter((row) => "error" in row)));
}

function rowsView(root, model, rows) {
  rows.forEach((row) => (row.length = words(row).length));
  const classes = [...new Set(rows.flatMap((row) => [row.expected, row.predicted]))].sort();
  const few = classes.length <= CLASSES && classes.length < rows.length / 2;
  const at = given().fields, state = { expected: at.expected ?? "", predicted: at.predicted ?? "", only: at.only ?? "all", find: at.find ?? "" };
  const list = h("div", {}), wrong = (some) => some.filter((row) => row.error > 0).length;

  function show() {
    keep(state.only === "all" ? { ...state, only: "" } : state);
    const found = rows
      .filter((row) => (!state.expected || row.expected === state.expected) && (!state.predicted || row.predicted === state.predicted))
      .filter((row) => state.only === "all" || row.error > 0 === (state.only === "wrong"))
      .filter((row) => said(row).toLowerCase().includes(state.find.toLowerCase()))
      .sort((a, b) => b.error - a.error);
    let shown = 0;
    const body = h("tbody", {}), more = h("button", { type: "button", onclick: () => add() }, "Show more rows");
    const add = () => {
      for (const row of found.slice(shown, shown + AT_ONCE)) body.append(line(row));
      shown = Math.min(found.length, shown + AT_ONCE);
      more.hidden = shown >= found.length;
    };
    add();
    empty(
      list,
      h("p", { role: "status" }, `${short(found.length)} ${found.length === 1 ? "row" : "rows"}, ${short(wrong(found))} with an error; the largest errors first.`),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Dev rows" }, h("table", { class: "rows" }, h("thead", {}, h("tr", {}, ["error", "expected", "predicted", "row", "open"].map((one) => h("th", { scope: "col" }, one)))), body)),
      more,
    );
  }

  /** A row, with links to its answer and, for a text, to the attention over it. */
  function line(row) {
    const open = (tab, label) => h("button", { type: "button", class: "quiet", "aria-label": `${label}: ${said(row).slice(0, 60)}`, onclick: () => (go(tab, { model: model.name, ...inputs(row) }, true), dispatchEvent(new PopStateEvent("popstate"))) }, label);
    const attends = Object.keys(model.about.attention).length > 0 && inputs(row)?.text;
    return h("tr", { class: row.error > 0 ? "wrong" : null }, h("td", { class: "number" }, row.error > 0 ? short(row.error) : "–"), h("td", {}, cut(row.expected)), h("td", {}, cut(row.predicted)), h("td", {}, row.input?.picture ? picture({ file: row.input.picture }, row.place) : null, said(row)), h("td", {}, inputs(row) ? open("try", "Answer") : null, attends ? open("attention", "Attention") : null));
  }

  const chosen = (name, options) => select({ "": "any", ...Object.fromEntries(options.map((one) => [one, one])) }, state[name], (value) => ((state[name] = value), show()));
  const find = h("input", { type: "search", value: state.find, oninput: () => ((state.find = find.value), show()) });
  empty(
    root,
    h("p", {}, `The first ${short(rows.length)} dev rows of the run, as the model of this folder answered them: ${percent(1 - wrong(rows) / rows.length)} have no error.`),
    few ? confusion(rows, classes, (expected, predicted) => (Object.assign(state, { expected, predicted, only: "all" }), redraw())) : null,
    h("h2", {}, "Slices"),
    h("div", { class: "cards" }, slices("By length in words", byLength(rows)), few ? slices("By expected answer", classes.map((name) => [name, rows.filter((row) => row.expected === name)])) : null),
    h("h2", {}, "Rows"),
    h("div", { class: "controls" }),
    list,
  );
  const controls = root.querySelector(":scope > .controls");
  function redraw() {
    empty(controls, field("Show", select({ all: "all rows", wrong: "errors", right: "right answers" }, state.only, (value) => ((state.only = value), show()))), few ? [field("expected", chosen("expected", classes)), field("predicted", chosen("predicted", classes))] : null, field("Find", find));
    show();
    list.scrollIntoView?.({ block: "nearest" });
  }
  redraw();
  scrollTo(0, 0);
}

/** The inputs of a row by the names of the fields of a panel; null for a row without a text. */
function inputs({ input }) {
  if (typeof input === "string") return { text: input };
  if (Array.isArray(input)) return { text: input[0], pair: input[1] };
  if (!input || input.picture || input.recording || input.signal || input.values) return null;
  if (input.words) return { text: input.words.join(" ") };
  return { ...input, ...(input.choices ? { choices: input.choices.join("\n") } : {}) };
}

const said = (row) => Object.values(inputs(row) ?? { place: row.place }).join(" · ");
const words = (row) => said(row).split(/\s+/).filter(Boolean);
const cut = (text) => (text.length > 60 ? `${text.slice(0, 58)} …` : text || "–");

function confusion(rows, classes, pick) {
  const counts = new Float32Array(classes.length ** 2), totals = new Float32Array(classes.length);
  for (const { expected, predicted } of rows) {
    counts[classes.indexOf(expected) * classes.length + classes.indexOf(predicted)]++;
    totals[classes.indexOf(expected)]++;
  }
  const values = counts.map((count, i) => count / (totals[Math.floor(i / classes.length)] || 1));
  const say = (i, j) => `expected ${classes[i]}, predicted ${classes[j]}\n${short(counts[i * classes.length + j])} of ${short(totals[i])} rows`;
  return [h("h2", {}, "Confusion"), h("p", { class: "note" }, "Rows: the expected answer; columns: the predicted one; the share of each row of the matrix. Click a cell, or press Enter, to list its rows."), matrix({ rows: classes, columns: classes, sheets: [{ name: "share", colour: "--s0", values }], label: "Confusion", say, pick: (i, j) => pick(classes[i], classes[j]) })];
}

/** Four parts of about equal size, from the shortest rows to the longest. */
function byLength(rows) {
  const sorted = [...rows].sort((a, b) => a.length - b.length), parts = Math.min(4, sorted.length);
  const edges = Array.from({ length: parts + 1 }, (_, i) => Math.round((i * sorted.length) / parts));
  const groups = edges.slice(1).map((end, i) => sorted.slice(edges[i], end));
  return groups.map((some) => [some[0].length === some.at(-1).length ? `${some[0].length}` : `${some[0].length} to ${some.at(-1).length}`, some]);
}

function slices(title, groups) {
  const mean = (some) => some.reduce((sum, row) => sum + row.error, 0) / some.length;
  return h("div", {}, h("h3", {}, title), table(["slice", "rows", "without error", "mean error"], groups.filter(([, some]) => some.length).map(([name, some]) => [name, some.length, percent(some.filter((row) => !row.error).length / some.length), mean(some)])));
}
