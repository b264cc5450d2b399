// Requests to the service, with the API key if the service needs one.

import { field, h } from "./dom.js";

const KEPT = "unmask-key"; // in the session storage, which ends with the tab
const requests = new WeakMap(); // what `ask` returned -> its request
let whenRefused = () => {};

const stored = (change) => {
  try {
    return change(sessionStorage);
  } catch {
    return null; // a browser that keeps nothing asks for the key on each visit
  }
};
let key = stored((place) => place.getItem(KEPT)) ?? "";

/** Set `change(refused)`, called when the service needs a key; `refused`: it did not accept the given one. */
export function onRefusal(change) {
  whenRefused = change;
}

export const hasKey = () => key !== "";

/** Set the key, "" for none, and keep it until the tab is closed. */
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
    throw new Error("The service does not answer. Check that it is running, then try again.");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) {
    if (body) requests.set(said, { path, body });
    return said;
  }
  const error = new Error(said?.error?.message ?? said?.error ?? `The service answered with status ${answer.status}.`);
  error.status = answer.status;
  if (answer.status === 401 && sent === key) { // else another key was given meanwhile, or the page is locked already
    useKey("");
    whenRefused(sent !== "");
  }
  throw error;
}

/** The request {path, body} of what `ask` returned; undefined for something else. */
export const requestOf = (said) => (said ? requests.get(said) : undefined);

/** A form that asks for the key; `done()` is called when there is one. */
export function keyForm(refused, done) {
  const input = h("input", { type: "password", autocomplete: "off", required: true, pattern: "[!-~]+", title: "letters, digits and signs, without spaces" });
  const form = h(
    "form",
    { class: "card key", onsubmit: (event) => (event.preventDefault(), useKey(input.value.trim()), done()) },
    h("h2", {}, "This service needs an API key"),
    refused ? h("p", { class: "error", role: "alert" }, "The service did not accept this key. Check that you entered all of it.") : null,
    h("p", {}, "The person who started the service has the key, in the file of --api-key-file. The page keeps it until you close this tab, and sends it only to this service."),
    h("div", { class: "row" }, field("Key", input), h("button", { class: "main" }, "Use it")),
  );
  requestAnimationFrame(() => input.focus());
  return form;
}
