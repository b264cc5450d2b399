"""Recipes that learn from records of sensors without labels."""

from __future__ import annotations

from unmask.models.signal_cpc import SignalCpc
from unmask.models.signal_transformer import SignalTransformer
from unmask.objectives.masked_segments import MaskedSegmentsConfig
from unmask.objectives.next_segments import NextSegmentsConfig
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short


def masked_signal() -> Pretraining:
    """Masked segments of records at 300 Hz, by a Transformer of 4 layers of 128 (0.8 M parameters): minutes on a
    laptop."""
    rows = Rows(tokens=120, batch=16, first=None, heldout=64)  # 10 seconds a row
    model = SignalTransformer(dropout=0.0, hides=True, position="rotary")
    return Pretraining(model=model, objective=MaskedSegmentsConfig(), rows=rows, training=short(2e-3))


def cpc_signal() -> Pretraining:
    """CPC on records at 300 Hz: the next segments, by a GRU of 128 over convolutions (0.1 M parameters): minutes on a
    laptop."""
    rows = Rows(tokens=120, batch=16, first=None, heldout=64)  # 10 seconds a row
    return Pretraining(model=SignalCpc(), objective=NextSegmentsConfig(), rows=rows, training=short(2e-3))
