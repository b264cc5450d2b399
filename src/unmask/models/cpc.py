"""CPC: a recurrent network over frames of recordings, which predicts the next frames (van den Oord et al. 2018).

Shapes: B rows, T frames of a row, C channels of a frame, D width, M places, K steps ahead, N recordings, S frames of
the longest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.speech_model import SpeechModel
from unmask.nn import Classifier, Recurrent, RecurrentLayer, RecurrentStack, Stack
from unmask.nn.initialise import uniform_linear, xavier_gates
from unmask.nn.recording_heads import ProjectedClassifier, Prototypes
from unmask.nn.recordings import Convolutions, Frames, PlaceNorm, StridedConvolution, reach
from unmask.nn.sequences import Sequences
from unmask.types import Batch, Head, Signal


@dataclass(frozen=True, kw_only=True)
class Cpc(ModelConfig):
    """The numbers that make a CPC; the defaults are those of the paper for 16 kHz (section 3.1): a frame every 10 ms.

    channels, kernels, strides  of the convolutions from samples to frames
    conv_norm   "layer": each place is normalised after each convolution, which trains faster (Rivière et al. 2020,
                section 3.1); "none" as in the paper
    dim         D, width of the hidden states       layers  number of recurrent layers
    cell        "gru", "lstm" or "rnn"              dropout  on the hidden states
    projection  width of the layer before the outputs of a recording
    vector      numbers of the vector of a recording
    vocabulary, length, padding  no vocabulary, no limit and no padding

    Raises UnmaskError for different numbers of channels, kernels and strides.
    """

    channels: tuple[int, ...] = (512,) * 5
    kernels: tuple[int, ...] = (10, 8, 4, 4, 4)
    strides: tuple[int, ...] = (5, 4, 2, 2, 2)
    conv_norm: Literal["layer", "none"] = "layer"
    dim: int = 256
    layers: int = 1
    cell: Literal["rnn", "lstm", "gru"] = "gru"
    dropout: float = 0.0
    projection: int = 256
    vector: int = 256
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    def __post_init__(self) -> None:
        if not len(self.channels) == len(self.kernels) == len(self.strides) > 0:
            raise UnmaskError("channels, kernels and strides must have one number for each convolution.")

    @property
    def hop(self) -> int:
        """Samples from the beginning of a frame to that of the next one."""
        return reach(self.kernels, self.strides)[0]

    @property
    def window(self) -> int:
        """Samples that a frame depends on."""
        return reach(self.kernels, self.strides)[1]

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"recordings", "frame states", "next frames"})

    @property
    def width(self) -> int:
        return self.dim

    def in_folder(self, heads: Mapping[str, Head]) -> ModelConfig:
        """The numbers of outputs that the fields of a folder state."""
        vector = next((head.outputs for head in heads.values() if head.kind == "embedding" and head.outputs), None)
        return self if vector is None else self.replace(vector=vector)

    def embedding(self) -> FrameReader:
        """z = g_enc(x): strided convolutions with ReLU."""
        sizes = zip((1, *self.channels), self.channels, self.kernels, self.strides, strict=False)
        return FrameReader(Convolutions([self._layer(*size) for size in sizes]))

    def _layer(self, inputs: int, outputs: int, kernel: int, stride: int) -> StridedConvolution:
        norm = PlaceNorm(outputs) if self.conv_norm == "layer" else None
        return StridedConvolution(inputs, outputs, kernel, stride, bias=True, norm=norm, activation=torch.relu)

    def stack(self) -> RecurrentStack:
        """c = g_ar(z): recurrent layers."""
        widths = [self.channels[-1]] + [self.dim] * (self.layers - 1)
        return RecurrentStack([RecurrentLayer(Recurrent(self.cell, width, self.dim), self.dropout) for width in widths])

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.dim, head.outputs)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return ProjectedClassifier(self.dim, self.projection, head.outputs)

    embedding_head = sequence_head

    def prototypes_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Prototypes(self.vector, head.outputs)

    def predictions_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Predictions(self.dim, self.channels[-1], head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; by default there are no heads. They read frames or their mean, so there is no
        pooler."""
        made = {name: head_of(self.in_folder(heads or {}), head) for name, head in (heads or {}).items()}
        model = CpcModel(self, self.embedding(), self.stack(), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Convolutions by their inputs (He et al. 2015, forward form), Xavier's uniform for the matrices of each gate,
        and the default of PyTorch for linear layers."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, StridedConvolution):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(part.bias)
            elif isinstance(part, Recurrent):
                xavier_gates(part, generator)
            elif isinstance(part, nn.Linear):
                uniform_linear(part, generator)


class FrameReader(Frames):
    """The input of a recurrent network over frames: the frames."""

    def forward(
        self, tokens_BT: Tensor, documents_BT: Tensor | None = None, signal: Signal | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """[B, T] -> the frames [B, T, C], and what `frames` returns."""
        found = self.frames(tokens_BT, signal)
        return found[0], found


class Predictions(nn.Linear):
    """W_k c for k = 1 ... K (equation 3)."""

    def __init__(self, dim: int, channels: int, steps: int) -> None:
        super().__init__(dim, steps * channels, bias=False)
        self.steps = steps

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """[M, D] -> [M, K, C]."""
        return super().forward(hidden_MD).unflatten(-1, (self.steps, -1))


class CpcModel(SpeechModel):
    """Reads recordings, packed or padded in any way; the state of a frame depends on it and on those before it."""

    stack: RecurrentStack

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states [B, T, D], zero at padding. Raises UnmaskError as `SpeechModel.forward`."""
        return self._states(batch)[-1]

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """The frames [B, T, C], and the outputs of each layer [B, T, D]."""
        return self._states(batch)

    def _states(self, batch: Batch) -> list[Tensor]:
        x_BTC, _ = self.embedding(batch.tokens, batch.documents, batch.signal)
        sequences = None if batch.documents is None else Sequences.of(batch.documents)
        states_NSD = [x_BTC if sequences is None else sequences.unpack(x_BTC)]
        for block in self.stack.blocks:
            # What lies behind the end of a recording is read, too, which changes nothing before it and is faster.
            states_NSD.append(block(states_NSD[-1])[0])
        return states_NSD if sequences is None else [x_BTC, *map(sequences.pack, states_NSD[1:])]

    @property
    def causal(self) -> bool:
        return True

    @property
    def transformer(self) -> Stack | None:
        return None
