"""recurrence.py: the two models are about as large, and both are timed."""

from __future__ import annotations

import importlib


def test_models_are_about_as_large_and_both_are_timed():
    script = importlib.import_module("recurrence")
    small, large = sorted(model.parameters_total for model in script.models().values())
    assert 0.9 < small / large < 1
    rows = list(script.measure([8], 1))
    assert [(row["work"], row["tokens"]) for row in rows] == [("training", 8), ("writing", 8)]
    assert all(row["ratio"] == row["Transformer"] / row["LSTM"] > 0 for row in rows)
