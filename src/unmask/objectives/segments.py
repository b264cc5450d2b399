"""SegmentLM: predict the next token with a model that remembers earlier segments (Dai et al. 2019).

Shapes: L layers, B rows, T tokens of a row, M tokens of the memory, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.data.loader import Loader
from unmask.data.text import segments
from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.objectives.causal import CausalLM
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Objective, StreamOptions
from unmask.types import Batch, Loss


class SegmentLM(CausalLM):
    """A language model of rows that continue from batch to batch: p(y_t | start, y_1 .. y_t-1), within its memory.

    The memory of a row is kept, without gradient, until the next batch with the same number in its `streams`.
    Held-out rows have separate memories. Rows without streams are read from an empty memory.

    carried  memories [L, M, D] of the training rows, by number: part of a checkpoint
    """

    teachable = ""

    def __init__(self, start: int, end: int, *, label_smoothing: float = 0.0) -> None:
        super().__init__(start, end, label_smoothing=label_smoothing)
        self.carried: dict[str, Tensor] = {}
        self.heldout: dict[str, Tensor] = {}

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        """Raises UnmaskError for a model without a memory."""
        if "memory" not in model.config.offers:
            raise UnmaskError("Only a model with a memory learns from rows that continue: take transformer-xl-tiny.")
        if batch.streams is None:
            return super().loss(model, batch)
        kept = self.carried if model.training else self.heldout
        names = [str(stream) for stream in batch.streams.tolist()]
        hidden_BTD, memory_LBMD = model.read(batch, remembered(kept, names, batch))
        finite_B = memory_LBMD.isfinite().flatten(2).all(2).all(0)  # one bad step must not spoil all later steps
        memory_LBMD = memory_LBMD.where(finite_B[:, None, None], 0.0)
        kept.update(zip(names, memory_LBMD.unbind(1), strict=True))
        return {self.name: self.score(model, hidden_BTD, batch)}

    def stream(self, splits: Sequence[Split], options: StreamOptions) -> Loader:
        return segments.segments(splits, start=self.start, end=self.end, **options)

    def evaluation_rows(self, splits: Sequence[Split], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        sizes = {"length": length, "rows": rows, "limit_rows": limit_rows}
        return segments.fixed(splits, start=self.start, end=self.end, **sizes)


@dataclass(frozen=True, kw_only=True)
class SegmentLMConfig(ObjectiveConfig):
    """Predict every token from those before it, in rows that continue from step to step, by a model with a memory (Dai
    et al. 2019)."""

    kind = "segments"
    learned = "next tokens in rows that continue"
    example = "transformer-xl-tiny"
    objective = SegmentLM
    requires = frozenset({"memory"})
    pipeline = "text-generation"
    command = ("generate", '"A text"')
    choices = (("written", "segments"),)

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        return SegmentLM(tokenizer.cls, tokenizer.sep)


def remembered(kept: dict[str, Tensor], names: list[str], batch: Batch) -> Tensor | None:
    """[L, B, M, D]: the memories of the rows of a batch, cut to the shortest of them. None where a row has no memory,
    or where all rows begin a new text."""
    memories = [kept.get(name) for name in names]
    found = [memory for memory in memories if memory is not None]
    if len(found) < len(names) or batch.positions is None or not bool(batch.positions[:, 0].any()):
        return None
    least = min(memory.shape[1] for memory in found)
    return torch.stack([memory[:, memory.shape[1] - least :] for memory in found], 1)
