"""Masked segments: mask spans of segments of a record and restore their samples.

Shapes: N records of a batch, M masked segments, F segments of a record, L leads, S samples of a segment, V = L * S.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.crops import check_spans, drawn_spans, joined, with_mask
from unmask.objectives.objective import Term
from unmask.objectives.signals import SignalConfig, SignalObjective, records_of
from unmask.types import Batch, Head, Loss, Target

NOTHING = 0.02
"""Share of the loss of a plain reference by which a run must be below it, or it has learned nothing."""
SHOWN = (
    ("line", "Masked segments: loss of straight lines between the visible neighbours"),
    ("mean", "Masked segments: loss of the mean of the record"),
)
QUANTILES = tuple(q / 1_000 for q in (0, 10, 50, *range(100, 900, 50), 900, 950, 975, 990, 995, 1_000))
"""Shares of the masked segments of held-out records whose errors a folder keeps."""


class MaskedSegments(SignalObjective):
    """Spans of segments hold MASK, and a linear head predicts their samples: the mean squared error of the masked
    values alone (Zerveas et al. 2021, who mask runs of samples; He et al. 2022, who mask patches of pictures).

    The samples are those of a normalised record, and segments are not normalised by their own mean and variance: the
    height of a wave counts, and noise between two waves counts little. Two plain references restore the same segments:
    the straight line between the visible neighbours, and the mean of the record.

    share, span  of the masked segments (`spans`)
    """

    name = "segments"
    terms = (Term("segments", "masked segments", more=SHOWN),)
    head_labels = (("segments", "masked-segment"),)

    def __init__(self, processor: SignalProcessor, *, share: float, span: int) -> None:
        check_spans(share, span, "segment")
        self.processor, self.share, self.span = processor, share, span
        self.heads = {self.name: Head("token", processor.leads * processor.segment, pretraining=True)}

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Mask spans in every record. The values of a target [M, 2, V] are the segment, and the straight line."""
        begins_N, counts_N = records_of(batch)
        return self.masked(batch, drawn_spans(begins_N, counts_N, self.share, self.span, rng))

    def masked(self, batch: Batch, places: Sequence[np.ndarray]) -> Batch:
        """The batch with MASK at some flat places of each record, ascending, and their targets."""
        assert batch.signal is not None
        begins_N, counts_N = records_of(batch)
        values = np.zeros((batch.tokens.numel(), batch.signal.values.shape[1]), np.float32)
        values[batch.signal.places.numpy()] = batch.signal.values.numpy()
        leads, parts = self.processor.leads, [np.empty((0, 2, values.shape[1]), np.float32)]
        for begin, count, own in zip(begins_N.tolist(), counts_N.tolist(), places, strict=True):
            record_FV = values[begin : begin + count]
            parts.append(np.stack([record_FV[own - begin], lines(record_FV, own - begin, leads)], 1))
        places_M = joined(places)
        target = Target(places_M, torch.from_numpy(np.concatenate(parts)))
        return replace(batch, tokens=with_mask(batch, places_M)).with_targets(**{self.name: target})

    def errors(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        """[M]: the mean squared error of each masked segment."""
        target = batch.targets[self.name]
        restored_MV = model.answer(self.name, hidden_BTD, target.places, batch).float()
        return (restored_MV - target.values[:, 0].float()).square().mean(-1)

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """The mean squared error of each masked segment, summed over segments; `line` and `mean` are those of the two
        references."""
        errors_M = self.errors(model, hidden_BTD, batch)
        own_MV, line_MV = batch.targets[self.name].values.float().unbind(1)
        references = {"line": (line_MV - own_MV).square().mean(-1).sum(), "mean": own_MV.square().mean(-1).sum()}
        return Loss(errors_M.sum(), len(errors_M), references)

    def measured(self, model: Model, heldout: Sequence[Batch]) -> dict[str, Any]:
        """{"anomalies": {"share", "span", "errors": errors of masked segments of held-out records at QUANTILES}}, for
        `anomalies.scores`; empty without held-out records."""
        found = [
            self.errors(model, model(batch), batch).cpu().numpy() for batch in (one.to(model.device) for one in heldout)
        ]
        errors_M = np.concatenate([np.empty(0, np.float32), *found])
        if not len(errors_M):
            return {}
        errors = np.quantile(errors_M.astype(np.float64), QUANTILES).tolist()
        return {"anomalies": {"share": self.share, "span": self.span, "errors": errors}}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"loss/{self.name}" not in found:
            return []
        loss, (line, mean) = found[f"loss/{self.name}"], (found[f"{self.name}/{name}"] for name, _ in SHOWN)
        said = (
            f"Held-out records: masked segments are restored with a mean squared error of {loss:.3f} of the variance of "
            f"a record (straight lines between the visible neighbours: {line:.3f}; the mean of the record: {mean:.3f})."
        )
        stuck = "That is no better than these: train longer, or change --lr or --span."
        return [said, stuck] if loss >= (1 - NOTHING) * min(line, mean) else [said]


def lines(record_FV: np.ndarray, masked_M: np.ndarray, leads: int) -> np.ndarray:
    """[M, V]: some segments of a record by the straight line between the visible samples beside them; beyond the first
    and the last visible sample, their values.

    record_FV  F segments, each with the samples of the first lead, then those of the next one
    masked_M   their numbers, ascending, not all
    """
    F, V = record_FV.shape
    S = V // leads
    times = np.arange(F * S).reshape(F, S)
    visible = np.ones(F, bool)
    visible[masked_M] = False
    samples_FLS = record_FV.reshape(F, leads, S)
    found = [
        np.interp(times[masked_M].ravel(), times[visible].ravel(), samples_FLS[visible, lead].ravel()).reshape(-1, S)
        for lead in range(leads)
    ]
    return np.stack(found, 1).reshape(len(masked_M), V).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class MaskedSegmentsConfig(SignalConfig):
    """Hide spans of segments of a record and restore their samples.

    share  of the segments that masked spans would cover without overlaps; about three quarters of it are masked
    span   segments of a masked span
    """

    share: float = 0.5
    span: int = 6

    kind: ClassVar[str] = "masked segments"
    learned: ClassVar[str] = "masked segments of records"
    example: ClassVar[str] = "masked-signal"
    objective = MaskedSegments
    requires: ClassVar[frozenset[str]] = frozenset({"signals", "masked segments"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"segments"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("signal", "masked"),)

    def model_fields(self, processor: SignalProcessor) -> dict[str, Any]:
        return {**super().model_fields(processor), "hides": True}

    def check_folder(self, model: Model, words: Sequence[str], folder: object) -> None:
        """Raises UnmaskError for a model that has no vector for masked segments."""
        if not model.config.hides:
            raise UnmaskError(
                f"{folder} holds a model without a vector for masked segments: start from new weights, with the recipe "
                f"{self.example}, or from a model that learned {self.learned}."
            )

    def of_signals(self, processor: SignalProcessor) -> SignalObjective:
        return MaskedSegments(processor, share=self.share, span=self.span)
