"""Tag schemes IOB1, IOB2, IOBES and BILOU: detection, conversion, and allowed transitions.

Ramshaw & Marcus 1995 (IOB1), Ratnaparkhi 1998 (IOB2), Ratinov & Roth 2009 (BILOU). Shapes: C tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from unmask.errors import UnmaskError, unknown

Span = tuple[int, int, str]
"""Begin and end (exclusive) in words, and kind."""

SCHEMES = {"IOB1": "IB", "IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
"""Name -> the prefixes of its tags, besides O."""

_FIRST, _LAST = frozenset("BSU"), frozenset("ESLU")
_PREFIXES = _FIRST | _LAST | {"I"}
# Prefixes of a span's first, inner, last and only word.
_MARKS = {
    "IOB2": ("B", "I", "I", "B"),
    "IOBES": ("B", "I", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}


class Allowed(NamedTuple):
    """Allowed tags, bool: between [C, C], whether a column may follow a row; begin [C] and end [C] of a sentence."""

    between: np.ndarray
    begin: np.ndarray
    end: np.ndarray


def parts(tag: str) -> tuple[str, str] | None:
    """Prefix and kind of the tag of a span, ("O", "") for O; None for any other tag, such as NOUN.

    >>> parts("B-PER"), parts("I"), parts("O"), parts("NOUN")
    (('B', 'PER'), ('I', ''), ('O', ''), None)
    """
    prefix, dash, kind = tag.partition("-")
    if prefix == "O" and not dash:
        return "O", ""
    return (prefix, kind) if prefix in _PREFIXES and bool(dash) == bool(kind) else None


def detect(sentences: Iterable[Sequence[str]]) -> str | None:
    """The scheme of the tags of some sentences; None if the tags mark no spans, such as parts of speech.

    The set of tags does not distinguish IOB1 from IOB2. So this counts the spans that begin with I (only in IOB1), and
    those that begin with B without touching another span of their kind (only in IOB2); for a tie it is IOB2. Raises
    UnmaskError if E or S and L or U occur together.
    """
    sentences = list(sentences)
    tags = {tag for sentence in sentences for tag in sentence}
    found = [part for part in map(parts, tags) if part is not None]
    prefixes = {prefix for prefix, _ in found} - {"O"}
    if len(found) < len(tags) or not prefixes:
        return None
    if len(kinds := {bool(kind) for prefix, kind in found if prefix != "O"}) > 1 or not _bare_are_iob(kinds, prefixes):
        return None
    named = [name for name, marks in (("IOBES", "ES"), ("BILOU", "LU")) if prefixes & set(marks)]
    if len(named) == 2:
        shown = ", ".join(sorted(tag for tag in tags if tag[0] in "ESLU")[:6])
        raise UnmaskError(f"The tags {shown} are of two schemes, IOBES and BILOU; use only one.")
    return named[0] if named else _older(sentences)


def convert(tags: Sequence[str], to: str = "IOB2") -> tuple[str, ...]:
    """Convert the tags of a sentence from any scheme to another one; its spans do not change.

    A stray I, without a B before it, begins a span, as in conlleval. Raises UnmaskError for a tag that is not of a
    scheme, and for an unknown scheme.
    """
    return to_tags(spans(tags), len(tags), to)


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a sentence with tags of any scheme. Raises UnmaskError for a tag that is not of a scheme."""
    found: list[Span] = []
    begin, before = 0, ("O", "")
    for i, tag in enumerate([*tags, "O"]):
        this = parts(tag)
        if this is None:
            raise UnmaskError(f"The tag '{tag}' is not a tag of spans, such as O, B-PER and I-PER, and has no scheme.")
        new = this[1] != before[1] or this[0] in _FIRST or before[0] in _LAST or "O" in (this[0], before[0])
        if new and before[0] != "O":
            found.append((begin, i, before[1]))
        if new:
            begin = i
        before = this
    return found


def to_tags(spans: Iterable[Span], length: int, scheme: str = "IOB2") -> tuple[str, ...]:
    """The tags of a sentence of `length` words with these spans. Raises UnmaskError for a span that is empty, too long,
    or shares a word with another one, and for an unknown scheme."""
    if scheme not in SCHEMES:
        raise unknown("tag scheme", scheme, SCHEMES)
    tags = ["O"] * length
    last = (0, 0, "")
    for begin, end, kind in sorted(spans):
        if not last[1] <= begin < end <= length:
            raise UnmaskError(f"The span {begin}-{end} of {length} words is empty, too long, or overlaps another one.")
        first, inner, final, only = _marks(scheme, touching=begin > 0 and last[1:] == (begin, kind))
        marks = only if end - begin == 1 else first + inner * (end - begin - 2) + final
        tags[begin:end] = [f"{mark}-{kind}" if kind else mark for mark in marks]
        last = (begin, end, kind)
    return tuple(tags)


