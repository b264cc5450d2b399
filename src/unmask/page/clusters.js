// Clusters of mentions, coloured in their text.

import { colour, h, percent, tipped } from "./dom.js";

/** A text with the mentions {"begin", "end", "probability"} of its clusters: those of one cluster have one colour and one
 *  number. A mention inside another one is drawn inside it. */
export function clustered(text, clusters) {
  const letters = [...text];
  const mentions = clusters.flatMap((cluster, index) => cluster.map((mention) => ({ ...mention, index })));
  mentions.sort((a, b) => a.begin - b.begin || b.end - a.end);
  let next = 0;
  function inside(begin, end) {
    const parts = [];
    let at = begin;
    while (next < mentions.length && mentions[next].begin < end) {
      const one = mentions[next++];
      if (one.end > end) continue; // crosses the end of the one around it
      parts.push(letters.slice(at, one.begin).join(""), mark(one));
      at = one.end;
    }
    parts.push(letters.slice(at, end).join(""));
    return parts;
  }
  function mark(one) {
    const words = letters.slice(one.begin, one.end).join("");
    const chosen = one.probability === null ? "" : `, antecedent ${percent(one.probability)}`;
    const inner = h("mark", { class: "mention", tabindex: 0, style: { "--mark": colour(one.index) } }, inside(one.begin, one.end), h("sub", {}, one.index + 1));
    return tipped(inner, `${words}\ncluster ${one.index + 1} of ${clusters[one.index].length}${chosen}`);
  }
  return h("p", { class: "text mentions" }, inside(0, letters.length));
}
