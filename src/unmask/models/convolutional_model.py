"""ConvolutionalModel: pictures in, the last feature map out; the base of ResNet and VGG.

Shapes: B rows, T places of a row, M pictures, C channels, S pixels of a side, G places of a side of the last feature
map, N = G * G places of a picture, D width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.stack_model import StackModel
from unmask.nn import Classifier
from unmask.nn.feature_maps import pictures
from unmask.nn.initialise import rectified_normal
from unmask.nn.windows import Stages
from unmask.types import Batch, Head, Kind, Signal


@dataclass(frozen=True, kw_only=True)
class ConvolutionalConfig(ModelConfig):
    """The base of the configs of convolutional networks.

    size      pixels of a side of a picture; the weights fit any size
    channels  numbers of a pixel: 3, or 1 for grey
    vocabulary, length, padding  follow from the others: it has no vocabulary, and a place for each place of the last
              feature map

    A patch is the square of pixels that one place of the last feature map stands for, its stride. A convolution sees
    beyond it: the model puts the picture together again.
    """

    size: int = 224
    channels: int = 3
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    summaries: ClassVar[tuple[Kind, ...]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", self.grid**2)

    @property
    @abstractmethod
    def patch(self) -> int:
        """Pixels of a side that one place of the last feature map stands for."""

    @property
    def grid(self) -> int:
        """G."""
        return -(-self.size // self.patch)

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"pictures", "projections"})

    @abstractmethod
    def embedding(self) -> nn.Module:
        """The first layers, [M, C, S, S] -> [M, D, H, W], which are frozen last."""

    @abstractmethod
    def stack(self) -> Stages:
        """The stages, to [M, D, G, G]."""

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs)

    def embedding_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """The layer of a classifier, whose outputs are the numbers of a vector."""
        return self.sequence_head(head, token)

    def projection_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        """W2 relu(W1 h) (Chen et al. 2020, section 2.1)."""
        return nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU(), nn.Linear(self.width, head.outputs))

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default has no heads. Heads read a mean, so that there is never a pooler."""
        made = {name: head_of(self, head) for name, head in (heads or {}).items()}
        model = ConvolutionalModel(self, self.embedding(), self.stack(), heads=made)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights for layers with ReLU (He et al. 2015); biases zero."""
        rectified_normal(module, torch.Generator().manual_seed(seed))


class ConvolutionalModel(StackModel):
    """Reads pictures one by one, however they are packed; the state of a patch is that of its place in the last feature
    map."""

    config: ConvolutionalConfig

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, D]: the last feature map at the places of the patches, zero at padding. Raises UnmaskError for a batch
        without pictures, and for pictures of another size."""
        page, signal = self.config, _signal(batch)
        N = page.grid**2
        if len(signal.places) % N or signal.values.shape[1:] != (page.channels * page.patch**2,):
            raise UnmaskError(
                f"Pictures must have {N} patches of {page.patch} pixels and {page.channels} channels for this model: "
                "prepare them by its image processor."
            )
        pixels_MCSS = pictures(signal.values, page.channels, page.patch, page.size)
        pixels_MCSS = pixels_MCSS.contiguous(memory_format=torch.channels_last)  # the faster layout on most processors
        map_MDGG: Tensor = self.stack(self.embedding(pixels_MCSS))
        states_PD = map_MDGG.flatten(2).transpose(1, 2).flatten(0, 1)
        rows_D = states_PD.new_zeros(batch.tokens.numel(), states_PD.shape[-1])
        return rows_D.index_copy(0, signal.places, states_PD).unflatten(0, batch.tokens.shape)

    @property
    def sequences_apart(self) -> bool:
        """In evaluation mode, as a frozen trunk is; in training, batch normalisation mixes the pictures of a batch."""
        return True

    def head_inputs(self, name: str, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None = None) -> Tensor:
        """All heads read summaries of pictures, [M, D]."""
        return self.summary(hidden_BTD, places_M, batch)

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean of the last feature map (global average pooling) of each picture that holds one of these places,
        [M, D]; a class token before the patches belongs to their picture. Without a batch, each row is one picture."""
        N, T = self.config.grid**2, hidden_BTD.shape[1]
        first_M = places_M // T * T
        if batch is not None:
            ends = _signal(batch).places[N - 1 :: N].contiguous()
            first_M = ends[torch.searchsorted(ends, places_M.contiguous())] - (N - 1)
        inside_MN = first_M[:, None] + torch.arange(N, device=places_M.device)
        return hidden_BTD.flatten(0, 1)[inside_MN].mean(1)


def _signal(batch: Batch) -> Signal:
    if batch.signal is None:
        raise UnmaskError("This model reads raw values, such as pixels or samples, but the batch has only tokens.")
    return batch.signal
