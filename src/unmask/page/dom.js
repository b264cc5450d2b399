// Elements, tooltips, colours and packed numbers, for all views.

/** An element; strings among the children become text, never markup. Keys that begin with "on" are listeners. */
export function h(name, props, ...children) {
  return filled(document.createElement(name), props, children);
}

/** The same for SVG. */
export function svg(name, props, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), props, children);
}

function filled(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || (value === false && !key.startsWith("aria-"))) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, one] of Object.entries(value)) element.style.setProperty(name, one);
    else element.setAttribute(key, value === true && !key.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A labelled form field. */
export function field(label, input, note = null) {
  return h("label", { class: "field" }, h("span", {}, label), input, note ? h("small", {}, note) : null);
}

/** A select over {value: label}; `change` gets the value. */
export function select(options, chosen, change) {
  const items = Object.entries(options).map(([value, label]) =>
    h("option", { value, selected: String(value) === String(chosen) }, String(label)),
  );
  return h("select", { onchange: (event) => change(event.target.value) }, items);
}

/** A group of buttons, one of them pressed; arrow keys move. `options` is {value: label}. */
export function choice(label, options, chosen, change) {
  const buttons = Object.entries(options).map(([value, text]) =>
    h("button", { type: "button", role: "radio", "data-value": value, onclick: () => pick(value) }, text),
  );
  const pick = (value) => {
    for (const button of buttons) {
      const on = button.dataset.value === String(value);
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
    change(value);
  };
  const group = h("div", { class: "choice", role: "radiogroup", "aria-label": label }, buttons);
  roving(group, buttons, (button) => button.click());
  for (const button of buttons) {
    const on = button.dataset.value === String(chosen);
    button.setAttribute("aria-checked", on);
    button.tabIndex = on ? 0 : -1;
  }
  return group;
}

/** Arrow keys, Home and End move the focus between `items`, which are in rows of `columns`. */
export function roving(group, items, arrive = () => {}, columns = 1) {
  group.addEventListener("keydown", (event) => {
    const now = items.indexOf(document.activeElement);
    const down = columns > 1 ? columns : 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: down, ArrowUp: -down };
    let next = { Home: 0, End: items.length - 1 }[event.key];
    if (next === undefined && event.key in steps) next = now + steps[event.key];
    if (now < 0 || next === undefined || next < 0 || next >= items.length) return;
    event.preventDefault();
    items[next].focus();
    arrive(items[next]);
  });
}

export function empty(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const sheets = new WeakMap(); // element -> a function that returns the numbers behind it

/** Set the rows, of texts and numbers, that a drawing becomes in a file; `rows` is a function. */
export function sheet(element, rows) {
  sheets.set(element, rows);
  return element;
}

/** The rows that `sheet` set for an element; null without any. */
export const sheetOf = (element) => sheets.get(element)?.() ?? null;

// ---------------------------------------------------------------------------------------------------- tooltips

const bubble = h("div", { class: "tip", role: "status", hidden: true });
document.addEventListener("keydown", (event) => event.key === "Escape" && tipAway());
document.addEventListener("scroll", () => tipAway(), true);

/** Show a text near a point of the window; line breaks are kept. */
export function tipAt(x, y, text) {
  if (!bubble.isConnected) document.body.append(bubble);
  bubble.textContent = text;
  bubble.hidden = false;
  const { width, height } = bubble.getBoundingClientRect();
  bubble.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  bubble.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

export function tipAway() {
  bubble.hidden = true;
}

/** A tooltip for an element, on hover and focus; `text` is a string or a function that returns one. */
export function tipped(element, text) {
  const say = () => (typeof text === "function" ? text() : text);
  element.addEventListener("pointermove", (event) => tipAt(event.clientX, event.clientY, say()));
  element.addEventListener("pointerleave", tipAway);
  element.addEventListener("focus", () => {
    if (!element.matches(":focus-visible")) return;
    const box = element.getBoundingClientRect();
    tipAt(box.left, box.bottom - 12, say());
  });
  element.addEventListener("blur", tipAway);
  return element;
}

// ---------------------------------------------------------------------------------------------------- colours

/** Colour number i, as a CSS value, from eight that colour-blind readers can distinguish, in turn. */
export const colour = (i) => `var(--s${i % 8})`;

/** [r, g, b] of a custom property of the page, such as "--s0". */
export function rgb(name) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hex = value.length === 4 ? value.replace(/[0-9a-f]/gi, "$&$&") : value;
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/** 256 colours from [r, g, b] to another, as pixels of an ImageData; `curve` maps shares to shades. */
export function palette(from, to, curve = null) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const shade = curve ? curve(i / 255) : i / 255;
    const [r, g, b] = from.map((c, k) => Math.round(c + shade * (to[k] - c)));
    return 0xff000000 + (b << 16) + (g << 8) + r;
  });
}

/** Relative luminance of [r, g, b], from 0 to 1 (WCAG 2.2). */
export function light(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Call `draw` again when the device changes between dark and light mode, while `element` is shown. */
export function onScheme(element, draw) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const again = () => (element.isConnected ? draw() : query.removeEventListener("change", again));
  query.addEventListener("change", again);
}

// ---------------------------------------------------------------------------------------------------- numbers

let halves = null;

/** The bytes of {"kind", "shape", "data"}. */
export function bytes(value) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(value.data);
  const raw = atob(value.data);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

/** The numbers of {"kind", "shape", "data"}, in one Float32Array. */
export function unpack(value) {
  const raw = bytes(value);
  if (value.kind === "uint8") return Float32Array.from(raw, (byte) => byte / 255);
  if (value.kind === "int16") return Float32Array.from({ length: raw.length / 2 }, (_, i) => (((raw[2 * i] | (raw[2 * i + 1] << 8)) << 16) >> 16) / 32768);
  halves ??= Float32Array.from({ length: 65536 }, (_, i) => half(i));
  const found = new Float32Array(raw.length / 2);
  for (let i = 0; i < found.length; i++) found[i] = halves[raw[2 * i] | (raw[2 * i + 1] << 8)];
  return found;
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const rest = bits & 1023;
  if (exponent === 0) return sign * rest * 2 ** -24;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (1 + rest / 1024) * 2 ** (exponent - 15);
}

/** A number with three significant digits. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return value.toFixed(size < 1 ? 3 : size < 10 ? 2 : 1);
}

export const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

/** A horizontal bar for a share from 0 to 1, with its number. */
export function bar(label, share, { index = 0, text = percent(share), strong = false } = {}) {
  const inner = h("span", { class: "bar", style: { width: `${100 * Math.min(1, share)}%`, background: colour(index) } });
  return h("li", { class: strong ? "strong" : null }, h("span", { class: "name" }, label), h("span", { class: "track" }, inner), h("output", {}, text));
}

/** A table: heads, then rows of strings, numbers or elements. */
export function table(heads, rows, caption = null) {
  const cell = (value) =>
    typeof value === "number" ? h("td", { class: "number" }, short(value)) : h("td", {}, value ?? "–");
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      caption ? h("caption", {}, caption) : null,
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))),
    ),
  );
}
