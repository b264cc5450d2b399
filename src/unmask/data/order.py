"""Order: the units of a source that each block of each epoch reads, as a pure function of (seed, epoch, block).

Shapes: U units of a source, N units of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unmask.data.source import Joined, Source
from unmask.errors import UnmaskError, plural

WINDOW = 1 << 16  # units that are sorted together: enough for batches of similar lengths, few enough to mix an epoch


class Order:
    """The blocks of an endless run over a source. A subclass implements `_draw`, which draws one epoch.

    source  the source of the units
    blocks  number of blocks of each epoch
    """

    def __init__(self, source: Source[Any], *, seed: int, blocks: int) -> None:
        """Raises UnmaskError for a seed below 0."""
        if seed < 0:
            raise UnmaskError(f"The seed must be 0 or more, not {seed}.")
        self.source, self.seed, self.blocks = source, seed, blocks
        self._last: tuple[int, tuple[np.ndarray, np.ndarray]] | None = None

    def units(self, epoch: int, block: int) -> np.ndarray:
        """The numbers of the units of a block, in reading order."""
        units, bounds = self.epoch(epoch)
        return units[bounds[block, 0] : bounds[block, 1]]

    def epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The units [N] of an epoch, and the begin and end of each block in them [blocks, 2]."""
        last = self._last
        if last is None or last[0] != epoch:
            self._last = last = epoch, self._draw(np.random.default_rng([self.seed, epoch]))
        return last[1]

    def generator(self, epoch: int, block: int) -> np.random.Generator:
        """The random generator of a block, for sampling, masking and augmentation."""
        # NumPy pads a seed with zeros, so that [seed, epoch, 0] would repeat the random numbers of the epoch.
        return np.random.default_rng([self.seed, epoch, block + 1])

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


class SeededBlocks(Order):
    """A mixture of sources, permuted together and cut into blocks of about equal cost.

    An epoch costs about as much as all sources together, n = Σ n_i, and source i contributes `shares[i]` of that: all
    of its units floor(n p_i / n_i) times, and for the rest the first units of a new permutation. So a single source
    contributes each unit once an epoch.

    With a window, an epoch reads the files of the sources one after another, in random order, and each unit is moved by
    up to the length of `window` files. So about that many files are read at a time, and all sources are spread over the
    epoch. (The order "py1e" of MosaicML's StreamingDataset places the samples of a shard in a range in the same way.)

    targets  cost of the units that each source contributes to an epoch
    """

    def __init__(
        self, sources: Sequence[Source[Any]], shares: np.ndarray, *, seed: int, block: int, window: int | None = None
    ) -> None:
        """Mix some sources.

        shares  share of each source in the cost of an epoch; they sum to 1 (`mixture`)
        block   approximate cost of a block
        window  number of files that are mixed at a time, for sources with the file of each unit (`files`); None: all

        Raises UnmaskError if all sources are empty, and for a window below 1.
        """
        if window is not None and window < 1:
            raise UnmaskError(f"--rows.shards must be at least 1 shard, not {window}.")
        self.sources: Sequence[Any] = sources
        joined = Joined(sources)
        total = int(joined.cost.sum())
        if not total:
            raise UnmaskError("There is no data: every source is empty.")
        super().__init__(joined, seed=seed, blocks=max(1, round(total / block)))
        self.sizes = joined.sizes
        self.targets: list[int] = np.rint(total * shares).astype(int).tolist()
        self.window = window

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        begins = np.cumsum(self.sizes) - self.sizes
        chosen = [
            begin + _repeat(self.source.cost[begin : begin + size], target, rng)
            for begin, size, target in zip(begins.tolist(), self.sizes, self.targets, strict=True)
        ]
        units = np.concatenate(chosen)[rng.permutation(sum(map(len, chosen)))]
        if self.window is not None:
            units = units[np.argsort(_moved(units, [source.files for source in self.sources], self.window, rng))]
        return units, _equal_cuts(self.source.cost[units], self.blocks)


