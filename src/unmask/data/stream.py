"""Stream: shards -> an endless, seeded, resumable order of packed rows; the same for any workers and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from unmask.data.collate import pack
from unmask.data.corpus import Split
from unmask.data.parallel import ordered
from unmask.errors import UnmaskError
from unmask.types import Batch, Document, Example, concatenate

Sample = Callable[[Sequence[Document], int, np.random.Generator], list[Example]]
Corrupt = Callable[[Batch, np.random.Generator], Batch]

UNIT_TOKENS = 4_096  # of a piece of a document at most
BLOCK_TOKENS = 65_536  # of a block, about


class Step(NamedTuple):
    """The rows of this rank, and the position after them: {"epoch", "block", "row"} of the next unread row."""

    batch: Batch
    position: dict[str, int]


class Stream:
    """Rows of a pre-training run, without end.

    An epoch is a permutation of pieces of documents; consecutive pieces form blocks (`Order`); the rows of a block
    are a pure function of (seed, epoch, block). A step takes the next rows * ranks rows, across block borders, and
    rank r gets the r-th `rows` of them: 1, 2 or 4 ranks that take as many rows together see the same steps.
    """

    unit_tokens: ClassVar[int] = UNIT_TOKENS
    block_tokens: ClassVar[int] = BLOCK_TOKENS

    def __init__(
        self,
        splits: Sequence[Split],
        *,
        sample: Sample,
        corrupt: Corrupt,
        length: int,
        rows: int,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 0,
        alpha: float = 0.5,
    ) -> None:
        """Mix the splits of one or more corpora.

        sample   documents, length, generator -> examples of at most `length` tokens
        corrupt  packed rows, generator -> the same rows with targets
        length   tokens of a row
        rows     of one rank in a step
        workers  0: the next block is built in a background thread; N: in N processes, to which `sample` and
                 `corrupt` must be picklable. The rows are the same.
        alpha    how far small corpora are raised, see `mixture`

        Raises UnmaskError where the corpora have different tokenizers or no text, or a number makes no sense.
        """
        if rows < 1 or workers < 0 or not 0 <= rank < ranks:
            raise UnmaskError(f"A stream cannot have {rows} rows, {workers} workers, or rank {rank} of {ranks}.")
        self.rows, self.rank, self.ranks, self.workers = rows, rank, ranks, workers
        limit = max(self.unit_tokens, length)
        self.order = Order(splits, seed=seed, alpha=alpha, limit=limit, block=self.block_tokens)
        self.blocks = Blocks(self.order, sample=sample, corrupt=corrupt, length=length)

    def batches(self, position: Mapping[str, int] | None = None) -> Iterator[Step]:
        """Steps from a position (None: the beginning) on; `batch` has exactly `rows` rows.

        Raises UnmaskError for a position that this stream cannot have given, and where a whole epoch is too small
        for a single row.
        """
        epoch, block, row = self._parse(position)
        wanted, begin = self.rows * self.ranks, self.rank * self.rows
        parts: list[Batch] = []
        taken = 0  # rows of this step so far, of all ranks
        for place, batch in self._built(epoch, block):
            rows = len(batch.tokens)
            if row > rows or (row and place != (epoch, block)):
                raise UnmaskError(
                    f"The position {dict(position or {})} does not belong to this corpus and its settings."
                )
            while row < rows:
                count = min(wanted - taken, rows - row)
                low, high = max(begin, taken), min(begin + self.rows, taken + count)
                if low < high:
                    parts.append(batch.rows(row + low - taken, row + high - taken))
                row, taken = row + count, taken + count
                if taken == wanted:
                    yield Step(concatenate(parts), self._position(*place, row, rows))
                    parts, taken = [], 0
            row = 0

    def _built(self, epoch: int, block: int) -> Iterator[tuple[tuple[int, int], Batch]]:
        """The blocks from one on, without those that have no rows."""
        empty = 0
        for place, arrays in ordered(self.blocks, self._places(epoch, block), self.workers):
            if len(arrays.tokens):
                empty = 0
                yield place, arrays.map(torch.from_numpy)
            elif (empty := empty + 1) >= self.order.blocks:
                raise UnmaskError(
                    f"A whole epoch of {self.order.tokens:,} tokens gives not one row; the corpus is too small."
                )

    def _places(self, epoch: int, block: int) -> Iterator[tuple[int, int]]:
        while True:
            yield epoch, block
            epoch, block = (epoch, block + 1) if block + 1 < self.order.blocks else (epoch + 1, 0)

    def _position(self, epoch: int, block: int, row: int, rows: int) -> dict[str, int]:
        if row == rows:
            row, block = 0, block + 1
        if block == self.order.blocks:
            block, epoch = 0, epoch + 1
        return {"epoch": epoch, "block": block, "row": row}

    def _parse(self, position: Mapping[str, int] | None) -> tuple[int, int, int]:
        if position is None:
            return 0, 0, 0
        values = [position.get(key) for key in ("epoch", "block", "row")]
        numbers = [value for value in values if type(value) is int and value >= 0]
        if len(numbers) != 3 or numbers[1] >= self.order.blocks:
            raise _foreign(position)
        return numbers[0], numbers[1], numbers[2]


def fixed(
    splits: Sequence[Split],
    *,
    sample: Sample,
    corrupt: Corrupt,
    length: int,
    rows: int,
    limit_rows: int | None = None,
    seed: int = 0,
) -> list[Batch]:
    """Batches to evaluate on: at most `limit_rows` rows of one epoch, always the same, `rows` at a time.

    The last batch may have fewer rows; a split without a row gives an empty list.
    """
    if not any(split.tokens for split in splits):
        return []
    order = Order(splits, seed=seed, alpha=1.0, limit=max(UNIT_TOKENS, length), block=BLOCK_TOKENS)
    build = Blocks(order, sample=sample, corrupt=corrupt, length=length)
    parts: list[Batch] = []
    total = 0
    for block in range(order.blocks):
        if limit_rows is not None and total >= limit_rows:
            break
        parts.append(build((0, block))[1].map(torch.from_numpy))
        total += len(parts[-1].tokens)
    whole, end = concatenate(parts), total if limit_rows is None else min(total, limit_rows)
    return [whole.rows(begin, min(begin + rows, end)) for begin in range(0, end, rows)]


def mixture(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """Share p_i of each corpus in the tokens of an epoch: p_i ∝ n_i^alpha, with n_i its size in tokens.

    alpha = 1 keeps the sizes, alpha = 0 makes all equal, what lies between raises the small ones (Conneau et al.,
    2020, section 3.1; Babu et al., 2021, XLS-R, section 3, has 0.5).

    >>> mixture([900, 100], 0.5).round(2).tolist()
    [0.75, 0.25]
    """
    largest = max(sizes)  # in shares of it no power overflows
    weights = np.array([(size / largest) ** alpha if size else 0.0 for size in sizes])
    return weights / weights.sum()


class Order:
    """Which pieces of which corpora come in which block of an epoch.

    An epoch has about as many tokens as all corpora together, n = Σ n_i, of which corpus i gives n p_i (`mixture`):
    all of its pieces floor(n p_i / n_i) times, and for the rest the first pieces of a fresh permutation. So one
    corpus alone gives each piece once an epoch. All of them are then permuted together by (seed, epoch), and cut
    into `blocks` blocks of about equally many tokens.
    """

    def __init__(self, splits: Sequence[Split], *, seed: int, alpha: float, limit: int, block: int) -> None:
        """limit: tokens of a piece at most; block: tokens of a block, about. Raises UnmaskError as Stream does."""
        if not splits or not any(split.tokens for split in splits):
            raise UnmaskError("There is no text to draw from: the corpus, or its split, is empty.")
        for split in splits:
            if split.fingerprint != splits[0].fingerprint:
                raise UnmaskError(
                    f"{splits[0].folder} and {split.folder} were built with different tokenizers and cannot be mixed; "
                    "build the one with the tokenizer of the other."
                )
        if seed < 0:
            raise UnmaskError(f"A seed must be 0 or more, not {seed}.")
        self.splits, self.seed = list(splits), seed
        self.units = [split.units(limit) for split in splits]
        self.tokens = sum(split.tokens for split in splits)
        self.targets = np.rint(self.tokens * mixture([split.tokens for split in splits], alpha)).astype(int).tolist()
        self.blocks = max(1, round(self.tokens / block))
        self.origins = list(accumulate((split.documents for split in splits), initial=0))
        self._epoch: tuple[int, np.ndarray, np.ndarray, np.ndarray] | None = None

    def documents(self, epoch: int, block: int) -> list[Document]:
        """The pieces of a block; `index` counts the documents of all corpora."""
        owners, rows, bounds = self.permutation(epoch)
        here = slice(bounds[block], bounds[block + 1])
        documents = []
        for owner, row in zip(owners[here].tolist(), rows[here].tolist(), strict=True):
            document = self.splits[owner].read(self.units[owner][row].item())
            origin = self.origins[owner]
            documents.append(Document(document.sentences, origin + document.index) if origin else document)
        return documents

    def generator(self, epoch: int, block: int) -> np.random.Generator:
        """The source of chance of a block."""
        # 0 is the permutation of the epoch: a seed of [s, e] would equal [s, e, 0].
        return np.random.default_rng([self.seed, epoch, block + 1])

    def permutation(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Corpus [U] and unit [U] of each piece of an epoch, and the bounds [blocks + 1] of its blocks."""
        if self._epoch is None or self._epoch[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch, 0])
            chosen = [_repeat(units["tokens"], n, rng) for units, n in zip(self.units, self.targets, strict=True)]
            order = rng.permutation(sum(map(len, chosen)))
            owners = np.repeat(np.arange(len(chosen), dtype=np.uint16), [len(rows) for rows in chosen])[order]
            rows = np.concatenate(chosen)[order]
            sizes = np.concatenate([u["tokens"][c] for u, c in zip(self.units, chosen, strict=True)])[order]
            ends = np.cumsum(sizes, dtype=np.int64)
            bounds = np.searchsorted((ends - sizes) * self.blocks // ends[-1], np.arange(self.blocks + 1))
            self._epoch = (epoch, owners, rows, bounds)
        return self._epoch[1:]


class Blocks:
    """Builds the rows of a block: sample, pack, shuffle, corrupt. A pure function of (epoch, block)."""

    def __init__(self, order: Order, *, sample: Sample, corrupt: Corrupt, length: int) -> None:
        self.order, self.sample, self.corrupt, self.length = order, sample, corrupt, length

    def __call__(self, place: tuple[int, int]) -> tuple[tuple[int, int], Batch]:
        """(epoch, block) -> the same and its rows, as arrays: they travel between processes without torch."""
        rng = self.order.generator(*place)
        first = self.order.splits[0]
        examples = self.sample(self.order.documents(*place), self.length, rng)
        batch = pack(examples, self.length, first.pad)
        if examples:
            largest = int(batch.tokens.numpy().max())
            if largest >= first.vocabulary:
                raise UnmaskError(
                    f"A block drawn from {first.folder} holds the id {largest}, but its vocabulary has "
                    f"{first.vocabulary}: the corpus is damaged, or the sampler belongs to another tokenizer."
                )
            batch = self.corrupt(batch.take(rng.permutation(len(batch.tokens))), rng)
        return place, batch.map(torch.Tensor.numpy)


def _foreign(position: object) -> UnmaskError:
    return UnmaskError(
        f"The position {position} does not belong to this corpus and these settings; "
        "resume with the ones that the run began with."
    )


def _repeat(sizes: np.ndarray, target: int, rng: np.random.Generator) -> np.ndarray:
    """Units, of `sizes` tokens each, that have `target` tokens together: all of them as often as they fit, then the
    first ones of a permutation; the one across the limit by chance, so that the expected number is exact."""
    copies, rest = divmod(target, max(int(sizes.sum()), 1))
    parts = [np.arange(len(sizes))] * copies
    if rest and len(sizes):
        order = rng.permutation(len(sizes))
        ends = np.cumsum(sizes[order], dtype=np.int64)
        count = int(np.searchsorted(ends, rest, side="right"))
        left = rest - (int(ends[count - 1]) if count else 0)
        parts.append(order[: count + int(rng.random() * int(sizes[order[count]]) < left)])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
