"""What training costs: the operations of a step, the gradients that travel, and the seconds of both (docs/scaling.md).

T tokens of a sequence   D width   F width inside the feed-forward   V vocabulary   L layers   N processes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Encoder(Protocol):
    """The numbers of a Transformer encoder that decide what it costs; `Bert` has them."""

    @property
    def layers(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...


def forward_flops(model: Encoder, length: float, answered: float) -> float:
    """Floating-point operations of one sequence of T = `length` tokens, with `answered` tokens in the output layer.

    A product of [m, k] and [k, n] counts 2 m k n; what is not a product is left out (Kaplan et al. 2020, section 2.1).
    """
    projections = 4 * model.dim**2  # queries, keys, values, and what leaves attention
    feedforward = 2 * model.dim * model.hidden
    attention = 2 * length * model.dim  # q k^T, and its weights times v
    layer = 2 * (projections + feedforward + attention)
    output = 2 * (model.dim**2 + model.dim * model.vocabulary)
    return length * model.layers * layer + answered * output


def training_flops(model: Encoder, length: float, answered: float) -> float:
    """Of forward and backward: a product has two in its backward pass, one for each factor."""
    return 3 * forward_flops(model, length, answered)


def parameters(model: Encoder, length: int = 512, segments: int = 2) -> int:
    """Numbers that BERT learns for masked words, `length` positions and `segments` segment vectors included."""
    attention = 4 * (model.dim**2 + model.dim)
    feedforward = 2 * model.dim * model.hidden + model.hidden + model.dim
    norms = 2 * 2 * model.dim
    embedding = (model.vocabulary + length + segments) * model.dim + 2 * model.dim
    head = model.dim**2 + 3 * model.dim + model.vocabulary
    return model.layers * (attention + feedforward + norms) + embedding + head


@dataclass(frozen=True)
class Cluster:
    """Equal processes that compute, and what joins them.

    flops      operations a second that a process reaches while it computes, not what its processor could
    bandwidth  bytes a second that a process sends while it receives as many
    latency    seconds until the first byte arrives
    fixed      seconds of a step that no process shares: the update of the weights, and whatever else
    overlap    share of the exchange that hides behind the backward pass, at best
    """

    flops: float
    bandwidth: float
    latency: float = 0.0
    fixed: float = 0.0
    overlap: float = 0.0

    def all_reduce(self, size: float, processes: int) -> float:
        """Seconds until every process has the sum of `size` bytes of each, around a ring (Patarasuk & Yuan 2009):
        2 (N - 1) messages of size / N bytes."""
        return 2 * (processes - 1) * (size / processes / self.bandwidth + self.latency)

    def step(self, flops: float, size: float, processes: int) -> float:
        """Seconds of a step of `flops` in all whose gradients take `size` bytes, the batch split over the processes."""
        compute = flops / self.flops / processes
        exchange = self.all_reduce(size, processes)
        hidden = min(self.overlap * exchange, compute * 2 / 3)  # the backward pass is two thirds
        return compute + exchange - hidden + self.fixed