class Shuffled(Order):
    """Blocks with a fixed number of units; every unit once an epoch, in random order. The last block has the rest.

    shares  [U] relative frequency with which each unit is drawn, with repetition; None: each once
    """

    def __init__(
        self, source: Source[Any], size: int, *, seed: int, ranks: int = 1, shares: np.ndarray | None = None
    ) -> None:
        """size: units of a block, over all ranks. The rest at the end is left out if it has fewer units than ranks.

        Raises UnmaskError if a block, or the whole source, has fewer units than there are ranks.
        """
        if size < ranks:
            raise UnmaskError(
                f"A batch of {size} rows is too small for {ranks} processes: set --batch-size {ranks} or more."
            )
        units = len(source.cost)
        blocks = units // size + (units % size >= ranks)
        if blocks == 0:
            raise UnmaskError(f"{units} training rows are too few for {ranks} processes; use fewer processes.")
        super().__init__(source, seed=seed, blocks=blocks)
        self.size, self.shares = size, shares

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.source.cost)
        begins = np.arange(self.blocks) * self.size
        bounds = np.stack([begins, np.minimum(begins + self.size, count)], 1)
        if self.shares is None:
            return rng.permutation(count), bounds
        return rng.choice(count, count, p=self.shares / self.shares.sum()), bounds


class Classes(NamedTuple):
    """Classes whose units must be in one batch with each other, because the loss compares them.

    numbers  [U] the class of each unit, from 0
    each     number of units of a class that a batch has at a time, such as 4
    """

    numbers: np.ndarray
    each: int

    def of(self, units: Sequence[int]) -> Classes:
        """The classes of some of the units, numbered from 0 again."""
        return Classes(np.unique(self.numbers[np.asarray(units)], return_inverse=True)[1], self.each)


