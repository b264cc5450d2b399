"""The benchmark of speech models: every kind of measurement at its smallest size, and the lines of its table."""

from __future__ import annotations

import importlib
from argparse import Namespace

import pytest

pytest.importorskip("transformers")


@pytest.fixture
def script(monkeypatch):
    found = importlib.import_module("speech")
    small = {
        "channels": (16,) * 7, "dim": 16, "layers": 1, "heads": 2, "hidden": 32, "position_kernel": 4,
        "position_groups": 2, "entries": 4, "codes": 8, "compared": 8,
    }  # fmt: skip
    monkeypatch.setitem(found.PAGES, "tiny", small)
    return found


@pytest.mark.parametrize("kind", ["pretrain", "ctc", "infer"])
def test_the_smallest_measurement_of_each_kind(script, kind):
    options = Namespace(clock="cpu", steps=1, turns=2, device="cpu", equal=False)
    found = script.MEASURES[kind](kind, script.Work("tiny", 2), options, "fp32")
    assert {len(times) for times in found.values()} == {2}
    assert min(min(times) for times in found.values()) > 0
    assert len(script.compared(kind, script.Work("tiny", 2), found)) == len(found) - 1


def test_the_lines_of_the_table(script):
    [line] = script.compared("infer", script.Work("base", 16), {"unmask": [0.1, 0.2], "peer": [0.2, 0.8]})
    assert line == ("infer: wav2vec 2.0 base, batch 16", "peer", "0.150", "0.500", "3.00 (2.00 to 4.00)", "1.3")
