// Pictures, or maps of numbers, side by side in groups with captions.

import { bytes, empty, h, onScheme, palette, rgb, short, tipAt, tipAway, unpack } from "./dom.js";

/** data: the output of `visualize.gallery.gallery`. */
export function galleryView(root, data) {
  empty(root, h("p", {}, data.lead), data.groups.map((group) => galleryGroup(group, data.scale)), data.note ? h("p", { class: "note" }, data.note) : null);
}

/** One group of cells under its title; `scale` is the number that has the full colour in a map. */
export function galleryGroup(group, scale) {
  const cells = group.cells.map((cell, i) => {
    const name = cell.caption || `${group.title}: ${i + 1} of ${group.cells.length}`;
    const canvas = cell.values ? map(cell, name, scale) : picture(cell, name);
    const ratio = Math.min(1, canvas.width / canvas.height);
    canvas.style.setProperty("width", `${Math.round(100 * ratio)}%`);
    return h("div", { class: "cell" }, canvas, cell.caption ? h("small", {}, cell.caption) : null);
  });
  const least = group.cells.some((cell) => cell.caption) ? Math.min(group.size, 84) : 16; // pixels that a caption needs
  const style = { "--across": String(group.across), "--size": `${group.size}px`, "--least": `${least}px` };
  return [group.title ? h("h3", {}, group.title) : null, h("div", { class: "scroll" }, h("div", { class: "gallery", style }, cells))];
}

/** A canvas with the picture in {"file": base64 of a PNG or JPEG file}, drawn when the browser has decoded it. */
export function picture({ height = 1, width = 1, file }, name) {
  const canvas = h("canvas", { width, height, role: "img", "aria-label": name });
  const draw = (image) => {
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
  };
  createImageBitmap(new Blob([bytes({ data: file })])).then(draw, () => canvas.setAttribute("aria-label", `${name} (this picture cannot be decoded)`));
  return canvas;
}

/** A canvas with a colour for each number; the pointer shows the number. */
function map(cell, name, scale) {
  const values = unpack(cell.values), [height, width] = cell.values.shape;
  const canvas = h("canvas", { width, height, role: "img", "aria-label": name });
  const draw = () => {
    const back = rgb("--card"), above = palette(back, rgb("--s0")), below = palette(back, rgb("--s1"));
    const image = new ImageData(width, height), shades = new Uint32Array(image.data.buffer);
    values.forEach((value, i) => (shades[i] = (value < 0 ? below : above)[Math.min(255, Math.round((255 * Math.abs(value)) / scale))]));
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (offset, size, count) => Math.min(count - 1, Math.max(0, Math.floor((offset / size) * count)));
    const row = at(event.clientY - box.top, box.height, height), column = at(event.clientX - box.left, box.width, width);
    tipAt(event.clientX, event.clientY, `${cell.caption ? `${cell.caption}\n` : ""}row ${row + 1}, column ${column + 1}: ${short(values[row * width + column])}`);
  });
  canvas.addEventListener("pointerleave", tipAway);
  onScheme(canvas, draw);
  draw();
  return canvas;
}
