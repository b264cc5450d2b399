// How it works: positions, masking, subword tokens, attention masks, and the cost of layers.

import { chart } from "./chart.js";
import { choice, empty, h, short, table, tipped, unpack } from "./dom.js";
import { galleryGroup } from "./gallery.js";
import { matrix } from "./matrix.js";

/** data: the output of `visualize.positions`. */
export function positionsView(root, data) {
  const [P, D] = data.table.shape;
  const scaled = unpack(data.table).map((value) => value / (data.scale || 1));
  const places = Array.from({ length: P }, (_, i) => String(i)), features = Array.from({ length: D }, (_, i) => String(i));
  const table = unpack(data.table), similar = unpack(data.similarity);
  empty(
    root,
    h("p", {}, `${data.kind[0].toUpperCase()}${data.kind.slice(1)} positions, ${P} positions of ${D} features: ${data.note}. Blue is above zero, orange is below; the colour is full from ±${short(data.scale)}.`),
    data.maps ? galleryGroup(data.maps, 1) : null,
    h("h3", {}, "A row for each position, a column for each feature"),
    matrix({ rows: places, columns: features, sheets: [{ name: "value", colour: "--s0", values: scaled }], signed: true, label: "Positions", say: (i, j) => `place ${i}, feature ${j}\n${short(table[i * D + j])}` }),
    h("h3", {}, "Similarity of positions (cosine)"),
    matrix({ rows: places, columns: places, sheets: [{ name: "cosine", colour: "--s0", values: similar }], signed: true, label: "Similarity of positions", say: (i, j) => `positions ${i} and ${j}\ncosine ${short(similar[i * P + j])}` }),
  );
}

const FATES = { mask: "becomes [MASK] (80 %)", random: "becomes a random token (10 %)", same: "is unchanged (10 %)" };

/** data: the output of `visualize.masking.masking`. */
export function maskingView(root, data) {
  const draws = data.draws.map((draw, number) => {
    const at = new Map(draw.map((one) => [one.place, one]));
    const pieces = data.tokens.map((token, i) => {
      const one = at.get(i);
      if (!one) return h("span", { class: "piece" }, token);
      const guess = one.guess === undefined ? "" : `\nthe model predicts: ${one.guess} (${short(one.probability)})`;
      return tipped(
        h("span", { class: `piece fate-${one.fate}`, tabindex: 0 }, h("b", {}, one.became), h("small", {}, one.fate === "mask" ? `was ${one.was}` : one.fate === "random" ? `was ${one.was}` : "chosen, unchanged"), one.guess === undefined ? null : h("small", {}, `→ ${one.guess}`)),
        `“${one.was}” ${FATES[one.fate]}${guess}`,
      );
    });
    return [h("h3", {}, `Draw ${number + 1}, seed ${data.seed + number}`), h("div", { class: "pieces" }, pieces)];
  });
  empty(
    root,
    h("p", {}, `${short(100 * data.rate)} % of the ${data.whole_words ? "words" : "tokens"} are chosen for the model to predict, again each time it reads a text (Devlin et al. 2018, section 3.1; Liu et al. 2019).`),
    h("div", { class: "legend" }, Object.entries(FATES).map(([fate, text]) => h("span", { class: `piece fate-${fate}` }, text))),
    draws,
  );
}

/** data: the output of `visualize.masking.spans`. */
export function spansView(root, data) {
  const pieces = (tokens) => h("div", { class: "pieces" }, tokens.map(({ token, sentinel, guess, probability }) => {
    const style = sentinel ? "piece fate-mask" : "piece";
    if (guess === undefined) return h("span", { class: style }, token);
    return tipped(h("span", { class: style, tabindex: 0 }, token, h("small", {}, `→ ${guess}`)), `“${token}”\nthe model predicts, from the tokens before it: ${guess} (${short(probability)})`);
  }));
  const draws = data.draws.map(({ read, written }, number) => [h("h3", {}, `Draw ${number + 1}, seed ${data.seed + number}`), h("p", { class: "note" }, "The encoder reads"), pieces(read), h("p", { class: "note" }, "The decoder learns to write"), pieces(written)]);
  empty(root, h("p", {}, `${short(100 * data.rate)} % of the tokens are masked, in spans of ${short(data.mean)} on average, again each time the model reads a text (Raffel et al. 2020, section 3.1.4). A sentinel replaces each span; the target text has each sentinel and the tokens that it replaced.`), draws);
}

/** data: the output of `visualize.masking.wordpiece`. */
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
    h("p", { class: "note" }, `Each frame is a word; below each token is its id.${data.words[0].begin === undefined ? "" : " The tooltip of a token shows its characters in the text."}`),
  );
}

/** data: the output of `visualize.masks.masks`. */
export function masksView(root, data) {
  const stage = h("div", {});
  const show = (name) => {
    const one = data.masks.find((mask) => mask.name === name);
    const visible = unpack(one.visible), T = one.tokens.length;
    empty(
      stage,
      h("p", {}, `A filled cell: the token of the row attends to the token of the column (${one.note}).`),
      matrix({ rows: one.tokens, columns: one.tokens, sheets: [{ name: "", colour: "--s0", values: visible.map((v) => 0.75 * v) }], label: `${name} mask`, figures: false, say: (i, j) => `${one.tokens[i]} ${visible[i * T + j] ? "sees" : "does not see"} ${one.tokens[j]}` }),
    );
  };
  const names = Object.fromEntries(data.masks.map((mask) => [mask.name, mask.name]));
  empty(root, choice("Mask", names, data.masks[0].name, show), stage);
  show(data.masks[0].name);
}

/** data: the output of `visualize.complexity.complexity`. */
export function complexityView(root, data) {
  const names = Object.keys(data.seconds), rows = Object.keys(data.formulas), longest = data.lengths.at(-1);
  const series = names.map((name, index) => ({ name, index, points: data.lengths.map((n, i) => [n, data.seconds[name][i]]).filter(([, s]) => s !== null).map(([n, s]) => [n, 1000 * s]) }));
  const last = (name) => {
    const i = (data.seconds[name] ?? []).findLastIndex((s) => s !== null);
    return i < 0 ? "–" : `${short(1000 * data.seconds[name][i])} ms at ${data.lengths[i]}`;
  };
  empty(
    root,
    h("p", {}, `One layer of width ${data.dim} over one sequence, forward pass only, measured on this machine (${data.threads} ${data.threads === 1 ? "thread" : "threads"}).`),
    chart({ title: "Time of a layer (ms)", series, x: "tokens", log: true }),
    h("h3", {}, "By formula (Vaswani et al. 2017, table 1)"),
    table(
      ["layer", "operations", "memory", "sequential steps", "longest path", `at n = ${longest}: steps`, "path", "measured"],
      rows.map((name) => {
        const of = data.formulas[name];
        return [name, of.operations, of.memory, of.sequential, of.path, of.steps, of.distance, last(name)];
      }),
    ),
    h("p", { class: "note" }, "Fewer sequential steps allow more parallel computation; a shorter path connects distant words in fewer steps. n tokens, width d, kernel k, a neighbourhood of r = 64. The memory, which the table of the paper does not have, is what a layer keeps for the gradient; fused attention does not keep the n²."),
  );
}