class ByClass(Order):
    """Blocks with several units of each of several classes (Hermans et al. 2017, section 2, "PK batches"); every unit
    once an epoch.

    In each epoch the units of a class are shuffled and cut into groups: of `each` units, or of at least 2 where they
    do not divide; the only unit of its class is a group. The groups of a class are spread evenly over the epoch, so
    that those of a block are of different classes if there are enough classes.
    """

    def __init__(self, source: Source[Any], size: int, classes: Classes, *, seed: int, ranks: int = 1) -> None:
        """size: approximate number of units of a block, over all ranks.

        Raises UnmaskError if a block has fewer than two groups for each rank.
        """
        counts = np.bincount(classes.numbers)
        self.groups = np.maximum(np.minimum(-(-counts // classes.each), counts // 2), 1).tolist()
        self.members = np.split(np.argsort(classes.numbers, kind="stable"), np.cumsum(counts)[:-1])
        total, wanted, least = sum(self.groups), size // classes.each, 2 * ranks
        if min(total, wanted) < least:
            what = f"A batch of {size} rows" if wanted < least else plural(len(classes.numbers), "training row")
            raise UnmaskError(
                f"{what}, {classes.each} of a class, cannot give each of {plural(ranks, 'process', 'processes')} two "
                f"classes: use at least {least * classes.each}."
            )
        super().__init__(source, seed=seed, blocks=min(max(round(total / wanted), 1), total // least))

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        groups, turns = list[np.ndarray](), list[np.ndarray]()
        for members, count in zip(self.members, self.groups, strict=True):
            groups += np.array_split(rng.permutation(members), count)
            turns.append((np.arange(count) + rng.random(count)) / count)
        groups = [groups[i] for i in np.argsort(np.concatenate(turns))]
        ends = np.cumsum([0, *map(len, groups)])[np.linspace(0, len(groups), self.blocks + 1).astype(np.int64)]
        return np.concatenate(groups), np.stack([ends[:-1], ends[1:]], 1)


class ByLength(Order):
    """Blocks of about equal cost whose units are of similar lengths; every unit once an epoch.

    An epoch is a permutation, cut into windows. Within a window the units are sorted by length; the result is cut into
    blocks, which are shuffled.
    """

    def __init__(
        self,
        source: Source[Any],
        cost: int,
        *,
        seed: int,
        ranks: int = 1,
        lengths: Sequence[np.ndarray] | None = None,
        window: int = WINDOW,
    ) -> None:
        """Take the units of a source.

        cost     approximate cost of a block
        lengths  one or two columns [U] to sort by; None: the cost
        window   number of units that are sorted together

        Raises UnmaskError if blocks are too small to have a unit for every rank.
        """
        # In any stretch with the cost of the largest unit, a unit begins.
        costs = source.cost
        total, least = int(costs.sum()), int(costs.max()) * ranks
        if cost < least or total < least:
            few = f"Steps of {cost:,} tokens" if cost < least else f"All rows together have {total:,} tokens and"
            raise UnmaskError(
                f"{few} cannot give each of {plural(ranks, 'process', 'processes')} a row: rows have up to "
                f"{least // ranks:,} tokens. Make the steps larger, or leave the longest rows out."
            )
        super().__init__(source, seed=seed, blocks=max(1, min(round(total / cost), total // least)))
        first, *second = (costs,) if lengths is None else lengths
        self.first, self.second, self.window = first, (second[0] if second else np.zeros_like(first)), window

    def _draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        units = rng.permutation(len(self.first))
        windows = np.arange(len(units)) // self.window
        units = units[_snake(windows, self.first[units], self.second[units])]
        # Blocks are cut at equal cost, independently of windows, so that every epoch has the same number.
        return units, _equal_cuts(self.source.cost[units], self.blocks)[rng.permutation(self.blocks)]


def mixture(sizes: Sequence[int], alpha: float) -> np.ndarray:
    """Share p_i of each source in an epoch: p_i ∝ n_i^alpha, with n_i its size.

    alpha = 1 keeps the sizes, alpha = 0 makes all shares equal, and values between increase the shares of small sources
    (Conneau et al. 2020, section 3.1; Babu et al. 2021, XLS-R, section 3, uses 0.5).

    >>> mixture([900, 100], 0.5).round(2).tolist()
    [0.75, 0.25]
    """
    largest = max(sizes)  # relative to it, no power overflows
    weights = np.array([(size / largest) ** alpha if size else 0.0 for size in sizes])
    return weights / weights.sum()


def nested_mixture(groups: Sequence[Sequence[int]], within: float, between: float) -> np.ndarray:
    """Shares on two levels, both by `mixture`: of the parts (such as languages) of each corpus with alpha `within`, and
    of the corpora with alpha `between` (Babu et al. 2021, section 3). One share for each part, corpus by corpus; the
    parts of an empty corpus have share 0.

    >>> nested_mixture([[900, 100], [1000]], 0.5, 1.0).round(3).tolist()
    [0.375, 0.125, 0.5]
    """
    corpora = mixture([sum(parts) for parts in groups], between)
    return np.concatenate(
        [
            share * mixture(parts, within) if share else np.zeros(len(parts))
            for share, parts in zip(corpora, groups, strict=True)
        ]
    )


def _equal_cuts(costs: np.ndarray, count: int) -> np.ndarray:
    """The begin and end of each of `count` blocks of about equal cost, [count, 2]."""
    ends = np.cumsum(costs, dtype=np.int64)
    bounds = np.searchsorted((ends - costs) * count // ends[-1], np.arange(count + 1))
    return np.stack([bounds[:-1], bounds[1:]], 1)


def _snake(window: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The order by window, then `first`, then `second`. The direction of a key alternates whenever the key before it
    changes: shortest to longest, then back. So neighbours are similar everywhere, even across two windows."""
    first = np.where(window % 2, -first, first)
    return np.lexsort((np.where(first % 2, -second, second), first, window))


def _moved(units: np.ndarray, files: Sequence[np.ndarray], window: int, rng: np.random.Generator) -> np.ndarray:
    """[N] when each of some units is read, as a share of an epoch: its file begins at random, and the unit comes up to
    `window` files later.

    files  of each source, the number of the file of each unit, from 0
    """
    counts = [int(numbers.max(initial=-1)) + 1 for numbers in files]
    parts = list(zip(files, counts, strict=True))
    begins = np.concatenate([rng.permutation(count)[numbers] / max(count, 1) for numbers, count in parts])
    least = np.concatenate([np.full(len(numbers), 1 / max(count, 1)) for numbers, count in parts])
    return begins[units] + np.maximum(least[units], window / sum(counts)) * rng.random(len(units))


def _repeat(costs: np.ndarray, target: int, rng: np.random.Generator) -> np.ndarray:
    """Units with a total cost of `target`: all of them as often as they fit, then the first ones of a permutation. The
    unit that crosses the limit is included at random, so that the expected cost is exact."""
    copies, rest = divmod(target, max(int(costs.sum()), 1))
    parts = [np.arange(len(costs))] * copies
    if rest and len(costs):
        order = rng.permutation(len(costs))
        ends = np.cumsum(costs[order], dtype=np.int64)
        count = int(np.searchsorted(ends, rest, side="right"))
        left = rest - (int(ends[count - 1]) if count else 0)
        parts.append(order[: count + int(rng.random() * int(costs[order[count]]) < left)])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
