// The tabs that look inside a model, and at runs: forms that request the data of a view from the service.

import { given, keep, numbers } from "./address.js";
import { attentionView } from "./attention.js";
import { beamView } from "./beam.js";
import { choice, empty, field, h } from "./dom.js";
import { contextForm, fold, into, sumForm, textForm } from "./forms.js";
import { galleryView } from "./gallery.js";
import { complexityView, maskingView, masksView, positionsView, spansView, wordpieceView } from "./inside.js";
import { recordingForm } from "./microphone.js";
import { blockView, neuronsView } from "./neurons.js";
import { pictureAttentionView } from "./picture.js";
import { recordingAttentionView, recordingView } from "./recording.js";
import { about, runsView } from "./runs.js";
import { pictureForm } from "./seeing.js";
import { ask } from "./service.js";
import { share } from "./share.js";
import { similarForm } from "./similar.js";
import { wordsView } from "./words.js";

// ---------------------------------------------------------------------------------------------------- attention

export function attentionTab(root, model) {
  const stage = h("div", {}), { recordings, pictures } = model.about;
  if (recordings || pictures) return void empty(root, recordings ? recordingForm(heard(model, stage), { model }) : pictureForm(model, (picture) => seen(model, stage, picture)), stage);
  const kinds = h("div", { class: "row" });
  const translates = model.kind === "translation", at = given().fields;
  const second = translates ? "Translation (empty: the model's own)" : "Second text";
  const pair = h("textarea", { rows: 1, "aria-label": second }, at.pair ?? "");
  let kind = at.kind ?? null, start = { mode: at.view, layer: numbers(at.layer)?.[0], heads: numbers(at.head), token: at.token };

  const show = (text) => {
    const body = { model: model.name, text, pair: pair.value || null };
    return into(stage, ask("attention", { ...body, kind }), async (data) => {
      const names = Object.keys(data.kinds);
      empty(kinds, names.length > 1 ? choice("Kind of attention", Object.fromEntries(names.map((name) => [name, { encoder: "Encoder", decoder: "Decoder, masked", cross: "Cross" }[name]])), data.kind, (value) => (keep({ kind: (kind = value) }), show(input.value))) : null);
      // Requests for a layer send the translation that is shown, so that the tokens are the same.
      const more = (fields) => ask("attention", { ...body, kind: data.kind, ...fields });
      const moved = ({ mode, layer, heads, token }) => keep({ view: mode === "model" ? null : mode, layer: mode === "model" || mode === "rollout" ? null : layer + 1, head: mode === "model" || mode === "rollout" ? null : heads.map((head) => head + 1).join(), token: mode === "heads" ? token : null, pair: pair.value });
      await attentionView(stage, data, { layer: async (layer, heads) => [await more({ layer, heads })], rollout: () => more({ rollout: true }), moved }, start);
      start = {};
    });
  };
  const { form, input } = textForm(model, translates ? "Source" : "Text", show, fold(second, ["pair"], pair));
  empty(root, form, kinds, stage);
  if (input.value.trim()) show(input.value);
}

/** What asks for the attention over a recording. */
const heard = (model, stage) => ({ data: recording }) => into(stage, ask("attention", { model: model.name, recording }), (data) => {
  const more = (fields) => ask("attention", { model: model.name, recording, kind: data.kind, ...fields });
  return recordingAttentionView(stage, data, { layer: async (layer, heads) => [await more({ layer, heads })], rollout: () => more({ rollout: true }) });
});

/** The attention over a picture: the answer has the weights of all heads. */
const seen = (model, stage, picture) => into(stage, ask("attention", { model: model.name, picture }), (data) =>
  pictureAttentionView(stage, data, { layer: async (layer, heads) => heads.map((head) => data.details[layer * data.heads + head]) }));

// ---------------------------------------------------------------------------------------------------- words

export function wordsTab(root, model) {
  if (model.kind === "contextual-words") {
    return void empty(root, h("p", { class: "note" }, "An ELMo has no table of vectors: it computes the vector of a word from its characters and from the words around it."), contextForm(model));
  }
  const stage = h("div", {}), sum = sumForm(model);
  const search = h("input", { type: "search", "aria-label": "Words", value: given().fields.words ?? "" });
  let method = given().fields.projection ?? "pca";
  const cloud = () => {
    const words = search.value.trim().split(/\s+/).filter(Boolean);
    keep({ words: words.join(" ") }, words.length > 0);
    const count = words.length ? 120 : 300;
    return into(stage, ask("embeddings", { model: model.name, words, method, count }), (data) => wordsView(stage, data, sum.near));
  };
  const methods = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };
  empty(
    root,
    h("h2", {}, "Words in the plane"),
    h("form", { onsubmit: (event) => (event.preventDefault(), cloud()) }, h("div", { class: "row" }, field("Words to show with their neighbours (empty: the first words of the vocabulary)", search), h("button", { class: "main" }, "Show")), fold("Settings", ["projection"], choice("Projection", methods, method, (value) => (keep({ projection: (method = value) }), cloud())))),
    stage,
    sum.section,
    model.kind === "word-vectors" || model.kind === "translation" ? null : [contextForm(model), similarForm(model)],
  );
  cloud();
}

// ---------------------------------------------------------------------------------------------------- beam

