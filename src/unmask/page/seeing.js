// Try it, for models of pictures: labels of a picture, and the cosines of several.

import { bar, bytes, empty, field, h } from "./dom.js";
import { chips } from "./forms.js";
import { cosines } from "./matrix.js";
import { base64 } from "./microphone.js";
import { ask } from "./service.js";
import { share } from "./share.js";

/** A picture is chosen or dropped; the page sends the bytes of its file. */
export function classifyPicture(root, model) {
  const place = h("div", { "aria-live": "polite" });
  let turn = 0;
  async function answer(file) {
    const mine = ++turn;
    if (!file) return;
    empty(place, h("p", { class: "busy" }, "Working …"));
    const stage = h("div", {});
    try {
      const said = await ask("predict", { model: model.name, texts: [{ picture: await base64(file) }] }), [found] = said.answers;
      const scores = Object.entries(found.scores).sort((a, b) => b[1] - a[1]);
      const shown = h("canvas", { role: "img", "aria-label": file.name });
      const picture = await createImageBitmap(file).catch(() => null);
      if (picture) {
        const share = Math.min(1, 320 / Math.max(picture.width, picture.height));
        [shown.width, shown.height] = [picture.width, picture.height].map((side) => Math.max(1, Math.round(side * share)));
        shown.getContext("2d").drawImage(picture, 0, 0, shown.width, shown.height);
        if (picture.width < 64) shown.classList.add("small");
      }
      empty(stage, h("h3", {}, file.name), picture ? shown : null, h("ol", { class: "bars" }, scores.slice(0, 10).map(([label, p], i) => bar(label, p, { strong: i === 0 }))));
      stage.append(share(stage, said) ?? "");
    } catch (error) {
      empty(stage, h("p", { class: "error", role: "alert" }, error.message));
    }
    if (mine === turn) empty(place, stage);
  }
  const input = h("input", { type: "file", accept: "image/*", "aria-label": "Picture", onchange: () => answer(input.files[0]) });
  const form = h("form", { onsubmit: (event) => event.preventDefault(), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), answer(event.dataTransfer.files[0])) }, field("Picture: choose a file, or drop one here", input));
  const offered = chips(model, ["picture"], (item) => answer(exampleFile(item)));
  empty(root, form, offered, place);
  const [first] = model.examples?.items ?? [];
  if (first?.picture) answer(exampleFile(first));
}

/** The picture of an example as a file. */
export function exampleFile(item) {
  return new File([bytes({ data: item.picture })], `an example${item.expected ? ` of ${item.expected}` : ""}`);
}

/** Several pictures are chosen; a matrix shows the cosines of their vectors. */
export function comparePictures(root, model) {
  const place = h("div", { "aria-live": "polite" });
  async function compare(files) {
    empty(place, h("p", { class: "busy" }, "Working …"));
    try {
      const texts = await Promise.all([...files].map(async (file) => ({ picture: await base64(file) })));
      const { embeddings } = await ask("embed", { model: model.name, texts });
      empty(place, cosines([...files].map((file) => file.name), embeddings));
    } catch (error) {
      empty(place, h("p", { class: "error", role: "alert" }, error.message));
    }
  }
  const input = h("input", { type: "file", accept: "image/*", multiple: true, "aria-label": "Pictures", onchange: () => input.files.length && compare(input.files) });
  empty(root, h("form", { onsubmit: (event) => event.preventDefault() }, field("Pictures: choose two or more files", input)), place);
}

/** A form for a picture; `done(bytes in Base64)` gets each, and at first that of the first example. */
export function pictureForm(model, done) {
  const give = async (file) => file && done(await base64(file));
  const input = h("input", { type: "file", accept: "image/*", "aria-label": "Picture", onchange: () => give(input.files[0]) });
  const form = h("form", { onsubmit: (event) => event.preventDefault(), ondragover: (event) => event.preventDefault(), ondrop: (event) => (event.preventDefault(), give(event.dataTransfer.files[0])) }, field("Picture: choose a file, or drop one here", input));
  const [first] = model.examples?.items ?? [];
  if (first?.picture) queueMicrotask(() => done(first.picture));
  return h("div", {}, form, chips(model, ["picture"], (item) => done(item.picture)));
}
