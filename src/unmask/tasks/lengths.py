"""Texts that are too long for the model: cut at the end, in the middle, split into windows, or refused.

Sun et al. 2019 ("How to Fine-Tune BERT for Text Classification?", section 5.3) compare the first three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from unmask.data.text.splitter import shorten
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

Long = Literal["truncate", "head+tail", "window-mean", "window-max", "error"]
LONG: tuple[str, ...] = get_args(Long)

HEAD = 1 / 4  # share of the kept tokens that comes from the front: 128 of 510 in Sun et al.

Frame = tuple[np.ndarray, np.ndarray]
"""Tokens [T] and segments [T] of one sequence."""


def frames(
    tokenizer: Tokenizer, first: np.ndarray, second: np.ndarray | None, length: int, long: str, place: str = "A row"
) -> list[Frame]:
    """A text, or a pair of texts, as sequences of at most `length` tokens: one, or several windows of a long text.

    truncate     the longer text loses its end, token by token
    head+tail    the longer text loses its middle
    window-*     the longer text is split into windows that share an eighth of their room with each neighbour; each
                 window holds the whole other text, or its first half room of tokens if it is long too
    error        raises UnmaskError
    """
    whole = tokenizer.join(first, second)
    if len(whole[0]) <= length or long == "truncate":
        return [tokenizer.join(first, second, length)]
    if long == "error":
        raise UnmaskError(
            f"{place} has {len(whole[0])} tokens, which is more than {length}; raise --length, or set --long to one of "
            f"{', '.join(name for name in LONG if name != 'error')}."
        )
    parts = [first] if second is None else [first, second]
    room = length - (len(whole[0]) - sum(map(len, parts)))
    if room < len(parts):
        raise UnmaskError(f"A length of {length} leaves no room for words; set --length 16 or more.")
    if long == "head+tail":
        kept = shorten([len(part) for part in parts], room)
        return [_join(tokenizer, [_ends(part, n) for part, n in zip(parts, kept, strict=True)])]
    longer = max(range(len(parts)), key=lambda i: len(parts[i]))
    others = [part if i == longer else part[: room // 2] for i, part in enumerate(parts)]
    left = room - sum(len(part) for i, part in enumerate(others) if i != longer)
    found = []
    for begin, _, _ in windows(len(parts[longer]), left):
        others[longer] = parts[longer][begin : begin + left]
        found.append(_join(tokenizer, others))
    return found


def _join(tokenizer: Tokenizer, parts: list[np.ndarray]) -> Frame:
    return tokenizer.join(parts[0], parts[1] if len(parts) == 2 else None)


def windows(pieces: int, room: int) -> Iterator[tuple[int, int, int]]:
    """(begin, low, high): windows of `room` pieces that start at `begin` and answer for the pieces low … high - 1.

    The ranges low … high - 1 follow each other and cover all pieces. Inside a text, an eighth of the room is context on
    either side of a range.
    """
    context = room // 8
    begin, low = 0, 0
    while begin + room < pieces:
        high = begin + room - context
        yield begin, low, high
        low = high
        begin = min(high - context, pieces - room)
    yield begin, low, pieces


def _ends(ids: np.ndarray, kept: int) -> np.ndarray:
    """`kept` of the ids: a quarter of them from the front, the rest from the end."""
    if len(ids) <= kept:
        return ids
    head = round(HEAD * kept)
    return np.concatenate([ids[:head], ids[len(ids) - (kept - head) :]])
