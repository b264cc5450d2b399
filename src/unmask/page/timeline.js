// A timeline: a recording and lanes with the same time axis, and its sound.

import { h, onScheme, short, tipAt, tipAway, unpack } from "./dom.js";
import { clamp, ink, lane, spectrogram, wave } from "./lanes.js";

const FONT = "13px system-ui, sans-serif", LEFT = 58, RIGHT = 8, TITLE = 20, AXIS = 22, GAP = 6; // pixels
const HEIGHTS = { wave: 84, spectrogram: 132, spans: 26, stems: 80, map: 96 };
const NEAREST = 0.05; // seconds that the largest zoom shows

/** The recording with its lanes: a canvas whose cursor follows clicks, keys and the sound.
 *
 * live   another lane, which the caller changes and paints again: {lane, box, paint()}
 * moved  called with the seconds of the cursor
 */
export function timeline(data, { live = [], moved = () => {} } = {}) {
  const samples = unpack(data.samples), sound = player(samples, data.rate);
  const rows = [wave(data, samples), ...(data.spectrogram ? [spectrogram(data)] : []), ...data.lanes.map(lane), ...live];
  const state = { from: 0, to: data.seconds, cursor: 0 }, first = data.begin ?? 0; // seconds that are shown count from `first`
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `Recording of ${short(data.seconds)} seconds: ${rows.map((row) => row.title).join(", ")}. Arrow keys move the cursor, ${data.silent ? "" : "Space plays, "}plus and minus zoom` });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const button = h("button", { type: "button", onclick: () => play() }, "Play");
  const zooms = [["+", "Zoom in", () => zoom(0.5)], ["−", "Zoom out", () => zoom(2)], ["all", "Show all of it", () => zoom(Infinity)]];
  const controls = h("div", { class: "controls" }, data.silent ? null : button, zooms.map(([text, label, go]) => h("button", { type: "button", "aria-label": label, onclick: go }, text)));
  const box = h("div", { class: "timeline" }, controls, canvas, readout);
  let width = 0, still = null; // the picture without the cursor

  const x = (seconds) => LEFT + ((seconds - state.from) / (state.to - state.from)) * (width - LEFT - RIGHT);
  const time = (event) => clamp(state.from + ((event.clientX - canvas.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT)) * (state.to - state.from), state.from, state.to);

  /** Draw everything but the cursor, into a picture that is kept. */
  function paint() {
    width = canvas.clientWidth;
    if (!width) return;
    const height = rows.reduce((sum, row) => sum + TITLE + HEIGHTS[row.kind] + GAP, AXIS), ratio = devicePixelRatio || 1;
    still = new OffscreenCanvas(width * ratio, height * ratio);
    [canvas.width, canvas.height] = [still.width, still.height];
    canvas.style.setProperty("height", `${height}px`);
    const context = still.getContext("2d");
    context.scale(ratio, ratio);
    context.font = FONT;
    let top = 0;
    for (const row of rows) {
      context.fillStyle = ink("--ink");
      context.textBaseline = "middle";
      context.fillText(row.title, LEFT, top + TITLE / 2, width - LEFT - RIGHT);
      top += TITLE;
      const size = HEIGHTS[row.kind];
      context.fillStyle = ink("--card");
      context.fillRect(LEFT, top, width - LEFT - RIGHT, size);
      inside(context, LEFT, top, width - LEFT - RIGHT, size, () => row.paint(context, x, top, size, state));
      for (const [text, share] of row.marks ?? []) mark(context, text, top + size * (1 - share));
      if (row.kind === "wave" || row.kind === "spectrogram") inside(context, LEFT, top, width - LEFT - RIGHT, size, () => masked(context, top, size));
      top += size + GAP;
    }
    axis(context, top);
    draw();
    tell();
  }

  function draw() {
    if (!still) return;
    const context = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(still, 0, 0);
    context.scale(ratio, ratio);
    if (state.cursor < state.from || state.cursor > state.to) return;
    context.fillStyle = ink("--accent");
    context.fillRect(x(state.cursor) - 1, TITLE, 2, canvas.height / ratio - TITLE - AXIS);
  }

  /** The parts that the model does not see, faded. */
  function masked(context, top, size) {
    for (const { begin, end } of data.lanes.filter((one) => one.over).flatMap((one) => one.spans)) {
      context.fillStyle = ink("--back", 0.8);
      context.fillRect(x(begin), top, x(end) - x(begin), size);
      context.fillStyle = ink("--s1");
      for (const edge of [begin, end]) context.fillRect(x(edge) - 0.5, top, 1, size);
    }
  }

  function axis(context, top) {
    const step = nice((state.to - state.from) / Math.max(2, (width - LEFT) / 90)), digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    context.fillStyle = ink("--soft");
    context.textBaseline = "top";
    context.textAlign = "right";
    context.fillText("seconds", LEFT - 6, top + 4);
    context.textAlign = "center";
    for (let i = Math.ceil((first + state.from) / step); i * step <= first + state.to + 1e-9; i++) {
      const at = x(i * step - first), text = (i * step).toFixed(digits), half = context.measureText(text).width / 2;
      context.fillRect(at - 0.5, top - GAP, 1, GAP);
      context.fillText(text, clamp(at, LEFT + half, width - half), top + 4);
    }
    context.textAlign = "left";
  }

  function mark(context, text, at) {
    context.fillStyle = ink("--soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(text, LEFT - 6, at);
    context.textAlign = "left";
  }

  const tell = () => (readout.textContent = said(state.cursor).join(" · "));
  const said = (seconds) => [`${(first + seconds).toFixed(3)} s`, ...rows.map((row) => row.say(seconds)).filter(Boolean)];

  function go(seconds, scroll = true) {
    state.cursor = clamp(seconds, 0, data.seconds);
    const span = state.to - state.from;
    if (scroll && (state.cursor < state.from || state.cursor > state.to)) {
      state.from = clamp(state.cursor - (state.cursor < state.from ? 0.9 : 0.1) * span, 0, data.seconds - span);
      state.to = state.from + span;
      paint();
    }
    moved(state.cursor);
    tell();
    draw();
  }

  function zoom(factor) {
    const span = clamp((state.to - state.from) * factor, Math.min(NEAREST, data.seconds), data.seconds);
    state.from = clamp(state.cursor - span / 2, 0, data.seconds - span);
    state.to = state.from + span;
    paint();
  }

  function play() {
    if (data.silent) return;
    if (sound.playing()) return void sound.stop();
    button.textContent = "Stop";
    const begin = state.cursor >= data.seconds - 0.01 ? 0 : state.cursor;
    const follow = () => {
      const at = box.isConnected ? sound.at() : null;
      if (at === null) sound.stop();
      else (go(at), requestAnimationFrame(follow));
    };
    sound.play(begin, () => (button.textContent = "Play"));
    follow();
  }

  canvas.addEventListener("click", (event) => go(time(event)));
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) go(time(event));
    tipAt(event.clientX, event.clientY, said(time(event)).join("\n"));
  });
  canvas.addEventListener("pointerleave", tipAway);
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = (data.step || 0.01) * (event.shiftKey ? 10 : 1);
    const keys = { ArrowRight: () => go(state.cursor + step), ArrowLeft: () => go(state.cursor - step), Home: () => go(0), End: () => go(data.seconds), " ": play, "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => zoom(Infinity) };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(() => canvas.clientWidth && canvas.clientWidth !== width && paint()).observe(canvas);
  onScheme(box, paint);
  go(0);
  return { box, paint };
}

// ---------------------------------------------------------------------------------------------------- sound

/** Plays samples [N] from -1 to 1: {play(begin, ended), at() in seconds or null, stop(), playing()}. */
function player(samples, rate) {
  let context = null, source = null, from = 0, done = () => {};
  const stop = () => {
    if (!source) return;
    source.onended = null;
    source.stop();
    source = null;
    done();
  };
  return {
    playing: () => source !== null,
    stop,
    at: () => (source === null ? null : from + Math.max(0, context.currentTime - source.began)),
    play(begin, ended) {
      context ??= new AudioContext();
      context.resume();
      const buffer = context.createBuffer(1, samples.length, rate);
      buffer.copyToChannel(samples, 0);
      source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      [from, done, source.began, source.onended] = [begin, ended, context.currentTime, stop];
      source.start(0, begin);
    },
  };
}

// ---------------------------------------------------------------------------------------------------- parts

/** Call `paint` with the context clipped to a rectangle. */
function inside(context, left, top, wide, high, paint) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, high);
  context.clip();
  paint();
  context.restore();
}

/** 1, 2 or 5 times a power of ten, at least `step`. */
function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= step - 1e-12);
}
