"""pack_pairs: packed rows of several pairs of a source and a target.

Shapes: B rows, S tokens of a row of sources, T of a row of targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from unmask.types import Batch, Target

MULTIPLE = 8  # what the length of rows is rounded up to
Ids = Sequence[int] | np.ndarray


def pack_pairs(
    rows: Sequence[Sequence[tuple[Ids, Ids]]], pad: int, start: int, end: int, target: str = "next"
) -> Batch:
    """Rows that hold several pairs side by side, unlike those of `data.bitext.batching`: the target of pair i is the
    i-th sequence in its row of `tokens` [B, T], its source the i-th in that row of `source.tokens` [B, S]. Both batches
    have `documents` and `positions`.

    target  name of the target, whose value at each token is the next token, and `end` after the last
    """
    read = [[np.append(source, end) for source, _ in row] for row in rows]
    written = [[np.append(start, written) for _, written in row] for row in rows]
    following = [np.append(written, end) for row in rows for _, written in row]
    batch = _side_by_side(written, pad)
    assert batch.documents is not None
    places = batch.documents.flatten().nonzero().squeeze(1)
    values = np.concatenate(following) if following else np.empty(0)
    following_M = Target(places, torch.from_numpy(values.astype(np.int64)))
    return replace(batch, targets={target: following_M}, source=_side_by_side(read, pad))


def _side_by_side(rows: Sequence[Sequence[np.ndarray]], pad: int) -> Batch:
    """A batch of packed sequences of ids; the length of rows is that of the longest, rounded up to a multiple of 8."""
    width = -(-max((sum(map(len, row)) for row in rows), default=0) // MULTIPLE) * MULTIPLE
    tokens, documents, positions = (np.full((len(rows), width), fill, np.int64) for fill in (pad, 0, 0))
    for b, row in enumerate(rows):
        sizes = [len(ids) for ids in row]
        used = sum(sizes)
        if used:
            tokens[b, :used] = np.concatenate(row)
            documents[b, :used] = np.repeat(np.arange(1, len(row) + 1), sizes)
            positions[b, :used] = np.concatenate([np.arange(size) for size in sizes])
    starts = np.flatnonzero((positions == 0) & (documents > 0))
    return Batch(
        torch.from_numpy(tokens),
        documents=torch.from_numpy(documents),
        positions=torch.from_numpy(positions),
        starts=torch.from_numpy(starts),
    )
