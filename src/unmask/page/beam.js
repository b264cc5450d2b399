// Beam search as a tree: every candidate of every step, kept, finished or dropped.

import { empty, field, h, roving, short, svg, table, tipped } from "./dom.js";

const COLUMN = 132, ROW = 30, WIDTH = 104, HEIGHT = 24;
const FATES = { kept: "kept", finished: "finished", dropped: "dropped" };

/** data: the output of `visualize.beam.tree`. */
export function beamView(root, data) {
  const steps = Math.max(0, ...data.nodes.map((node) => node.step));
  const best = new Set(data.best);
  const stage = h("div", { class: "tree scroll" });
  const output = h("output", {});
  let timer = null;
  const slider = h("input", { type: "range", min: 1, max: Math.max(1, steps), value: steps, oninput: () => draw(Number(slider.value)) });
  const hide = h("input", { type: "checkbox", onchange: () => draw(Number(slider.value)) });
  const play = h("button", { type: "button", onclick: () => run() }, "Play");

  function run() {
    clearInterval(timer);
    slider.value = 1;
    draw(1);
    timer = setInterval(() => {
      if (!stage.isConnected || Number(slider.value) >= steps) return clearInterval(timer);
      slider.value = Number(slider.value) + 1;
      draw(Number(slider.value));
    }, 700);
  }

  function draw(until) {
    output.textContent = `step ${until} of ${steps}`;
    const shown = data.nodes.filter((node) => node.step <= until && !(hide.checked && node.fate === "dropped"));
    const place = new Map(), filled = new Map();
    for (const node of [...shown].sort((a, b) => a.step - b.step || a.group - b.group || b.score - a.score)) {
      const rank = filled.get(node.step) ?? 0;
      filled.set(node.step, rank + 1);
      place.set(node.id, [8 + COLUMN * node.step, 10 + ROW * rank]);
    }
    const width = 16 + COLUMN * (until + 1), height = 20 + ROW * Math.max(1, ...filled.values());
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Tree of hypotheses, a column for each step, the most probable at the top" });
    const start = [8, 10];
    picture.append(box(start, "start", { class: "node kept" }, "the start of all hypotheses"));
    const chosen = until === steps ? best : new Set();
    for (const node of shown) {
      const [x1, y1] = place.get(node.parent) ?? start, [x2, y2] = place.get(node.id);
      const kind = chosen.has(node.id) ? "best" : node.fate;
      const from = x1 + (node.parent === null ? 52 : WIDTH);
      picture.append(svg("path", { class: `edge ${kind === "finished" ? "kept" : kind}`, d: `M${from} ${y1 + HEIGHT / 2}C${x2 - 14} ${y1 + HEIGHT / 2} ${x2 - 14} ${y2 + HEIGHT / 2} ${x2} ${y2 + HEIGHT / 2}` }));
    }
    const nodes = shown.map((node, i) => {
      const kind = `${node.fate}${chosen.has(node.id) ? " best" : ""}`;
      const said = `${JSON.stringify(node.token)} ${FATES[node.fate]}\nlog-probability of the token ${short(node.said)} (p = ${short(Math.exp(node.said))})\nlog-probability of the hypothesis ${short(node.total)}\nscore ${short(node.score)} = ${data.formula}`;
      return box(place.get(node.id), node.token, { class: `node ${kind}`, tabindex: i ? -1 : 0, "aria-label": said.replaceAll("\n", ", ") }, said, short(node.score));
    });
    picture.append(...nodes);
    roving(picture, nodes);
    empty(stage, picture);
  }

  function box([x, y], text, props, said, score = "") {
    const most = score ? 7 : 9;
    const label = [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;
    const wide = score ? WIDTH : 52;
    const group = svg("g", { transform: `translate(${x} ${y})`, ...props },
      svg("rect", { width: wide, height: HEIGHT }),
      svg("text", { x: 7, y: 17 }, label || "␣"),
      score ? svg("text", { x: WIDTH - 7, y: 17, "text-anchor": "end", class: "soft" }, score) : null);
    return tipped(group, said);
  }

  empty(
    root,
    h("p", {}, `Beam size ${data.width}, score = ${data.formula}, where |y| is the number of tokens. Solid: kept. Dashed: dropped. Green: finished. Filled: on the path of the best hypothesis.`),
    h("div", { class: "controls" }, play, field("Up to step", slider), output, h("label", { class: "check" }, hide, "hide dropped candidates")),
    stage,
    h("h3", {}, "Answers"),
    table(["score", "tokens", "end"], data.answers.map((one) => [one.score, one.tokens.join(" "), one.finished ? "finished" : "cut at the limit"])),
  );
  draw(steps);
}
