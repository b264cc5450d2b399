"""SharedRecurrent: a recurrent network whose first layer tags words, and whose last layer reads the whole text
(Søgaard & Goldberg 2016, "Deep multi-task learning with low level tasks supervised at lower layers").

Shapes: B rows, T tokens of a row, N sequences, S tokens of the longest, E width of the outputs of a layer, M places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.models.heads import asked_of
from unmask.models.recurrent import RecurrentNetwork
from unmask.models.recurrent_model import RecurrentModel
from unmask.nn import Embedding
from unmask.types import Batch


class SharedRecurrentModel(RecurrentModel):
    """Its hidden states are those of the first and of the last layer, side by side, 2 E wide."""

    def read(self, x_NSD: Tensor, lengths_N: Tensor | None = None) -> Tensor:
        lengths_N = None if self._through(x_NSD, lengths_N) else lengths_N
        first, *others = self.stack.blocks
        lower_NSE, _ = first(x_NSD, None, lengths_N)
        upper_NSE = lower_NSE
        for block in others:
            upper_NSE, _ = block(upper_NSE, None, lengths_N)
        return torch.cat([lower_NSE, upper_NSE], -1)

    def head_inputs(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """As `Model.head_inputs`; heads for classes of tokens read the first layer."""
        head, (lower_BTE, upper_BTE) = asked_of(self.heads[name]), hidden_BTD.chunk(2, -1)
        if head is not None and head.of_sequence:
            return self.summary(hidden_BTD, places_M, batch)
        chosen_BTE = lower_BTE if head is not None and head.kind == "token" else upper_BTE
        return chosen_BTE.flatten(0, 1)[places_M]

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        return super().summary(hidden_BTD.chunk(2, -1)[1], places_M, batch)


@dataclass(frozen=True, kw_only=True)
class SharedRecurrent(RecurrentNetwork):
    """A `RecurrentNetwork`, usually of two layers in both directions, that learns two tasks at once."""

    bidirectional: bool = True

    @property
    def width(self) -> int:
        """2 E: the first and the last layer, side by side."""
        return 2 * self.outputs

    def assemble(self, embedding: Embedding, heads: Mapping[str, nn.Module]) -> SharedRecurrentModel:
        return SharedRecurrentModel(self, embedding, self.stack(), heads)
