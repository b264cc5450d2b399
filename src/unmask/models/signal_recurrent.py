"""SignalRecurrent: a recurrent network over the segments of a record, in both directions or from its begin on.

Shapes: R records, L leads, S samples of a segment, K segments of the longest record, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.signal_model import SignalConfig, SignalModel
from unmask.nn import Recurrent, RecurrentLayer, RecurrentStack, xavier_gates
from unmask.nn.initialise import uniform_linear


@dataclass(frozen=True, kw_only=True)
class SignalRecurrent(SignalConfig):
    """The numbers that make a recurrent network over segments (Graves & Schmidhuber 2005, in both directions).

    segment        S, samples of a segment, of all leads: one linear map makes them a vector; 1: it reads samples
    dim            width of these vectors        hidden   width of the state of a layer in one direction
    layers         number of recurrent layers    cell     "lstm", "gru" or "rnn"
    bidirectional  whether a second network reads each layer from the end; if not, a state depends only on the segments
                   up to its own
    dropout        after each layer, in training

    Raises UnmaskError for sizes below 1.
    """

    segment: int = 25
    dim: int = 64
    hidden: int = 64
    layers: int = 2
    cell: Literal["lstm", "gru", "rnn"] = "lstm"
    bidirectional: bool = True
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if min(self.segment, self.leads, self.dim, self.hidden, self.layers) < 1:
            raise UnmaskError(
                f"segment = {self.segment}, leads = {self.leads}, dim = {self.dim}, hidden = {self.hidden} and "
                f"layers = {self.layers} must be at least 1."
            )

    @property
    def width(self) -> int:
        return self.hidden * (2 if self.bidirectional else 1)

    def embedding(self) -> nn.Linear:
        return nn.Linear(self.leads * self.segment, self.dim)

    def layer(self, dim: int) -> RecurrentLayer:
        return RecurrentLayer(Recurrent(self.cell, dim, self.hidden, bidirectional=self.bidirectional), self.dropout)

    def stack(self) -> RecurrentStack:
        return RecurrentStack([self.layer(dim) for dim in (self.dim, *[self.width] * (self.layers - 1))])

    def assemble(self, heads: Mapping[str, nn.Module]) -> SignalRecurrentModel:
        return SignalRecurrentModel(self, self.embedding(), self.stack(), heads=heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Xavier's uniform for the matrices of each gate, and linear layers from a uniform in +- 1 / sqrt(inputs)."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, Recurrent):
                xavier_gates(part, generator)
            elif isinstance(part, nn.Linear):
                uniform_linear(part, generator)


class SignalRecurrentModel(SignalModel):
    """Reads whole records; a state has seen the segments before its own and, in both directions, those after it."""

    config: SignalRecurrent
    stack: RecurrentStack

    def states(self, samples_RLN: Tensor, lengths_R: Tensor) -> Tensor:
        segments_RKV = samples_RLN.unflatten(2, (-1, self.config.segment)).transpose(1, 2).flatten(2)
        x_RKD = self.embedding(segments_RKV).to(segments_RKV.dtype)  # of a layout for inference in another format
        states_RKD, _ = self.stack(x_RKD, None, lengths_R)
        return states_RKD

    @property
    def causal(self) -> bool:
        return not self.config.bidirectional


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "small": {"dim": 128, "hidden": 256},
}
"""Networks of 0.2 M and 2.4 M parameters."""
