// Forms that send requests: a text, a sum of words, a word in several sentences; and the elements of their answers.

import { given, keep } from "./address.js";
import { empty, field, h } from "./dom.js";
import { ask } from "./service.js";
import { share } from "./share.js";
import { contextView, neighbours } from "./words.js";

const turns = new WeakMap(); // place -> how often it was asked for

/** Draw the result of a promise into an element: a message while it is pending, the error if it fails. The element shows
 * the result of the last request, whichever answer arrives first. `shared`: whether commands and files of it follow. */
export async function into(place, promise, draw, shared = true) {
  const turn = (turns.get(place) ?? 0) + 1;
  turns.set(place, turn);
  const busy = h("p", { class: "busy", role: "status" }, "Working …");
  place.querySelector(":scope > .busy")?.remove();
  for (const old of place.children) old.inert = true; // it stays, so that nothing jumps, and takes no clicks
  place.prepend(busy);
  place.setAttribute("aria-busy", "true");
  try {
    const data = await promise;
    if (turns.get(place) === turn) {
      await draw(data);
      if (shared) place.append(share(place, data) ?? "");
    }
  } catch (error) {
    if (turns.get(place) === turn) empty(place, h("p", { class: "error", role: "alert" }, error.message));
  } finally {
    if (turns.get(place) === turn) place.removeAttribute("aria-busy");
    busy.remove();
  }
}

/** The values of some fields at first: those in the address, else those of the first example that fits the model. */
export function starting(model, names) {
  const { fields } = given(), [first] = model.examples?.items ?? [];
  const there = names.some((name) => fields[name]);
  return names.map((name) => (there ? fields[name] : writable(first?.[name])) ?? "");
}

const writable = (value) => (Array.isArray(value) ? value.join("\n") : value); // choices are lines

/** Buttons for the examples of a model: a click calls `pick(item)`. Examples without one of `names` are left out. */
export function chips(model, names, pick) {
  const items = (model.examples?.items ?? []).filter((item) => names.some((name) => item[name]));
  if (!items.length) return null;
  const label = (item, i) => {
    const text = String(writable(item.text ?? item.question ?? item.context ?? `Example ${i + 1}${item.expected ? `: ${item.expected}` : ""}`)).trim();
    return text.length > 48 ? `${text.slice(0, 46)} …` : text;
  };
  const buttons = items.map((item, i) => h("button", { type: "button", onclick: () => pick(item) }, label(item, i)));
  return h("div", { class: "examples", role: "group", "aria-label": "Examples" }, h("span", { class: "note" }, `Examples (${model.examples.source}):`), buttons);
}

/** Fields under one heading that are closed at first, unless the address sets one of them. */
export function fold(label, names, ...fields) {
  const set = given().fields;
  return h("details", { class: "fold", open: names.some((name) => set[name]) }, h("summary", {}, label), h("div", { class: "row" }, fields));
}

/** A form for a text, with the examples of the model below it; Control and Enter send it. `done(text)` is called. */
export function textForm(model, label, done, ...more) {
  const input = h("textarea", { rows: 2, "aria-label": label }, starting(model, ["text"])[0]);
  const send = () => {
    keep({ text: input.value }, true);
    done(input.value);
  };
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), send()) }, field(label, input), ...more, h("div", { class: "row" }, h("button", { class: "main" }, "Show")));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  const offered = chips(model, ["text"], (item) => ((input.value = item.text), send()));
  return { form: h("div", {}, form, offered), input };
}

/** Neighbours of a word or of a sum of words: {section, near(word)}. */
export function sumForm(model) {
  const words = model.kind === "word-vectors" ? starting(model, ["text"])[0] : "";
  const found = h("div", { "aria-live": "polite" });
  const sum = h("input", { type: "text", class: "long", value: words });
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
  if (words) add();
  return { section, near, add };
}

const BANKS = "He sat on the bank of the river.\nThe bank raised its interest rates.\nShe works at a bank in the city.\nThe boat drifted towards the bank.";

/** The longest word that two of some texts have; "" without one. */
function shared(texts) {
  const words = texts.map((text) => new Set(text.match(/\p{L}{3,}/gu) ?? []));
  const twice = words.flatMap((some, i) => [...some].filter((word) => words.some((others, k) => k > i && others.has(word))));
  return twice.sort((a, b) => b.length - a.length)[0] ?? "";
}

/** One word in several sentences. */
export function contextForm(model) {
  const context = h("div", { "aria-live": "polite" });
  const texts = (model.examples?.items ?? []).map((item) => item.text).filter(Boolean);
  const [first, lines] = model.examples?.english === false ? [shared(texts), texts.join("\n")] : ["bank", BANKS];
  const word = h("input", { type: "text", class: "short", value: first });
  const sentences = h("textarea", { rows: 4 }, first ? lines : "");
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
