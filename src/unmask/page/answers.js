// Try it: a panel for the task of the model, which draws the answers into the text.

import { clustered } from "./clusters.js";
import { bar, colour, empty, field, h, percent, short, tipped } from "./dom.js";
import { cosines, matrix } from "./matrix.js";
import { forecastSeries } from "./forecasts.js";
import { given, keep } from "./address.js";
import { chips, contextForm, fold, into, starting, sumForm } from "./forms.js";
import { classifyPicture, comparePictures } from "./seeing.js";
import { ask } from "./service.js";
import { share } from "./share.js";
import { classifySignal, scoreSignal, tagSignal } from "./signals.js";
import { classifyRecording, compareRecordings, readRecording, transcribe } from "./speech.js";

const PANELS = {
  "fill-mask": fillMask,
  "next-sentence": nextSentence,
  classify,
  classifyPicture,
  comparePictures,
  transcribe,
  classifyRecording,
  compareRecordings,
  classifySignal,
  scoreSignal,
  tagSignal,
  forecastSeries,
  question,
  tag,
  clusters,
  choose,
  similarity,
  translation: translate,
  generation: generate,
  "replaced-tokens": replaced,
  recordings: readRecording,
  "contextual-words": (root, model) => {
    const form = contextForm(model);
    root.replaceChildren(form);
    if (form.querySelector("input").value) form.querySelector("form").requestSubmit();
  },
  "word-vectors": (root, model) => root.replaceChildren(sumForm(model).section),
};

/** The panel for a model {"name", "kind", "panel"}; a model with a task names its panel. */
export function answersTab(root, model) {
  const panel = PANELS[model.panel ?? model.kind];
  if (!panel) return void empty(root, h("p", {}, `There is no panel for ${model.kind}; try the other tabs.`));
  panel(root, model);
}

const predict = (model, text) => ask("predict", { model: model.name, texts: [text] });

/** A form with text fields {name, label, rows, more: whether it is folded}, filled from the address or an example, and
 *  an element for the answer, which `answer(values, place)` fills; it may return what `ask` returned. */
function asking(root, model, fields, answer, { button = "Answer", change = (values) => values } = {}) {
  const place = h("div", { "aria-live": "polite" }), names = fields.map(({ name }) => name);
  const inputs = fields.map(({ label, rows = 2 }) => h("textarea", { rows, "aria-label": label }));
  const fill = (values) => change(values).forEach((value, i) => (inputs[i].value = value));
  fill(starting(model, names));
  let turn = 0;
  const run = async (push = true) => {
    const mine = ++turn;
    if (push || Object.keys(given().fields).some((name) => names.includes(name))) keep(Object.fromEntries(names.map((name, i) => [name, inputs[i].value])), push);
    empty(place, h("p", { class: "busy" }, "Working …"));
    const stage = h("div", {});
    try {
      const data = await answer(inputs.map((input) => input.value), stage);
      stage.append(share(stage, data) ?? "");
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
    if (mine === turn) empty(place, stage);
  };
  for (const input of inputs) input.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run());
  const shown = (more) => fields.map(({ label, more: folded = false }, i) => (folded === more ? field(label, inputs[i]) : null));
  const folded = fields.filter((one) => one.more);
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), run()) }, shown(false), folded.length ? fold(folded[0].more, folded.map((one) => one.name), shown(folded[0].more)) : null, h("div", { class: "row" }, h("button", { class: "main" }, button)));
  const offered = chips(model, names, (item) => (fill(names.map((name) => text(item[name]))), run()));
  empty(root, form, offered, place);
  if (inputs[0].value.trim()) queueMicrotask(() => run(false)); // once the panel has added what it needs
  return { inputs, run };
}

const text = (value) => (Array.isArray(value) ? value.join("\n") : value ?? "");

// ---------------------------------------------------------------------------------------------------- pre-trained

