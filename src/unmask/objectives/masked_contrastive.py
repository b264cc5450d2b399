"""wav2vec 2.0: recognise the quantised frame at each masked place among others of the recording (Baevski et al. 2020).

Shapes: B rows, T frames of a row, M masked frames, N recordings with masked frames, S masked frames of the recording
with the most, K negatives, C channels of a frame, P width of the vectors that are compared, G codebooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.nn.quantiser import Quantised
from unmask.nn.sequences import Sequences
from unmask.objectives.crops import check_spans
from unmask.objectives.objective import Term
from unmask.objectives.recordings import RecordingConfig, RecordingObjective, masked_spans, recordings_of
from unmask.types import Batch, Head, Loss, Target

COLLAPSED = 2.0  # perplexity of a codebook below which it has collapsed: nearly all frames get the same entry
SHOWN = (
    ("perplexity_1", "Perplexity of the first codebook"),
    ("perplexity_2", "Perplexity of the second codebook"),
    ("used", "Share of the entries that are used"),
)


class Annealing(NamedTuple):
    """The temperature of the Gumbel noise: start * decay^step, at least `end`."""

    start: float
    end: float
    decay: float

    def at(self, step: int) -> float:
        """The temperature of the update number `step`, from 0."""
        return max(self.end, self.start * self.decay**step)


class MaskedContrastive(RecordingObjective):
    """L = L_m + alpha L_d + penalty (equations 2 to 4, and the authors' code): for each masked frame, the model finds
    the quantised frame among K others of the same recording; the entries of the codebooks are used evenly; the outputs
    of the convolutions stay small.

    share, span  of the masked frames (`spans`)
    negatives    K, drawn uniformly from the other masked frames of the recording, with repetition
    temperature  divides cosine similarities (kappa)
    diversity    weight of the diversity of entries (alpha)
    penalty      weight of the mean square of the convolutions' outputs
    projection   P
    annealing    temperature of the Gumbel noise

    The negatives come with the batch, so they are the same in a resumed run and in every evaluation. The diversity is
    one of a micro-batch: it depends on --micro-batch and on the number of processes. Raises UnmaskError for numbers out
    of range.
    """

    name = "contrastive"
    terms = (
        Term("contrastive", "masked frames", more=SHOWN),
        Term("diversity", "unused entries of the codebooks"),
        Term("features", "size of the features"),
    )
    head_labels = (("contrastive", "masked-frame"),)

    def __init__(
        self,
        processor: RecordingProcessor,
        *,
        share: float,
        span: int,
        negatives: int,
        temperature: float,
        diversity: float,
        penalty: float,
        projection: int,
        annealing: Annealing,
    ) -> None:
        check_spans(share, span)
        if negatives < 1 or projection < 1:
            raise UnmaskError("The number of negatives and the width of the projection must be at least 1.")
        if not temperature > 0 or not annealing.start >= annealing.end > 0 or not 0 < annealing.decay <= 1:
            raise UnmaskError(
                "Temperatures must be above 0, and that of the noise falls from its start to its end by a factor of "
                "at most 1 per step."
            )
        if not (diversity >= 0 and penalty >= 0):
            raise UnmaskError("The weights of the diversity and of the penalty must be 0 or more.")
        self.processor, self.share, self.span = processor, share, span
        self.negatives, self.similarity, self.annealing = negatives, temperature, annealing
        self.noise = annealing.start
        self.heads = {self.name: Head("quantised", projection, pretraining=True)}
        self._weights = {self.name: 1.0, "diversity": diversity, "features": penalty}

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def on_step(self, step: int, total: int) -> None:
        self.noise = self.annealing.at(step)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Mask spans. The target of a masked frame has the K negatives [M, K], as distances from it among the masked
        frames of its recording; so they are valid wherever its row goes."""
        masked, found = masked_spans(batch, self.processor, self.share, self.span, rng)
        offsets_MK = [negatives(len(places), self.negatives, rng) for places in found]
        places_M = torch.from_numpy(np.concatenate(found))
        begins_N, frames_N = recordings_of(batch, self.processor)
        every = torch.from_numpy(np.concatenate([np.arange(a, a + n) for a, n in zip(begins_N, frames_N, strict=True)]))
        return masked.with_targets(
            contrastive=Target(places_M, torch.from_numpy(np.concatenate(offsets_MK))),
            diversity=Target(places_M, places_M),
            features=Target(every, every),
        )

    def loss(self, model: Any, batch: Batch) -> dict[str, Loss]:
        batch = batch.asking(self.weights)
        hidden_BTD, frames_BTC, features_BTC = model.forward_with_frames(batch)
        places_M, every = batch.targets[self.name].places, batch.targets["features"].places
        quantised = model.heads[self.name].quantise(frames_BTC.flatten(0, 1)[places_M], self.noise)
        unused = (1 - quantised.perplexity.mean() / quantised.entries) * len(places_M)
        size = features_BTC.flatten(0, 1)[every].float().square().mean(-1).sum()
        return {
            self.name: self.contrast(model, hidden_BTD, batch, quantised),
            "diversity": Loss(unused, len(places_M)),
            "features": Loss(size, len(every)),
        }

    def contrast(self, model: Model, hidden_BTD: Tensor, batch: Batch, quantised: Quantised) -> Loss:
        """Equation 3, summed over masked frames. `correct` counts those that are more similar to their own quantised
        frame than to all negatives; one that equals all its negatives is not correct. `chance` is what guessing gives:
        a short recording has fewer masked frames than negatives. `perplexity_g` of each codebook and `used`, the share
        of entries that occur, are quantities of the micro-batch, times M."""
        logits_MK, sequences = self._compared(model, hidden_BTD, batch, quantised)
        M = len(logits_MK)
        total = F.cross_entropy(logits_MK, sequences.steps.new_zeros(M), reduction="sum")
        correct_M = _told(logits_MK)
        chance_M = 1 / sequences.lengths[sequences.owners].clamp(max=1 + self.negatives)
        sizes = {f"perplexity_{g}": x * M for g, x in enumerate(quantised.perplexity.detach(), 1)}
        return Loss(
            total, M, {"correct": correct_M.sum(), "chance": chance_M.sum(), **sizes, "used": quantised.used * M}
        )

    def _compared(
        self, model: Model, hidden_BTD: Tensor, batch: Batch, quantised: Quantised
    ) -> tuple[Tensor, Sequences]:
        """The logits [M, 1 + K] of `similarities`, and the masked frames of each recording."""
        target = batch.targets[self.name]
        predicted_MP = model.answer(self.name, hidden_BTD, target.places, batch)
        sequences = Sequences.of(_numbers(batch, target.places)[None])
        offsets_MK = target.values.view(-1, self.negatives)
        return similarities(predicted_MP, quantised, offsets_MK, sequences) / self.similarity, sequences

    def told(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """Masked frames, and whether each was told from its negatives."""
        hidden_BTD, frames_BTC, _ = model.forward_with_frames(batch)
        places_M = batch.targets[self.name].places
        quantised = model.heads[self.name].quantise(frames_BTC.flatten(0, 1)[places_M], self.noise)
        return places_M, _told(self._compared(model, hidden_BTD, batch, quantised)[0])

    def concerns(self, found: Mapping[str, float]) -> list[str]:
        sizes = self._perplexities(found)
        if not sizes or min(sizes) >= COLLAPSED:
            return []
        return [
            f"A codebook has collapsed: its perplexity is {min(sizes):.1f}, so nearly all frames get one entry, and "
            "nothing is left to learn. Raise --diversity or --least-noise, lower --lr, or lengthen the warm-up."
        ]

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        sizes = self._perplexities(found)
        if not sizes:
            return []
        correct, chance, used = (found[f"{self.name}/{metric}"] for metric in ("correct", "chance", "used"))
        return [
            f"Held-out recordings: {correct:.1%} of the masked frames were told from {self.negatives} others of the "
            f"recording (guessing gives {chance:.1%}). Codebook perplexity {' and '.join(f'{x:.1f}' for x in sizes)}; "
            f"{used:.0%} of the entries are used.",
            *self.concerns(found),
        ]

    def _perplexities(self, found: Mapping[str, float]) -> list[float]:
        return [value for name, value in found.items() if name.startswith(f"{self.name}/perplexity_")]


def _told(logits_MK: Tensor) -> Tensor:
    """[M]: whether the first logit is the largest, and not all others are minus infinity."""
    return (logits_MK.argmax(1) == 0) & logits_MK[:, 1:].isfinite().any(1)


def negatives(count: int, number: int, rng: np.random.Generator) -> np.ndarray:
    """[count, number]: for each of `count` masked frames, the distances to other ones, each equally likely."""
    own = np.arange(count)[:, None]
    others = rng.integers(max(count - 1, 1), size=(count, number))
    return others + (others >= own) - own


def similarities(predicted_MP: Tensor, quantised: Quantised, offsets_MK: Tensor, sequences: Sequences) -> Tensor:
    """[M, 1 + K]: the cosine similarity of a predicted vector and the quantised frame at its place, then those with its
    negatives; minus infinity where a negative has the same codes as the frame at its place, which it cannot be told
    from.

    sequences  the masked frames of each recording, as the sequences of a row [1, M]
    """

    def of_recordings(x_MX: Tensor) -> Tensor:
        return sequences.unpack(x_MX[None])

    with exactly(predicted_MP):
        predicted_NSP = of_recordings(F.normalize(predicted_MP.float(), dim=-1))
        quantised_NSP = of_recordings(F.normalize(quantised.vectors.float(), dim=-1))
        similar_NSS = predicted_NSP @ quantised_NSP.mT
    columns_MK = sequences.steps[:, None] + F.pad(offsets_MK, (1, 0))
    similar_MK = similar_NSS[sequences.owners, sequences.steps].gather(1, columns_MK)
    powers_G = quantised.entries ** torch.arange(quantised.codes.shape[1], device=columns_MK.device)
    codes_M = (quantised.codes * powers_G).sum(1)
    others_MK = of_recordings(codes_M[:, None]).squeeze(-1)[sequences.owners].gather(1, columns_MK)
    same_MK = (others_MK == codes_M[:, None]) & (columns_MK != sequences.steps[:, None])
    return similar_MK.masked_fill(same_MK, float("-inf"))


def _numbers(batch: Batch, places_M: Tensor) -> Tensor:
    """[M]: a number, from 1, of the recording that each place belongs to."""
    rows_M = places_M // batch.tokens.shape[1]
    if batch.documents is None:
        return rows_M + 1
    return rows_M * (batch.documents.max() + 1) + batch.documents.flatten()[places_M]


@dataclass(frozen=True, kw_only=True)
class MaskedContrastiveConfig(RecordingConfig):
    """Recognise the quantised frame at each masked place among others of the recording, as wav2vec 2.0 does.

    share       of the frames that masked spans would cover without overlaps; about three quarters of it are masked
    span        frames of a masked span
    negatives   other masked frames that each is compared with
    similarity_temperature  divides cosine similarities (kappa)
    diversity   weight of the even use of the codebooks (alpha)
    penalty     weight of the mean square of the convolutions' outputs; published: 10 for base, 0 for larger models
    projection  width of the vectors that are compared; that of the model, for a run that starts from a folder
    noise       temperature of the Gumbel noise at the start
    least_noise  least temperature of the Gumbel noise
    noise_decay  factor of this temperature for each step
    """

    share: float = 0.65
    span: int = 10
    negatives: int = 100
    similarity_temperature: float = 0.1
    diversity: float = 0.1
    penalty: float = 10.0
    projection: int = 256
    noise: float = 2.0
    least_noise: float = 0.5
    noise_decay: float = 0.999995

    kind: ClassVar[str] = "masked frames"
    learned: ClassVar[str] = "masked frames of recordings"
    example: ClassVar[str] = "wav2vec2-tiny"
    objective = MaskedContrastive
    requires: ClassVar[frozenset[str]] = frozenset({"recordings", "masked frames", "quantised frames"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"contrastive"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("frames", "contrastive"),)

    def model_fields(self, processor: RecordingProcessor) -> dict[str, Any]:
        return {**super().model_fields(processor), "compared": self.projection}

    def of_model(self, model: Any) -> Self:
        return replace(self, projection=getattr(model, "compared", self.projection))

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        return MaskedContrastive(
            processor,
            share=self.share,
            span=self.span,
            negatives=self.negatives,
            temperature=self.similarity_temperature,
            diversity=self.diversity,
            penalty=self.penalty,
            projection=self.projection,
            annealing=Annealing(self.noise, self.least_noise, self.noise_decay),
        )
