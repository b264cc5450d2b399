// The page: the choice of model and tab, and forms that request the data of a view from the service.

import { answersTab } from "./answers.js";
import { attentionView } from "./attention.js";
import { beamView } from "./beam.js";
import { choice, empty, field, h, roving, select } from "./dom.js";
import { contextForm, firstSource, into, sumForm, textForm } from "./forms.js";
import { galleryView } from "./gallery.js";
import { complexityView, maskingView, masksView, positionsView, spansView, wordpieceView } from "./inside.js";
import { recordingForm } from "./microphone.js";
import { recordingAttentionView, recordingView } from "./recording.js";
import { about, runsView } from "./runs.js";
import { ask, hasKey, keyForm, onRefusal, useKey } from "./service.js";
import { wordsView } from "./words.js";

const ANIMAL = "The animal didn't cross the street because it was too tired";
const LAW = "The Law will never be perfect, but its application should be just - this is what we are missing, in my opinion.";
const TABS = { try: ["Try it", answersTab], attention: ["Attention", attentionTab], words: ["Words", wordsTab], beam: ["Beam", beamTab], inside: ["How it works", insideTab], runs: ["Runs", runsTab] };

const KINDS = {
  "fill-mask": "masked words",
  "next-sentence": "two sentences",
  "replaced-tokens": "replaced words",
  "contextual-words": "words in context",
  "word-vectors": "word vectors",
  recordings: "recordings",
};

const main = document.getElementById("view");
const state = { models: [], model: null, tab: "try" };

// ---------------------------------------------------------------------------------------------------- frame

async function start() {
  try {
    state.models = (await ask("models")).models;
  } catch (error) {
    if (error.status === 401) return; // `locked` has the page
    return void empty(main, h("p", { class: "error", role: "alert" }, error.message), h("button", { type: "button", onclick: start }, "Try again"));
  }
  state.model = state.models.find((model) => model.name === state.model?.name) ?? state.models[0];
  const names = Object.fromEntries(state.models.map((model) => [model.name, `${model.name}: ${model.gives ?? KINDS[model.kind] ?? model.kind}`]));
  empty(
    document.getElementById("model"),
    h("label", { class: "row" }, h("span", { class: "note" }, "Model"), select(names, state.model.name, (name) => ((state.model = state.models.find((model) => model.name === name)), open(state.tab)))),
    hasKey() ? h("button", { type: "button", class: "quiet", onclick: () => (useKey(""), locked(false)) }, "Forget the key") : null,
  );
  const buttons = Object.entries(TABS).map(([name, [label]]) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => open(name) }, label));
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, buttons);
  roving(bar, buttons, (button) => button.click());
  empty(document.getElementById("tabs"), bar);
  open(wanted() ?? "try");
}

/** The tab that the address names, if any. */
function wanted() {
  const name = location.hash.slice(1);
  return Object.hasOwn(TABS, name) ? name : null;
}

addEventListener("hashchange", () => state.model && wanted() && wanted() !== state.tab && open(wanted()));

/** Show only the form for the key. */
function locked(refused) {
  for (const id of ["model", "tabs"]) empty(document.getElementById(id));
  main.removeAttribute("role");
  main.removeAttribute("aria-labelledby");
  empty(main, keyForm(refused, start));
}
onRefusal(locked);

function open(name) {
  state.tab = name;
  for (const button of document.querySelectorAll('[role="tab"]')) {
    const on = button.id === `tab-${name}`;
    button.setAttribute("aria-selected", on);
    button.tabIndex = on ? 0 : -1;
  }
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  main.setAttribute("role", "tabpanel");
  main.setAttribute("aria-labelledby", `tab-${name}`);
  const root = h("div", {});
  empty(main, root);
  TABS[name][1](root, state.model);
}

/** Say why a tab cannot show a model, and what to do. */
const nothing = (root, why) => void empty(root, h("p", { class: "card" }, why, " Choose another model above, or serve several models: unmask serve --model FOLDER FOLDER."));

// ---------------------------------------------------------------------------------------------------- attention

