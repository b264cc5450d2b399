"""CPC on records of sensors: predict the next segments of a record, each told from the others of the record (van den
Oord et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unmask.data.signals.processor import SignalProcessor
from unmask.objectives.contrastive_prediction import NextPlaces, shown
from unmask.objectives.objective import Term
from unmask.objectives.signals import SignalConfig, SignalObjective, records_of
from unmask.types import Batch


class NextSegments(NextPlaces, SignalObjective):
    """The next segments of records."""

    name, place, item = "next_segments", "segment", "record"
    terms = (Term("next_segments", "next segments", more=shown("Next segments")),)
    head_labels = (("next_segments", "next-segment"),)

    def extents(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        return records_of(batch)


@dataclass(frozen=True, kw_only=True)
class NextSegmentsConfig(SignalConfig):
    """Predict the next segments of a record, each told from the others, as CPC does.

    steps_ahead  number of next segments that are predicted from each segment
    """

    steps_ahead: int = 12

    kind: ClassVar[str] = "next segments"
    learned: ClassVar[str] = "the next segments of records"
    example: ClassVar[str] = "cpc-signal"
    objective = NextSegments
    requires: ClassVar[frozenset[str]] = frozenset({"signals", "next segments"})
    own_heads: ClassVar[frozenset[str]] = frozenset({"next_segments"})
    choices: ClassVar[tuple[tuple[str, str], ...]] = (("signal", "next"),)

    def of_signals(self, processor: SignalProcessor) -> SignalObjective:
        return NextSegments(processor, steps=self.steps_ahead)
