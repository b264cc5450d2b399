// A view in a file of its own: the data lies in the page, and nothing is asked of anybody.

import { attentionView } from "./attention.js";
import { beamView } from "./beam.js";
import { empty, h } from "./dom.js";
import { complexityView, maskingView, masksView, positionsView, wordpieceView } from "./inside.js";
import { runsView } from "./runs.js";
import { contextView, wordsView } from "./words.js";

const VIEWS = {
  attention: (root, data) => attentionView(root, data, async (layer) => data.details[layer], data.start ?? {}),
  beam: beamView,
  words: wordsView,
  context: contextView,
  positions: positionsView,
  masking: maskingView,
  wordpiece: wordpieceView,
  masks: masksView,
  complexity: complexityView,
  runs: runsView,
};

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("view");
try {
  VIEWS[data.view](root, data);
} catch (error) {
  empty(root, h("p", { class: "error", role: "alert" }, `This view could not be drawn: ${error.message}`));
}
