// Try it: a panel for the task of the model, which draws the answers into the text.

import { clustered } from "./clusters.js";
import { bar, colour, empty, field, h, percent, short, tipped } from "./dom.js";
import { matrix } from "./matrix.js";
import { forecastSeries } from "./forecasts.js";
import { contextForm, firstSource, into, sumForm } from "./forms.js";
import { base64 } from "./microphone.js";
import { ask } from "./service.js";
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
    form.querySelector("form").requestSubmit();
  },
  "word-vectors": (root, model) => root.replaceChildren(sumForm(model).section),
};

/** The panel for a model {"name", "kind", "panel"}; a model with a task names its panel. */
export function answersTab(root, model) {
  const panel = PANELS[model.panel ?? model.kind];
  if (!panel) return void empty(root, h("p", {}, `There is no panel for ${model.kind}; try the other tabs.`));
  panel(root, model);
}

const predict = async (model, text) => (await ask("predict", { model: model.name, texts: [text] })).answers[0];

/** A form with text fields, and an element for the answer, which `answer(values, place)` fills. */
function asking(root, fields, answer, { button = "Answer", examples = [] } = {}) {
  const place = h("div", { "aria-live": "polite" });
  const inputs = fields.map(({ label, value = "", rows = 2 }) => h("textarea", { rows, "aria-label": label }, value));
  let turn = 0;
  const run = async () => {
    const mine = ++turn;
    empty(place, h("p", { class: "busy" }, "Working …"));
    const stage = h("div", {});
    try {
      await answer(inputs.map((input) => input.value), stage);
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
    if (mine === turn) empty(place, stage);
  };
  for (const input of inputs) input.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run());
  const form = h("form", { onsubmit: (event) => (event.preventDefault(), run()) }, fields.map(({ label }, i) => field(label, inputs[i])), h("div", { class: "row" }, h("button", { class: "main" }, button)));
  const tries = examples.map((values) => h("button", { type: "button", onclick: () => (inputs.forEach((input, i) => (input.value = values[i])), run()) }, values[0].length > 48 ? `${values[0].slice(0, 46)} …` : values[0]));
  empty(root, form, tries.length ? h("div", { class: "examples" }, "Examples:", tries) : null, place);
  return { inputs, run };
}

// ---------------------------------------------------------------------------------------------------- pre-trained

