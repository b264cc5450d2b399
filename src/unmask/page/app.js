// The frame of the page: the choice of model and tab, which the address names.

import { given, go } from "./address.js";
import { answersTab } from "./answers.js";
import { compareTab } from "./compare.js";
import { empty, h, roving, select } from "./dom.js";
import { rowsTab } from "./rows.js";
import { ask, hasKey, keyForm, onRefusal, useKey } from "./service.js";
import { copyButton } from "./share.js";
import { attentionTab, beamTab, insideTab, runsTab, wordsTab } from "./tabs.js";

/** name: [label, the view, whether it has something to show of a model]. */
const TABS = {
  try: ["Try it", answersTab, () => true],
  rows: ["Dev rows", rowsTab, (model) => model.examples.rows > 0],
  attention: ["Attention", attentionTab, (model) => Object.keys(model.about.attention).length > 0 && !model.about.signals],
  compare: ["Compare", compareTab, (model) => reads(model)],
  words: ["Words", wordsTab, (model) => reads(model) || model.kind === "word-vectors"],
  beam: ["Beam", beamTab, (model) => model.kind === "translation" || model.kind === "generation"],
  inside: ["How it works", insideTab, () => true],
  runs: ["Runs", runsTab, () => state.runs],
};

const KINDS = {
  "fill-mask": "masked words",
  "next-sentence": "two sentences",
  "replaced-tokens": "replaced words",
  "contextual-words": "words in context",
  "word-vectors": "word vectors",
  recordings: "recordings",
};

const NOTHING = { about: { attention: {}, labels: [] }, examples: { items: [], rows: 0 } };

const main = document.getElementById("view");
const state = { models: [], runs: true };
const reads = ({ about, kind }) => kind !== "word-vectors" && !about.pictures && !about.recordings && !about.signals;

async function start() {
  try {
    state.models = (await ask("models")).models;
  } catch (error) {
    if (error.status === 401) return; // `locked` has the page
    return void empty(main, h("p", { class: "error", role: "alert" }, error.message), h("button", { type: "button", onclick: start }, "Try again"));
  }
  state.runs = await ask("runs", {}).then(({ runs }) => runs.length > 0, () => false);
  show();
}

/** The model that the address names, with what its tabs need: `about` and `examples`. */
async function chosen(name) {
  const model = state.models.find((one) => one.name === name) ?? state.models[0];
  if (!model.about) {
    const body = { model: model.name };
    const [about, examples] = await Promise.all([ask("inside", body), ask("examples", body)].map((one) => one.catch(() => null)));
    if (about) Object.assign(model, NOTHING, { about }, examples ? { examples } : {});
  }
  return { ...NOTHING, ...model }; // what is wrong with a model that cannot be read is said by its first view
}

let turn = 0;

/** Draw what the address names. */
async function show() {
  const mine = ++turn, { tab, fields } = given();
  empty(main, h("p", { class: "busy", role: "status" }, "Reading the model …"));
  const model = await chosen(fields.model);
  if (mine !== turn || !state.models.length) return;
  const names = Object.keys(TABS).filter((name) => TABS[name][2](model));
  const name = names.includes(tab) ? tab : names[0];
  const kinds = Object.fromEntries(state.models.map((one) => [one.name, `${one.name}: ${one.gives ?? KINDS[one.kind] ?? one.kind}`]));
  empty(
    document.getElementById("model"),
    h("label", { class: "row" }, h("span", { class: "note" }, "Model"), select(kinds, model.name, (other) => visit(given().tab, { model: other }))),
    copyButton("Copy link", () => location.href),
    hasKey() ? h("button", { type: "button", class: "quiet", onclick: () => (useKey(""), locked(false)) }, "Forget the key") : null,
  );
  const focused = document.activeElement?.getAttribute("role") === "tab";
  const buttons = names.map((one) => h("button", { type: "button", role: "tab", id: `tab-${one}`, "aria-controls": "panel", "aria-selected": one === name, tabindex: one === name ? 0 : -1, onclick: () => visit(one, { model: model.name, text: given().fields.text }) }, TABS[one][0]));
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, buttons);
  roving(bar, buttons, (button) => button.click());
  empty(document.getElementById("tabs"), bar);
  if (focused) document.getElementById(`tab-${name}`).focus();
  document.title = state.models.length > 1 ? `${TABS[name][0]}: ${model.name} – unmask` : `${TABS[name][0]} – unmask`;
  if (name !== tab || fields.model !== model.name) go(name, { ...fields, model: model.name });
  const root = h("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${name}` });
  empty(main, h("h2", { class: "unseen" }, TABS[name][0]), root); // a heading above those of the views
  TABS[name][1](root, model, state.models);
}

/** Go to a tab, as a new entry of the history. */
function visit(tab, fields) {
  go(tab, fields, true);
  show();
}

addEventListener("popstate", () => state.models.length && show());

/** Show only the form for the key. */
function locked(refused) {
  state.models = [];
  for (const id of ["model", "tabs"]) empty(document.getElementById(id));
  empty(main, keyForm(refused, start));
}
onRefusal(locked);

start();
