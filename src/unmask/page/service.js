// The service behind the page: one function that asks, and the key where one is needed.

import { field, h } from "./dom.js";

const KEPT = "unmask-key"; // in the session storage, which ends with the tab
let whenRefused = () => {};

const stored = (change) => {
  try {
    return change(sessionStorage);
  } catch {
    return null; // a browser that keeps nothing asks for the key on each visit
  }
};
let key = stored((place) => place.getItem(KEPT)) ?? "";

/** What is done when the service wants a key: `change(refused)`, where `refused` says that it knows not this one. */
export function onRefusal(change) {
  whenRefused = change;
}

export const hasKey = () => key !== "";

/** Take a key, "" for none, and keep it as long as the tab is open. */
export function useKey(value) {
  key = value;
  stored((place) => (value ? place.setItem(KEPT, value) : place.removeItem(KEPT)));
}

/** POST a JSON object to a path (GET without one); the JSON of the answer. Throws an Error with one sentence. */
export async function ask(path, body = null) {
  const sent = key;
  const headers = { ...(body ? { "content-type": "application/json" } : {}), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : null });
  } catch {
    throw new Error("The service does not answer. Is it still running? Start it again, then try once more.");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) return said;
  const error = new Error(said?.error?.message ?? said?.error ?? `The service answered with status ${answer.status}.`);
  error.status = answer.status;
  if (answer.status === 401 && sent === key) { // else another key was given meanwhile, or the page is locked already
    useKey("");
    whenRefused(sent !== "");
  }
  throw error;
}

/** A form that asks for the key; `done()` is called when there is one. */
export function keyForm(refused, done) {
  const input = h("input", { type: "password", autocomplete: "off", required: true, pattern: "[!-~]+", title: "letters, digits and signs, without spaces" });
  const form = h(
    "form",
    { class: "card key", onsubmit: (event) => (event.preventDefault(), useKey(input.value.trim()), done()) },
    h("h2", {}, "This service asks for a key"),
    refused ? h("p", { class: "error", role: "alert" }, "It does not know the key that was given. Look whether it is whole.") : null,
    h("p", {}, "Whoever started the service has it, in the file of --api-key-file. It is kept until you close this tab, and sent to this service alone."),
    h("div", { class: "row" }, field("Key", input), h("button", { class: "main" }, "Use it")),
  );
  requestAnimationFrame(() => input.focus());
  return form;
}
