"""A stopwatch for training: the start of each step, and the tokens that it computed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import common, profiling
from bench.common import Result

if TYPE_CHECKING:
    from unmask.types import Batch


@dataclass
class Step:
    """The start of a step and its mark for the profile; its tokens without and with padding; pairs of tokens that may
    attend to each other."""

    began: float
    mark: int = 0
    real: int = 0
    computed: int = 0
    pairs: int = 0


class Stopwatch:
    """Times a turn: call `next_step` at the start of each step, and `count` for each forward pass."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def next_step(self) -> None:
        common.wait_for_gpu()
        self.steps.append(Step(time.perf_counter(), profiling.mark()))

    def count(self, real: int, computed: int, pairs: int) -> None:
        self.steps[-1].real += real
        self.steps[-1].computed += computed
        self.steps[-1].pairs += pairs

    def result(self, first: int, steps: int) -> Result:
        """Figures of `steps` steps from number `first`, up to the start of the step after them."""
        import torch

        counted = self.steps[first : first + steps]
        profiling.between(counted[0].mark, self.steps[first + steps].mark)
        seconds = self.steps[first + steps].began - counted[0].began
        real = sum(step.real for step in counted)
        return {
            "tokens_per_second": real / seconds,
            "seconds": seconds,
            "seconds_per_step": seconds / len(counted),
            "tokens_per_step": real / len(counted),
            "filled": real / sum(step.computed for step in counted),
            "tokens_seen": sum(step.pairs for step in counted) / real,
            "peak_memory_mb": common.peak_memory(),
            "threads": torch.get_num_threads(),
        }


def attended(batch: Batch) -> int:
    """Pairs of tokens of the same sequence in a batch: n^2 for a sequence of n tokens."""
    import torch

    rows, width = batch.tokens.shape
    if batch.documents is None:
        return rows * width**2
    each = batch.documents + torch.arange(rows)[:, None] * (width + 1)  # a row has at most `width` sequences
    counts = torch.bincount(each[batch.documents > 0])
    return int(counts.square().sum())