function fillMask(root, model) {
  const words = h("p", { class: "text" });
  let mask = "[MASK]";
  const { inputs, run } = asking(
    root,
    [{ label: "Text; click words below to mask them", value: "The capital of France is Paris." }],
    async ([text], place) => {
      if (!text.includes(mask)) return void empty(place, h("p", { class: "note" }, "Click a word above to mask it."));
      const answer = await predict(model, text);
      empty(
        place,
        answer.masks.map((guesses, i) => [h("h3", {}, `Masked word ${i + 1}`), h("ol", { class: "bars" }, guesses.map((one, k) => bar(one.token, one.probability, { strong: k === 0 })))]),
        h("p", {}, h("b", {}, answer.text)),
      );
    },
    { button: "Guess" },
  );
  const [input] = inputs;
  let original = input.value;
  function draw() {
    const parts = original.match(/\s+|[\p{L}\p{N}_'’-]+|[^\s]/gu) ?? [];
    const hidden = new Set();
    empty(words, parts.map((part, i) => {
      if (/^\s+$/.test(part)) return " ";
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
  input.addEventListener("input", () => {
    original = input.value.includes(mask) ? original : input.value;
    if (!input.value.includes(mask)) draw();
  });
  root.querySelector("form").after(words);
  ask("inside", { model: model.name }).then((about) => ((mask = about.mask || mask), draw()), draw);
}

function nextSentence(root, model) {
  asking(root, [{ label: "First", value: "She opened the door." }, { label: "Second", value: "Nobody was there." }], async ([a, b], place) => {
    const answer = await predict(model, [a, b]);
    empty(place, h("ul", { class: "bars" }, bar("follows", answer.follows), bar("does not follow", 1 - answer.follows, { index: 1 })));
  });
}

/** Words with the probability that each was replaced; a click on a word shows the generator's predictions for it. */
function replaced(root, model) {
  const offers = h("div", { "aria-live": "polite" });
  const { inputs, run } = asking(root, [{ label: "Text; change a word, and see whether the model finds it", value: "The chef cooked the meal and served it to the guests." }], async ([text], place) => {
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
  }, { button: "Look" });
  const [input] = inputs;
  function offer(text, { word, begin, end }) {
    const letters = [...text];
    const swap = (other) => ((input.value = letters.slice(0, begin).join("") + other + letters.slice(end).join("")), run());
    into(offers, ask("replaced", { model: model.name, text, begin, end }), ({ guesses }) =>
      empty(offers, h("h3", {}, `The generator's predictions for “${word}”`), h("ol", { class: "bars" }, guesses.map((one) => bar(h("button", { type: "button", class: "word", onclick: () => swap(one.token) }, one.token), one.probability)))));
  }
  run();
}

// ---------------------------------------------------------------------------------------------------- labels

function classify(root, model) {
  asking(root, [{ label: "Text", value: "A film that is a joy to watch, though it is far too long." }, { label: "Second text (for pairs)", rows: 1 }], async ([text, pair], place) => {
    const answer = await predict(model, pair ? [text, pair] : text);
    const scores = Object.entries(answer.scores ?? {}).sort((a, b) => b[1] - a[1]);
    const bars = scores.length ? h("ol", { class: "bars" }, scores.map(([label, p], i) => bar(label, p, { strong: i === 0 }))) : h("p", {}, `Score ${short(answer.score)}`);
    const stage = h("div", {});
    empty(place, bars, stage);
    const about = await ask("inside", { model: model.name });
    const output = Math.max(0, about.labels.indexOf(scores[0]?.[0]));
    why(stage, await ask("saliency", { model: model.name, text, pair: pair || null, output }), scores[0]?.[0] ?? "the score");
  });
}

/** A picture is chosen or dropped; the page sends the bytes of its file. */
function classifyPicture(root, model) {
  const place = h("div", { "aria-live": "polite" });
  let turn = 0;
  async function answer(file) {
    const mine = ++turn;
    if (!file) return;
    empty(place, h("p", { class: "busy" }, "Working …"));
    const stage = h("div", {});
    try {
      const found = await predict(model, { picture: await base64(file) });
      const scores = Object.entries(found.scores).sort((a, b) => b[1] - a[1]);
      const shown = h("canvas", { role: "img", "aria-label": file.name });
      const picture = await createImageBitmap(file).catch(() => null);
      if (picture) {
        const share = Math.min(1, 320 / Math.max(picture.width, picture.height));
        [shown.width, shown.height] = [picture.width, picture.height].map((side) => Math.max(1, Math.round(side * share)));
        shown.getContext("2d").drawImage(picture, 0, 0, shown.width, shown.height);
      }
      empty(stage, h("h3", {}, file.name), picture ? shown : null, h("ol", { class: "bars" }, scores.slice(0, 10).map(([label, p], i) => bar(label, p, { strong: i === 0 }))));
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
    if (mine === turn) empty(place, stage);
  }
  const input = h("input", { type: "file", accept: "image/*", "aria-label": "Picture", onchange: () => answer(input.files[0]) });
  const form = h("form", { onsubmit: (event) => event.preventDefault(), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), answer(event.dataTransfer.files[0])) }, field("Picture: choose a file, or drop one here", input));
  empty(root, form, place);
}

/** Several pictures are chosen; a matrix shows the cosines of their vectors. */
function comparePictures(root, model) {
  const place = h("div", { "aria-live": "polite" });
  async function compare(files) {
    empty(place, h("p", { class: "busy" }, "Working …"));
    try {
      const texts = await Promise.all([...files].map(async (file) => ({ picture: await base64(file) })));
      const { embeddings } = await ask("embed", { model: model.name, texts });
      empty(place, cosines([...files].map((file) => file.name), embeddings));
    } catch (error) {
      empty(place, h("p", { class: "error", role: "alert" }, error.message));
    }
  }
  const input = h("input", { type: "file", accept: "image/*", multiple: true, "aria-label": "Pictures", onchange: () => input.files.length && compare(input.files) });
  empty(root, h("form", { onsubmit: (event) => event.preventDefault() }, field("Pictures: choose two or more files", input)), place);
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
  asking(root, [{ label: "Sentence", value: "Ada Lovelace met Charles Babbage in London." }], async ([text], place) => {
    const answer = await predict(model, text);
    const marks = answer.entities ?? answer.roles ?? answer.words.filter((word) => word.tag !== "O").map((word) => ({ kind: word.tag, begin: word.begin, end: word.end, probability: word.probability }));
    const kinds = [...new Set(marks.map((mark) => mark.kind))];
    empty(place, marked(text, marks.map((mark) => ({ ...mark, index: kinds.indexOf(mark.kind), note: mark.kind }))), marks.length ? null : h("p", { class: "note" }, "The model found nothing to mark."));
  });
}

function clusters(root, model) {
  const texts = ["I voted for Nader because he was most aligned with my values, she said.", "Anna met the brother of Paul in Rome. He gave her a book that she had lost."];
  asking(root, [{ label: "Text", value: texts[0], rows: 4 }], async ([text], place) => {
    const found = (await predict(model, text)).clusters;
    const lines = found.map((cluster, i) => h("li", {}, h("b", {}, cluster[0].text), cluster.slice(1).map((one) => `, ${one.text}`)));
    empty(place, clustered(text, found), lines.length ? h("ol", {}, lines) : h("p", { class: "note" }, "The model found no mentions that belong together."));
  }, { button: "Find clusters", examples: texts.map((text) => [text]) });
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
  asking(root, [{ label: "Question", value: "Where did they meet?", rows: 1 }, { label: "Context", value: "Ada Lovelace met Charles Babbage at a party in London in 1833.", rows: 4 }], async ([asked, context], place) => {
    const answer = await predict(model, { question: asked, context });
    empty(
      place,
      h("p", {}, h("b", {}, answer.answer || "The text has no answer."), ` ${percent(answer.probability)}`),
      answer.answer ? marked(context, [{ begin: answer.begin, end: answer.end, index: 0, probability: answer.probability }]) : null,
      h("ol", { class: "bars" }, answer.spans.map((span) => bar(span.text, span.probability))),
      answer.no_answer === undefined ? null : h("p", { class: "note" }, `Probability of no answer: ${percent(answer.no_answer)}`),
    );
  });
}

function choose(root, model) {
  asking(root, [{ label: "Context", value: "She put the kettle on." }, { label: "Question (may be empty)", rows: 1 }, { label: "Choices, one a line", value: "She made tea.\nShe went swimming.", rows: 4 }], async ([context, asked, lines], place) => {
    const choices = lines.split("\n").filter((line) => line.trim());
    const answer = await predict(model, { context, ...(asked ? { question: asked } : {}), choices });
    empty(place, h("ol", { class: "bars" }, choices.map((one, i) => bar(one, answer.scores[i], { strong: i === answer.choice }))));
  });
}

// ---------------------------------------------------------------------------------------------------- vectors

function similarity(root, model) {
  const lines = "The cat sits on the mat.\nA kitten rests on a rug.\nThe market fell sharply today.\nShares lost much of their value.\nHow do I bake bread?";
  const { run } = asking(root, [{ label: "Sentences, one a line", value: lines, rows: 6 }], async ([text], place) => {
    const texts = text.split("\n").filter((line) => line.trim());
    const { embeddings } = await ask("embed", { model: model.name, texts });
    empty(place, cosines(texts, embeddings));
  }, { button: "Compare" });
  run();
}

/** A matrix of the cosines of vectors, with the text or name of each. */
function cosines(texts, embeddings) {
  const unit = embeddings.map((vector) => {
    const length = Math.hypot(...vector) || 1;
    return vector.map((value) => value / length);
  });
  const values = Float32Array.from(unit.flatMap((a) => unit.map((b) => a.reduce((sum, value, i) => sum + value * b[i], 0))));
  const names = texts.map((one) => (one.length > 24 ? `${one.slice(0, 23)}…` : one));
  return matrix({ rows: names, columns: names, sheets: [{ name: "cosine", colour: "--s0", values }], signed: true, label: "Similarity", say: (i, j) => `${texts[i]}\n${texts[j]}\ncosine ${short(values[i * texts.length + j])}` });
}

// ---------------------------------------------------------------------------------------------------- writing

function translate(root, model) {
  asking(root, [{ label: model.features ? "Vector" : "Text", value: firstSource(model) }], async ([text], place) => {
    const [answer] = (await ask("translate", { model: model.name, texts: [text] })).answers;
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
  }, { button: "Translate" });
}

function generate(root, model) {
  const steps = h("div", {});
  const { inputs, run } = asking(root, [{ label: "Beginning; click the next token, or let the model continue", value: "The" }], async ([text], place) => {
    const [answers] = (await ask("generate", { model: model.name, texts: [text] })).answers;
    empty(place, h("h3", {}, "Continuations"), answers.map((one) => h("p", {}, one.beginning, h("b", {}, one.text.slice(one.beginning.length)), h("small", {}, ` ${one.tokens} tokens, log-probability ${short(one.log_probability)}${one.finished ? "" : ", cut"}`))));
  }, { button: "Continue" });
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
  offer();
  return run;
}
