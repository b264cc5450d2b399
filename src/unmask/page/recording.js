// A recording along the time axis: waveform, spectrogram, and lanes of what a model made of it.

import { chart } from "./chart.js";
import { empty, h, onScheme, palette, rgb, short, tipAt, tipAway, unpack } from "./dom.js";

const FONT = "13px system-ui, sans-serif", LEFT = 58, RIGHT = 8, TITLE = 20, AXIS = 22, GAP = 6; // pixels
const HEIGHTS = { wave: 84, spectrogram: 132, spans: 26, stems: 64 };
const NEAREST = 0.05; // seconds that the largest zoom shows
const HERTZ = [100, 250, 500, 1000, 2000, 4000, 8000, 16000];

/** data: the output of `visualize.recordings.recording`. */
export function recordingView(root, data) {
  empty(
    root,
    data.lead ? h("p", {}, data.lead) : null,
    timeline(data),
    data.charts.length ? h("div", { class: "cards" }, data.charts.map(chart)) : null,
    data.note ? h("p", { class: "note" }, data.note) : null,
  );
}

/** The recording with its lanes: a canvas whose cursor follows clicks, keys and the sound. `moved(seconds)` is called
 * when the cursor moves. */
export function timeline(data, moved = () => {}) {
  const samples = unpack(data.samples), sound = player(samples, data.rate);
  const rows = [wave(data, samples), ...(data.spectrogram ? [spectrogram(data)] : []), ...data.lanes.map(lane)];
  const state = { from: 0, to: data.seconds, cursor: 0 };
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `Recording of ${short(data.seconds)} seconds: ${rows.map((row) => row.title).join(", ")}. Arrow keys move the cursor, Space plays, plus and minus zoom` });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const button = h("button", { type: "button", onclick: () => play() }, "Play");
  const zooms = [["+", "Zoom in", () => zoom(0.5)], ["−", "Zoom out", () => zoom(2)], ["all", "Show all of it", () => zoom(Infinity)]];
  const controls = h("div", { class: "controls" }, button, zooms.map(([text, label, go]) => h("button", { type: "button", "aria-label": label, onclick: go }, text)));
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
    for (let i = Math.ceil(state.from / step); i * step <= state.to + 1e-9; i++) {
      const at = x(i * step), text = (i * step).toFixed(digits), half = context.measureText(text).width / 2;
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

  const said = (seconds) => [`${seconds.toFixed(3)} s`, ...rows.map((row) => row.say(seconds)).filter(Boolean)];

  function go(seconds, scroll = true) {
    state.cursor = clamp(seconds, 0, data.seconds);
    const span = state.to - state.from;
    if (scroll && (state.cursor < state.from || state.cursor > state.to)) {
      state.from = clamp(state.cursor - (state.cursor < state.from ? 0.9 : 0.1) * span, 0, data.seconds - span);
      state.to = state.from + span;
      paint();
    }
    readout.textContent = said(state.cursor).join(" · ");
    draw();
    moved(state.cursor);
  }

  function zoom(factor) {
    const span = clamp((state.to - state.from) * factor, Math.min(NEAREST, data.seconds), data.seconds);
    state.from = clamp(state.cursor - span / 2, 0, data.seconds - span);
    state.to = state.from + span;
    paint();
  }

  function play() {
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
  return box;
}

// ---------------------------------------------------------------------------------------------------- rows

/** The lowest and highest sample of each pixel. */
function wave(data, samples) {
  let most = 1e-4;
  for (const sample of samples) most = Math.max(most, Math.abs(sample));
  const at = (seconds) => clamp(Math.round(seconds * data.rate), 0, samples.length);
  const range = (from, to) => {
    let low = Infinity, high = -Infinity;
    for (let i = at(from); i < Math.max(at(to), at(from) + 1) && i < samples.length; i++) ((low = Math.min(low, samples[i])), (high = Math.max(high, samples[i])));
    return high < low ? [0, 0] : [low, high];
  };
  return {
    kind: "wave",
    title: "Waveform",
    marks: [[short(most), 0.95], ["0", 0.5], [`−${short(most)}`, 0.05]],
    paint(context, x, top, size, { from, to }) {
      context.fillStyle = ink("--s0");
      const left = x(from), wide = x(to) - left, y = (value) => top + size * (0.5 - (0.45 * value) / most);
      for (let i = 0; i < wide; i++) {
        const [low, high] = range(from + (i / wide) * (to - from), from + ((i + 1) / wide) * (to - from));
        context.fillRect(left + i, y(high), 1, Math.max(1, y(low) - y(high)));
      }
    },
    say(seconds) {
      const [low, high] = range(seconds - 0.005, seconds + 0.005);
      return `level ${short(Math.max(-low, high))}`;
    },
  };
}

function spectrogram({ spectrogram: { values, begin, hop, hertz, decibels } }) {
  const [F, M] = values.shape, shares = unpack(values);
  let shown = null, shades = null;
  function picture() {
    const now = ink("--card");
    if (shown && shades === now) return shown;
    const colours = palette(rgb("--card"), rgb("--ink")), image = new ImageData(F, M), pixels = new Uint32Array(image.data.buffer);
    for (let f = 0; f < F; f++) for (let m = 0; m < M; m++) pixels[(M - 1 - m) * F + f] = colours[Math.round(255 * shares[f * M + m])];
    shown = new OffscreenCanvas(F, M);
    shown.getContext("2d").putImageData(image, 0, 0);
    shades = now;
    return shown;
  }
  /** The height of a frequency, as a share: band m is between m / M and (m + 1) / M. */
  const height = (hz) => {
    const above = hertz.findIndex((one) => one >= hz);
    return above < 1 ? null : (above - 0.5 + (hz - hertz[above - 1]) / (hertz[above] - hertz[above - 1])) / M;
  };
  return {
    kind: "spectrogram",
    title: `Spectrogram: louder is stronger, over ${decibels} decibels`,
    marks: HERTZ.map((hz) => [hz < 1000 ? `${hz} Hz` : `${hz / 1000} kHz`, height(hz)]).filter(([, share], i, all) => share !== null && (i % 2 || share - (all[i - 1]?.[1] ?? 0) > 0.14)),
    paint(context, x, top, size) {
      const left = x(begin - hop / 2), right = x(begin + (F - 0.5) * hop);
      context.drawImage(picture(), left, top, right - left, size);
    },
    say(seconds) {
      const f = clamp(Math.round((seconds - begin) / hop), 0, F - 1), row = shares.subarray(f * M, (f + 1) * M);
      const best = row.reduce((most, value, m) => (value > row[most] ? m : most), 0);
      return row[best] > 0 ? `loudest at ${short(Math.round(hertz[best]))} Hz, −${Math.round((1 - row[best]) * decibels)} dB` : "silent";
    },
  };
}

const lane = (data) => (data.kind === "stems" ? stems(data) : spans(data));

function spans({ title, spans }) {
  return {
    kind: "spans",
    title,
    paint(context, x, top, size) {
      context.textBaseline = "middle";
      context.textAlign = "center";
      for (const { begin, end, label, index } of spans) {
        const left = x(begin), wide = x(end) - left;
        context.fillStyle = ink(`--s${index % 8}`, 0.3);
        context.fillRect(left, top, wide, size);
        context.fillStyle = ink(`--s${index % 8}`);
        context.fillRect(left, top + size - 3, Math.max(1, wide - 1), 3);
        context.fillStyle = ink("--ink");
        if (label && context.measureText(label).width < wide - 2) context.fillText(label, left + wide / 2, top + size / 2 - 1);
      }
      context.textAlign = "left";
    },
    say(seconds) {
      const found = spans.filter(({ begin, end }) => begin <= seconds && seconds < end).map(({ label }) => label || "yes");
      return found.length ? `${title.split(":")[0].toLowerCase()}: ${found.join(", ")}` : null;
    },
  };
}

function stems({ title, stems }) {
  return {
    kind: "stems",
    title,
    marks: [["1", 0.75], ["0", 0.03]],
    paint(context, x, top, size) {
      context.textBaseline = "bottom";
      context.textAlign = "center";
      let free = -Infinity; // where the next label has room
      for (const { time, value, label } of stems) {
        const tall = 0.72 * size * value, at = x(time);
        context.fillStyle = ink("--s2");
        context.fillRect(at - 1, top + size - tall, 2, tall);
        context.fillStyle = ink("--ink");
        const half = context.measureText(label).width / 2;
        if (at - half < free) continue;
        context.fillText(label, at, top + size - tall - 1);
        free = at + half + 1;
      }
      context.textAlign = "left";
    },
    say(seconds) {
      const near = stems.filter(({ time }) => Math.abs(time - seconds) < 0.02).map(({ label, value }) => `${label} ${short(value)}`);
      return near.length ? near.join(", ") : null;
    },
  };
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

const clamp = (value, least, most) => Math.max(least, Math.min(Math.max(least, most), value));

/** A colour of the page for a canvas. */
function ink(name, opacity = 1) {
  const [r, g, b] = rgb(name);
  return `rgb(${r} ${g} ${b} / ${opacity})`;
}

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
