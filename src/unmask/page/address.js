// The address: the tab, the model and the fields of a view after the #, so that a reload, a link and the back button
// restore what was shown.

const KEPT_TEXT = 6000; // characters of a text that an address may have

/** {tab, fields: {model, text, layer, …}} of the present address. */
export function given() {
  const [tab, rest = ""] = location.hash.slice(1).split("?", 2);
  return { tab: decoded(tab), fields: Object.fromEntries(new URLSearchParams(rest)) };
}

/** A part of an address without its escapes; as it is if one of them is damaged. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Change fields of the address; null and "" remove one. `push` adds an entry to the history, if anything changes. */
export function keep(fields, push = false) {
  const now = given();
  go(now.tab, { ...now.fields, ...fields }, push);
}

/** Set the tab and all fields. */
export function go(tab, fields, push = false) {
  const kept = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "" && String(value).length <= KEPT_TEXT);
  const said = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  const hash = `#${tab}${said ? `?${said}` : ""}`;
  if (hash !== location.hash) history[push ? "pushState" : "replaceState"](null, "", hash);
}

/** Numbers counted from 1 in the address, such as "1,3", counted from 0; null without any. */
export function numbers(text) {
  const found = (text ?? "").split(",").map((one) => Number(one) - 1).filter((one) => Number.isInteger(one) && one >= 0);
  return found.length ? found : null;
}
