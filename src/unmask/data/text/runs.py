"""Runs: pieces of a text, of one word or more, whose tokens do not depend on the text around them.

Most runs occur often, so each different one is normalised and cut into words once, for all its occurrences.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

HELD = 1 << 19  # different runs in memory, about 50 MB, before their words are counted
PACK = 2_000  # characters; new runs are encoded together in texts of about this length
MEMORY = 50_000_000  # bytes of the runs whose ids are kept
LONG = 40  # characters; texts whose runs are longer on average are encoded whole
MOST_NEW = 0.1  # share of new runs up to which keeping their ids saves time
ENTRY = 100  # bytes of an entry, beside the run and its ids

_SPACE_AFTER_WORD = re.compile(r"(?<=\S)(?= )")
_KEEPING = {"Lowercase", "NFC", "NFD"}
"""Normalisers that neither add nor remove a space or a whole character."""
_LOCAL = _KEEPING | {"BertNormalizer", "StripAccents", "NFKC", "NFKD"}
"""Normalisers that change the text before a space and the text after it independently."""


@dataclass(frozen=True)
class Runs:
    """A way to cut texts into runs.

    cut      the runs of a text
    between  what is between two of them
    """

    cut: Callable[[str], list[str]]
    between: str


def _at_spaces(text: str) -> list[str]:
    return text.split(" ")


BETWEEN_SPACES = Runs(_at_spaces, " ")
"""For words without spaces, as those of BERT."""
WITH_SPACES = Runs(_SPACE_AFTER_WORD.split, "")
"""For words that may begin with spaces, as those of GPT-2 (Radford et al. 2019), but have no space further on."""


def runs_of(settings: Mapping[str, Any]) -> Runs | None:
    """The way to cut the texts of a tokenizer into runs; None if its tokens may depend on more than their run.

    settings  the tokenizer.json
    """
    words, model = settings.get("pre_tokenizer") or {}, settings["model"]
    if model.get("dropout"):
        return None
    if any(not token["special"] for token in settings.get("added_tokens", ())):  # found in texts, with their spaces
        return None
    if words.get("type") == "BertPreTokenizer" and _is_in(_LOCAL, settings.get("normalizer")):
        return BETWEEN_SPACES
    if words.get("type") == "ByteLevel" and words.get("use_regex", True):
        return WITH_SPACES if _is_in(_KEEPING, settings.get("normalizer")) else None
    return None


def _is_in(types: Collection[str], normalizer: Mapping[str, Any] | None) -> bool:
    """Whether a normaliser has no other steps than those of some types."""
    if normalizer is None:
        return True
    if normalizer["type"] == "Sequence":
        return all(_is_in(types, one) for one in normalizer["normalizers"])
    return normalizer["type"] in types


def words_of(passages: Iterable[str], runs: Runs, words: Callable[[str], Iterable[str]]) -> Counter[str]:
    """The count of each word of texts; `words` cuts a run into words."""
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()

    def add() -> None:
        for run, count in found.items():
            for word in words(run):
                counts[word] += count
        found.clear()

    for passage in passages:
        found.update(runs.cut(passage))
        if len(found) >= HELD:
            add()
    add()
    return counts


class RunCache:
    """The ids of texts. Those of recent runs are kept, in about MEMORY bytes.

    pays  whether most runs occurred again whenever the memory was full: else it is faster to encode whole texts

    Several threads may call one object.
    """

    def __init__(
        self,
        runs: Runs,
        encode: Callable[[Sequence[str]], Iterable[list[int]]],
        locate: Callable[[Sequence[str]], Iterable[tuple[list[int], list[int]]]],
    ) -> None:
        """Keep two functions.

        encode  the ids of each of several texts
        locate  the same, and the begin of each piece in characters of the text
        """
        self.runs, self.encode, self.locate = runs, encode, locate
        self.pays = True
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}, "_size": 0, "_seen": 0}

    def _forget(self) -> None:
        self._known: dict[str, bytes] = {}  # another thread may still read the old ones
        self._size = self._seen = 0  # bytes that are kept; runs of all texts since

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, [T] int32."""
        if self._size > MEMORY:
            self.pays = len(self._known) <= MOST_NEW * self._seen
            self._forget()
        known = self._known
        rows: dict[int, tuple[list[str], list[Any]]] = {}  # number of a text -> runs, ids of those that are known
        whole: list[int] = []
        for i, text in enumerate(texts):
            runs = self.runs.cut(text)
            if len(text) > LONG * len(runs):  # such as Chinese, whose runs are sentences
                whole.append(i)
            else:
                rows[i] = runs, list(map(known.get, runs))
                self._seen += len(runs)
        missing = (zip(runs, ids, strict=True) for runs, ids in rows.values() if None in ids)
        if new := list(dict.fromkeys(run for pairs in missing for run, ids in pairs if ids is None)):
            encoded = list(self._encoded(new))
            known.update(zip(new, encoded, strict=True))
            self._size += ENTRY * len(new) + sum(map(sys.getsizeof, chain(new, encoded)))
        found: dict[int, np.ndarray] = {
            i: np.frombuffer(bytearray().join(map(known.__getitem__, runs) if None in ids else ids), np.int32)
            for i, (runs, ids) in rows.items()
        }
        if whole:
            arrays = (np.array(ids, np.int32) for ids in self.encode([texts[i] for i in whole]))
            found.update(zip(whole, arrays, strict=True))
        return [found[i] for i in range(len(texts))]

    def _encoded(self, runs: Sequence[str]) -> Iterator[bytes]:
        """The ids of each run."""
        between = self.runs.between
        packs = list(_packs(runs, between))
        for pack, (ids, begins) in zip(packs, self.locate([between.join(pack) for pack in packs]), strict=True):
            array = np.array(ids, np.int32)
            places = accumulate(len(run) + len(between) for run in pack[:-1])  # begin of each run but the first
            cuts = [0, *(bisect_left(begins, place) for place in places), len(ids)]
            yield from (array[first:end].tobytes() for first, end in pairwise(cuts))


def _packs(runs: Sequence[str], between: str) -> Iterator[list[str]]:
    """The runs in order, in lists that are encoded as one text, because a text of one run takes much longer.

    between  what is between two runs of a text
    """
    pack, size = list[str](), 0
    for run in runs:
        follows = between or (run.startswith(" ") and pack and pack[-1] and not pack[-1][-1].isspace())
        if pack and (size > PACK or not follows):
            yield pack
            pack, size = [], 0
        pack.append(run)
        size += len(run) + len(between)
    if pack:
        yield pack
