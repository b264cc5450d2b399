// Forms that send requests: a text, a sum of words, a word in several sentences; and the elements of their answers.

import { empty, field, h } from "./dom.js";
import { ask } from "./service.js";
import { contextView, neighbours } from "./words.js";

const turns = new WeakMap(); // place -> how often it was asked for

/** Draw the result of a promise into an element: a message while it is pending, the error if it fails. The element shows
 * the result of the last request, whichever answer arrives first. */
export async function into(place, promise, draw) {
  const turn = (turns.get(place) ?? 0) + 1;
  turns.set(place, turn);
  const busy = h("p", { class: "busy", role: "status" }, "Working …");
  place.querySelector(":scope > .busy")?.remove();
  for (const old of place.children) old.inert = true; // it stays, so that nothing jumps, and takes no clicks
  place.prepend(busy);
  place.setAttribute("aria-busy", "true");
  try {
    const data = await promise;
    if (turns.get(place) === turn) await draw(data);
  } catch (error) {
    if (turns.get(place) === turn) empty(place, h("p", { class: "error", role: "alert" }, error.message));
  } finally {
    if (turns.get(place) === turn) place.removeAttribute("aria-busy");
    busy.remove();
  }
}

/** The first example for a model that writes: a date, or a vector of the width that it reads. */
export const firstSource = (model) => (model.features ? ["1", ...Array(model.features - 1).fill("0")].join(" ") : "March 3, 2001");

/** A form for a text; Control and Enter send it. */
export function textForm(label, value, done, ...more) {
  const input = h("textarea", { rows: 2, "aria-label": label }, value);
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), done(input.value)) }, field(label, input), ...more, h("div", { class: "row" }, h("button", { class: "main" }, "Show")));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) done(input.value);
  });
  return { form, input };
}

/** Neighbours of a word or of a sum of words: {section, near(word)}. */
export function sumForm(model, value = "king - man + woman") {
  const found = h("div", { "aria-live": "polite" });
  const sum = h("input", { type: "text", class: "long", value });
  const nearest = (plus, minus) => into(found, ask("embeddings", { model: model.name, plus, minus }), (data) => empty(found, neighbours(data.nearest, near)));
  const near = (word) => ((sum.value = word), nearest([word], []));
  const add = () => {
    const plus = [], minus = [];
    for (const [, sign, word] of sum.value.matchAll(/(?:(?<=^|\s)([-−+])\s*)?([^\s]+)/g)) (sign === "-" || sign === "−" ? minus : plus).push(word);
    return nearest(plus, minus);
  };
  const section = h(
    "section",
    {},
    h("h2", {}, "Neighbours and analogies"),
    h("form", { onsubmit: (event) => (event.preventDefault(), add()) }, h("div", { class: "row" }, field("A word, or a sum of words", sum), h("button", { class: "main" }, "Find"))),
    found,
    h("p", { class: "note" }, "Cosine similarity: 1 is the same direction, 0 is orthogonal. The words of the query are left out. Click a word to see its neighbours."),
  );
  return { section, near, add };
}

const BANKS = "He sat on the bank of the river.\nThe bank raised its interest rates.\nShe works at a bank in the city.\nThe boat drifted towards the bank.";

/** One word in several sentences. */
export function contextForm(model) {
  const context = h("div", { "aria-live": "polite" });
  const word = h("input", { type: "text", class: "short", value: "bank" });
  const sentences = h("textarea", { rows: 4 }, BANKS);
  let layer = -1;
  const compare = () => {
    const lines = sentences.value.split("\n").filter((line) => line.trim());
    const asked = ask("embeddings", { model: model.name, word: word.value.trim(), sentences: lines, layer });
    return into(context, asked, (data) => contextView(context, data, (chosen) => ((layer = chosen), compare())));
  };
  return h(
    "section",
    {},
    h("h2", {}, "One word in several sentences"),
    h("form", { onsubmit: (event) => (event.preventDefault(), compare()) }, field("Word", word), field("Sentences, one a line", sentences), h("div", { class: "row" }, h("button", { class: "main" }, "Compare"))),
    context,
  );
}
