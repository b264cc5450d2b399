"""The benchmark of picture models: every kind of measurement at its smallest size, and the lines of its tables."""

from __future__ import annotations

import importlib
from argparse import Namespace

import pytest

pytest.importorskip("PIL")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")


@pytest.fixture
def script():
    return importlib.import_module("vision")


@pytest.mark.parametrize("kind", ["train", "infer", "load"])
def test_the_smallest_measurement_of_each_kind(script, kind):
    work, options = script.Work("tiny", 8, 4, 2), Namespace(clock="cpu", steps=1, turns=2, device="cpu")
    found = script.MEASURES[kind](work, options, "fp32")
    assert {len(times) for times in found.values()} == {2}
    assert min(min(times) for times in found.values()) > 0
    if kind == "load":
        assert len(script.shares(work, found)) == 5
    else:
        assert len(script.compared(work, found, 1.5)) == len(found) - 1


def test_the_lines_of_the_tables(script):
    work = script.Work("small", 224, 16, 8)
    [line] = script.compared(work, {"unmask": [0.1, 0.2], "peer": [0.2, 0.8]}, 1.3)
    assert line == (
        "ViT-small, 224 px, patches of 16 (197 places), batch 8", "peer", "53.3", "16.0", "3.00 (2.00 to 4.00)", "1.3"
    )  # fmt: skip
    lines = script.shares(work, {"decoding": [0.001, 0.001], "training": [0.003, 0.003]})
    assert [line[2:] for line in lines] == [("1.000", "25.0%"), ("3.000", "75.0%")]
