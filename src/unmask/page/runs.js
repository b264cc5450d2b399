// Comparison of runs: curves, differences of configuration, predictions for probes.

import { chart } from "./chart.js";
import { empty, field, h, percent, short, table } from "./dom.js";
import { galleryGroup } from "./gallery.js";

const FIRST = ["loss", "correct", "accuracy", "f1", "bleu", "perplexity"];

/** data: the output of `visualize.runs.compare`. */
export function runsView(root, data) {
  const several = data.runs.length > 1;
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.curves)))].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const place = h("div", {}), how = { x: false, y: false, smooth: 0 };
  function draw() {
    const charts = names.map((name) => {
      const series = data.runs.flatMap((run, i) =>
        Object.entries(run.curves[name] ?? {}).flatMap(([split, points]) => {
          const one = { name: several ? `${run.name}: ${SPLITS[split] ?? split}` : SPLITS[split] ?? split, points, index: several ? i : split === "train" ? 0 : 1, dash: several && split !== "train" };
          return how.smooth && points.length > 2 ? [{ ...one, faint: true }, { ...one, points: smoothed(points, how.smooth) }] : [one];
        }),
      );
      return chart({ title: plainName(name), series, log: { x: how.x, y: how.y } });
    });
    const shown = charts.slice(0, 6), rest = charts.slice(6), open = place.querySelector("details")?.open;
    empty(place, h("div", { class: "cards" }, shown), rest.length ? h("details", { open }, h("summary", {}, `${rest.length} more curves`), h("div", { class: "cards" }, rest)) : null);
  }
  const box = (label, axis) => {
    const input = h("input", { type: "checkbox", onchange: () => ((how[axis] = input.checked), draw()) });
    return h("label", { class: "check" }, input, label);
  };
  const slider = h("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: 0, oninput: () => ((how.smooth = Number(slider.value)), draw()) });
  draw();
  empty(
    root,
    table(["run", "recipe", "state", "step", "minutes"], data.runs.map((run) => [run.name, run.recipe, run.state, run.step, run.seconds / 60])),
    h("div", { class: "controls", role: "group", "aria-label": "Curves" }, box("logarithmic steps", "x"), box("logarithmic values", "y"), field("Smoothing", slider)),
    place,
    several ? [h("h3", {}, "Differences of configuration"), differing(data)] : null,
    data.runs.filter((run) => run.samples.length).map((run) => samples(run, several)),
    several ? null : h("details", {}, h("summary", {}, "Configuration"), table(["field", "value"], Object.entries(data.runs[0].config).map(([name, value]) => [name, plain(value)]))),
  );
}

const SPLITS = { train: "training", heldout: "held-out data", dev: "dev rows" };
const PLAIN = { mlm: "masked tokens", nsp: "next sentence", sop: "sentence order", next: "next token", correct: "share correct", nll: "loss without smoothing", lr: "learning rate", gradient_norm: "length of the gradient", tokens_per_second: "tokens a second", waiting: "share of time waiting for data", wer: "word error rate", cer: "character error rate", f1: "F1", macro_f1: "F1, mean over classes", mcc: "Matthews correlation", bleu: "BLEU", eer: "equal error rate", exact: "exact matches" };

/** The name of a curve in words: "mlm/correct" is "Masked tokens: share correct". */
export function plainName(name) {
  const parts = name.split("/").map((part) => PLAIN[part] ?? part.replaceAll("_", " "));
  const said = parts.join(": ");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

/** An exponential moving average that does not lag at its beginning: each weight is `share` of the one after it. */
export function smoothed(points, share) {
  let sum = 0, weight = 0;
  return points.map(([x, y]) => {
    [sum, weight] = [share * sum + (1 - share) * y, share * weight + 1 - share];
    return [x, sum / weight];
  });
}

const rank = (name) => {
  const found = FIRST.findIndex((word) => name.includes(word));
  return found < 0 ? FIRST.length : found;
};

const plain = (value) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

function differing({ runs, differences }) {
  if (!differences.length) return h("p", { class: "note" }, "The configurations are equal.");
  const rows = differences.map((row) => [row.field, ...row.values.map(plain)]);
  const shown = table(["field", ...runs.map((run) => run.name)], rows);
  return rows.length > 20 ? h("details", {}, h("summary", {}, `${rows.length} fields`), shown) : shown;
}

/** The pictures of a probe, the last of which is replaced by those of all evaluations that are shown. */
function restored(run, sample, number) {
  const names = Object.keys(sample.pictures), learned = names.pop();
  const steps = run.samples.filter((line) => line.samples?.[number]?.pictures?.[learned]);
  const said = ({ guesses }) => (guesses ?? []).map(([what, share]) => `\n${percent(share)} ${what}`).join("");
  const cells = [...names.map((name) => ({ caption: name, file: sample.pictures[name] })), ...steps.map((line) => ({ caption: `step ${short(line.step)}${said(line.samples[number])}`, file: line.samples[number].pictures[learned] }))];
  const wide = sample.guesses?.length ? 200 : 96; // a spectrogram, or a picture
  return galleryGroup({ title: `${learned}: ${sample.text}`, cells, across: wide > 96 ? 4 : cells.length, size: wide }, 1);
}

function samples(run, several) {
  const last = run.samples.at(-1).samples ?? [];
  if (last.some((sample) => sample.pictures)) return [h("h3", {}, several ? `Pictures of ${run.name} during training` : "Pictures during training"), last.map((sample, number) => (sample.pictures ? restored(run, sample, number) : null))];
  const parts = last.slice(0, 6).map((sample, number) =>
    h("div", { class: "card" }, h("p", {}, h("b", {}, sample.text)), sample.expected?.length ? h("p", { class: "note" }, `expected: ${sample.expected.join(", ")}`) : null,
      table(["step", "guesses"], run.samples.filter((line) => line.samples?.[number]).map((line) => [String(line.step), line.samples[number].guesses.map(([text, p]) => `${text} ${p === 1 ? "" : percent(p)}`).join(" · ")]))),
  );
  return parts.length ? [h("h3", {}, several ? `Predictions of ${run.name} during training` : "Predictions during training"), h("div", { class: "cards" }, parts)] : null;
}

/** A line about a run, for the list of runs. */
export const about = (run) => `${run.name} · ${run.recipe || "run"} · ${run.state} · step ${short(run.step)}`;
