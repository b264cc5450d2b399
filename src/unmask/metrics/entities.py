"""Entities of tagged sentences: spans in IOB1, IOB2, IOBES and BILOU, scored like conlleval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

Span = tuple[int, int, str]

FIRST, LAST = frozenset("BSU"), frozenset("ESLU")
PREFIXES = FIRST | LAST | {"I"}
"""Prefixes of tags in IOB1, IOB2, IOBES and BILOU: Begin, Inside, End or Last, Single or Unit."""


def of_tags(
    predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Accuracy of words, and precision, recall and F1 of entities or tagged words.

    For tags in an IOB scheme, precision, recall and F1 count whole entities, like conlleval (Tjong Kim Sang & De
    Meulder 2003). For other tags they count words of all classes except `outside`; without such a class, only the
    accuracy is returned.
    """
    predicted, true = list(predicted), list(true)
    pairs = [(p, t) for ps, ts in zip(predicted, true, strict=True) for p, t in zip(ps, ts, strict=True)]
    found = {"accuracy": sum(p == t for p, t in pairs) / max(1, len(pairs))}
    if are_iob(labels):
        return {**of_spans(map(spans, predicted), map(spans, true)), **found}
    rest = outside(labels)
    if rest is None:
        return found
    right = sum(p == t != rest for p, t in pairs)
    return {**_f1(right, sum(p != rest for p, _ in pairs), sum(t != rest for _, t in pairs)), **found}


def per_tag(
    predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Kind of entity, or tag -> precision, recall, f1 and support."""
    cut = spans if are_iob(labels) else words_as_spans
    guesses, facts = (_numbered(map(cut, sentences)) for sentences in (predicted, true))
    right, guessed, support = (Counter(kind for *_, kind in found) for found in (guesses & facts, guesses, facts))
    kinds = sorted({*guessed, *support})
    return {kind: {**_f1(right[kind], guessed[kind], support[kind]), "support": support[kind]} for kind in kinds}


def of_spans(predicted: Iterable[Sequence[Span]], true: Iterable[Sequence[Span]]) -> dict[str, float]:
    """Precision, recall and F1 of the spans (begin, end, kind) of sentences; all three must be correct."""
    guesses, facts = _numbered(predicted), _numbered(true)
    return _f1(len(guesses & facts), len(guesses), len(facts))


def are_iob(labels: Sequence[str]) -> bool:
    """Whether tags mark the begin and inside of entities: such as O, B-PER, I-PER, or only O, B and I."""
    inside = [label for label in labels if label != "O"]
    if {"O", "B", "I"} <= set(labels) and PREFIXES.issuperset(inside):
        return True
    return bool(inside) and all(label[:1] in PREFIXES and label[1:2] == "-" for label in inside)


def outside(labels: Sequence[str]) -> str | None:
    """The tag of words outside of entities: "O", or the first of two labels; None if there is no such tag."""
    return "O" if "O" in labels else labels[0] if len(labels) == 2 else None


def spans(tags: Sequence[str]) -> list[Span]:
    """(begin, end, kind) of the entities in the tags of a sentence; `end` is exclusive.

    An entity ends before O, B or S, before another kind, and after E or S; every other tag except O begins or continues
    one. So IOB1, IOB2, IOBES and BILOU need no separate rules, and a stray I begins an entity, as in conlleval. An
    unknown prefix only means that the word belongs to the kind after it; without a kind, the word is outside.

    conlleval itself knows neither S, L and U nor a B after E: it finds fewer adjacent entities of one kind in IOBES and
    BILOU than in IOB2. Here all schemes give the same entities.
    """
    found = []
    begin, kind, last = -1, "", "O"
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, this = tag.partition("-")
        inside = prefix != "O" and (prefix in PREFIXES or this != "")
        if begin >= 0 and (not inside or this != kind or _parts(last, prefix)):
            found.append((begin, i, kind))
            begin = -1
        if begin < 0 and inside:
            begin, kind = i, this
        last = prefix
    return found


def words_as_spans(tags: Sequence[str]) -> list[Span]:
    """Each word as an entity whose kind is its tag."""
    return [(i, i + 1, tag) for i, tag in enumerate(tags)]


def _parts(last: str, prefix: str) -> bool:
    """Whether one entity ends and another begins between two words of the same kind."""
    return PREFIXES.issuperset((last, prefix)) and (last in LAST or prefix in FIRST)


def _numbered(sentences: Iterable[Sequence[Span]]) -> set[tuple[int, int, int, str]]:
    return {(i, *span) for i, found in enumerate(sentences) for span in found}


def _f1(right: int, guessed: int, true: int) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, guessed + true),
        "precision": right / max(1, guessed),
        "recall": right / max(1, true),
    }
