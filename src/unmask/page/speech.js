// Try it, for models of recordings: words, labels, and whether two recordings have the same speaker.

import { bar, empty, h, short } from "./dom.js";
import { into } from "./forms.js";
import { recordingForm } from "./microphone.js";
import { recordingView } from "./recording.js";
import { ask } from "./service.js";

const predict = (model, recording) => ask("predict", { model: model.name, texts: [recording] });

/** The view of a recording, asked for after the answer, which it stands below. */
const features = (model, stage, { data }) => into(stage, ask("features", { model: model.name, recording: data }), (found) => recordingView(stage, found));

/** A recording as a model without answers reads it. */
export function readRecording(root, model) {
  const stage = h("div", {});
  empty(root, recordingForm((recording) => features(model, stage, recording), { model }), stage);
}

/** A form and the answer to its recording; `answer(found)` gives the elements that show it. */
function asking(root, model, answer) {
  const place = h("div", { "aria-live": "polite" }), stage = h("div", {});
  const form = recordingForm((recording) => {
    empty(stage);
    into(place, predict(model, { recording: recording.data }), ({ answers: [found] }) => {
      empty(place, h("h3", {}, recording.name), answer(found), found.cut ? h("p", { class: "note" }, "The recording was too long for the model: its end was cut.") : null);
      features(model, stage, recording);
    });
  }, { model });
  empty(root, form, place, stage);
}

export function transcribe(root, model) {
  asking(root, model, (found) => h("p", { class: "text" }, found.text ? h("b", {}, found.text) : "The model recognised no words."));
}

export function classifyRecording(root, model) {
  asking(root, model, (found) => {
    const scores = Object.entries(found.scores).sort((a, b) => b[1] - a[1]);
    return h("ol", { class: "bars" }, scores.slice(0, 10).map(([label, p], i) => bar(label, p, { strong: i === 0 })));
  });
}

/** Two recordings: the cosine of their vectors, and whether they have one class, such as the speaker. */
export function compareRecordings(root, model) {
  const place = h("div", { "aria-live": "polite" }), given = [null, null];
  const forms = given.map((_, i) => {
    const form = recordingForm((recording) => {
      given[i] = recording.data;
      if (given.every(Boolean)) compare();
    }, { name: `${["First", "Second"][i]} recording`, shared: false });
    return h("div", { class: "card" }, form);
  });
  const compare = () =>
    into(place, predict(model, { recording: given[0], other: given[1] }), ({ answers: [{ similarity, same, threshold }] }) => {
      const verdict = same === undefined ? null : h("p", {}, h("b", {}, same ? "The same class" : "Different classes"), h("small", {}, `: the threshold is ${short(threshold)}`));
      empty(place, h("ul", { class: "bars" }, bar("cosine", Math.max(0, similarity), { text: short(similarity), strong: true })), verdict);
    });
  empty(root, h("div", { class: "cards" }, forms), place);
}
