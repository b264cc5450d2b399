// How it works: positions, masking, pieces of words, masks, and what layers cost.

import { chart } from "./chart.js";
import { choice, empty, h, short, table, tipped, unpack } from "./dom.js";
import { matrix } from "./matrix.js";

/** data: what `visualize.positions` says. */
export function positionsView(root, data) {
  const [P, D] = data.table.shape;
  const scaled = unpack(data.table).map((value) => value / (data.scale || 1));
  const places = Array.from({ length: P }, (_, i) => String(i)), features = Array.from({ length: D }, (_, i) => String(i));
  const table = unpack(data.table), similar = unpack(data.similarity);
  empty(
    root,
    h("p", {}, `${data.kind === "learned" ? "Learned" : "Sinusoidal"} positions, ${P} places of ${D} features: ${data.note}. Blue is above zero, orange below, full colour from ±${short(data.scale)} on.`),
    h("h3", {}, "A row for each place, a column for each feature"),
    matrix({ rows: places, columns: features, sheets: [{ name: "value", colour: "--s0", values: scaled }], signed: true, label: "Positions", say: (i, j) => `place ${i}, feature ${j}\n${short(table[i * D + j])}` }),
    h("h3", {}, "How alike two places are (cosine)"),
    matrix({ rows: places, columns: places, sheets: [{ name: "cosine", colour: "--s0", values: similar }], signed: true, label: "Similarity of places", say: (i, j) => `places ${i} and ${j}\ncosine ${short(similar[i * P + j])}` }),
  );
}

const FATES = { mask: "becomes [MASK] (80 %)", random: "becomes a random token (10 %)", same: "stays as it is (10 %)" };

/** data: what `visualize.masking.masking` says. */
export function maskingView(root, data) {
  const draws = data.draws.map((draw, number) => {
    const at = new Map(draw.map((one) => [one.place, one]));
    const pieces = data.tokens.map((token, i) => {
      const one = at.get(i);
      if (!one) return h("span", { class: "piece" }, token);
      const guess = one.guess === undefined ? "" : `\nthe model says: ${one.guess} (${short(one.probability)})`;
      return tipped(
        h("span", { class: `piece fate-${one.fate}`, tabindex: 0 }, h("b", {}, one.became), h("small", {}, one.fate === "mask" ? `was ${one.was}` : one.fate === "random" ? `was ${one.was}` : "chosen, stays"), one.guess === undefined ? null : h("small", {}, `→ ${one.guess}`)),
        `“${one.was}” ${FATES[one.fate]}${guess}`,
      );
    });
    return [h("h3", {}, `Draw ${number + 1}, seed ${data.seed + number}`), h("div", { class: "pieces" }, pieces)];
  });
  empty(
    root,
    h("p", {}, `${short(100 * data.rate)} % of the ${data.whole_words ? "words" : "tokens"} are chosen to be guessed, anew each time a text is read (Devlin et al. 2018, section 3.1; Liu et al. 2019).`),
    h("div", { class: "legend" }, Object.entries(FATES).map(([fate, text]) => h("span", { class: `piece fate-${fate}` }, text))),
    draws,
  );
}

/** data: what `visualize.masking.spans` says. */
export function spansView(root, data) {
  const pieces = (tokens) => h("div", { class: "pieces" }, tokens.map(({ token, sentinel, guess, probability }) => {
    const style = sentinel ? "piece fate-mask" : "piece";
    if (guess === undefined) return h("span", { class: style }, token);
    return tipped(h("span", { class: style, tabindex: 0 }, token, h("small", {}, `→ ${guess}`)), `“${token}”\nthe model says, after all before it: ${guess} (${short(probability)})`);
  }));
  const draws = data.draws.map(({ read, written }, number) => [h("h3", {}, `Draw ${number + 1}, seed ${data.seed + number}`), h("p", { class: "note" }, "The encoder reads"), pieces(read), h("p", { class: "note" }, "The decoder is to write"), pieces(written)]);
  empty(root, h("p", {}, `${short(100 * data.rate)} % of the tokens are cut out, in spans of ${short(data.mean)} on average, anew each time a text is read (Raffel et al. 2020, section 3.1.4): a sentinel stands for each, and what is written says what each stood for.`), draws);
}

/** data: what `visualize.masking.wordpiece` says. */
export function wordpieceView(root, data) {
  const words = data.words.map((word) =>
    h("span", { class: "group" }, word.pieces.map((piece) =>
      tipped(h("span", { class: piece.unknown ? "piece unknown" : "piece", tabindex: 0 }, piece.piece, h("small", {}, String(piece.id))), `${piece.piece}\nid ${piece.id}${piece.begin === undefined ? "" : `\ncharacters ${piece.begin} to ${piece.end} of the text: ${JSON.stringify([...data.text].slice(piece.begin, piece.end).join(""))}`}`),
    )),
  );
  empty(
    root,
    h("p", {}, `${data.words.length} words, ${data.pieces} pieces (${short(data.pieces / data.words.length)} a word), ${data.unknown} unknown, from a vocabulary of ${short(data.vocabulary)}.`),
    h("div", { class: "pieces" }, words),
    h("p", { class: "note" }, `A frame holds a word; below each piece stands its id.${data.words[0].begin === undefined ? "" : " Where a piece lies in the text is in its tooltip."}`),
  );
}

/** data: what `visualize.masks.masks` says. */
export function masksView(root, data) {
  const stage = h("div", {});
  const show = (name) => {
    const one = data.masks.find((mask) => mask.name === name);
    const visible = unpack(one.visible), T = one.tokens.length;
    empty(
      stage,
      h("p", {}, `Row sees column where it is filled: ${one.note}.`),
      matrix({ rows: one.tokens, columns: one.tokens, sheets: [{ name: "", colour: "--s0", values: visible.map((v) => 0.75 * v) }], label: `${name} mask`, figures: false, say: (i, j) => `${one.tokens[i]} ${visible[i * T + j] ? "sees" : "does not see"} ${one.tokens[j]}` }),
    );
  };
  const names = Object.fromEntries(data.masks.map((mask) => [mask.name, mask.name]));
  empty(root, choice("Mask", names, data.masks[0].name, show), stage);
  show(data.masks[0].name);
}

/** data: what `visualize.complexity.complexity` says. */
export function complexityView(root, data) {
  const names = Object.keys(data.seconds), longest = data.lengths.at(-1);
  const series = names.map((name, index) => ({ name, index, points: data.lengths.map((n, i) => [n, data.seconds[name][i]]).filter(([, s]) => s !== null).map(([n, s]) => [n, 1000 * s]) }));
  const last = (name) => {
    const i = data.seconds[name].findLastIndex((s) => s !== null);
    return i < 0 ? "–" : `${short(1000 * data.seconds[name][i])} ms at ${data.lengths[i]}`;
  };
  empty(
    root,
    h("p", {}, `One layer of width ${data.dim} over one sequence, forward only, measured here and now (${data.threads} ${data.threads === 1 ? "thread" : "threads"}).`),
    chart({ title: "Milliseconds of a layer", series, x: "tokens", log: true }),
    h("h3", {}, "By formula (Vaswani et al. 2017, table 1)"),
    table(
      ["layer", "operations", "steps in sequence", "longest path", `at n = ${longest}: steps`, "path", "measured"],
      names.map((name) => {
        const of = data.formulas[name];
        return [name, of.operations, of.sequential, of.path, of.steps, of.distance, last(name)];
      }),
    ),
    h("p", { class: "note" }, "Fewer steps in sequence run in parallel; a shorter path lets distant words meet sooner. n tokens, width d, kernel k."),
  );
}
