// The rows of a recording's timeline: waveform, spectrogram, and lanes of parts, of lines and of numbers.

import { palette, rgb, short, unpack } from "./dom.js";

const TALL = 0.64; // share of its row that a line of value 1 has; labels stand above it
const HERTZ = [100, 250, 500, 1000, 2000, 4000, 8000, 16000];

// A row is {kind, title, marks: [[text, share of its height]], paint(context, x, top, size, {from, to}), say(seconds)}.

export const clamp = (value, least, most) => Math.max(least, Math.min(Math.max(least, most), value));

/** A colour of the page for a canvas. */
export function ink(name, opacity = 1) {
  const [r, g, b] = rgb(name);
  return `rgb(${r} ${g} ${b} / ${opacity})`;
}

/** The lowest and highest sample of each pixel. */
export function wave(data, samples) {
  let most = 1e-4;
  for (const sample of samples) most = Math.max(most, Math.abs(sample));
  const at = (seconds) => clamp(Math.round(seconds * data.rate), 0, samples.length);
  const range = (from, to) => {
    let low = Infinity, high = -Infinity;
    for (let i = Math.max(0, at(from) - 1); i < Math.max(at(to), at(from) + 1) && i < samples.length; i++) ((low = Math.min(low, samples[i])), (high = Math.max(high, samples[i])));
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

export function spectrogram({ spectrogram: { values, begin, hop, hertz, decibels } }) {
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

const LANES = { spans, stems, map: (data) => map({ ...data, values: unpack(data.values), shape: data.values.shape, signed: true }) };
export const lane = (data) => LANES[data.kind](data);

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
    marks: [["1", TALL], ["0", 0.03]],
    paint(context, x, top, size) {
      context.textBaseline = "bottom";
      context.textAlign = "center";
      const free = [-Infinity, -Infinity]; // where each of two rows of labels has room
      for (const { time, value, label, index = 2 } of stems) {
        const tall = TALL * size * value, at = x(time);
        context.fillStyle = ink(`--s${index % 8}`);
        context.fillRect(at - 1, top + size - tall, 2, tall);
        context.fillStyle = ink("--ink");
        const half = context.measureText(label).width / 2, row = free.findIndex((end) => at - half >= end);
        if (row < 0) continue;
        context.fillText(label, at, top + size - tall - 1 - 12 * row);
        free[row] = at + half + 1;
      }
      context.textAlign = "left";
    },
    say(seconds) {
      const near = stems.filter(({ time }) => Math.abs(time - seconds) < 0.02).map(({ label, value }) => `${label} ${short(value)}`);
      return near.length ? near.join(", ") : null;
    },
  };
}

/** Numbers [K, F] between two times, which a caller may replace: blue above zero, orange below, full at ±1. */
export function map(row) {
  return Object.assign(row, {
    kind: "map",
    paint(context, x, top, size) {
      const [K, F] = row.shape, back = rgb("--card"), above = palette(back, rgb("--s0")), below = palette(back, rgb("--s1"));
      const image = new ImageData(F, K), pixels = new Uint32Array(image.data.buffer);
      row.values.forEach((value, i) => (pixels[i] = (value < 0 ? below : above)[Math.min(255, Math.round(255 * Math.abs(value)))]));
      const sheet = new OffscreenCanvas(F, K);
      sheet.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(sheet, x(row.begin), top, x(row.end) - x(row.begin), size);
    },
    say(seconds) {
      const [K, F] = row.shape, f = Math.floor(((seconds - row.begin) / (row.end - row.begin)) * F);
      if (f < 0 || f >= F || !row.names) return null;
      return row.names.map((name, k) => `${name} ${short(row.values[k * F + f] * (row.scale ?? 1))}`).join(", ");
    },
  });
}
