"""Collates examples into a batch: packs several into each row, or pads one in each row.

Shapes: B rows, T tokens of a row, N examples, M targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.types import Batch, Example, Signal, Target

Arrays = tuple[np.ndarray, ...]
"""(places [M], values [M, ...]), or (places [M], concatenated values, lengths [M])."""


def pack(examples: Sequence[Example], length: int, pad: int) -> Batch:
    """Pack examples into rows of exactly `length` tokens, by best fit, the longest first.

    tokens, documents, positions [B, length]; segments [B, length] if any example has them. The sequences of a row are
    numbered from 1, positions restart at each, and `starts` [N] is in the order of the examples. If every example fills
    its row, documents and positions are None. No examples give a batch without rows.

    Best fit decreasing needs at most 11/9 of the smallest possible number of rows (Johnson 1974); its result depends
    only on the examples. Raises UnmaskError for an empty example or one longer than `length`.
    """
    lengths = _lengths(examples)
    if lengths.size and lengths.max() > length:
        worst = int(lengths.argmax())
        raise UnmaskError(
            f"Example {worst} has {lengths[worst]} tokens and does not fit in a row of {length}; "
            "cut it before packing, or make the rows longer."
        )
    order = np.argsort(-lengths, kind="stable")
    rows, columns, numbers = (np.empty(len(examples), np.int64) for _ in range(3))
    placed = _best_fit(lengths[order].tolist(), length)
    rows[order], columns[order], numbers[order] = np.array(placed, np.int64).reshape(-1, 3).T
    return _assemble(examples, lengths, (int(rows.max(initial=-1)) + 1, length), rows * length + columns, numbers, pad)


def pad(examples: Sequence[Example], pad: int, multiple: int = 8) -> Batch:
    """One example in each row, padded with `pad` to the longest one, rounded up to a multiple of `multiple`.

    If nothing is padded, documents and positions are None. Raises UnmaskError for an empty example.
    """
    lengths = _lengths(examples)
    width = -(-int(lengths.max(initial=0)) // multiple) * multiple
    starts = np.arange(len(examples), dtype=np.int64) * width
    return _assemble(examples, lengths, (len(examples), width), starts, np.ones_like(starts), pad)


def _lengths(examples: Sequence[Example]) -> np.ndarray:
    lengths = np.array([len(example.tokens) for example in examples], np.int64)
    if lengths.size and lengths.min() < 1:
        raise UnmaskError(f"Example {int(lengths.argmin())} has no tokens; leave empty examples out.")
    return lengths


def _best_fit(lengths: list[int], length: int) -> list[tuple[int, int, int]]:
    """(row, column, number in its row from 1) of each length, placed into the fullest row in which it fits."""
    by_space: list[list[int]] = [[] for _ in range(length + 1)]  # by_space[s]: rows with s free tokens
    spaces = 0  # bit s is set if by_space[s] is not empty: a shift and the lowest bit give the tightest fit
    held: list[int] = []
    placed = []
    for n in lengths:
        fits = spaces >> n
        if fits:
            space = n + (fits & -fits).bit_length() - 1
            row = by_space[space].pop()
            if not by_space[space]:
                spaces ^= 1 << space
        else:
            space, row = length, len(held)
            held.append(0)
        held[row] += 1
        placed.append((row, length - space, held[row]))
        by_space[space - n].append(row)
        spaces |= 1 << (space - n)
    return placed


def _assemble(
    examples: Sequence[Example],
    lengths: np.ndarray,
    shape: tuple[int, int],
    starts: np.ndarray,
    numbers: np.ndarray,
    pad: int,
) -> Batch:
    """The rows [B, T] = `shape`: example i begins at flat place starts[i] and is number numbers[i] of its row."""
    size = shape[0] * shape[1]
    total = int(lengths.sum())
    begins = np.cumsum(lengths) - lengths
    inside = np.arange(total) - np.repeat(begins, lengths)  # place of each token within its example
    places = np.repeat(starts, lengths) + inside

    def scatter(values: np.ndarray, fill: int = 0) -> Tensor:
        flat = np.full(size, fill, np.int64)
        flat[places] = values
        return torch.from_numpy(flat.reshape(shape))

    segments = None
    if any(example.segments is not None for example in examples):
        parts = [np.zeros(len(e.tokens), np.int64) if e.segments is None else e.segments for e in examples]
        if any(len(part) != n for part, n in zip(parts, lengths.tolist(), strict=True)):
            raise UnmaskError("An example has different numbers of segment ids and tokens; give one for each token.")
        segments = scatter(np.concatenate(parts))
    plain = total == size and len(examples) == shape[0]  # one full sequence a row
    return Batch(
        scatter(np.concatenate([e.tokens for e in examples]) if examples else np.empty(0, np.int64), pad),
        documents=None if plain else scatter(np.repeat(numbers, lengths)),
        positions=None if plain else scatter(inside),
        segments=segments,
        starts=torch.from_numpy(starts),
        targets=_targets(examples, lengths, starts),
        signal=_signal(examples, lengths, starts),
    )


def _targets(examples: Sequence[Example], lengths: np.ndarray, starts: np.ndarray) -> dict[str, Target]:
    """The targets of all examples, moved to the flat rows."""
    named: dict[str, dict[int, Arrays]] = {}
    for i, example in enumerate(examples):
        for name, arrays in example.targets.items():
            named.setdefault(name, {})[i] = arrays
    found = {}
    for name, parts in named.items():
        places, values, counts = _moved(parts, f"'{name}'", lengths, starts)
        kind = np.float32 if values.dtype.kind == "f" and len(values) else np.int64
        found[name] = Target.at(places, values.astype(kind), counts)
    return found


def _signal(examples: Sequence[Example], lengths: np.ndarray, starts: np.ndarray) -> Signal | None:
    """The raw values of all examples, moved to the flat rows."""
    parts = {i: example.signal for i, example in enumerate(examples) if example.signal is not None}
    return Signal.at(*_moved(parts, "the signal", lengths, starts)) if parts else None


def _moved(
    parts: Mapping[int, Arrays], what: str, lengths: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Flat places [M], values and, if the values are sequences, lengths [M], from the arrays of some examples."""
    for i, (places, values, *ragged) in parts.items():
        wanted = ragged[0].sum() if ragged else len(places)
        if len(values) != wanted or (ragged and len(ragged[0]) != len(places)):
            raise UnmaskError(f"Example {i} has {len(places)} places but {len(values)} values for {what}.")
    # An empty list is a float array to NumPy; it must not turn class ids into floats.
    filled = [arrays for arrays in parts.values() if len(arrays[1])] or [next(iter(parts.values()))]
    owner = np.repeat(list(parts), [len(arrays[0]) for arrays in parts.values()])
    places = np.concatenate([arrays[0] for arrays in parts.values()]).astype(np.int64)
    outside = (places < 0) | (places >= lengths[owner])
    if outside.any():
        raise UnmaskError(f"Example {int(owner[outside.argmax()])} has a place of {what} outside its tokens.")
    ragged_counts = [arrays[2] for arrays in parts.values() if len(arrays) > 2]
    if len({arrays[1].shape[1:] for arrays in filled}) > 1 or len(ragged_counts) not in (0, len(parts)):
        raise UnmaskError(f"The values of {what} must have one shape in all examples of a batch.")
    counts = np.concatenate(ragged_counts).astype(np.int64) if ragged_counts else None
    return places + starts[owner], np.concatenate([arrays[1] for arrays in filled]), counts
