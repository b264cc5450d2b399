"""Sentences as numbers on disk, read once from any source; rare words are left out, and phrases joined.

Shapes: N words of the text, S sentences, V different words. Only the different words are in memory, not the text.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unmask.errors import UnmaskError
from unmask.files import writing

IDS, ENDS = "ids.int32", "ends.int64"
CHUNK = 1 << 22  # numbers processed at a time
GATHERED = 1 << 18  # words of the text numbered at a time
PAIRS = 20_000_000  # most different pairs of neighbours in memory; beyond it, the rarest are dropped


@dataclass(frozen=True)
class Corpus:
    """Sentences whose words are numbers.

    words   V different words
    counts  [V] int64 how often each occurs in `ids`
    ids     [N] int32, a memory map
    ends    [S] int64, a memory map: sentence s is `ids[ends[s - 1]:ends[s]]`
    read    number of words of the text, including words that are no longer in `ids`
    folder  folder of the two files
    """

    words: list[str]
    counts: np.ndarray
    ids: np.ndarray
    ends: np.ndarray
    read: int
    folder: Path

    @classmethod
    def open(cls, folder: Path, words: list[str], read: int) -> Corpus:
        """Open the files that a `Writer` wrote into a folder, and count the words. Raises ValueError if a number in
        them exceeds the words."""
        ids, ends = _map(folder / IDS, np.int32), _map(folder / ENDS, np.int64)
        counts = np.zeros(len(words), dtype=np.int64)
        for begin in range(0, len(ids), CHUNK):
            counts += np.bincount(ids[begin : begin + CHUNK], minlength=len(words))
        return cls(words, counts, ids, ends, read, folder)

    def chunks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(begin, ids, ends) of each chunk; the ends are those of the sentences that end in it, relative to `begin`."""
        for begin in range(0, len(self.ids), CHUNK):
            end = min(begin + CHUNK, len(self.ids))
            first = np.searchsorted(self.ends, begin, side="right") if begin else 0
            last = np.searchsorted(self.ends, end, side="right")
            yield begin, np.asarray(self.ids[begin:end]), np.asarray(self.ends[first:last]) - begin

    def frequent(self, folder: Path, min_count: int, most: int | None = None) -> Corpus:
        """The same sentences with only the words that occur at least `min_count` times, at most the `most` frequent.

        The words are numbered by frequency, equals in their earlier order; removed words leave no gap. Raises
        UnmaskError if fewer than two words are left.
        """
        order = np.argsort(-self.counts, kind="stable")
        order = order[self.counts[order] >= max(min_count, 1)][:most]
        if len(order) < 2:
            raise UnmaskError(
                f"Of {len(self.words):,} different words, {len(order)} occur at least {min_count} times; "
                f"give more text, or lower --min-count."
            )
        new = np.full(len(self.words), -1, dtype=np.int32)
        new[order] = np.arange(len(order), dtype=np.int32)
        with Writer(folder) as writer:
            for _, ids, ends in self.chunks():
                renumbered = new[ids]
                writer.write(renumbered, renumbered >= 0, ends)
        return Corpus.open(folder, [self.words[i] for i in order], self.read)


