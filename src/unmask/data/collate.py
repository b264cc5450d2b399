"""Examples -> Batch: pack them into full rows, pad them to one a row, join and reorder batches.

Shapes: B rows, T tokens of a row, N examples, M targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.types import Batch, Example, Target


def pack(examples: Sequence[Example], length: int, pad: int) -> Batch:
    """Rows of exactly `length` tokens that hold the examples by best fit, longest first.

    tokens, documents, positions [B, length]; segments [B, length] where any example has them. Sequences of a row
    are numbered from 1, positions restart at each, `starts` [N] is in the order of the examples. Where every
    example fills its row, documents and positions are None. No examples give a batch of no rows.

    Best fit decreasing needs at most 11/9 of the fewest possible rows (Johnson, 1974); its result depends on the
    examples alone. Raises UnmaskError for an empty example or one longer than `length`.
    """
    lengths = _lengths(examples)
    if lengths.size and lengths.max() > length:
        worst = int(lengths.argmax())
        raise UnmaskError(
            f"Example {worst} has {lengths[worst]} tokens and does not fit in a row of {length}; "
            "cut it before it is packed, or make the rows longer."
        )
    order = np.argsort(-lengths, kind="stable")
    rows, columns, numbers = (np.empty(len(examples), np.int64) for _ in range(3))
    placed = _best_fit(lengths[order].tolist(), length)
    rows[order], columns[order], numbers[order] = np.array(placed, np.int64).reshape(-1, 3).T
    return _assemble(examples, lengths, (int(rows.max(initial=-1)) + 1, length), rows * length + columns, numbers, pad)


def pad(examples: Sequence[Example], pad: int, multiple: int = 8) -> Batch:
    """One example a row, filled with `pad` to the longest one rounded up to a multiple of `multiple`.

    Where nothing is padded, documents and positions are None. Raises UnmaskError for an empty example.
    """
    lengths = _lengths(examples)
    width = -(-int(lengths.max(initial=0)) // multiple) * multiple
    starts = np.arange(len(examples), dtype=np.int64) * width
    return _assemble(examples, lengths, (len(examples), width), starts, np.ones_like(starts), pad)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches of one width, in order; optional fields that some lack are filled in.

    `starts` is None where a batch that has several sequences a row lacks it. Rows with sources are filled up to the
    longest on both sides. Raises UnmaskError for no batches, different widths where there are no sources, and where
    only some have them.
    """
    if len(batches) == 1:
        return batches[0]
    sources = [batch.source for batch in batches if batch.source is not None]
    if len(sources) not in (0, len(batches)):
        raise UnmaskError("Batches with sources can be joined only with others that have them.")
    if sources:
        written = concatenate(_widened([replace(batch, source=None) for batch in batches]))
        return replace(written, source=concatenate(_widened(sources)))
    widths = {batch.tokens.shape[1] for batch in batches}
    if len(widths) != 1:
        raise UnmaskError(f"Batches can be joined only where their rows have one length, not {sorted(widths)}.")
    origins = np.cumsum([0] + [batch.tokens.numel() for batch in batches]).tolist()

    def join(get: Callable[[Batch], Tensor | None], fill: Callable[[Batch], Tensor]) -> Tensor | None:
        found = [get(batch) for batch in batches]
        if all(x is None for x in found):
            return None
        return torch.cat([fill(b) if x is None else x for b, x in zip(batches, found, strict=True)])

    def positions(batch: Batch) -> Tensor:
        return torch.arange(batch.tokens.shape[1]).expand(batch.tokens.shape)

    starts = [_starts(batch) for batch in batches]
    known = [s + o for s, o in zip(starts, origins, strict=False) if s is not None]
    targets = {}
    for name in dict.fromkeys(name for batch in batches for name in batch.targets):
        parts = [(b.targets[name], o) for b, o in zip(batches, origins, strict=False) if name in b.targets]
        targets[name] = Target(torch.cat([t.places + o for t, o in parts]), torch.cat([t.values for t, _ in parts]))
    return Batch(
        torch.cat([batch.tokens for batch in batches]),
        join(lambda b: b.documents, lambda b: torch.ones_like(b.tokens)),
        join(lambda b: b.positions, positions),
        join(lambda b: b.segments, lambda b: torch.zeros_like(b.tokens)),
        torch.cat(known) if len(known) == len(batches) else None,
        targets,
    )


