"""NextSamples: predict each sample of a recording, as one of a few levels, from those before it (WaveNet, van den Oord
et al. 2016, section 2).

Shapes: N recordings, P samples of all of them, M samples that are predicted, V levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.model import Model, ModelConfig
from unmask.nn.mu_law import LEVELS, encode
from unmask.objectives.crops import joined
from unmask.objectives.objective import Probe, Term
from unmask.objectives.recordings import RecordingConfig, RecordingObjective, recordings_of
from unmask.types import Batch, Head, Loss, Target

COUNTED = 1_000_000  # training samples from which the baselines are counted


class NextSamples(RecordingObjective):
    """The level of each sample but the first, from all samples before it.

    levels     V
    baselines  as the function of this name returns them; equal levels until training recordings are counted
    """

    name = "samples"
    terms = (Term("samples", "next sample", more=(("bits", "Next sample: bits"),)),)
    head_labels = (("samples", "next-sample"),)

    def __init__(self, processor: RecordingProcessor, levels: int = LEVELS) -> None:
        self.processor, self.levels = processor, levels
        self.heads = {self.name: Head("next_sample", pretraining=True)}
        self.baselines = baselines(np.zeros((levels, levels)))

    def count(self, splits: Sequence[Any]) -> None:
        self.baselines = baselines(counted(self.processor, self.levels, splits))

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The targets are the samples that another one follows; their values, the levels of that one and of their
        own [M, 2]."""
        assert batch.signal is not None
        begins_N, samples_N = recordings_of(batch, self.processor)
        levels_P = encode(batch.signal.values, self.levels)
        places_P = joined([np.arange(a, a + n) for a, n in zip(begins_N, samples_N, strict=True)])
        followed_P = torch.ones(len(places_P), dtype=torch.bool)
        followed_P[torch.from_numpy(np.cumsum(samples_N) - 1)] = False
        values_M2 = torch.stack([levels_P.roll(-1), levels_P], 1)[followed_P]
        return batch.with_targets(**{self.name: Target(places_P[followed_P], values_M2)})

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy in nats, and that of the baselines: `levels`, how often each level occurs, and `pairs`, how
        often it follows the last one."""
        target = batch.targets[self.name]
        next_M, last_M = target.values.unbind(1)
        loss = self.of_answers(model.logits(self.name, hidden_BTD, target.places, batch), next_M)
        levels_V, pairs_VV = (log_p.to(next_M.device) for log_p in self.baselines)
        floors = {"levels": -levels_V[next_M].sum(), "pairs": -pairs_VV[last_M, next_M].sum()}
        return Loss(loss.sum, loss.count, {**loss.metrics, **floors})

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        return {"samples/bits": found["loss/samples"] / math.log(2)} if "loss/samples" in found else {}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if "samples/bits" not in found:
            return []
        levels, pairs = (found[f"samples/{name}"] / math.log(2) for name in ("levels", "pairs"))
        said = (
            f"Held-out recordings: {found['samples/bits']:.2f} bits a sample (from the last one alone: {pairs:.2f}; "
            f"from how often each level occurs: {levels:.2f}; of {self.levels} equal levels: "
            f"{math.log2(self.levels):.2f})."
        )
        few = "The model predicts no better than the last sample alone: train longer, with more --minutes."
        return [said, few] if found["samples/bits"] >= pairs else [said]

    def probes(self, split: Any, tokenizer: Any, length: int) -> list[Probe]:
        """None: single samples show nothing in a spectrogram."""
        return []


def baselines(counts_VV: np.ndarray) -> tuple[Tensor, Tensor]:
    """(log p of each level [V], with one added to each count; log p of each after each other one [V, V], where what was
    never counted has the share of one count, divided as in the first)."""
    levels_V = (counts_VV.sum(0) + 1) / (counts_VV.sum() + len(counts_VV))
    pairs_VV = (counts_VV + levels_V) / (counts_VV.sum(1, keepdims=True) + 1)
    return torch.from_numpy(np.log(levels_V)).float(), torch.from_numpy(np.log(pairs_VV)).float()


def counted(processor: RecordingProcessor, levels: int, splits: Sequence[Any]) -> np.ndarray:
    """[V, V]: how often each level follows each other one in COUNTED samples of recordings, evenly spread over the
    training parts."""
    counts_VV = np.zeros((levels, levels))
    for split in splits:
        source = split.at_rate(processor.rate)
        step = max(1, math.ceil(source.cost.sum() * len(splits) / COUNTED))
        for unit in range(0, len(source.cost), step):
            codes_P = encode(torch.from_numpy(processor.values(source.read(unit))), levels)
            pairs = torch.bincount(codes_P[:-1] * levels + codes_P[1:], minlength=levels**2)
            counts_VV += pairs.view(levels, levels).numpy()
    return counts_VV


@dataclass(frozen=True, kw_only=True)
class NextSamplesConfig(RecordingConfig):
    """Predict each sample of a recording from those before it, as WaveNet does.

    levels  of a sample, by the μ-law
    """

    levels: int = LEVELS

    kind: ClassVar[str] = "next samples"
    learned: ClassVar[str] = "the next samples of recordings"
    example: ClassVar[str] = "wavenet-tiny"
    objective = NextSamples
    requires: ClassVar[frozenset[str]] = frozenset({"recordings", "next samples"})
    command: ClassVar[tuple[str, str] | None] = ("generate", "--out sound.wav")
    own_heads: ClassVar[frozenset[str]] = frozenset({"samples"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("frames", "samples"),)

    def of_recordings(self, processor: RecordingProcessor) -> RecordingObjective:
        return NextSamples(processor, self.levels)

    def processor(self, processor: RecordingProcessor) -> RecordingProcessor:
        """That of the folder, at this rate. Each sample is a frame, and keeps its value, from -1 to 1."""
        return super().processor(processor).replace(hop=1, window=1, normalise=False)

    def model_fields(self, processor: RecordingProcessor) -> dict[str, Any]:
        return {"vocabulary": self.levels}

    def of_model(self, model: ModelConfig) -> Self:
        return self.replace(levels=model.vocabulary)
