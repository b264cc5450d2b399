// Try it, for models of records of sensors: the label or the score of a record, and of each of its windows.

import { bar, empty, field, h, percent, short } from "./dom.js";
import { into } from "./forms.js";
import { base64 } from "./microphone.js";
import { ask } from "./service.js";

export const classifySignal = (root, model) =>
  recordPanel(root, model, (found) => {
    const scores = Object.entries(found.scores).sort((a, b) => b[1] - a[1]);
    const bars = h("ol", { class: "bars" }, scores.slice(0, 10).map(([label, p], i) => bar(label, p, { strong: i === 0 })));
    return [bars, windowTable(found, ["Label", "Probability"], (one) => [one.label, percent(one.probability)])];
  });

export const scoreSignal = (root, model) =>
  recordPanel(root, model, (found) => [h("p", {}, h("b", {}, short(found.score))), windowTable(found, ["Score"], (one) => [short(one.score)])]);

function windowTable(found, heads, cells) {
  const windows = found.windows.map((one) => h("tr", {}, [`${one.begin.toFixed(1)} to ${one.end.toFixed(1)} s`, ...cells(one)].map((cell) => h("td", {}, cell))));
  return h("table", {}, h("tr", {}, ["Window", ...heads].map((head) => h("th", {}, head))), windows);
}

/** A record is a file, with its rate where the file does not say it, or numbers; `draw` makes elements of the answer. */
function recordPanel(root, model, draw) {
  const place = h("div", { "aria-live": "polite" });
  const rate = h("input", { type: "number", min: "0", step: "any", "aria-label": "Samples a second" });
  const numbers = h("textarea", { rows: 3, "aria-label": "Numbers" });
  const file = h("input", { type: "file", accept: ".mat,.edf,.npy,.npz,.csv,.tsv,.txt,.parquet", "aria-label": "Record", onchange: () => given(file.files[0]) });
  const asked = (name, record) =>
    into(place, ask("predict", { model: model.name, texts: [{ ...record, ...(rate.value ? { rate: Number(rate.value) } : {}) }] }), ({ answers: [found] }) => {
      empty(
        place,
        h("h3", {}, name),
        draw(found),
        h("p", { class: "note" }, "This is no medical device: its answers are no diagnosis."),
      );
    });
  const given = async (one) => one && asked(one.name, { signal: await base64(one) });
  const read = () => asked("Numbers", { samples: numbers.value.split(/[\s,;]+/).filter(Boolean).map(Number) });
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), read()), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), given(event.dataTransfer.files[0])) },
    field("Samples a second, if the file does not say them", rate),
    field("Record: choose a file, or drop one here", file),
    field("or numbers of one lead", numbers),
    h("button", { type: "submit" }, "Answer"),
  );
  empty(root, form, place);
}
