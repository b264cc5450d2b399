// A search for similar contexts: the words of a corpus whose states are nearest to those of a word in a sentence.

import { given, keep } from "./address.js";
import { bar, empty, field, h, select, short } from "./dom.js";
import { into } from "./forms.js";
import { ask } from "./service.js";

/** A form for a word in a sentence, and texts to search; without any, the service searches those of the run. */
export function similarForm(model) {
  const at = given().fields, first = (model.examples?.items ?? []).map((item) => item.text).find(Boolean) ?? "";
  const sentence = h("textarea", { rows: 2 }, at.sentence ?? first);
  const word = h("input", { type: "text", class: "short", value: at.word ?? longest(first) });
  const corpus = h("textarea", { rows: 4 }), place = h("div", { "aria-live": "polite" });
  const search = (layer) => {
    keep({ word: word.value, sentence: sentence.value }, layer === -1);
    const texts = corpus.value.split("\n").filter((line) => line.trim());
    into(place, ask("similar", { model: model.name, word: word.value.trim(), sentence: sentence.value, layer, ...(texts.length ? { texts } : {}) }), (data) => similarView(place, data, search));
  };
  return h(
    "section",
    {},
    h("h2", {}, "Similar contexts"),
    h("form", { onsubmit: (event) => (event.preventDefault(), search(-1)) }, field("Word", word), field("Sentence with the word", sentence), h("details", { class: "fold" }, h("summary", {}, "Texts to search"), field("One a line (empty: dev rows or held-out text of the run of the model)", corpus)), h("div", { class: "row" }, h("button", { class: "main" }, "Search"))),
    place,
  );
}

const longest = (text) => (text.match(/\p{L}+/gu) ?? [""]).sort((a, b) => b.length - a.length)[0];

/** data: the output of `visualize.similar.similar`. */
function similarView(root, data, search) {
  const layers = Object.fromEntries(Array.from({ length: data.layers + 1 }, (_, i) => [i, i ? `after ${i} of ${data.layers}` : "before the first"]));
  const lines = data.nearest.map((one) => {
    const letters = [...one.text];
    return bar(h("span", {}, letters.slice(0, one.begin).join(""), h("mark", {}, letters.slice(one.begin, one.end).join("")), letters.slice(one.end).join("")), Math.max(0, one.cosine), { text: short(one.cosine) });
  });
  empty(
    root,
    h("div", { class: "controls" }, field("Layer", select(layers, data.layer, (value) => search(Number(value))))),
    h("ol", { class: "bars long" }, lines),
    h("p", { class: "note" }, `The nearest of ${short(data.searched)} words in ${short(data.texts)} texts, by the cosine of their states with that of “${data.word}”; each text once. Every word is compared.`),
  );
}
