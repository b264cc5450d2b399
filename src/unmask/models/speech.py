"""SpeechEncoder: a Transformer over frames of recordings, whose parts wav2vec 2.0, HuBERT and others share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.speech_model import SpeechModel
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Block,
    Classifier,
    FeedForward,
    LayerDrop,
    Residual,
    Stack,
    truncated_normal,
)
from unmask.nn.clusters import ClusterHead
from unmask.nn.initialise import uniform_linear
from unmask.nn.recording_heads import LayerMix, ProjectedClassifier, Prototypes, XVector
from unmask.nn.recordings import Features, FrameEmbedding, PositionalConvolution
from unmask.types import Head

OFFERS = frozenset({"recordings", "masked frames", "frame states", "clusters"})
"""What all of these pages offer."""


@dataclass(frozen=True, kw_only=True)
class SpeechEncoder(ModelConfig):
    """The numbers that make a Transformer over frames; the defaults are those of wav2vec 2.0 base. A page adds `front`,
    the layers from samples to frames.

    position_kernel, position_groups  of the convolution over positions
    conv_activation     after convolutions
    dim                 D, width of the hidden states      layers  number of blocks
    heads               H, attention heads of each         hidden  width inside the feed-forward
    pre_norm            whether norms come before the sub-layers and after the last block; else after each sub-layer
    dropout             after the embedding and sub-layers  feature_dropout     on projected features
    attention_dropout   on attention weights               activation_dropout  inside the feed-forward
    head_dropout        before the outputs of frames       std   of the initialisation
    layer_drop          share of the blocks that training skips (`LayerDrop`)
    hides               whether it has a vector for masked frames
    mixes               whether heads read a learned mean of all layers instead of the last one
    compared            width of the vectors that pre-training compares
    projection          width of the layer before classes of a recording
    delay_dims, delay_kernels, delay_dilations  of the layers of x-vectors; vector  numbers of an x-vector
    vocabulary, padding  characters that a recogniser writes, and the one for none (the blank of CTC)
    length              follows: any length

    Raises UnmaskError for layers of x-vectors with different numbers.
    """

    position_kernel: int = 128
    position_groups: int = 16
    conv_activation: ActivationName = "gelu"
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3_072
    activation: ActivationName = "gelu"
    pre_norm: bool = False
    dropout: float = 0.1
    feature_dropout: float = 0.0
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    head_dropout: float = 0.1
    layer_drop: float = 0.0
    eps: float = 1e-5
    std: float = 0.02
    hides: bool = True
    mixes: bool = False
    compared: int = 256
    projection: int = 256
    delay_dims: tuple[int, ...] = (512, 512, 512, 512, 1_500)
    delay_kernels: tuple[int, ...] = (5, 3, 3, 1, 1)
    delay_dilations: tuple[int, ...] = (1, 2, 3, 1, 1)
    vector: int = 512
    vocabulary: int = 32
    length: int | None = None
    padding: int | None = 0

    def __post_init__(self) -> None:
        same_number(self, "delay_dims", "delay_kernels", "delay_dilations")

    @property
    @abstractmethod
    def hop(self) -> int:
        """Samples from the beginning of a frame to that of the next one."""

    @property
    @abstractmethod
    def window(self) -> int:
        """Samples that a frame depends on."""

    @abstractmethod
    def front(self) -> Features:
        """The layers from samples to the features of frames."""

    @property
    def width(self) -> int:
        return self.dim

    def in_folder(self, heads: Mapping[str, Head]) -> ModelConfig:
        """The numbers of outputs that the fields of a folder state."""
        fields = {"token": "vocabulary", "embedding": "vector", "quantised": "compared"}
        outputs = {fields[head.kind]: head.outputs for head in heads.values() if head.kind in fields and head.outputs}
        return self.replace(**outputs)

    def norm(self) -> nn.LayerNorm:
        return nn.LayerNorm(self.dim, self.eps)

    def embedding(self) -> FrameEmbedding:
        """Frames, masked frames and positions."""
        activation = ACTIVATIONS[self.conv_activation]
        return FrameEmbedding(
            self.front(),
            PositionalConvolution(self.dim, self.position_kernel, self.position_groups, activation),
            hides=self.hides,
            eps=self.eps,
            norm=None if self.pre_norm else self.norm(),
            dropout=(self.feature_dropout, self.dropout),
        )

    def block(self) -> Block:
        """Post-norm as in the Transformer, or pre-norm."""
        attention = Attention(self.dim, self.heads, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, ACTIVATIONS[self.activation], dropout=self.activation_dropout)
        return Block(self._residual(attention), self._residual(feedforward))

    def _residual(self, f: nn.Module) -> Residual:
        if self.pre_norm:
            return Residual(f, before=self.norm(), dropout=self.dropout)
        return Residual(f, after=self.norm(), dropout=self.dropout)

    def stack(self) -> Stack:
        norm = self.norm() if self.pre_norm else None
        return Stack([self.block() for _ in range(self.layers)], norm=norm, skip=LayerDrop(self.layer_drop))

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """Classes of a frame, such as the characters of CTC."""
        return Classifier(self.dim, head.outputs, 0.0 if head.pretraining else self.head_dropout)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """Classes of a recording, from the mean of its frames."""
        return ProjectedClassifier(self.dim, self.projection, head.outputs)

    def embedding_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return XVector(self.dim, self.delay_dims, self.delay_kernels, self.delay_dilations, head.outputs)

    def clusters_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The cosine of a state and a vector for each cluster (Hsu et al. 2021, equation 3)."""
        return ClusterHead(self.dim, head.outputs, width=self.compared)

    def prototypes_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Prototypes(self.vector, head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; by default there are no heads. They read frames or their mean, not a pooler."""
        made = {name: head_of(self.in_folder(heads or {}), head) for name, head in (heads or {}).items()}
        mix = LayerMix(self.layers + 1) if self.mixes else None
        model = SpeechModel(self, self.embedding(), self.stack(), heads=made, mix=mix)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """As the authors: normal weights, those of convolutions by their inputs (He et al. 2015, forward form); the
        projection of features by the default of PyTorch; the MASK vector uniform in [0, 1). Their code draws the
        weights of positions before it normalises them, and so does this."""
        generator = torch.Generator().manual_seed(seed)
        truncated_normal(module, self.std, generator)
        for part in module.modules():
            if isinstance(part, FrameEmbedding):
                uniform_linear(part.project, generator)
                if part.mask is not None:
                    nn.init.uniform_(part.mask, generator=generator)
            elif isinstance(part, (PositionalConvolution, LayerMix, Features, ClusterHead)):
                part.initialise(generator)


def same_number(page: ModelConfig, *names: str) -> None:
    """Raises UnmaskError unless these fields have one positive number for each of the same number of layers."""
    values = [getattr(page, name) for name in names]
    if len({len(x) for x in values}) > 1 or not values[0] or min(map(min, values)) < 1:
        raise UnmaskError(f"{', '.join(names)} must have one positive number for each layer.")
