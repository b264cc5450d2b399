"""Linked mentions: documents as inputs, the windows in which they are read, and clusters as answers.

Shapes: W words of a document, N kept spans, K antecedents of a span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmask.data.labelled.coreference import sentence_starts
from unmask.data.labelled.rows import Clusters, Discourse, Row, WordSpan
from unmask.tasks.forms import Object
from unmask.tasks.tagged_words import SentenceForm, places_of


class DocumentForm(SentenceForm):
    """A text, a list of words, or {"text"} or {"words"}."""

    wanted = object = lacking = "an object with words, or with text"

    def row(self, values: Object, place: str) -> Row:
        row = super().row({name: values[name] for name in ("text", "words") if name in values}, place)
        return Discourse(row.text, words=row.words, starts=sentence_starts(row.words))


@dataclass(frozen=True, slots=True)
class Linked:
    """The clusters that a model finds in a document.

    clusters       the mentions of each, in the order of the text
    probabilities  mention -> probability of the antecedent that was chosen for it; the first of a cluster has none
    loss           of the row's own clusters in nats, summed; None without them
    """

    clusters: Clusters
    probabilities: Mapping[WordSpan, float]
    loss: float | None = None


def linked(spans: Sequence[WordSpan], scores_NK: np.ndarray, antecedents_NK: np.ndarray, alone_N: np.ndarray) -> Linked:
    """Clusters from the best antecedent of each span (`nn.coreference.Ranked`).

    alone_N  bool: spans that are mentions even if they are linked to no other
    """
    shares_NK = np.exp(scores_NK - scores_NK.max(1, keepdims=True))
    shares_NK /= shares_NK.sum(1, keepdims=True)
    cluster: dict[int, list[int]] = {}
    likely: dict[WordSpan, float] = {}
    for i, best in enumerate(scores_NK.argmax(1).tolist()):
        if not best:
            continue
        j = int(antecedents_NK[i, best - 1])
        own = cluster.setdefault(j, [j])
        own.append(i)
        cluster[i] = own
        likely[spans[i]] = float(shares_NK[i, best])
    for i in np.flatnonzero(alone_N).tolist():
        cluster.setdefault(i, [i])
    different = {own[0]: own for own in cluster.values()}
    return Linked(tuple(tuple(spans[i] for i in different[first]) for first in sorted(different)), likely)


def as_clusters(row: Row, found: Linked) -> dict[str, Any]:
    """{"clusters": [[{"text", "begin", "end", "probability"}]]} with offsets in characters of the text, or of the words
    joined by spaces; the probability is None for the first mention of a cluster."""
    text, places = row.text or " ".join(row.words), places_of(row)

    def mention(span: WordSpan) -> dict[str, Any]:
        begin, end = places[span[0]][0], places[span[1] - 1][1]
        return {"text": text[begin:end], "begin": begin, "end": end, "probability": found.probabilities.get(span)}

    return {"clusters": [[mention(span) for span in cluster] for cluster in found.clusters]}


def render_clusters(text: str, answer: Mapping[str, Any]) -> str:
    """The text, and a line for each cluster, with the places of its mentions."""
    lines = [
        f"  {number}  " + ", ".join(f"{one['text']} ({one['begin']}-{one['end']})" for one in cluster)
        for number, cluster in enumerate(answer["clusters"], 1)
    ]
    return "\n".join([text, *(lines or ["  no mentions that belong together"])]) + "\n"


def word_windows(bounds: np.ndarray, starts: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """[low, high) words of windows of at most `room` pieces, which end between sentences, or within one that is longer.
    A word of more pieces has a window of its own.

    bounds  [W + 1] the piece at which each word begins, and the number of pieces
    """
    begin, last, ends = 0, len(bounds) - 1, np.array([*starts[1:], len(bounds) - 1])
    while begin < last:
        fits = int(np.searchsorted(bounds, bounds[begin] + room, "right")) - 1
        whole = ends[(ends > begin) & (ends <= fits)]
        end = int(whole[-1]) if len(whole) else max(fits, begin + 1)
        yield begin, end
        begin = end


def parts_of(row: Discourse, windows: Sequence[tuple[int, int]], most: int) -> Iterator[Discourse]:
    """A document in parts of `most` windows, with the mentions that each holds."""
    for i in range(0, len(windows), most):
        low, high = windows[i][0], windows[min(i + most, len(windows)) - 1][1]
        inside = (tuple((b - low, e - low) for b, e in cluster if b >= low and e <= high) for cluster in row.clusters)
        starts = (0, *(start - low for start in row.starts if low < start < high))
        words = row.words[low:high]
        yield replace(
            row, text=" ".join(words), words=words, starts=starts, clusters=tuple(one for one in inside if one)
        )
