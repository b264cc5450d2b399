"""Remembered: the hidden states of a frozen trunk, computed once for each sequence of a run.

Shapes: B rows, T tokens of a row, D width; L tokens of a sequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from unmask.kernels.formats import autocast_dtype
from unmask.models.model import Model
from unmask.runs.transfer.strategy import Transfer
from unmask.types import Batch

MOST = 2**30  # most bytes of hidden states to keep; the states of further sequences are computed each time

Key = tuple[bytes, bytes, bytes, bool]
"""Tokens, segments, a digest of the raw values, and whether the precision was bfloat16: the states of a sequence depend
on nothing else."""


@contextmanager
def remembering(model: Model, transfer: Transfer) -> Iterator[None]:
    """A context in which a trunk under the strategy "frozen" computes the hidden states of a sequence only once, and
    not once an epoch.

    A frozen trunk is in evaluation mode (`Tuning.on_step`), without dropout and with running statistics. Up to
    rounding, the states of a sequence do not depend on the sequences that it is packed with, so states of one batch can
    be used in another; and a resumed run, which has no stored states, is the same up to rounding. Other strategies, and
    models whose sequences are not independent (`sequences_apart`), are unchanged.
    """
    if transfer.strategy != "frozen" or not model.sequences_apart:
        yield
        return
    model.forward = Remembered(model.forward)  # type: ignore[method-assign]  # of this object only
    try:
        yield
    finally:
        del model.forward  # restores the method of the class


class Remembered:
    """The forward pass of a trunk, from a batch to [B, T, D], which runs only if the batch has a new sequence.

    most  most bytes of hidden states to keep
    """

    def __init__(self, forward: Callable[[Batch], Tensor], most: int = MOST) -> None:
        self.forward, self.most, self.bytes = forward, most, 0
        self.states: dict[Key, Tensor] = {}
        self.lock = Lock()  # protects `bytes` and `states`: in evaluations, several threads run batches

    def __call__(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D]; zero at padding if all sequences are stored."""
        if batch.starts is None:
            return self.forward(batch)
        places = spans(batch)
        keys = self._keys(batch, places)
        known = [self.states.get(key) for key in keys]
        found = [state for state in known if state is not None]
        if not found or len(found) < len(known):
            hidden_BTD = self.forward(batch)
            self._keep(hidden_BTD.flatten(0, 1), keys, places)
            return hidden_BTD
        flat = found[0].new_zeros(batch.tokens.numel(), found[0].shape[-1])
        for state_LD, place in zip(found, places, strict=True):
            flat[place] = state_LD
        return flat.view(*batch.tokens.shape, -1)

    def _keys(self, batch: Batch, places: list[slice]) -> list[Key]:
        tokens = batch.tokens.flatten().cpu().numpy()
        segments = None if batch.segments is None else batch.segments.flatten().cpu().numpy()
        bf16 = autocast_dtype(batch.tokens) is not None
        seconds = (b"" if segments is None or not segments[at].any() else segments[at].tobytes() for at in places)
        raw = _digests(batch, places)
        parts = zip(places, seconds, raw, strict=True)
        return [(tokens[at].tobytes(), second, values, bf16) for at, second, values in parts]

    def _keep(self, states: Tensor, keys: list[Key], places: list[slice]) -> None:
        with self.lock:
            for key, place in zip(keys, places, strict=True):
                size = states[place].nbytes
                if key not in self.states and self.bytes + size <= self.most:
                    self.states[key] = states[place].clone()
                    self.bytes += size


def _digests(batch: Batch, places: list[slice]) -> list[bytes]:
    """A digest of the raw values of each sequence; empty if the batch has none."""
    if batch.signal is None:
        return [b""] * len(places)
    at, values = batch.signal.places.cpu().numpy(), batch.signal.values.cpu().numpy()
    lengths = np.ones(len(at), np.int64) if batch.signal.lengths is None else batch.signal.lengths.cpu().numpy()
    ends = np.cumsum([0, *lengths])
    bounds = ends[np.searchsorted(at, [(place.start, place.stop) for place in places])]
    return [hashlib.blake2b(values[begin:end].tobytes(), digest_size=16).digest() for begin, end in bounds]


def spans(batch: Batch) -> list[slice]:
    """The slice of each sequence in the flattened rows, in the order of the examples."""
    assert batch.starts is not None
    width, total = batch.tokens.shape[1], batch.tokens.numel()
    starts = batch.starts.tolist()
    if batch.documents is None:
        return [slice(start, start + width) for start in starts]
    numbers = batch.documents.flatten()
    changes = (numbers[1:] != numbers[:-1]).nonzero().squeeze(-1) + 1
    ends = sorted({*changes.tolist(), *range(width, total + 1, width)})
    after = torch.searchsorted(torch.tensor(ends), torch.tensor(starts), right=True).tolist()
    return [slice(start, ends[i]) for start, i in zip(starts, after, strict=True)]
