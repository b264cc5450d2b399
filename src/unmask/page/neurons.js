// Query × key of one head, dimension by dimension, and what flows through its block, with a temperature.

import { bar, empty, field, h, percent, select, short, table, unpack } from "./dom.js";
import { matrix } from "./matrix.js";

const SHOWN = 12; // tokens that the bars list

const several = (count) => Object.fromEntries(Array.from({ length: count }, (_, i) => [i, `${i + 1} of ${count}`]));

/** Choices of the layer, the head and the token that attends; `again` loads another layer or head. */
function controls(data, chosen, again, pick) {
  return h(
    "div",
    { class: "controls" },
    field("Layer", select(several(data.layers), data.layer, (value) => again({ layer: Number(value) + 1, head: data.head + 1 }))),
    field("Head", select(several(data.heads), data.head, (value) => again({ layer: data.layer + 1, head: Number(value) + 1 }))),
    field("Attending token", select(Object.fromEntries(data.tokens.map((token, i) => [i, `${i + 1} ${token}`])), chosen, (value) => pick(Number(value)))),
  );
}

/** The token that is chosen at first: the middle one. */
const middle = (data) => Math.floor(data.tokens.length / 2);

/** data: the output of `visualize.neurons.neurons`. */
export function neuronsView(root, data, again) {
  const [T, K] = data.query.shape, q = unpack(data.query), k = unpack(data.key), weights = unpack(data.weights);
  const stage = h("div", {}), columns = Array.from({ length: K }, (_, i) => (i && (i + 1) % 8 ? "" : String(i + 1)));
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  const drawn = (names, values, most, what, say) => matrix({ rows: names, columns, sheets: [{ name: what, colour: "--s0", values: values.map((value) => value / most) }], signed: true, figures: false, label: what, say });

  function show(i) {
    const query = q.slice(i * K, (i + 1) * K), product = new Float32Array(T * K), scores = new Float32Array(T);
    for (let j = 0; j < T; j++) for (let d = 0; d < K; d++) scores[j] += product[j * K + d] = query[d] * k[j * K + d] * data.scale;
    const most = Math.max(largest(q), largest(k)), strongest = largest(product);
    empty(
      stage,
      h("h3", {}, `Query of “${data.tokens[i]}”, and the keys`),
      drawn([`query: ${data.tokens[i]}`, ...data.tokens], Float32Array.from([...query, ...k]), most, "Query and keys", (row, d) => `${row ? `key of ${data.tokens[row - 1]}` : "query"}, dimension ${d + 1}\n${short(row ? k[(row - 1) * K + d] : query[d])}`),
      h("h3", {}, "Query × key, in each dimension, scaled"),
      drawn(data.tokens, product, strongest, "Query × key", (j, d) => `${data.tokens[i]} → ${data.tokens[j]}, dimension ${d + 1}\n${short(query[d])} × ${short(k[j * K + d])} × ${short(data.scale)} = ${short(product[j * K + d])}`),
      h("h3", {}, "The sum of each row is the score; its softmax is the weight"),
      table(["token", "score", "weight"], data.tokens.map((token, j) => [token, scores[j], percent(weights[i * T + j])])),
    );
  }

  empty(root, h("p", {}, `One head has ${K} dimensions. Each score is the sum over them of the query of the attending token times the key of another token, times ${short(data.scale)} (Vaswani et al. 2017, equation 1; the view is that of Vig 2019). Blue is above zero, orange is below.${data.adds ? " The position scheme of this model adds to the scores, which the weights contain." : ""}`), controls(data, middle(data), again, show), stage);
  show(middle(data));
}

/** The same data, as the flow through the block of the head. */
export function blockView(root, data, again) {
  const T = data.tokens.length, [, K] = data.value.shape, v = unpack(data.value), weights = unpack(data.weights);
  const shares = h("div", {}), output = h("output", {}), said = h("p", { role: "status" });
  const slider = h("input", { type: "range", min: -2, max: 2, step: 0.1, value: 0, oninput: () => show() });
  let chosen = middle(data);

  /** softmax(score / temperature): the logarithms of the weights are the scores, up to a number for each row. */
  function heated(i, temperature) {
    const row = weights.slice(i * T, (i + 1) * T).map((weight) => (weight > 0 ? Math.log(weight) / temperature : -Infinity));
    const most = row.reduce((a, b) => Math.max(a, b)), powers = row.map((value) => Math.exp(value - most)), sum = powers.reduce((a, b) => a + b);
    return powers.map((value) => value / sum);
  }

  const mixed = (row) => Array.from({ length: K }, (_, d) => row.reduce((sum, weight, j) => sum + weight * v[j * K + d], 0));
  const bits = (row) => row.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log2(weight) : 0), 0);

  function show() {
    const temperature = 2 ** Number(slider.value), [before, after] = [heated(chosen, 1), heated(chosen, temperature)];
    const [a, b] = [mixed(before), mixed(after)], dot = a.reduce((sum, value, d) => sum + value * b[d], 0);
    const order = [...after.keys()].sort((x, y) => after[y] - after[x]).slice(0, SHOWN);
    output.textContent = short(temperature);
    said.textContent = `“${data.tokens[chosen]}” spreads its weights over ${bits(after).toFixed(2)} bits (${bits(before).toFixed(2)} at temperature 1). The cosine between the output of the head and that at temperature 1 is ${short(dot / (Math.hypot(...a) * Math.hypot(...b) || 1))}.`;
    empty(shares, h("ol", { class: "bars" }, order.map((j) => bar(data.tokens[j], after[j], { strong: j === chosen }))));
  }

  const picked = (i) => ((chosen = i), show(), flow());
  const stations = h("div", {});
  function flow() {
    const names = Object.keys(data.flow), most = Math.max(...names.map((name) => data.flow[name][chosen]));
    empty(
      stations,
      h("h3", {}, `Length of the vector of “${data.tokens[chosen]}” on its way through the block`),
      h("ol", { class: "bars" }, names.map((name, i) => bar(LABELS[name] ?? name, data.flow[name][chosen] / most, { index: i % 2 ? 1 : 0, text: short(data.flow[name][chosen]) }))),
    );
  }

  empty(
    root,
    h("p", {}, `A block adds to the vector of each token what attention mixes from all tokens, and then what a feed-forward computes; this model normalises ${data.norm === "before" ? "before each of the two (pre-norm)" : "after each addition (post-norm)"}.`),
    controls(data, chosen, again, picked),
    stations,
    h("h3", {}, "Weights of the head at another temperature"),
    h("p", { class: "note" }, "The softmax of the scores divided by a temperature: below 1 the largest score takes all; above 1 the weights approach equal shares. The model uses 1."),
    h("div", { class: "controls" }, field("Temperature, from 1/4 to 4", slider), output, h("button", { type: "button", onclick: () => ((slider.value = 0), show()) }, "Back to 1")),
    said,
    shares,
  );
  flow();
  show();
}

const LABELS = { "block input": "what enters", attention: "what attention adds", "after attention": "after attention", "feed-forward": "what the feed-forward adds", "after feed-forward": "what leaves" };