def _widened(batches: Sequence[Batch]) -> list[Batch]:
    """The batches with padding at the end of their rows, all as long as the longest."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    return [_with_padding(batch, longest - batch.tokens.shape[1]) for batch in batches]


def _with_padding(batch: Batch, more: int) -> Batch:
    if not more:
        return batch
    width = batch.tokens.shape[1]

    def fill(x: Tensor | None) -> Tensor | None:
        return None if x is None else F.pad(x, (0, more))

    def move(places: Tensor) -> Tensor:
        return places + places // width * more

    return replace(
        batch,
        tokens=F.pad(batch.tokens, (0, more)),
        documents=fill(torch.ones_like(batch.tokens) if batch.documents is None else batch.documents),
        positions=fill(batch.positions),
        segments=fill(batch.segments),
        starts=None if batch.starts is None else move(batch.starts),
        targets={name: Target(move(target.places), target.values) for name, target in batch.targets.items()},
    )


def permute(batch: Batch, order: np.ndarray) -> Batch:
    """The same rows with row i taken from row order[i] [B]; starts keep the order of the examples, targets are
    sorted by their new places."""
    width = batch.tokens.shape[1]
    rows = np.empty(len(order), np.int64)
    rows[order] = np.arange(len(order))

    # NumPy, not torch: this runs beside the training step, where torch would start a second team of threads.
    def take(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.from_numpy(x.numpy()[order])

    def move(places: Tensor) -> np.ndarray:
        flat = places.numpy()
        return rows[flat // width] * width + flat % width

    def sort(target: Target) -> Target:
        return _target(move(target.places), target.values.numpy())

    return Batch(
        torch.from_numpy(batch.tokens.numpy()[order]),
        take(batch.documents),
        take(batch.positions),
        take(batch.segments),
        None if batch.starts is None else torch.from_numpy(move(batch.starts)),
        {name: sort(target) for name, target in batch.targets.items()},
    )


def _lengths(examples: Sequence[Example]) -> np.ndarray:
    lengths = np.array([len(example.tokens) for example in examples], np.int64)
    if lengths.size and lengths.min() < 1:
        raise UnmaskError(f"Example {int(lengths.argmin())} has no tokens; leave empty examples out.")
    return lengths


def _best_fit(lengths: list[int], length: int) -> list[tuple[int, int, int]]:
    """(row, column, number in its row from 1) of each length, put into the fullest row that still has room."""
    by_space: list[list[int]] = [[] for _ in range(length + 1)]  # rows with that many free tokens
    spaces = 0  # bit s is set where by_space[s] is not empty: the tightest fit is one shift and one lowest bit
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
    """The rows [B, T] = `shape` in which example i begins at flat place starts[i] as number numbers[i] of its row."""
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
            raise UnmaskError("An example has another number of segment ids than tokens.")
        segments = scatter(np.concatenate(parts))
    plain = total == size and len(examples) == shape[0]  # one full sequence a row
    return Batch(
        scatter(np.concatenate([e.tokens for e in examples]) if examples else np.empty(0, np.int64), pad),
        None if plain else scatter(np.repeat(numbers, lengths)),
        None if plain else scatter(inside),
        segments,
        torch.from_numpy(starts),
        _targets(examples, lengths, starts),
    )


def _targets(examples: Sequence[Example], lengths: np.ndarray, starts: np.ndarray) -> dict[str, Target]:
    """The targets of all examples, moved to the flat rows."""
    grouped: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {}
    for i, example in enumerate(examples):
        for name, (places, values) in example.targets.items():
            if len(places) != len(values):
                raise UnmaskError(f"Example {i} has {len(places)} places but {len(values)} values for '{name}'.")
            grouped.setdefault(name, []).append((i, places, values))
    targets = {}
    for name, parts in grouped.items():
        # An empty list is a float array to NumPy; it must not turn class ids into floats.
        parts = [part for part in parts if len(part[1])] or parts[:1]
        owner = np.repeat([i for i, _, _ in parts], [len(places) for _, places, _ in parts])
        places = np.concatenate([places for _, places, _ in parts]).astype(np.int64)
        outside = (places < 0) | (places >= lengths[owner])
        if outside.any():
            raise UnmaskError(f"Example {int(owner[outside.argmax()])} has a target '{name}' outside its tokens.")
        targets[name] = _target(places + starts[owner], np.concatenate([values for _, _, values in parts]))
    return targets


def _target(places: np.ndarray, values: np.ndarray) -> Target:
    order = np.argsort(places, kind="stable")
    kind = np.float32 if values.dtype.kind == "f" and len(values) else np.int64
    return Target(torch.from_numpy(places[order]), torch.from_numpy(values[order].astype(kind)))


def _starts(batch: Batch) -> Tensor | None:
    """`starts`, which need not be written where there is one unpadded sequence a row."""
    if batch.starts is None and batch.documents is None:
        return torch.arange(batch.tokens.shape[0]) * batch.tokens.shape[1]
    return batch.starts
