"""Remembered: the hidden states of a frozen trunk, computed once for each sequence of a run.

Shapes: B rows, T tokens of a row, D width; L tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor

from unmask.kernels.formats import autocast_dtype
from unmask.models.model import Model
from unmask.runs.transfer.strategy import Transfer
from unmask.types import Batch

MOST = 2**30  # bytes of hidden states that are kept; what comes after them is computed again each time

Key = tuple[bytes, bytes, bool]
"""Tokens, segments, and whether they were read in bfloat16: all that the states of a sequence depend on."""


@contextmanager
def remembering(model: Model, transfer: Transfer) -> Iterator[None]:
    """Inside, a trunk that "frozen" leaves as it is reads every sequence once, though each epoch asks for it again.

    A sequence has the same hidden states whatever it is packed with, but for the last bit, so what is kept of one batch
    serves another; and a run that is resumed, which remembers nothing, is the same but for the last bit. Other
    strategies, and pages that compute more than the trunk in their forward, go on as they are.
    """
    if transfer.strategy != "frozen" or not model.sequences_apart:
        yield
        return
    model.forward = Remembered(model.forward)  # type: ignore[method-assign]  # of this one object
    try:
        yield
    finally:
        del model.forward  # that of the class comes back


class Remembered:
    """A trunk's forward, from a batch to [B, T, D], that runs where a sequence of the batch is new.

    most  bytes of hidden states to keep
    """

    def __init__(self, forward: Callable[[Batch], Tensor], most: int = MOST) -> None:
        self.forward, self.most, self.bytes = forward, most, 0
        self.states: dict[Key, Tensor] = {}
        self.lock = Lock()  # of the two above: batches that are only answered come several at once

    def __call__(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D]; zero at padding where all are remembered."""
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
        return [(tokens[at].tobytes(), second, bf16) for at, second in zip(places, seconds, strict=True)]

    def _keep(self, states: Tensor, keys: list[Key], places: list[slice]) -> None:
        with self.lock:
            for key, place in zip(keys, places, strict=True):
                size = states[place].nbytes
                if key not in self.states and self.bytes + size <= self.most:
                    self.states[key] = states[place].clone()
                    self.bytes += size


def spans(batch: Batch) -> list[slice]:
    """Where each sequence stands in the flattened rows, in the order of the examples."""
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
