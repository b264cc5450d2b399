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
from unmask.data.signals.reading import windows
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.crops import LEAST, check_spans, drawn_spans, joined, with_mask
from unmask.objectives.objective import Term
from unmask.objectives.signals import SignalConfig, SignalObjective, records_of
from unmask.types import Batch, Head, Loss, Target

NOTHING = 0.02
"""Share of the loss of a plain reference by which a run must be below it, or it has learned nothing."""
SHOWN = (
    ("line", "Masked segments: loss of straight lines between the visible neighbours"),
    ("mean", "Masked segments: loss of the mean of the record"),
)
LARGE = 0.99  # share of the masked segments of held-out records whose errors are not large
TURNS = 3  # passes in which each segment is masked once


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
        """{"anomalies": {"length": segments of a row, "large": the error that 99 of 100 masked segments of held-out
        records do not exceed}}, for the scores of `serve.anomalies`; empty without held-out records."""
        found = [self.errors(model, model(batch), batch) for batch in (one.to(model.device) for one in heldout)]
        if not sum(map(len, found)):
            return {}
        large = np.quantile(torch.cat(found).double().cpu().numpy(), LARGE)
        return {"anomalies": {"length": heldout[0].tokens.shape[1], "large": float(large)}}

    def errors_along(self, model: Model, item: np.ndarray, length: int) -> np.ndarray:
        """A record is read in windows of `length` segments. In six passes, in which a third of the segments is masked
        in spans, each segment is masked twice, at different places of a span: its error is the mean of the two."""
        values, S = self.processor.values(item), self.processor.segment
        F = len(values) // S
        if F < LEAST:
            raise UnmaskError(f"The record has {F} segments, but at least {LEAST} are needed.")
        sums_F, counts_F = np.zeros(F), np.zeros(F)
        for begin, end in windows(F, length, length).tolist():
            hidden = turns(end - begin, self.span)
            batch = self.processor.collate([self.processor.segmented(values[begin * S : end * S])] * len(hidden))
            rows = np.arange(len(hidden)) * batch.tokens.shape[1]
            batch = self.masked(batch, [row + own for row, own in zip(rows, hidden, strict=True)]).to(model.device)
            errors_M = self.errors(model, model(batch), batch).double().cpu().numpy()
            places_M = begin + np.concatenate(hidden)
            np.add.at(sums_F, places_M, errors_M)
            np.add.at(counts_F, places_M, 1)
        return sums_F / counts_F

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        if f"loss/{self.name}" not in found:
            return []
        loss, (line, mean) = found[f"loss/{self.name}"], (found[f"{self.name}/{name}"] for name, _ in SHOWN)
        said = (
            f"Held-out records: the mean squared error of masked segments is {loss:.3f} of the variance of a record "
            f"(straight lines between the visible neighbours: {line:.3f}; the mean of the record: {mean:.3f})."
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


def turns(segments: int, span: int) -> list[np.ndarray]:
    """The segments of a record that are masked in each of some passes: every third span, each segment in two passes;
    the spans of the second three passes begin half a span earlier. Spans are shorter in a short record."""
    span = max(1, min(span, segments // TURNS))
    found = [
        np.flatnonzero((np.arange(segments) + offset) // span % TURNS == turn)
        for offset in (0, span // 2)
        for turn in range(TURNS)
    ]
    return [own for own in found if len(own)]


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