export function beamTab(root, model) {
  const stage = h("div", {}), at = given().fields;
  const width = h("input", { type: "number", min: 1, max: 16, value: at.beam ?? 4 }), length = h("input", { type: "number", min: 1, max: 200, value: at.length ?? 20 });
  const show = (text) => {
    const body = { model: model.name, text, beam_size: Number(width.value), length: Number(length.value) };
    return into(stage, ask("beam", body), (data) => beamView(stage, data));
  };
  const sent = (text) => (keep({ beam: width.value, length: length.value }), show(text));
  const { form, input } = textForm(model, model.kind === "translation" ? "Source" : "Beginning", sent, fold("Settings", ["beam", "length"], field("Beam size", width), field("Most tokens", length)));
  empty(root, form, stage);
  if (input.value.trim()) show(input.value);
}

// ---------------------------------------------------------------------------------------------------- how it works

export function insideTab(root, model) {
  const stage = h("div", {}), controls = h("div", {});
  const translates = model.kind === "translation", reads = model.kind !== "word-vectors";
  const about = reads ? model.about : null;
  const texts = reads && !about?.pictures && !about?.recordings && !about?.signals;
  const placed = reads && model.kind !== "contextual-words";
  const heads = texts && !translates && Object.keys(about.attention).length > 0;
  const topics = {
    ...(about?.recordings ? { features: "Features" } : {}),
    ...(translates ? (about?.spans ? { masking: "Spans" } : {}) : placed && texts ? { masking: "Masking" } : {}),
    ...(texts ? { wordpiece: "Subword tokens", masks: "Masks" } : {}),
    ...(placed && !about?.spans && !about?.recordings && !about?.signals ? { positions: "Positions" } : {}),
    ...(heads ? { neurons: "Query × key", block: "One block" } : {}),
    sinusoidal: "Sinusoids",
    complexity: "Cost of layers",
  };
  const seed = h("input", { type: "number", min: 0, value: 0 }), whole = h("input", { type: "checkbox" });
  const second = h("input", { type: "text", value: "It was late." });
  const named = (fields) => ({ model: model.name, ...fields });
  const place = (name, usual) => numbers(given().fields[name])?.[0] ?? usual;
  const views = {
    features: [recordingView, (recording) => ask("features", named({ recording, seed: Number(seed.value) }))],
    masking: [about?.spans ? spansView : maskingView, (text) => ask("masking", named({ text, seed: Number(seed.value), whole_words: whole.checked }))],
    wordpiece: [wordpieceView, (text) => ask("wordpiece", named({ text }))],
    masks: [masksView, (text) => ask("masks", named({ text, pair: second.value }))],
    positions: [(place, data) => (data.view === "gallery" ? galleryView : positionsView)(place, data), () => ask("positions", named({}))],
    neurons: [neuronsView, (text) => ask("neurons", named({ text, layer: place("layer", 0), head: place("head", 0) }))],
    block: [blockView, (text) => ask("neurons", named({ text, layer: place("layer", 0), head: place("head", 0) }))],
    sinusoidal: [positionsView, () => ask("positions", { sinusoidal: true })],
    complexity: [complexityView, () => ask("complexity", {})],
  };
  const draw = (name, text) => into(stage, views[name][1](text), (data) => views[name][0](stage, data, (fields) => (keep(fields), draw(name, text))));
  const more = { masking: fold("Settings", [], field("Seed", seed), translates ? null : h("label", { class: "check" }, whole, "whole words")), masks: fold("Second text, packed into the same row", [], field("Second text", second)) };

  function topic(name, moved = true) {
    if (moved) keep({ topic: name }, true);
    if (name === "features") {
      let shown = null;
      const look = ({ data }) => draw(name, (shown = data));
      seed.onchange = () => shown && draw(name, shown);
      empty(stage);
      return void empty(controls, recordingForm(look, { model }), about.frames ? h("div", { class: "row" }, field("Seed of the masked frames", seed)) : null);
    }
    const asks = ["masking", "wordpiece", "masks", "neurons", "block"].includes(name);
    const { form, input } = textForm(model, "Text", (text) => draw(name, text), more[name] ?? []);
    empty(controls, asks ? form : null);
    empty(stage);
    if (!asks || input.value.trim()) draw(name, input.value);
  }
  const first = given().fields.topic in topics ? given().fields.topic : Object.keys(topics)[0];
  empty(root, h("div", { class: "controls" }, choice("Topic", topics, first, topic)), controls, stage);
  topic(first, false);
}

// ---------------------------------------------------------------------------------------------------- runs

export function runsTab(root) {
  const list = h("fieldset", { class: "card" }), stage = h("div", {});
  let timer = null;
  const chosen = new Set();

  async function show() {
    clearTimeout(timer);
    if (!root.isConnected) return;
    if (!chosen.size) return void empty(stage);
    try {
      const data = await ask("runs", { names: [...chosen] });
      if (!stage.contains(document.activeElement)) (runsView(stage, data), stage.append(share(stage, data) ?? ""));
      if (data.runs.some((run) => run.state === "running")) timer = setTimeout(show, 5000);
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
  }
  empty(root, list, stage);
  into(list, ask("runs", {}), ({ runs }) => {
    if (!runs.length) return void empty(list, h("p", {}, "The service finds no runs in the folder runs/ of its working directory."));
    const asked = (given().fields.runs ?? "").split(",");
    for (const { name } of runs) if (asked.includes(name)) chosen.add(name);
    if (!chosen.size) chosen.add(runs[0].name);
    const boxes = runs.map((run) => {
      const box = h("input", { type: "checkbox", checked: chosen.has(run.name), onchange: () => (chosen[box.checked ? "add" : "delete"](run.name), keep({ runs: [...chosen].join() }), show()) });
      return h("label", { class: "check" }, box, about(run));
    });
    empty(list, h("legend", {}, "Runs, newest first"), boxes, runs.length > 1 ? h("p", { class: "note" }, "Tick several runs to compare them.") : null);
    show();
  }, false);
}
