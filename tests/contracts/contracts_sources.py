"""Sources and ways of batching that share one contract, and a source of another modality: pictures of digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unmask.data.bitext.batching import PairRows, PairSource, pairs
from unmask.data.collate import pack
from unmask.data.examples import Groups, labelled
from unmask.data.loader import Collated, EqualRows, Loader, MicroBatches
from unmask.data.order import ByLength, Classes, SeededBlocks, Shuffled, nested_mixture
from unmask.data.text.corpus import Split
from unmask.data.text.segments import segments
from unmask.data.text.stream import packed
from unmask.types import Batch, Document, Example, Kind

ROWS = ["111101101101111", "010010010010010", "111001111100111", "111001111001111", "101101111001001"]
FONT = [np.array([int(bit) for bit in row], np.float32).reshape(5, 3) for row in ROWS]  # the digits 0 to 4


class Digits:
    """Noisy pictures of digits as arrays [5 s, 3 s], of several sizes s; a picture costs its patches of 1 x 3 pixels
    and a class token."""

    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(len(FONT), size=count)
        self.sizes = rng.integers(1, 4, count)
        self.cost = 5 * self.sizes**2 + 1
        self.noise = rng.normal(size=count).astype(np.float32)

    def read(self, unit: int) -> tuple[np.ndarray, int]:
        label, size = int(self.labels[unit]), int(self.sizes[unit])
        return np.kron(FONT[label], np.ones((size, size), np.float32)) + self.noise[unit], label


@dataclass(frozen=True)
class PackedDigits:
    """Pictures, packed into rows of `length` places: a class token and the patches of each. Their order is shuffled by
    the generator of the block, as an augmentation would be drawn."""

    length: int

    def __call__(self, items: list[tuple[np.ndarray, int]], rng: np.random.Generator) -> Batch:
        examples = []
        for i in rng.permutation(len(items)):
            picture, label = items[i]
            patches = picture.reshape(-1, 3)
            tokens = np.full(len(patches) + 1, Kind.SIGNAL)
            tokens[0] = Kind.CLS
            targets = {"digit": (np.array([0]), np.array([label]))}
            examples.append(Example(tokens, None, targets, (np.arange(1, len(tokens)), patches)))
        return pack(examples, self.length, Kind.PADDING)


def whole(documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
    """Every piece of a document as one sequence."""
    return [Example(np.concatenate(document.sentences).astype(np.int64)) for document in documents]


def untouched(batch: Batch, rng: np.random.Generator) -> Batch:
    return batch


Make = Callable[[int, int, int, int], Loader]
"""(rows of a step over all ranks, rank, ranks, workers) -> a loader."""


@dataclass(frozen=True)
class Way:
    """A source, drawn and batched in one way.

    batches  all units, as batches of any form; None where an epoch does not read every unit to its end
    counted  whether a block is a step, so that version 0.1 wrote {"step"} as a position
    """

    make: Make
    batches: Callable[[], list[Batch]] | None
    counted: bool = False


def collated(loader: Loader) -> Callable[[], list[Batch]]:
    """Every unit of its source, in the order of their numbers, collated at once."""

    def all_units() -> list[Batch]:
        assert isinstance(loader.blocks, Collated)
        source = loader.blocks.order.source
        return [loader.blocks.collate([source.read(i) for i in range(len(source.cost))], np.random.default_rng(0))]

    return all_units


def ways(large: Split, tiny: Split) -> dict[str, Way]:
    """All of them, by name."""
    digits, rng = Digits(90, 0), np.random.default_rng(0)
    examples = [Example(rng.integers(5, 99, n), targets={"c": (np.array([0]), np.array([n]))}) for n in range(2, 42)]
    groups = [slice(i, i + 2) for i in range(0, 40, 2)]
    texts = [[rng.integers(5, 99, n) for n in rng.integers(0, 20, 80)] for _ in range(2)]
    bilingual = PairSource(*texts)

    def cut(rows: int, rank: int, ranks: int) -> EqualRows:
        return EqualRows(rows // ranks, rank, ranks, micro=1)

    def documents(*splits: Split) -> Make:
        def make(rows: int, rank: int, ranks: int, workers: int) -> Loader:
            blocks = packed(splits, sample=whole, corrupt=untouched, length=60, unit=60, block=400)
            return Loader(blocks, cut=cut(rows, rank, ranks), workers=workers)

        return make

    def continued(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        options = {"start": 2, "end": 3, "length": 16, "cut": cut(rows, rank, ranks)}
        return segments([large, tiny], **options, workers=workers)

    def rows_of(*more: Sequence[slice]) -> Make:
        def make(rows: int, rank: int, ranks: int, workers: int) -> Loader:
            source = Groups(examples, *more)
            return again(labelled(source, rows + 1, pad=0, seed=3, rank=rank, ranks=ranks, at_once=64), workers)

        return make

    def classes(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        numbers = np.array([0, 1] * 10 + [2, 3, 4, 5] * 4 + [6, 7, 8, 8])  # two of them alone
        options = {"classes": Classes(numbers, 2), "seed": 3, "rank": rank, "ranks": ranks, "at_once": 64}
        return again(labelled(Groups(examples), 2 * rows + 2, pad=0, **options), workers)

    def by_length(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        options = {"seed": 3, "rank": rank, "ranks": ranks, "window": 30, "at_once": 64}
        return again(pairs(bilingual, 120, PairRows(0, 1, 2), **options), workers)

    def blocks_of_digits(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        few = Digits(30, 1)
        order = SeededBlocks(
            [digits, few], nested_mixture([[digits.cost.sum(), few.cost.sum()]], 1.0, 1.0), seed=1, block=300
        )
        return Loader(Collated(order, PackedDigits(48)), cut=cut(rows, rank, ranks), workers=workers)

    def shuffled_digits(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        order = Shuffled(digits, 7, seed=1, ranks=ranks)
        return Loader(Collated(order, PackedDigits(48), MicroBatches(digits.cost, rank, ranks, 48)), workers=workers)

    def digits_by_size(rows: int, rank: int, ranks: int, workers: int) -> Loader:
        order = ByLength(digits, 150, seed=1, ranks=ranks, window=40)
        return Loader(Collated(order, PackedDigits(48), MicroBatches(digits.cost, rank, ranks, 48)), workers=workers)

    found = {
        "documents": (documents(large), False),
        "mixed documents": (documents(large, tiny), False),
        "rows": (rows_of(), True),
        "groups": (rows_of(groups), True),
        "classes": (classes, True),
        "pairs": (by_length, True),
        "digits": (blocks_of_digits, False),
        "shuffled digits": (shuffled_digits, True),
        "digits by size": (digits_by_size, True),
    }
    every = {name: Way(make, collated(make(1, 0, 1, 0)), counted) for name, (make, counted) in found.items()}
    return every | {"continued": Way(continued, None)}


def again(loader: Loader, workers: int) -> Loader:
    """The same with another number of workers."""
    return Loader(loader.blocks, cut=loader.cut, workers=workers)


def sequences(batches: Sequence[Batch]) -> Iterator[tuple]:
    """Each sequence of some batches as a value: its tokens, the raw values of its places, and what is read of it."""
    for batch in batches:
        documents = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        raw = {}
        if batch.signal is not None:
            values = batch.signal.values.numpy()
            raw = {place: values[i].tobytes() for i, place in enumerate(batch.signal.places.tolist())}
        read = None if batch.source is None else list(sequences([batch.source]))
        width = batch.tokens.shape[1]
        for row, (tokens, numbers) in enumerate(zip(batch.tokens, documents, strict=True)):
            for number in range(1, int(numbers.max()) + 1):
                inside = (numbers == number).nonzero().flatten()
                signal = tuple(raw.get(row * width + place) for place in inside.tolist()) if raw else ()
                yield tuple(tokens[inside].tolist()), signal, None if read is None else read[row]
