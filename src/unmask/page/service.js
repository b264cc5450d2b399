// The service behind the page: one function that asks, and the key where one is needed.

import { h } from "./dom.js";

let key = "";

/** POST a JSON object to a path (GET without one); the JSON of the answer. Throws an Error with one sentence. */
export async function ask(path, body = null) {
  const headers = { ...(body ? { "content-type": "application/json" } : {}), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : null });
  } catch {
    throw new Error("The service does not answer: is it still running?");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) return said;
  const error = new Error(said?.error?.message ?? said?.error ?? `The service answered with status ${answer.status}.`);
  error.status = answer.status;
  throw error;
}

/** A form that asks for the key, and what to do with it. */
export function keyForm(done) {
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Key", required: true });
  return h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), (key = input.value.trim()), done()) },
    h("p", {}, "This service asks for a key. It stays in this page until you leave it."),
    h("div", { class: "row" }, input, h("button", { class: "main" }, "Use it")),
  );
}
