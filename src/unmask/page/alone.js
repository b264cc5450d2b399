// A view in a standalone file: the page holds the data, and sends no requests.

import { attentionView } from "./attention.js";
import { beamView } from "./beam.js";
import { empty, h } from "./dom.js";
import { forecastsView } from "./forecasts.js";
import { galleryView } from "./gallery.js";
import { complexityView, maskingView, masksView, positionsView, spansView, wordpieceView } from "./inside.js";
import { pictureAttentionView } from "./picture.js";
import { clustersView, recordingAttentionView, recordingView } from "./recording.js";
import { runsView } from "./runs.js";
import { contextView, wordsView } from "./words.js";

const VIEWS = {
  attention: (root, data) => attentionView(root, data, weights(data), data.start ?? {}),
  "picture-attention": (root, data) => pictureAttentionView(root, data, weights(data), data.start ?? {}),
  beam: beamView,
  words: wordsView,
  context: contextView,
  positions: positionsView,
  masking: maskingView,
  spans: spansView,
  wordpiece: wordpieceView,
  masks: masksView,
  complexity: complexityView,
  runs: runsView,
  forecasts: forecastsView,
  gallery: galleryView,
  recording: recordingView,
  clusters: clustersView,
  "recording-attention": (root, data) => recordingAttentionView(root, data, weights(data), data.start ?? {}),
};

/** Loads the weights of heads, and the rollout, from the page. */
const weights = (data) => ({ layer: (layer, heads) => Promise.all(heads.map((head) => detail(layer * data.heads + head))), rollout: async () => data });

/** Part `number` of the data, which may have many MB and follows this script in the page. */
async function detail(number) {
  if (document.readyState === "loading") await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
  return JSON.parse(document.getElementById(`detail-${number}`).textContent);
}

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("view");
try {
  VIEWS[data.view](root, data);
} catch (error) {
  empty(root, h("p", { class: "error", role: "alert" }, `This view could not be drawn: ${error.message}`));
}
