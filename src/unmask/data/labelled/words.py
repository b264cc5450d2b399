"""Words: splits a plain text into words, to convert character spans to tags and to predict tags."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_JOINED = frozenset({"Mn", "Mc", "Me", "Cf"})  # accents, vowel signs, joiners: parts of the character before them


def split_words(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Words and single punctuation marks of a text, each with its begin and end in characters."""
    spans: list[tuple[int, int]] = []
    sign = False  # whether the last match is an accent or joiner, after which the word continues
    for match in _WORD.finditer(text):
        begin, end = match.span()
        joined = unicodedata.category(text[begin]) in _JOINED
        if spans and spans[-1][1] == begin and (joined or (sign and text[begin].isalnum())):
            begin = spans.pop()[0]
        spans.append((begin, end))
        sign = joined
    return [(text[begin:end], (begin, end)) for begin, end in spans]
