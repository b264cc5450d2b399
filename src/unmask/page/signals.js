// Try it, for models of records of sensors: the label or the number of a record and of its windows, of its beats or
// intervals.

import { bar, empty, field, h, percent, short } from "./dom.js";
import { chips, into } from "./forms.js";
import { base64 } from "./microphone.js";
import { ask } from "./service.js";

const table = (heads, rows) => h("table", {}, h("tr", {}, heads.map((head) => h("th", {}, head))), rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))));
const between = ({ begin, end }) => `${begin.toFixed(1)} to ${end.toFixed(1)} s`;

export const classifySignal = (root, model) =>
  asking(root, model, ({ scores, windows }) => [
    h("ol", { class: "bars" }, Object.entries(scores).sort((a, b) => b[1] - a[1]).slice(0, 10).map(([label, p], i) => bar(label, p, { strong: i === 0 }))),
    table(["Window", "Label", "Probability"], windows.map((one) => [between(one), one.label, percent(one.probability)])),
  ]);

export const scoreSignal = (root, model) =>
  asking(root, model, ({ score, windows }) => [h("p", {}, h("b", {}, short(score))), table(["Window", "Score"], windows.map((one) => [between(one), short(one.score)]))]);

export const tagSignal = (root, model) =>
  asking(root, model, ({ beats, intervals }) => {
    if (!(beats ?? intervals).length) return h("p", {}, "No beat was found.");
    const rows = (beats ?? intervals).map((one) => [beats ? `${one.time.toFixed(3)} s` : between(one), one.label, percent(one.probability)]);
    return table([beats ? "Beat" : "Interval", "Label", "Probability"], rows);
  });

/** A form for a record: a file, with its rate where the file does not say it, or numbers. */
function asking(root, model, shown) {
  const place = h("div", { "aria-live": "polite" });
  const rate = h("input", { type: "number", min: "0", step: "any", "aria-label": "Samples a second" });
  const numbers = h("textarea", { rows: 3, "aria-label": "Numbers" });
  const file = h("input", { type: "file", accept: ".mat,.edf,.npy,.npz,.csv,.tsv,.txt,.parquet", "aria-label": "Record", onchange: () => given(file.files[0]) });
  const asked = (name, record) =>
    into(place, ask("predict", { model: model.name, texts: [{ ...record, ...(rate.value ? { rate: Number(rate.value) } : {}) }] }), ({ answers: [found] }) => {
      empty(place, h("h3", {}, name), shown(found), h("p", { class: "note" }, "This is no medical device: its answers are no diagnosis."));
    });
  const given = async (one) => one && asked(one.name, { signal: await base64(one) });
  const read = () => !numbers.value.trim() && file.files[0] ? given(file.files[0]) : asked("Numbers", { samples: numbers.value.split(/[\s,;]+/).filter(Boolean).map(Number) });
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), read()), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), given(event.dataTransfer.files[0])) },
    field("Samples a second, if the file does not say them", rate),
    field("Record: choose a file, or drop one here", file),
    field("or numbers of one lead", numbers),
    h("button", { type: "submit" }, "Answer"),
  );
  const example = ({ expected, ...record }) => {
    if (record.rate) rate.value = record.rate;
    return asked(expected ? `An example: ${expected}` : "An example", record);
  };
  const [first] = model.examples?.items ?? [];
  empty(root, form, chips(model, ["signal", "samples"], example), place);
  if (first?.signal ?? first?.samples) example(first);
}
