// A matrix as a picture: a canvas with labels; the pointer and the arrow keys read its cells.

import { h, light, onScheme, palette, rgb, sheet, short, tipAt, tipAway } from "./dom.js";

const FONT = "13px system-ui, sans-serif";
const LABELS = 10; // pixels of a cell, from which on names stand beside it
const WRITTEN = 12; // columns up to which cells are large enough to hold their numbers
const FEW = 80; // up to so many columns each has room for its name, and what does not fit scrolls

/**
 * rows, columns  names
 * sheets         [{name, colour: "--s0", values: Float32Array rows × columns}], several are mixed
 * signed         whether values are from -1 to 1, with another colour below 0; else from 0 to 1
 * faint          whether small values are enhanced (square root)
 * figures        whether large cells show their numbers
 * say(i, j)      the tooltip of a cell
 * pick(i, j)     called on a click or Enter
 */
export function matrix({ rows, columns, sheets, signed = false, faint = false, figures = true, say = null, pick = null, label = "Matrix" }) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": `${label}: ${rows.length} rows, ${columns.length} columns; arrow keys read cells` });
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a cell, or use the arrow keys.");
  const scroll = h("div", { class: "scroll" }, canvas);
  const box = h("div", { class: "matrix" }, scroll, readout);
  let place = { left: 0, top: 0, cell: 10 };
  let cursor = null, picture = null;
  const upright = columns.every((name) => [...name].length <= 2);
  const words = say ?? ((i, j) => `${rows[i]} → ${columns[j]}\n${sheets.map((s) => `${s.name} ${short(s.values[i * columns.length + j])}`).join("\n")}`);

  function draw() {
    const context = canvas.getContext("2d");
    context.font = FONT;
    const wide = (names) => Math.min(140, Math.max(0, ...names.map((name) => context.measureText(name).width)));
    const room = (scroll.clientWidth || 600) - 2;
    const S = columns.length, T = rows.length;
    let left = wide(rows) + 10;
    let cell = Math.min(S <= WRITTEN && T <= WRITTEN ? 44 : 28, (room - left) / S);
    if (S <= FEW) cell = Math.max(13, cell);
    const named = cell >= LABELS && T <= FEW * 2;
    if (!named) left = 0;
    cell = named ? Math.floor(cell) : Math.max(cell, Math.min(1, room / S), 0.5);
    const top = named ? (upright ? 22 : wide(columns) + 10) : 0;
    place = { left, top, cell };
    const width = Math.ceil(left + cell * S) + 2, height = Math.ceil(top + cell * T) + 2;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage((picture ??= painted()), left, top, cell * S, cell * T);
    const [r, g, b] = rgb("--rule");
    context.strokeStyle = `rgb(${r},${g},${b})`;
    context.strokeRect(left - 0.5, top - 0.5, cell * S + 1, cell * T + 1);
    if (named) names(context, left, top, cell);
    if (figures && cell >= 34 && sheets.length === 1) written(context, left, top, cell);
    if (cursor) outline(context);
  }

  function painted() {
    const S = columns.length, T = rows.length;
    const picture = new ImageData(S, T);
    if (sheets.length === 1) alone(picture);
    else mixed(picture);
    const painting = new OffscreenCanvas(S, T);
    painting.getContext("2d").putImageData(picture, 0, 0);
    return painting;
  }

  function alone(picture) {
    const pixels = new Uint32Array(picture.data.buffer), { values, colour } = sheets[0];
    const curve = faint ? Math.sqrt : null, back = rgb("--card");
    const above = palette(back, rgb(colour), curve), below = palette(back, rgb("--s1"), curve);
    for (let i = 0; i < pixels.length; i++) {
      const value = values[i];
      pixels[i] = signed && value < 0 ? below[Math.min(255, Math.round(-255 * value))] : above[Math.min(255, Math.round(255 * Math.abs(value)))];
    }
  }

  /** Several sheets: the mean of their colours, weighted by their values; weak cells show the background. */
  function mixed(picture) {
    const back = rgb("--card"), colours = sheets.map((one) => rgb(one.colour));
    for (let i = 0; i < picture.width * picture.height; i++) {
      let clear = 1, sum = 0, r = 0, g = 0, b = 0;
      for (let k = 0; k < sheets.length; k++) {
        const size = Math.min(1, Math.abs(sheets[k].values[i])), shade = faint ? Math.sqrt(size) : size;
        const [red, green, blue] = colours[k];
        r += shade * red;
        g += shade * green;
        b += shade * blue;
        sum += shade;
        clear *= 1 - shade;
      }
      const share = sum ? (1 - clear) / sum : 0;
      picture.data[4 * i] = clear * back[0] + share * r;
      picture.data[4 * i + 1] = clear * back[1] + share * g;
      picture.data[4 * i + 2] = clear * back[2] + share * b;
      picture.data[4 * i + 3] = 255;
    }
  }

  function written(context, left, top, cell) {
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const { values } = sheets[0], back = rgb("--card");
    for (let i = 0; i < rows.length; i++) {
      for (let j = 0; j < columns.length; j++) {
        const value = values[i * columns.length + j];
        const shade = Math.min(1, Math.abs(value));
        const paint = rgb(signed && value < 0 ? "--s1" : sheets[0].colour).map((c, k) => shade * c + (1 - shade) * back[k]);
        context.fillStyle = light(paint) > 0.18 ? "#111" : "#fff"; // whichever stands out more
        context.fillText(value.toFixed(2).replace(/^(-?)0\./, "$1."), left + cell * (j + 0.5), top + cell * (i + 0.5));
      }
    }
  }

  function names(context, left, top, cell) {
    context.font = FONT;
    const [r, g, b] = rgb("--ink");
    context.fillStyle = `rgb(${r},${g},${b})`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    rows.forEach((name, i) => context.fillText(name, left - 6, top + cell * (i + 0.5), left - 8));
    context.textAlign = "left";
    if (upright) {
      context.textAlign = "center";
      return columns.forEach((name, j) => context.fillText(name, left + cell * (j + 0.5), top - 10));
    }
    columns.forEach((name, j) => {
      context.save();
      context.translate(left + cell * (j + 0.5), top - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(name, 0, 0, top - 8);
      context.restore();
    });
  }

  function outline(context) {
    const [i, j] = cursor;
    const { left, top, cell } = place;
    const [r, g, b] = rgb("--ink");
    context.strokeStyle = `rgb(${r},${g},${b})`;
    context.lineWidth = 2;
    const size = Math.max(cell, 4);
    context.strokeRect(left + cell * j, top + cell * i, size, size);
  }

  function go(i, j, x = null, y = null) {
    cursor = [i, j];
    const text = words(i, j);
    readout.textContent = text.replaceAll("\n", " · ");
    draw();
    if (x !== null) tipAt(x, y, text);
  }

  const under = (event) => {
    const { left, top, cell } = place;
    const edge = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - edge.left - left) / cell), i = Math.floor((event.clientY - edge.top - top) / cell);
    return i >= 0 && j >= 0 && i < rows.length && j < columns.length ? [i, j] : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    if (cell) go(...cell, event.clientX, event.clientY);
    else tipAway();
  });
  canvas.addEventListener("pointerleave", tipAway);
  canvas.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell && pick) pick(...cell);
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" && cursor && pick) pick(...cursor);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [di, dj] = cursor ? steps[event.key] : [0, 0];
    const [i, j] = cursor ?? [0, 0];
    go(Math.max(0, Math.min(rows.length - 1, i + di)), Math.max(0, Math.min(columns.length - 1, j + dj)));
  });

  let seen = 0;
  new ResizeObserver(() => {
    if (scroll.clientWidth && scroll.clientWidth !== seen) {
      seen = scroll.clientWidth;
      draw();
    }
  }).observe(scroll);
  onScheme(box, () => ((picture = null), draw()));
  const table = ({ name, values }) => [[name, ...columns], ...rows.map((row, i) => [row, ...values.slice(i * columns.length, (i + 1) * columns.length)])];
  return sheet(box, () => sheets.flatMap(table));
}

/** A matrix of the cosines of vectors, with the text or name of each. */
export function cosines(texts, embeddings) {
  const unit = embeddings.map((vector) => {
    const length = Math.hypot(...vector) || 1;
    return vector.map((value) => value / length);
  });
  const values = Float32Array.from(unit.flatMap((a) => unit.map((b) => a.reduce((sum, value, i) => sum + value * b[i], 0))));
  const names = texts.map((one) => (one.length > 24 ? `${one.slice(0, 23)}…` : one));
  return matrix({ rows: names, columns: names, sheets: [{ name: "cosine", colour: "--s0", values }], signed: true, label: "Similarity", say: (i, j) => `${texts[i]}\n${texts[j]}\ncosine ${short(values[i * texts.length + j])}` });
}