async function attentionTab(root, model) {
  empty(root, h("p", { class: "busy", role: "status" }, "Reading the model …"));
  const about = await ask("inside", { model: model.name }).catch(() => null); // what is wrong is said below
  if (about && !Object.keys(about.attention).length) {
    if (about.signals) return nothing(root, "This model reads signals: unmask show signal --model FOLDER RECORD --out FILE.html shows where it looks.");
    return nothing(root, model.kind === "word-vectors" ? "Word vectors have no attention: they do not read a text." : about.pictures || about.recordings ? "This model has no attention: it is not a Transformer." : "This model has no attention: it is a recurrent network, which carries a state from word to word.");
  }
  if (about?.pictures) return nothing(root, "This model reads pictures: unmask show attention --model FOLDER PICTURE --out FILE.html shows where it looks.");
  const stage = h("div", {});
  if (about?.recordings) {
    const look = ({ data: recording }) => into(stage, ask("attention", { model: model.name, recording }), (data) => {
      const more = (fields) => ask("attention", { model: model.name, recording, kind: data.kind, ...fields });
      return recordingAttentionView(stage, data, { layer: async (layer, heads) => [await more({ layer, heads })], rollout: () => more({ rollout: true }) });
    });
    return void empty(root, recordingForm(look), stage);
  }
  const kinds = h("div", { class: "row" });
  const translates = model.kind === "translation";
  const pair = h("textarea", { rows: 1, "aria-label": "Second text" });
  let kind = null, start = {};

  const show = (text) => {
    const body = { model: model.name, text, pair: pair.value || null };
    return into(stage, ask("attention", { ...body, kind }), async (data) => {
      const names = Object.keys(data.kinds);
      empty(kinds, names.length > 1 ? choice("Kind of attention", Object.fromEntries(names.map((name) => [name, { encoder: "Encoder", decoder: "Decoder, masked", cross: "Cross" }[name]])), data.kind, (value) => ((kind = value), show(input.value))) : null);
      // Requests for a layer send the translation that is shown, so that the tokens are the same.
      const more = (fields) => ask("attention", { ...body, kind: data.kind, ...fields });
      await attentionView(stage, data, { layer: async (layer, heads) => [await more({ layer, heads })], rollout: () => more({ rollout: true }) }, start);
      start = {};
    });
  };
  const { form, input } = textForm(translates ? "Source" : "Text", translates ? firstSource(model) : ANIMAL, show, field(translates ? "Translation (empty: the model's own)" : "Second text (may be empty)", pair));
  const example = (label, text, begin) =>
    h("button", { type: "button", onclick: () => ((input.value = text), (pair.value = ""), (start = begin), show(text)) }, label);
  const examples = h(
    "div",
    { class: "examples" },
    "Examples:",
    example("The animal … it was too tired", ANIMAL, { mode: "heads", layer: 4, heads: [0, 1], token: "it" }),
    example("its application, layer 5, heads 5 and 6", LAW, { mode: "heads", layer: 4, heads: [4, 5], token: "its" }),
  );
  empty(root, form, translates ? null : examples, kinds, stage);
  show(input.value);
}

// ---------------------------------------------------------------------------------------------------- words

async function wordsTab(root, model) {
  empty(root, h("p", { class: "busy", role: "status" }, "Reading the model …"));
  const about = await ask("inside", { model: model.name }).catch(() => null); // what is wrong is said below
  const others = ["pictures", "recordings", "signals"].find((items) => about?.[items]);
  if (others) return nothing(root, `This model reads ${others}, and has no table of word vectors.`);
  if (model.kind === "contextual-words") {
    return void empty(root, h("p", { class: "note" }, "An ELMo has no table of vectors: it computes the vector of a word from its characters and from the words around it."), contextForm(model));
  }
  const stage = h("div", {}), sum = sumForm(model);
  const search = h("input", { type: "search", "aria-label": "Words", placeholder: "good bad film" });
  let method = "pca";
  const cloud = () => {
    const words = search.value.trim().split(/\s+/).filter(Boolean);
    const count = words.length ? 120 : 300;
    return into(stage, ask("embeddings", { model: model.name, words, method, count }), (data) => wordsView(stage, data, sum.near));
  };
  const methods = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };
  empty(
    root,
    h("h2", {}, "Words in the plane"),
    h("form", { onsubmit: (event) => (event.preventDefault(), cloud()) }, h("div", { class: "row" }, field("Words to show with their neighbours (empty: the first words of the vocabulary)", search), choice("Projection", methods, method, (value) => ((method = value), cloud())), h("button", { class: "main" }, "Show"))),
    stage,
    sum.section,
    model.kind === "word-vectors" || model.kind === "translation" ? null : contextForm(model),
  );
  cloud();
}

// ---------------------------------------------------------------------------------------------------- beam

function beamTab(root, model) {
  const stage = h("div", {});
  if (model.kind !== "translation" && model.kind !== "generation") {
    return nothing(root, "Beam search needs a model that writes: one that translates or continues a text.");
  }
  const width = h("input", { type: "number", min: 1, max: 16, value: 4 }), length = h("input", { type: "number", min: 1, max: 200, value: 20 });
  const show = (text) => {
    const body = { model: model.name, text, beam_size: Number(width.value), length: Number(length.value) };
    return into(stage, ask("beam", body), (data) => beamView(stage, data));
  };
  const { form, input } = textForm(model.kind === "translation" ? "Source" : "Beginning", model.kind === "translation" ? firstSource(model) : "The", show, h("div", { class: "row" }, field("Beam size", width), field("Most tokens", length)));
  empty(root, form, stage);
  show(input.value);
}

