"""CPC: predict the next frames of a recording, each told from the others of the recording (van den Oord et al. 2018).

`NextPlaces` is the objective for items of any kind, whose places are frames or segments.

Shapes: B rows, T frames of a row, M frames that are predicted from, N recordings, A frames of a recording that are
predicted from, S frames of the longest recording, K steps ahead, C channels of a frame, D width of a hidden state.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.nn.sequences import Sequences
from unmask.objectives.crops import Crops
from unmask.objectives.objective import Term
from unmask.objectives.recordings import RecordingConfig, RecordingObjective, recordings_of
from unmask.types import Batch, Head, Loss, Target

AT_ONCE = 16  # recordings that are compared at once, which bounds the memory
NOTHING = 0.02
"""Share of the loss of guessing by which a run must be below it, or it has learned nothing."""


class NextPlaces(Crops):
    """InfoNCE (equation 4): from the state c_t of the places up to t, the place z_(t+k) is told from all places of the
    item, for k = 1 ... K, by f_k(z, c) = exp(z · W_k c) (equation 3). The model has `forward_with_frames`.

    steps        K
    place, item  the names of a place and of an item in sentences

    All places of the item are compared, not a sample of them, so that the loss has no noise of its own; "current
    sequence only" of table 2. Places without K places after them are not predicted from: an item of at most K places
    has no targets. Raises UnmaskError for a number of steps below 1.
    """

    place: str
    item: str

    def __init__(self, processor: Any, *, steps: int) -> None:
        if steps < 1:
            raise UnmaskError(f"At least 1 step ahead must be predicted, not {steps}.")
        self.processor, self.steps = processor, steps
        self.heads = {self.name: Head("predictions", steps, pretraining=True)}

    @abstractmethod
    def extents(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """For each item of packed rows, in ascending order, the flat place where it begins [N], and its number of
        places [N]."""

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The targets are the places that are predicted from; their values, the places of their items, which give the
        loss of guessing."""
        begins_N, frames_N = self.extents(batch)
        counts_N = np.maximum(frames_N - self.steps, 0)
        parts = [np.arange(a, a + n) for a, n in zip(begins_N, counts_N, strict=True)]
        places_M = np.concatenate([np.empty(0, np.int64), *parts])
        values_M = np.repeat(frames_N, counts_N)
        return batch.with_targets(**{self.name: Target(torch.from_numpy(places_M), torch.from_numpy(values_M))})

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        batch = batch.asking(self.weights)
        hidden_BTD, frames_BTC, _ = model.forward_with_frames(batch)
        return {self.name: self.contrast(model, hidden_BTD, frames_BTC, batch)}

    def contrast(self, model: Model, hidden_BTD: Tensor, frames_BTC: Tensor, batch: Batch) -> Loss:
        """Equation 4, as the mean over the K steps, summed over the M frames. `correct` is the share of the steps whose
        frame is the most similar one; `correct_1` and `correct_K` are those of the first and of the last step, and
        `guessing` is the loss where all frames are equally similar."""
        target = batch.targets[self.name]
        nll_MK, correct_MK = self._compared(model, hidden_BTD, frames_BTC, batch)
        shares_K = correct_MK.float().sum(0)
        return Loss(
            nll_MK.mean(1).sum(),
            len(nll_MK),
            {
                "correct": shares_K.mean(),
                "correct_1": shares_K[0],
                "correct_K": shares_K[-1],
                "guessing": target.values.float().log().sum(),
            },
        )

    def _compared(self, model: Model, hidden_BTD: Tensor, frames_BTC: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """`info_nce` at the targets of the batch."""
        places_M = batch.targets[self.name].places
        predicted_MKC = model.answer(self.name, hidden_BTD, places_M, batch)
        documents_BT = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
        return info_nce(predicted_MKC, frames_BTC, places_M, documents_BT)

    def told(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Frames one step ahead, and whether each was told from the others."""
        hidden_BTD, frames_BTC, _ = model.forward_with_frames(batch)
        _, correct_MK = self._compared(model, hidden_BTD, frames_BTC, batch)
        return batch.targets[self.name].places + 1, correct_MK[:, 0]

    def concerns(self, found: Mapping[str, float]) -> list[str]:
        loss, guessing = found.get(f"loss/{self.name}"), found.get(f"{self.name}/guessing")
        if loss is None or guessing is None or loss < (1 - NOTHING) * guessing:
            return []
        return [
            f"The {self.place}s are told apart no better than by guessing (loss {loss:.2f}, guessing {guessing:.2f}): "
            "lower --lr, lengthen the warm-up, or train longer."
        ]

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"{self.name}/correct" not in found:
            return []
        of = {name: found[f"{self.name}/{name}"] for name in ("correct_1", "correct_K", "guessing")}
        return [
            f"Held-out {self.item}s: the next {self.place} was told from the others of its {self.item} in "
            f"{of['correct_1']:.1%} "
            f"of the cases, the one {self.steps} steps ahead in {of['correct_K']:.1%} (guessing: "
            f"{math.exp(-of['guessing']):.1%}). The loss is {found[f'loss/{self.name}']:.2f} (guessing: "
            f"{of['guessing']:.2f}).",
            *self.concerns(found),
        ]


def shown(places: str) -> tuple[tuple[str, str], ...]:
    """The further values of the loss term, for the report."""
    return (
        ("correct_1", f"{places}: accuracy of the first step ahead"),
        ("correct_K", f"{places}: accuracy of the last step ahead"),
    )


class ContrastivePrediction(NextPlaces, RecordingObjective):
    """The next frames of recordings."""

    name, place, item = "prediction", "frame", "recording"
    asked = "next frames"
    terms = (Term("prediction", "next frames", more=shown("Next frames")),)
    head_labels = (("prediction", "next-frame"),)

    def extents(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        return recordings_of(batch, self.processor)


def info_nce(
    predicted_MKC: Tensor, frames_BTC: Tensor, places_M: Tensor, documents_BT: Tensor
) -> tuple[Tensor, Tensor]:
    """-log f_k(z_(t+k), c_t) / sum_s f_k(z_s, c_t) [M, K], with s over all frames of the recording of t; and whether no
    frame is more similar than z_(t+k) [M, K].

    predicted_MKC  W_k c_t
    places_M       t: ascending flat places with K more frames of the recording after each
    documents_BT   as in `Batch`
    """
    K, C = predicted_MKC.shape[1:]
    row_B1 = torch.arange(len(documents_BT), device=places_M.device)[:, None]
    numbers_BT = torch.where(documents_BT > 0, row_B1 * (documents_BT.max() + 1) + documents_BT, 0)
    recordings = Sequences.of(numbers_BT.view(1, -1))
    with exactly(predicted_MKC):
        frames_NSC = recordings.unpack(frames_BTC.float().view(1, -1, C))
        flat = predicted_MKC.new_zeros(documents_BT.numel(), K * C, dtype=torch.float32)
        flat = flat.index_copy(0, places_M, predicted_MKC.flatten(1).float())
        predicted_NSKC = recordings.unpack(flat[None]).unflatten(-1, (K, C))
        parts = zip(*(x.split(AT_ONCE) for x in (predicted_NSKC, frames_NSC, recordings.lengths)), strict=True)
        found = [_of_recordings(*part) for part in parts]
    chosen = torch.searchsorted(recordings.places, places_M)
    owners_M, steps_M = recordings.owners[chosen], recordings.steps[chosen]
    S = frames_NSC.shape[1]
    nll_NSK, correct_NSK = (
        torch.cat([F.pad(x, (0, 0, 0, S - x.shape[1])) for x in xs]) for xs in zip(*found, strict=True)
    )
    return nll_NSK[owners_M, steps_M], correct_NSK[owners_M, steps_M]


def _of_recordings(predicted_nSKC: Tensor, frames_nSC: Tensor, lengths_n: Tensor) -> tuple[Tensor, Tensor]:
    """As `info_nce`, for some recordings of similar lengths, the longest first: [n, L, K] with L its length. A frame
    without K frames after it has a meaningless value."""
    K, L = predicted_nSKC.shape[2], int(lengths_n[0])
    steps_L = torch.arange(L, device=lengths_n.device)
    logits_nLKL = torch.einsum("nskc,ntc->nskt", predicted_nSKC[:, :L], frames_nSC[:, :L])
    logits_nLKL = logits_nLKL.masked_fill((steps_L >= lengths_n[:, None])[:, None, None], float("-inf"))
    next_LK = (steps_L[:, None] + torch.arange(1, K + 1, device=steps_L.device)).clamp(max=L - 1)
    own_nLK = logits_nLKL.gather(-1, next_LK[None, ..., None].expand(len(lengths_n), L, K, 1)).squeeze(-1)
    return logits_nLKL.logsumexp(-1) - own_nLK, own_nLK == logits_nLKL.amax(-1)


@dataclass(frozen=True, kw_only=True)
class ContrastivePredictionConfig(RecordingConfig):
    """Predict the next frames of a recording, each told from the others, as CPC does.

    steps_ahead  number of next frames that are predicted from each frame
    """

    steps_ahead: int = 12

    kind: ClassVar[str] = "next frames"
    learned: ClassVar[str] = "the next frames of recordings"
    example: ClassVar[str] = "cpc-tiny"
    objective = ContrastivePrediction
    requires: ClassVar[frozenset[str]] = frozenset({"recordings", "next frames"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"prediction"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("frames", "next"),)

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        return ContrastivePrediction(processor, steps=self.steps_ahead)
