"""Runs: pieces of a text, of one word or more, whose tokens do not depend on the text around them.

Most runs occur often, so each different one is normalised and cut into words once, for all its occurrences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Cut = Callable[[str], list[str]]

HELD = 1 << 19  # different runs of which the words are counted at once, in about 50 MB
MEMORY = 1 << 25  # bytes of the runs whose ids are kept
ENTRY = 150  # bytes of a run and its ids, beside the characters of the run

_SPACE_AFTER_WORD = re.compile(r"(?<=\S)(?= )")
_LOCAL = {"BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"}
"""Normalisers that treat a space and the characters on its two sides independently."""


def between_spaces(text: str) -> list[str]:
    """The runs of a text whose words have no spaces, as those of BERT."""
    return text.split(" ")


def with_spaces(text: str) -> list[str]:
    """The runs of a text whose words may begin with spaces, as those of GPT-2 (Radford et al. 2019): no word has a
    space after another character."""
    return _SPACE_AFTER_WORD.split(text)


def cut_of(settings: Mapping[str, Any]) -> Cut | None:
    """The function that cuts the texts of a tokenizer into runs; None if its tokens may depend on more than their run.

    settings  the tokenizer.json
    """
    words, model = settings.get("pre_tokenizer") or {}, settings["model"]
    if model.get("dropout") or not _is_local(settings.get("normalizer")):
        return None
    if any(not token["special"] for token in settings.get("added_tokens", ())):  # found in texts, with their spaces
        return None
    if words.get("type") == "BertPreTokenizer":
        return between_spaces
    return with_spaces if words.get("type") == "ByteLevel" and words.get("use_regex", True) else None


def _is_local(normalizer: Mapping[str, Any] | None) -> bool:
    if normalizer is None:
        return True
    if normalizer["type"] == "Sequence":
        return all(map(_is_local, normalizer["normalizers"]))
    return normalizer["type"] in _LOCAL


def words_of(passages: Iterable[str], runs: Cut, words: Cut) -> Counter[str]:
    """The count of each word of texts.

    runs   cuts a text into runs
    words  cuts a run into words
    """
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()

    def add() -> None:
        for run, count in found.items():
            for word in words(run):
                counts[word] += count
        found.clear()

    for passage in passages:
        found.update(runs(passage))
        if len(found) >= HELD:
            add()
    add()
    return counts


class RunCache:
    """The ids of texts. Those of recent runs are kept, in about MEMORY bytes.

    Several threads may call one object.
    """

    def __init__(self, runs: Cut, encode: Callable[[Sequence[str]], Sequence[Sequence[int]]]) -> None:
        """runs: cuts a text into runs; encode: the ids of each of several runs."""
        self.runs, self.encode = runs, encode
        self._known: dict[str, bytes] = {}
        self._size = 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}, "_size": 0}

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, [T] int32."""
        if self._size > MEMORY:  # another thread may still read the old ones
            self._known, self._size = {}, 0
        known = self._known
        rows: list[tuple[list[str], list[Any]]] = []  # runs, and the ids of those that are known
        for text in texts:
            runs = self.runs(text)
            rows.append((runs, list(map(known.get, runs))))
        new = list(
            {run for runs, ids in rows if None in ids for run, one in zip(runs, ids, strict=True) if one is None}
        )
        if new:
            known.update(zip(new, (np.array(ids, np.int32).tobytes() for ids in self.encode(new)), strict=True))
            self._size += ENTRY * len(new) + sum(map(len, new))
        return [
            np.frombuffer(bytearray().join(map(known.__getitem__, runs) if None in ids else ids), np.int32)
            for runs, ids in rows
        ]