// ---------------------------------------------------------------------------------------------------- how it works

async function insideTab(root, model) {
  const stage = h("div", {}), controls = h("div", {});
  const translates = model.kind === "translation", reads = model.kind !== "word-vectors";
  empty(root, h("p", { class: "busy", role: "status" }, "Reading the model …"));
  const about = reads ? await ask("inside", { model: model.name }).catch(() => null) : null; // what is wrong is said below
  const texts = reads && !about?.pictures && !about?.recordings && !about?.signals;
  const placed = reads && model.kind !== "contextual-words";
  const topics = {
    ...(about?.recordings ? { features: "Features" } : {}),
    ...(translates ? (about?.spans ? { masking: "Spans" } : {}) : placed && texts ? { masking: "Masking" } : {}),
    ...(texts ? { wordpiece: "Subword tokens", masks: "Masks" } : {}),
    ...(placed && !about?.spans && !about?.recordings && !about?.signals ? { positions: "Positions" } : {}),
    sinusoidal: "Sinusoids",
    complexity: "Cost of layers",
  };
  const seed = h("input", { type: "number", min: 0, value: 0 }), whole = h("input", { type: "checkbox" });
  const second = h("input", { type: "text", value: "It was late." });
  const named = (fields) => ({ model: model.name, ...fields });
  const views = {
    features: [recordingView, (recording) => ask("features", named({ recording, seed: Number(seed.value) }))],
    masking: [about?.spans ? spansView : maskingView, (text) => ask("masking", named({ text, seed: Number(seed.value), whole_words: whole.checked }))],
    wordpiece: [wordpieceView, (text) => ask("wordpiece", named({ text }))],
    masks: [masksView, (text) => ask("masks", named({ text, pair: second.value }))],
    positions: [(place, data) => (data.view === "gallery" ? galleryView : positionsView)(place, data), () => ask("positions", named({}))],
    sinusoidal: [positionsView, () => ask("positions", { sinusoidal: true })],
    complexity: [complexityView, () => ask("complexity", {})],
  };
  const draw = (name, text) => into(stage, views[name][1](text), (data) => views[name][0](stage, data));
  const more = { masking: [field("Seed", seed), translates ? null : h("label", { class: "check" }, whole, "whole words")], masks: [field("Second text, packed into the same row", second)] };

  function topic(name) {
    if (name === "features") {
      let shown = null;
      const look = ({ data }) => draw(name, (shown = data));
      seed.onchange = () => shown && draw(name, shown);
      empty(stage);
      return void empty(controls, recordingForm(look), about.frames ? h("div", { class: "row" }, field("Seed of the masked frames", seed)) : null);
    }
    const { form, input } = textForm("Text", ANIMAL, (text) => draw(name, text), h("div", { class: "row" }, more[name] ?? []));
    empty(controls, ["masking", "wordpiece", "masks"].includes(name) ? form : null);
    draw(name, input.value);
  }
  const first = Object.keys(topics)[0];
  empty(root, h("div", { class: "controls" }, choice("Topic", topics, first, topic)), controls, stage);
  topic(first);
}

// ---------------------------------------------------------------------------------------------------- runs

function runsTab(root) {
  const list = h("fieldset", { class: "card" }), stage = h("div", {});
  let timer = null;
  const chosen = new Set();

  async function show() {
    clearTimeout(timer);
    if (!root.isConnected) return;
    if (!chosen.size) return void empty(stage);
    try {
      const data = await ask("runs", { names: [...chosen] });
      if (!stage.contains(document.activeElement)) runsView(stage, data);
      if (data.runs.some((run) => run.state === "running")) timer = setTimeout(show, 5000);
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
  }
  empty(root, list, stage);
  into(list, ask("runs", {}), ({ runs }) => {
    if (!runs.length) return void empty(list, h("p", {}, "The service finds no runs in the folder runs/ of its working directory."));
    chosen.add(runs[0].name);
    const boxes = runs.map((run) => {
      const box = h("input", { type: "checkbox", checked: chosen.has(run.name), onchange: () => (chosen[box.checked ? "add" : "delete"](run.name), show()) });
      return h("label", { class: "check" }, box, about(run));
    });
    empty(list, h("legend", {}, "Runs, newest first"), boxes, runs.length > 1 ? h("p", { class: "note" }, "Tick several runs to compare them.") : null);
    show();
  });
}

start();