def tag_set(kinds: Iterable[str], scheme: str = "IOB2") -> tuple[str, ...]:
    """All tags of a scheme for these kinds of spans, O first: the classes of a model. Raises UnmaskError for an unknown
    scheme."""
    if scheme not in SCHEMES:
        raise unknown("tag scheme", scheme, SCHEMES)
    prefixes = SCHEMES[scheme]
    return ("O", *(f"{prefix}-{kind}" if kind else prefix for kind in sorted(set(kinds)) for prefix in prefixes))


def allowed(labels: Sequence[str], scheme: str | None = None) -> Allowed:
    """The transitions between C tags, and the tags at the begin and end of a sentence, that a scheme allows; all if the
    tags mark no spans.

    scheme  the result of `detect` for the training sentences. None: detected from the tags, which is certain for IOBES
            and BILOU. IOB1 and IOB2 have the same tags: unless a kind has I but no B, which is possible only in IOB1,
            everything is allowed

    IOB2: I follows only B or I of its kind. IOB1: B follows only B or I of its kind. IOBES and BILOU: after B and I
    comes I or E (L) of the same kind, and these come only there. Raises UnmaskError for an unknown scheme.
    """
    if scheme is not None and scheme not in SCHEMES:
        raise unknown("tag scheme", scheme, SCHEMES)
    split = [part for part in map(parts, labels) if part is not None]
    scheme = scheme or _scheme_of(labels)
    if scheme is None or len(split) < len(labels):
        count = len(labels)
        return Allowed(np.ones((count, count), bool), np.ones(count, bool), np.ones(count, bool))
    outside = ("O", "")
    between = np.array([[_follows(one, other, scheme) for other in split] for one in split], bool)
    begin = np.array([_follows(outside, one, scheme) for one in split], bool)
    end = np.array([_follows(one, outside, scheme) for one in split], bool)
    return Allowed(between, begin, end)


def _follows(before: tuple[str, str], after: tuple[str, str], scheme: str) -> bool:
    """Whether a tag may follow another one; the border of a sentence counts as O."""
    same = before[0] != "O" and before[1] == after[1]
    if scheme == "IOB2":
        return after[0] != "I" or same
    if scheme == "IOB1":
        return after[0] != "B" or same
    unfinished, goes_on = before[0] in "BI", after[0] in "IEL"
    return same if unfinished and goes_on else unfinished == goes_on


def _scheme_of(labels: Sequence[str]) -> str | None:
    """The scheme of a set of tags; None if they mark no spans, or may be IOB1 or IOB2."""
    scheme = detect([[label] for label in labels])
    if scheme not in ("IOB1", "IOB2"):
        return scheme
    kinds = {prefix: {part[1] for part in map(parts, labels) if part and part[0] == prefix} for prefix in "BI"}
    return "IOB1" if kinds["I"] - kinds["B"] else None


def _older(sentences: Iterable[Sequence[str]]) -> str:
    """IOB1 or IOB2, by the number of spans that are marked as in only one of them."""
    votes = {"IOB1": 0, "IOB2": 0}
    for sentence in sentences:
        for before, this in pairwise(map(parts, ["O", *sentence])):
            assert before is not None
            assert this is not None
            same = before[0] != "O" and before[1] == this[1]
            if not same and this[0] != "O":
                votes["IOB1" if this[0] == "I" else "IOB2"] += 1
    return "IOB1" if votes["IOB1"] > votes["IOB2"] else "IOB2"


def _bare_are_iob(kinds: set[bool], prefixes: set[str]) -> bool:
    """Whether tags have kinds, or are O, B and I: other single letters are probably not tags of spans."""
    return kinds == {True} or {"B", "I"} <= prefixes


def _marks(scheme: str, touching: bool) -> tuple[str, str, str, str]:
    """Prefixes of a span's first, inner, last and only word; in IOB1, B is only for a span that touches another of its
    kind."""
    if scheme == "IOB1":
        return ("B", "I", "I", "B") if touching else ("I", "I", "I", "I")
    return _MARKS[scheme]
