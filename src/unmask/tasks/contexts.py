"""Contexts: where in a text answers may begin and end, and the windows in which a long one is read.

Shapes: C pieces of a context.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Encoding, Tokenizer
from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True)
class Context:
    """The pieces of a context, and where in its text answers may begin and end.

    ids     [C]
    places  [C, 2] begin and end of each piece in characters of the raw text
    begins  [C] bool: the first piece that begins at its character; an answer never begins inside one
    ends    [C] bool: the last piece that ends at its character
    """

    ids: np.ndarray
    places: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a context as the model reads it.

    lead       number of tokens before the context: [CLS] question [SEP]
    begin      index of its first context token
    count      number of its context tokens
    low, high  answers that begin at the context tokens low … high - 1 are taken from this window alone
    """

    lead: int
    begin: int
    count: int
    low: int
    high: int


def contexts_of(rows: Sequence[Row], tokenizer: Tokenizer) -> tuple[Context, ...]:
    """The context of each row; questions on the same one share it."""
    known: dict[str, Context] = {}
    for number, row in enumerate(rows, 1):
        text = row.pair or ""
        if not text.strip():
            raise UnmaskError(f"{row.place or f'Question {number}'} has an empty context, which cannot hold an answer.")
        if text not in known:
            known[text] = _context(text, tokenizer.encode(text, special=False))
    return tuple(known[row.pair or ""] for row in rows)


def _context(text: str, encoding: Encoding) -> Context:
    places = _places_in(text, encoding.offsets)
    begins, ends = np.zeros(len(places), bool), np.zeros(len(places), bool)
    real = np.flatnonzero(places[:, 1] > places[:, 0])  # a byte-level vocabulary has pieces of white space
    begins[real] = np.diff(places[real, 0], prepend=-1) > 0
    ends[real] = np.diff(places[real, 1], append=len(text) + 1) > 0
    return Context(encoding.ids, places, begins, ends)


def _places_in(text: str, offsets: np.ndarray) -> np.ndarray:
    """Offsets [C, 2] without white space, and with the accents and vowel signs that the tokenizer dropped after a
    letter."""
    found = offsets.tolist()
    stops = [begin for begin, _ in found[1:]] + [len(text)]
    for place, stop in zip(found, stops, strict=False):
        begin, end = place
        while begin < end < stop and unicodedata.category(text[end])[0] not in "CZ":
            end += 1
        while begin < end and text[begin].isspace():
            begin += 1
        while begin < end and text[end - 1].isspace():
            end -= 1
        place[:] = begin, end
    return np.array(found, np.int64).reshape(-1, 2)


def windows(tokens: int, room: int, stride: int, *, lead: int = 0, longest: int = 1) -> list[Window]:
    """Windows of at most `room` tokens that cover a context and share `stride` tokens with their neighbours, or half
    the room where that is less.

    The ranges `low` … `high - 1` follow each other and cover all tokens. The border between two ranges is in the middle
    of the shared tokens or before it: if any window holds an answer of at most `longest` tokens as a whole, the window
    in whose range it begins does.
    """
    step = room - min(stride, room // 2)
    begins = [0]
    while begins[-1] + room < tokens:
        begins.append(begins[-1] + step)
    ends = [min(begin + room, tokens) for begin in begins]
    shared = zip(begins[1:], ends, strict=False)
    borders = [0, *(max(begin, min((begin + end) // 2, end - longest + 1)) for begin, end in shared), tokens]
    return [
        Window(lead, begin, end - begin, low, high)
        for begin, end, low, high in zip(begins, ends, borders, borders[1:], strict=False)
    ]
