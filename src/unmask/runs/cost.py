"""The cost of training: the operations of a step, the exchange of gradients, and the seconds of both (docs/scaling.md).

T tokens of a sequence   D width   F width inside the feed-forward   V vocabulary   L layers   N processes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Encoder(Protocol):
    """The sizes of a Transformer encoder that determine its cost; `Bert` has them."""

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

    A product of [m, k] and [k, n] counts 2 m k n; other operations are left out (Kaplan et al. 2020, section 2.1).
    """
    projections = 4 * model.dim**2  # query, key, value and output projections
    feedforward = 2 * model.dim * model.hidden
    attention = 2 * length * model.dim  # q k^T, and its weights times v
    layer = 2 * (projections + feedforward + attention)
    output = 2 * (model.dim**2 + model.dim * model.vocabulary)
    return length * model.layers * layer + answered * output


def training_flops(model: Encoder, length: float, answered: float) -> float:
    """Operations of the forward and the backward pass: each product has two in the backward pass, one a factor."""
    return 3 * forward_flops(model, length, answered)


class Translation(Protocol):
    """The sizes of an encoder–decoder that determine its cost; `Transformer` has them."""

    @property
    def vocabulary(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def encoder_layers(self) -> int: ...
    @property
    def decoder_layers(self) -> int: ...
    @property
    def encoder_hidden(self) -> int: ...
    @property
    def decoder_hidden(self) -> int: ...


def translation_flops(model: Translation, source: float, target: float) -> float:
    """Operations of a forward pass over one pair of S = `source` and T = `target` tokens; the output layer answers at
    each target token."""
    D, S, T = model.dim, source, target
    encoder = S * (4 * D**2 + 2 * D * model.encoder_hidden + 2 * S * D)
    attention = T * (4 * D**2 + 2 * T * D)
    cross = T * (2 * D**2 + 2 * S * D) + S * 2 * D**2  # keys and values are projected once, of the source
    decoder = attention + cross + T * 2 * D * model.decoder_hidden
    return 2 * (model.encoder_layers * encoder + model.decoder_layers * decoder + T * D * model.vocabulary)


class Speech(Encoder, Protocol):
    """The sizes of a Transformer over frames of recordings; `Wav2Vec2` and `Hubert` have them."""

    @property
    def channels(self) -> tuple[int, ...]: ...
    @property
    def kernels(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def position_kernel(self) -> int: ...
    @property
    def position_groups(self) -> int: ...


def speech_flops(model: Speech, samples: int) -> float:
    """Operations of a forward pass over one recording, without heads: its convolutions over samples, the projection of
    F frames, the convolution over positions, and the layers."""
    flops, length, inputs = 0.0, samples, 1
    for outputs, kernel, stride in zip(model.channels, model.kernels, model.strides, strict=True):
        length = (length - kernel) // stride + 1
        flops += 2 * length * kernel * inputs * outputs
        inputs = outputs
    positions = model.position_kernel * model.dim**2 / model.position_groups
    return flops + 2 * length * (inputs * model.dim + positions) + forward_flops(model, length, 0)


def parameters(model: Encoder, length: int = 512, segments: int = 2) -> int:
    """Number of parameters of a BERT with a masked-token head, `length` positions and `segments` segments."""
    attention = 4 * (model.dim**2 + model.dim)
    feedforward = 2 * model.dim * model.hidden + model.hidden + model.dim
    norms = 2 * 2 * model.dim
    embedding = (model.vocabulary + length + segments) * model.dim + 2 * model.dim
    head = model.dim**2 + 3 * model.dim + model.vocabulary
    return model.layers * (attention + feedforward + norms) + embedding + head


@dataclass(frozen=True)
class Cluster:
    """Equal processes and the network between them.

    flops      operations a second that a process reaches in practice, not the peak of its processor
    bandwidth  bytes a second that a process sends while it receives as many
    latency    seconds until the first byte arrives
    fixed      seconds of a step that do not shrink with more processes, such as the update of the weights
    overlap    largest share of the exchange that overlaps with the backward pass
    """

    flops: float
    bandwidth: float
    latency: float = 0.0
    fixed: float = 0.0
    overlap: float = 0.0

    def all_reduce(self, size: float, processes: int) -> float:
        """Seconds of a ring all-reduce of `size` bytes (Patarasuk & Yuan 2009): 2 (N - 1) messages of size / N
        bytes."""
        return 2 * (processes - 1) * (size / processes / self.bandwidth + self.latency)

    def shard_exchange(self, size: float, processes: int, passes: int = 1) -> float:
        """Seconds of the exchange of a step whose weights of `size` bytes are sharded (Rajbhandari et al. 2020, ZeRO,
        section VII.B): each pass gathers them before its forward and again before its backward pass, and the last one
        scatters the sums of the gradients."""
        return (2 * passes + 1) * (processes - 1) * (size / processes / self.bandwidth + self.latency)

    def step(self, flops: float, size: float, processes: int) -> float:
        """Seconds of a step of `flops` operations over all processes, whose gradients take `size` bytes."""
        compute = flops / self.flops / processes
        exchange = self.all_reduce(size, processes)
        hidden = min(self.overlap * exchange, compute * 2 / 3)  # the backward pass is two thirds
        return compute + exchange - hidden + self.fixed
