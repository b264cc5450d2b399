"""SignalModel: records of sensors in, a state for each segment out; the base of the pages that read signals.

Shapes: B rows, T places of a row, R records, K segments of the longest, L leads, S samples of a segment, M places, D
width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import Model, ModelConfig
from unmask.models.speech_model import recordings
from unmask.models.stack_model import StackModel
from unmask.nn import Classifier
from unmask.nn.sequences import Sequences
from unmask.types import Batch, Head


@dataclass(frozen=True, kw_only=True)
class SignalConfig(ModelConfig):
    """The base of the configs of models that read signals.

    rate   samples a second
    leads  L, numbers of a sample: the leads of an electrocardiogram, the channels of a sensor
    vocabulary, length, padding  no vocabulary, no limit and no padding
    """

    rate: int = 300
    leads: int = 1
    vocabulary: int = 0
    length: int | None = None
    padding: int | None = None

    @property
    @abstractmethod
    def segment(self) -> int:
        """S, the samples that one state stands for."""

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"signals"})

    @abstractmethod
    def assemble(self, heads: Mapping[str, nn.Module]) -> Model:
        """A model with these heads."""

    def token_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs)

    def sequence_head(self, head: Head, token: nn.Embedding | None) -> nn.Module:
        return Classifier(self.width, head.outputs)

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> Model:
        """As `ModelConfig.build`; the default has no heads. The summary of a record has no pooler."""
        model = self.assemble({name: head_of(self, head) for name, head in (heads or {}).items()})
        if seed is not None:
            self.initialise(model, seed)
        return model


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Where a model looked: weights of attention, for each of the records R of a batch in the order of the batch.

    beats   [R, K, F, P]: of the places of the convolution in each segment and band, which add up to 1
    rhythm  [R, K, F]: of the segments; 0 behind the end of a record
    bands   [R, F]: of the bands
    """

    beats: Tensor
    rhythm: Tensor
    bands: Tensor

    @property
    def segments(self) -> Tensor:
        """[R, K, F]: the weight of each segment in each band; of a record they add up to 1."""
        return self.rhythm * self.bands[:, None]

    @property
    def places(self) -> Tensor:
        """[R, K, P]: the weight of each place of the convolution, over all bands; of a record they add up to 1."""
        return (self.beats * self.segments[..., None]).sum(2)


class RecordSummaries(StackModel):
    """A model whose heads for sequences read a mean over the segments of a record."""

    @property
    def sequences_apart(self) -> bool:
        """In evaluation mode, as a frozen trunk is; in training, batch normalisation mixes the records of a batch."""
        return True

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The mean state of each record that holds one of these places, [M, D]."""
        x_MKD, length_M = recordings(hidden_BTD, places_M, batch)
        return x_MKD.sum(1) / length_M[:, None]


class SignalModel(RecordSummaries):
    """Reads records one by one, however they are packed: it puts their segments together again."""

    config: SignalConfig

    @abstractmethod
    def states(self, samples_RLN: Tensor, lengths_R: Tensor) -> Tensor:
        """Samples [R, L, K * S] -> [R, K, D].

        samples_RLN  zero after the end of each record
        lengths_R    the segments of each, descending
        """

    def forward(self, batch: Batch) -> Tensor:
        """[B, T, D]: the states at the places of the segments, zero at padding. Raises UnmaskError for a batch without
        signals, and for segments of another size."""
        sequences, samples_RLN = self.records(batch)
        return sequences.pack(self.states(samples_RLN, sequences.lengths))

    def records(self, batch: Batch) -> tuple[Sequences, Tensor]:
        """The places of the records of a batch, and their samples [R, L, K * S]. Raises UnmaskError as `forward`."""
        signal, page = batch.signal, self.config
        if signal is None:
            raise UnmaskError("This model reads signals, but the batch has only tokens.")
        if signal.lengths is not None or signal.values.shape[1:] != (page.leads * page.segment,):
            raise UnmaskError(
                f"Records must have segments of {page.segment} samples of {page.leads} leads for this model: prepare "
                "them by its processor."
            )
        sequences = Sequences.of(torch.ones_like(batch.tokens) if batch.documents is None else batch.documents)
        rows_NV = signal.values.new_zeros(batch.tokens.numel(), signal.values.shape[1])
        rows_NV = rows_NV.index_copy(0, signal.places, signal.values)
        segments_RKV = sequences.unpack(rows_NV.unflatten(0, batch.tokens.shape))
        return sequences, segments_RKV.unflatten(2, (page.leads, page.segment)).transpose(1, 2).flatten(2)


def is_real(lengths_R: Tensor, K: int) -> Tensor:
    """[R, K] bool: which of the places of each record come before its end."""
    return torch.arange(K, device=lengths_R.device) < lengths_R[:, None]