function fillMask(root, model) {
  const words = h("p", { class: "text" }), mask = model.about?.mask || "[MASK]";
  const { inputs, run } = asking(
    root,
    model,
    [{ name: "text", label: "Text; click words below to mask them" }],
    async ([text], place) => {
      if (!text.includes(mask)) return void empty(place, h("p", { class: "note" }, "Click a word above to mask it."));
      const found = await predict(model, text), [answer] = found.answers;
      empty(
        place,
        answer.masks.map((guesses, i) => [h("h3", {}, `Masked word ${i + 1}`), h("ol", { class: "bars" }, guesses.map((one, k) => bar(one.token, one.probability, { strong: k === 0 })))]),
        h("p", {}, h("b", {}, answer.text)),
      );
      return found;
    },
    { button: "Guess", change: ([text]) => [text && !text.includes(mask) ? text.replace(longest(text), () => mask) : text] },
  );
  const [input] = inputs;
  let original = "";
  function draw() {
    original = input.value;
    const parts = original.split(mask).flatMap((text, i) => [...(i ? [mask] : []), ...(text.match(/\s+|[\p{L}\p{N}_'’-]+|[^\s]/gu) ?? [])]);
    const hidden = new Set();
    empty(words, parts.map((part, i) => {
      if (/^\s+$/.test(part)) return " ";
      if (part === mask) return h("b", {}, mask);
      const button = h("button", { type: "button", class: "word", "aria-pressed": false, "aria-label": `Hide ${part}` }, part);
      button.addEventListener("click", () => {
        if (hidden.has(i)) hidden.delete(i);
        else hidden.add(i);
        button.setAttribute("aria-pressed", hidden.has(i));
        input.value = parts.map((one, k) => (hidden.has(k) ? mask : one)).join("");
        run();
      });
      return button;
    }));
  }
  input.addEventListener("input", draw);
  root.querySelector("form").after(words);
  root.querySelector(".examples")?.addEventListener("click", draw);
  draw();
}

/** The longest word of a text, which an example without a mask hides. */
const longest = (text) => (text.match(/\p{L}+/gu) ?? [""]).sort((a, b) => b.length - a.length)[0];

function nextSentence(root, model) {
  asking(root, model, [{ name: "text", label: "First" }, { name: "pair", label: "Second" }], async ([a, b], place) => {
    const found = await predict(model, [a, b]), [answer] = found.answers;
    empty(place, h("ul", { class: "bars" }, bar("follows", answer.follows), bar("does not follow", 1 - answer.follows, { index: 1 })));
    return found;
  });
}

/** Words with the probability that each was replaced; a click on a word shows the generator's predictions for it. */
function replaced(root, model) {
  const offers = h("div", { "aria-live": "polite" });
  const { inputs, run } = asking(root, model, [{ name: "text", label: "Text; change a word, and see whether the model finds it" }], async ([text], place) => {
    empty(offers);
    const found = await ask("replaced", { model: model.name, text });
    const letters = [...found.text], parts = [];
    let at = 0;
    for (const one of found.words) {
      parts.push(letters.slice(at, one.begin).join(""), h("button", { type: "button", class: "word doubt", style: { "--share": `${Math.round(60 * one.probability)}%` }, onclick: () => offer(found.text, one) }, one.word, h("sub", {}, percent(one.probability))));
      at = one.end;
    }
    parts.push(letters.slice(at).join(""));
    empty(place, h("p", { class: "text" }, parts), h("p", { class: "note" }, "Below each word: the probability that it was replaced. A stronger colour is a higher probability. Click a word to see what the generator predicts in its place."), offers);
    return found;
  }, { button: "Look" });
  const [input] = inputs;
  function offer(text, { word, begin, end }) {
    const letters = [...text];
    const swap = (other) => ((input.value = letters.slice(0, begin).join("") + other + letters.slice(end).join("")), run());
    into(offers, ask("replaced", { model: model.name, text, begin, end }), ({ guesses }) =>
      empty(offers, h("h3", {}, `The generator's predictions for “${word}”`), h("ol", { class: "bars" }, guesses.map((one) => bar(h("button", { type: "button", class: "word", onclick: () => swap(one.token) }, one.token), one.probability)))));
  }
}

// ---------------------------------------------------------------------------------------------------- labels

function classify(root, model) {
  asking(root, model, [{ name: "text", label: "Text" }, { name: "pair", label: "Second text", rows: 1, more: "Second text, for models that read pairs" }], async ([text, pair], place) => {
    const found = await predict(model, pair ? [text, pair] : text), [answer] = found.answers;
    const scores = Object.entries(answer.scores ?? {}).sort((a, b) => b[1] - a[1]);
    const bars = scores.length ? h("ol", { class: "bars" }, scores.map(([label, p], i) => bar(label, p, { strong: i === 0 }))) : h("p", {}, `Score ${short(answer.score)}`);
    const stage = h("div", {});
    empty(place, bars, stage);
    const output = Math.max(0, (model.about?.labels ?? []).indexOf(scores[0]?.[0]));
    why(stage, await ask("saliency", { model: model.name, text, pair: pair || null, output }), scores[0]?.[0] ?? "the score");
    return found;
  });
}

/** A token on a background that is stronger for a larger value; negative values have another colour. */
function heated(token, value, most) {
  const paint = value < 0 ? colour(1) : colour(0);
  return [tipped(h("span", { tabindex: -1, style: { background: `color-mix(in srgb, ${paint} ${Math.round(45 * Math.min(1, Math.abs(value / most)))}%, transparent)`, "border-radius": "3px", padding: "2px 3px" } }, token), `${token} ${short(value)}`), " "];
}

/** The sentences of a text with a bar for the weight of each, and its words on backgrounds by theirs. */
function sentences(tokens, { words, sentences: weights }) {
  const rows = [];
  tokens.forEach((token, i) => {
    if (!weights[i]) return rows.push(null);
    if (!rows.at(-1)) rows.push({ weight: weights[i], words: [] });
    rows.at(-1).words.push([token, words[i]]);
  });
  const bars = rows.filter(Boolean).map((row) => {
    const most = Math.max(...row.words.map(([, value]) => value));
    return bar(h("span", {}, row.words.map(([token, value]) => heated(token, value, most))), row.weight);
  });
  return h("div", { class: "card" }, h("h3", {}, "Attention to sentences, and to the words of each"), h("ol", { class: "bars long" }, bars));
}

/** Gradient × input and attention for each token. */
function why(root, found, label) {
  const largest = Math.max(...found.gradient.map(Math.abs), 1e-12);
  const line = (title, values, most) => h("div", { class: "card" }, h("h3", {}, title), h("p", { class: "text" }, found.tokens.map((token, i) => heated(token, values[i], most))));
  const attention = found.attention ? [line("Attention of the classifying token, last layer", found.attention, Math.max(...found.attention)), line("Attention rollout of the same token", found.rollout, Math.max(...found.rollout))] : [];
  const looked = found.looked ? sentences(found.tokens, found.looked) : null;
  empty(root, h("div", { class: "cards" }, line(`Gradient × input for “${label}”: blue supports it, orange opposes it`, found.gradient, largest), attention, looked), h("p", { class: "note" }, found.caution));
}

function tag(root, model) {
  asking(root, model, [{ name: "text", label: "Sentence" }], async ([text], place) => {
    const found = await predict(model, text), [answer] = found.answers;
    const marks = answer.entities ?? answer.roles ?? answer.words.filter((word) => word.tag !== "O").map((word) => ({ kind: word.tag, begin: word.begin, end: word.end, probability: word.probability }));
    const kinds = [...new Set(marks.map((mark) => mark.kind))];
    empty(place, marked(text, marks.map((mark) => ({ ...mark, index: kinds.indexOf(mark.kind), note: mark.kind }))), marks.length ? null : h("p", { class: "note" }, "The model found nothing to mark."));
    return found;
  });
}

function clusters(root, model) {
  asking(root, model, [{ name: "text", label: "Text", rows: 4 }], async ([text], place) => {
    const said = await predict(model, text), found = said.answers[0].clusters;
    const lines = found.map((cluster, i) => h("li", {}, h("b", {}, cluster[0].text), cluster.slice(1).map((one) => `, ${one.text}`)));
    empty(place, clustered(text, found), lines.length ? h("ol", {}, lines) : h("p", { class: "note" }, "The model found no mentions that belong together."));
    return said;
  }, { button: "Find clusters" });
}

/** A text with its marks {begin, end, index, note, probability}. */
function marked(text, marks) {
  const letters = [...text], parts = [];
  let at = 0;
  for (const mark of [...marks].sort((a, b) => a.begin - b.begin)) {
    if (mark.begin < at) continue;
    parts.push(letters.slice(at, mark.begin).join(""));
    const inside = letters.slice(mark.begin, mark.end).join("");
    parts.push(tipped(h("mark", { tabindex: 0, style: { "--mark": colour(mark.index) } }, inside, mark.note ? h("sub", {}, mark.note) : null), `${inside}\n${mark.note ?? ""} ${mark.probability === undefined ? "" : percent(mark.probability)}`));
    at = mark.end;
  }
  parts.push(letters.slice(at).join(""));
  return h("p", { class: "text" }, parts);
}

// ---------------------------------------------------------------------------------------------------- questions

function question(root, model) {
  asking(root, model, [{ name: "question", label: "Question", rows: 1 }, { name: "context", label: "Context", rows: 4 }], async ([asked, context], place) => {
    const found = await predict(model, { question: asked, context }), [answer] = found.answers;
    empty(
      place,
      h("p", {}, h("b", {}, answer.answer || "The text has no answer."), ` ${percent(answer.probability)}`),
      answer.answer ? marked(context, [{ begin: answer.begin, end: answer.end, index: 0, probability: answer.probability }]) : null,
      h("ol", { class: "bars" }, answer.spans.map((span) => bar(span.text, span.probability))),
      answer.no_answer === undefined ? null : h("p", { class: "note" }, `Probability of no answer: ${percent(answer.no_answer)}`),
    );
    return found;
  });
}

function choose(root, model) {
  asking(root, model, [{ name: "context", label: "Context" }, { name: "question", label: "Question (may be empty)", rows: 1 }, { name: "choices", label: "Choices, one a line", rows: 4 }], async ([context, asked, lines], place) => {
    const choices = lines.split("\n").filter((line) => line.trim());
    const found = await predict(model, { context, ...(asked ? { question: asked } : {}), choices }), [answer] = found.answers;
    empty(place, h("ol", { class: "bars" }, choices.map((one, i) => bar(one, answer.scores[i], { strong: i === answer.choice }))));
    return found;
  });
}

// ---------------------------------------------------------------------------------------------------- vectors

function similarity(root, model) {
  const lines = model.examples?.english ? CATS : (model.examples?.items ?? []).map((item) => item.text).join("\n");
  asking(root, model, [{ name: "texts", label: "Sentences, one a line", rows: 6 }], async ([text], place) => {
    const texts = text.split("\n").filter((line) => line.trim());
    const found = await ask("embed", { model: model.name, texts });
    empty(place, cosines(texts, found.embeddings));
    return found;
  }, { button: "Compare", change: ([texts]) => [texts || lines] });
}

const CATS = "The cat sits on the mat.\nA kitten rests on a rug.\nThe market fell sharply today.\nShares lost much of their value.\nHow do I bake bread?";

// ---------------------------------------------------------------------------------------------------- writing

function translate(root, model) {
  asking(root, model, [{ name: "text", label: model.features ? "Vector" : "Text" }], async ([text], place) => {
    const said = await ask("translate", { model: model.name, texts: [text] }), [answer] = said.answers;
    const best = answer.translations[0];
    if (!best) return void empty(place, h("p", { class: "note" }, "Enter a text to translate."));
    const others = answer.translations.slice(1);
    const pieces = best.pieces.map((piece, i) => tipped(h("span", { class: "piece", tabindex: 0 }, piece), `${piece}\n${percent(best.probabilities[i])}`));
    const stage = h("div", {});
    empty(place, h("p", {}, h("b", {}, best.text)), h("div", { class: "pieces" }, pieces), others.length ? h("ol", {}, others.map((one) => h("li", {}, `${one.text} (${short(one.score)})`))) : null, stage);
    try {
      const { rows, columns, values } = await ask("alignment", { model: model.name, text, pair: best.text });
      empty(stage, h("h3", {}, "Attention to the source"), matrix({ rows, columns, sheets: [{ name: "weight", colour: "--s0", values: Float32Array.from(values.flat()) }], label: "Alignment" }));
    } catch (error) {
      empty(stage, h("p", { class: "note" }, error.message));
    }
    return said;
  }, { button: "Translate", change: ([text]) => [text || vector(model)] });
}

/** The first vector of a model that reads vectors: 1 and zeros. */
const vector = (model) => (model.features ? ["1", ...Array(model.features - 1).fill("0")].join(" ") : "");

function generate(root, model) {
  const steps = h("div", {});
  const { inputs } = asking(root, model, [{ name: "text", label: "Beginning; click the next token, or let the model continue" }], async ([text], place) => {
    const said = await ask("generate", { model: model.name, texts: [text] }), [answers] = said.answers;
    empty(place, h("h3", {}, "Continuations"), answers.map((one) => h("p", {}, one.beginning, h("b", {}, one.text.slice(one.beginning.length)), h("small", {}, ` ${one.tokens} tokens, log-probability ${short(one.log_probability)}${one.finished ? "" : ", cut"}`))));
    return said;
  }, { button: "Continue", change: ([text]) => [beginning(text)] });
  const [input] = inputs;
  let turn = 0;
  async function offer() {
    const mine = ++turn;
    try {
      const found = await ask("next", { model: model.name, text: input.value });
      if (mine !== turn) return;
      empty(steps, h("h3", {}, "Most probable next tokens"), h("ol", { class: "bars" }, found.candidates.map((one) =>
        bar(one.end ? "(the end)" : h("button", { type: "button", class: "word", onclick: () => ((input.value = one.text), offer()) }, one.token), one.probability),
      ), bar("all other tokens", found.others, { index: 7 })));
    } catch (error) {
      empty(steps, h("p", { class: "error" }, error.message));
    }
  }
  input.addEventListener("change", offer);
  root.querySelector("form").after(steps);
  root.querySelector(".examples")?.addEventListener("click", offer);
  if (input.value) offer();
}

/** The first words of an example, which a language model continues; a text that was typed stays. */
const beginning = (text) => (given().fields.text ? text : text.split(/\s+/).slice(0, 4).join(" "));