class Writer:
    """Writes the two files of a corpus into a folder, chunk by chunk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def __enter__(self) -> Writer:
        with writing(self.folder):
            self.folder.mkdir(parents=True)
            self._ids, self._ends = open(self.folder / IDS, "wb"), open(self.folder / ENDS, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        with writing(self.folder):
            self._ids.close()
            self._ends.close()

    def write(self, ids: np.ndarray, stay: np.ndarray, ends: np.ndarray) -> None:
        """Write the ids that `stay` marks, and the ends of their sentences."""
        kept = np.concatenate([[0], np.cumsum(stay)])
        with writing(self.folder):
            self._ids.write(ids[stay].astype(np.int32).tobytes())
            self._ends.write((self.count + kept[ends]).astype(np.int64).tobytes())
        self.count += int(kept[-1])


def number(sentences: Iterable[Sequence[str | int]], folder: Path, *, limit: int | None = None) -> Corpus:
    """Read sentences once and write them as numbers. Words are numbered in the order in which they first occur.

    sentences  lists of words, or of ids of any items; an id becomes the word with its digits
    limit      most different words in memory. If there are more, the rarest are dropped: first words that occurred
               once, then twice, and so on. Their counts are lost, so all counts are lower bounds. A dropped word
               becomes "" with the count 0

    Raises UnmaskError if there are no words, or for a sentence that is not a sequence of words.
    """
    numbers = itertools.count()
    index: dict[str, int] = defaultdict(numbers.__next__)
    counts, following, rare = np.zeros(1 << 16, dtype=np.int64), 0, 1
    with Writer(folder) as writer:
        for words, ends in _gathered(sentences):
            ids = np.fromiter(map(index.__getitem__, words), np.int32, len(words))
            following = max(following, int(ids.max(initial=-1)) + 1)
            if following > len(counts):
                counts = np.concatenate([counts, np.zeros(following, dtype=np.int64)])
            counts += np.bincount(ids, minlength=len(counts))
            writer.write(ids, np.ones(len(ids), dtype=bool), ends)
            while limit is not None and len(index) > limit:
                index = defaultdict(numbers.__next__, {word: i for word, i in index.items() if counts[i] > rare})
                rare += 1
    if not writer.count:
        raise UnmaskError("There are no words to learn from.")
    known = [""] * following
    for word, i in index.items():
        known[i] = word
    corpus = Corpus.open(folder, known, writer.count)
    remembered = np.fromiter(index.values(), np.int64, len(index))
    counts = np.zeros(following, dtype=np.int64)
    counts[remembered] = corpus.counts[remembered]
    return replace(corpus, counts=counts)


def _gathered(sentences: Iterable[Sequence[str | int]]) -> Iterator[tuple[list[str], np.ndarray]]:
    """The words of many sentences at a time, and the end of each sentence."""
    words: list[str] = []
    ends: list[int] = []
    for place, sentence in enumerate(sentences, 1):
        items = sentence.tolist() if isinstance(sentence, np.ndarray) else sentence
        if isinstance(items, str) or not isinstance(items, Sequence) or not set(map(type, items)) <= {str, int}:
            raise UnmaskError(
                f"Sentence {place:,} must be a list of words, or of whole numbers, not {str(sentence)[:60]!r}."
            )
        words.extend(map(str, items))
        ends.append(len(words))
        if len(words) >= GATHERED:
            yield words, np.array(ends)
            words, ends = [], []
    if ends:
        yield words, np.array(ends)


def join_phrases(corpus: Corpus, folder: Path, threshold: float, min_count: int) -> Corpus:
    """Join two words that occur together far more often than by chance into one, such as `new_york`.

    Neighbours a b are joined if (n_ab - delta) N / (n_a n_b) is above the threshold: Mikolov et al. 2013b, equation 6,
    times the number of words N as in the released code, which makes it a ratio to chance. Delta is `min_count`. Of
    overlapping pairs, the first is joined. Another pass over the result finds longer phrases.
    """
    size = len(corpus.words)
    keys, totals = _count_pairs(corpus)
    first, second = corpus.counts[keys // size], corpus.counts[keys % size]
    known = (first > 0) & (second > 0) & (totals > min_count)
    chance = np.maximum(first, 1).astype(float) * np.maximum(second, 1) / len(corpus.ids)
    keys = keys[known & ((totals - min_count) / chance > threshold)]

    index = {word: i for i, word in enumerate(corpus.words)}
    words = list(corpus.words)
    joined = np.empty(len(keys), dtype=np.int64)
    for k, key in enumerate(keys.tolist()):
        phrase = f"{words[key // size]}_{words[key % size]}"
        joined[k] = index.setdefault(phrase, len(words))
        if joined[k] == len(words):
            words.append(phrase)
    with Writer(folder) as writer:
        for _, ids, ends in corpus.chunks():
            pair, where = _pairs(ids, ends, size)
            found = np.searchsorted(keys, pair)
            hit = np.zeros(len(ids), dtype=bool)
            hit[where] = keys[np.minimum(found, len(keys) - 1)] == pair if len(keys) else False
            hit = _first_of_overlapping(hit)
            new = ids.astype(np.int64)
            places = np.flatnonzero(hit)
            new[places] = joined[np.searchsorted(keys, ids[places].astype(np.int64) * size + ids[places + 1])]
            writer.write(new, ~np.concatenate([[False], hit[:-1]]), ends)
    written = Corpus.open(folder, words, corpus.read)
    forgotten = np.array([not word for word in words])
    return replace(written, counts=np.where(forgotten, 0, written.counts))


def _pairs(ids: np.ndarray, ends: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours a b within sentences as numbers a * size + b, and the index of a. A chunk's end ends a sentence."""
    last = np.zeros(len(ids), dtype=bool)
    last[-1:] = True
    last[ends[ends > 0] - 1] = True
    where = np.flatnonzero(~last)
    return ids[where].astype(np.int64) * size + ids[where + 1], where


def _count_pairs(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Different pairs in ascending order, and the count of each; if there are too many, the rarest are dropped."""
    keys, totals = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    rare = 1
    for _, ids, ends in corpus.chunks():
        new, count = np.unique(_pairs(ids, ends, len(corpus.words))[0], return_counts=True)
        keys, inverse = np.unique(np.concatenate([keys, new]), return_inverse=True)
        totals = np.bincount(inverse, np.concatenate([totals, count]), len(keys)).astype(np.int64)
        while len(keys) > PAIRS:
            keys, totals = keys[totals > rare], totals[totals > rare]
            rare += 1
    return keys, totals


def _first_of_overlapping(hit: np.ndarray) -> np.ndarray:
    """Of consecutive marked places, every second one, beginning with the first."""
    places = np.arange(len(hit))
    begins = hit & ~np.concatenate([[False], hit[:-1]])
    run = np.maximum.accumulate(np.where(begins, places, 0))
    return np.asarray(hit & ((places - run) % 2 == 0))


def _map(path: Path, kind: type) -> np.ndarray:
    """A file of numbers as a memory map, or an array if it is empty, which cannot be mapped."""
    return np.memmap(path, kind, "r") if path.stat().st_size else np.zeros(0, kind)
