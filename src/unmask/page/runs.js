// Comparison of runs: curves, differences of configuration, predictions for probes.

import { chart } from "./chart.js";
import { empty, h, percent, short, table } from "./dom.js";
import { galleryGroup } from "./gallery.js";

const FIRST = ["loss", "correct", "accuracy", "f1", "bleu", "perplexity"];

/** data: the output of `visualize.runs.compare`. */
export function runsView(root, data) {
  const several = data.runs.length > 1;
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run.curves)))].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const charts = names.map((name) => {
    const series = data.runs.flatMap((run, i) =>
      Object.entries(run.curves[name] ?? {}).map(([split, points]) => ({ name: several ? `${run.name}: ${split}` : split, points, index: several ? i : split === "train" ? 0 : 1, dash: several && split !== "train" })),
    );
    return chart({ title: name, series });
  });
  const shown = charts.slice(0, 6), rest = charts.slice(6);
  empty(
    root,
    table(["run", "recipe", "state", "step", "minutes"], data.runs.map((run) => [run.name, run.recipe, run.state, run.step, run.seconds / 60])),
    h("div", { class: "cards" }, shown),
    rest.length ? h("details", {}, h("summary", {}, `${rest.length} more curves`), h("div", { class: "cards" }, rest)) : null,
    several ? [h("h3", {}, "Differences of configuration"), differing(data)] : null,
    data.runs.filter((run) => run.samples.length).map((run) => samples(run, several)),
    several ? null : h("details", {}, h("summary", {}, "Configuration"), table(["field", "value"], Object.entries(data.runs[0].config).map(([name, value]) => [name, plain(value)]))),
  );
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
