"""The sample of documents from which a vocabulary is learned: the same for any division of the documents into parts."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from unmask.data.text.building import TRAIN, Progress, Tally, deal, digest_of, divided, normal
from unmask.data.text.reading import TextDocument

BUDGET = 200_000_000  # bytes, as in the functions that learn a vocabulary
_ALL = 1 << 64  # larger than all keys


class Sample:
    """The distinct documents with the smallest keys, as many as fit into `budget` bytes, in the order of reading.

    The key of a document is a part of the digest of its text. So copies have the same key, and the sample of several
    parts has the documents that the sample of all documents has.

    documents   number of documents so far, apart from the others
    duplicates  number of copies of documents that were in the sample
    empty       number of documents without words
    bound       keys of documents that did not fit are not below it
    """

    def __init__(self, budget: int = BUDGET, bound: int = _ALL) -> None:
        """`bound` is the smallest one of the samples of parts, if the texts are theirs."""
        self.budget, self.bound = budget, bound
        self.documents = self.duplicates = self.empty = 0
        self._texts: dict[bytes, str] = {}
        self._largest: list[tuple[int, bytes, int]] = []  # a heap of (- key, digest, size in bytes)
        self._held = 0

    def read(self, texts: Iterable[str], report: Progress | None = None) -> Sample:
        """Add texts, and return the sample. `report` is called with "vocabulary", the number of documents, and None."""
        for text in texts:
            content = normal(text)
            if not content:
                self.empty += 1
                continue
            digest = digest_of(content)
            if digest in self._texts:
                self.duplicates += 1
                continue
            self.documents += 1
            if report is not None and self.documents % 1_000 == 0:
                report("vocabulary", self.documents, None)
            key = int.from_bytes(digest[8:], "big")
            if key < self.bound:
                self._texts[digest] = text
                heapq.heappush(self._largest, (-key, digest, len(content)))
                self._held += len(content)
                while self._held > self.budget and len(self._texts) > 1:
                    self._leave_out()
        return self

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts.values())

    def training(self, texts: Iterable[str], heldout: float, report: Progress | None = None) -> Iterator[str]:
        """Add texts, and yield those of the sample that a corpus does not hold out. If only few documents, all very
        large, fit into the sample, one that the corpus holds out may be among them."""
        self.read(texts, report)
        if report is not None:
            report("vocabulary", self.documents, self.documents)
        if len(self._texts) == 1 and self.bound == _ALL and heldout > 0:
            (only,) = self._texts.values()
            dealt = divided(TextDocument(only, ""), heldout, Tally())
            yield from (document.text for document, split in dealt if split == TRAIN)
        else:
            yield from (text for text, split in deal(self._texts.items(), heldout) if split == TRAIN)

    def _leave_out(self) -> None:
        key, digest, size = heapq.heappop(self._largest)
        self.bound = -key
        self._held -= size
        del self._texts[digest]
