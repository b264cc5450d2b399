// What can be done with an answer: the request as curl and as Python, and files of its numbers and its picture.

import { choice, empty, h, sheetOf } from "./dom.js";
import { hasKey, requestOf } from "./service.js";

const LONG = 3000; // characters of a body, from which on it is a file beside the command

/** A fold below an answer: `data`, as `ask` returned it or a list of several, and the element that shows it. */
export function share(place, data) {
  const requests = [data].flat().map(requestOf).filter(Boolean);
  if (!requests.length) return null;
  const bodies = requests.map((one) => JSON.stringify(one.body)), long = bodies.some((body) => body.length > LONG);
  const files = bodies.map((_, i) => (bodies.length > 1 ? `request-${i + 1}.json` : "request.json"));
  const name = requests[0].path;
  const code = h("pre", { tabindex: 0, role: "group", "aria-label": "The request as a command" });
  const ways = { curl, Python: python };
  const show = (way) => empty(code, requests.map(({ path }, i) => ways[way](path, bodies[i], long ? files[i] : null)).join("\n\n"));
  const said = h("span", { class: "note", role: "status" });
  const copy = h("button", { type: "button", onclick: async () => (said.textContent = (await copied(code.textContent)) ? "Copied." : "Select the text, and copy it.") }, "Copy");
  const file = (label, make) => h("button", { type: "button", onclick: make }, label);
  const fold = h(
    "details",
    { class: "share" },
    h("summary", {}, "Use this answer: curl, Python, files"),
    h("div", { class: "controls" }, choice("Language", { curl: "curl", Python: "Python" }, "curl", show), copy, said),
    code,
    h(
      "div",
      { class: "row", role: "group", "aria-label": "Download" },
      h("span", { class: "note" }, "Download"),
      long ? file("Request", () => bodies.forEach((body, i) => download(files[i], body, "application/json"))) : null,
      file("JSON", () => download(`${name}.json`, JSON.stringify(data, null, 1), "application/json")),
      file("CSV", () => download(`${name}.csv`, csv(place), "text/csv")),
      file("PNG", async () => ((said.textContent = ""), download(`${name}.png`, await picture(place, fold)))),
    ),
  );
  show("curl");
  return fold;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // without HTTPS, or without permission
  }
}

/** A button that copies a text, such as the address of the page. */
export function copyButton(label, text) {
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    button.textContent = (await copied(text())) ? "Copied" : "Copy it from the address bar";
    setTimeout(() => (button.textContent = label), 2000);
  } }, label);
  return button;
}

// ---------------------------------------------------------------------------------------------------- code

const url = (path) => new URL(path, location.href.split("#")[0]).href;
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** `from` is the file that holds the body; null: the command holds it. */
function curl(path, body, from) {
  const key = hasKey() ? ` \\\n  -H "authorization: Bearer $KEY"` : "";
  return `curl ${url(path)} \\\n  -H 'content-type: application/json'${key} \\\n  -d ${from ? `@${from}` : quoted(body)}`;
}

/** Python without packages; the text of the body is a string of JSON, which is one of Python, too. */
function python(path, body, from) {
  const key = hasKey() ? `, "authorization": f"Bearer {os.environ['KEY']}"` : "";
  const read = from ? `open("${from}", "rb").read()` : `${JSON.stringify(body)}.encode()`;
  return `import json\n${key ? "import os\n" : ""}import urllib.request\n\nbody = ${read}\nheaders = {"content-type": "application/json"${key}}\nrequest = urllib.request.Request("${url(path)}", body, headers)\nprint(json.load(urllib.request.urlopen(request)))`;
}

// ---------------------------------------------------------------------------------------------------- files

function download(name, content, type = "image/png") {
  const link = h("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Tables, bars, matrices and charts of an element, in their order, with an empty line between them. */
export function csv(place) {
  const found = [...place.querySelectorAll("*")].map((one) => sheetOf(one) ?? plain(one)).filter(Boolean);
  const texts = [...place.querySelectorAll("p.text, .pieces")].map((one) => [[one.textContent.trim()]]);
  return (found.length ? found : texts).map((rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n")).join("\r\n\r\n") + "\r\n";
}

function plain(one) {
  if (one.matches("table")) return [...one.rows].map((row) => [...row.cells].map((entry) => entry.textContent.trim()));
  if (one.matches(".bars")) return [...one.children].map((row) => [row.querySelector(".name")?.textContent.trim() ?? "", row.querySelector("output")?.textContent.trim() ?? ""]);
  return null;
}

const cell = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

/** An element as a PNG: its markup and the style of the page inside an SVG, which the browser draws. */
async function picture(place, without) {
  const { width, height } = place.getBoundingClientRect(), top = without.offsetHeight + 16;
  const copy = place.cloneNode(true);
  const drawn = copy.querySelectorAll("canvas");
  place.querySelectorAll("canvas").forEach((canvas, i) => {
    const box = canvas.getBoundingClientRect();
    drawn[i].replaceWith(h("img", { src: canvas.toDataURL(), width: box.width, height: box.height }));
  });
  copy.querySelectorAll(".share").forEach((one) => one.remove());
  const style = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).join("\n");
  const inside = h("div", {}, h("style", {}, style), h("div", { style: { padding: "8px", background: "var(--back)", color: "var(--ink)", font: "16px/1.5 system-ui, sans-serif" } }, copy));
  const [w, t] = [Math.ceil(width) + 16, Math.ceil(height - top) + 24];
  const markup = `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${t}"><foreignObject width="100%" height="100%">${new XMLSerializer().serializeToString(inside)}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(markup)}`;
  await image.decode();
  const canvas = h("canvas", { width: 2 * w, height: 2 * t }), context = canvas.getContext("2d");
  context.scale(2, 2);
  context.drawImage(image, 0, 0);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
