"""Entries of the lectures: each runs, its page and its claims hold, and what it names exists."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.cli import main
from unmask.nn import Attention, Sinusoidal
from unmask.runs.lectures import attention
from unmask.runs.lectures.contents import CHAPTERS
from unmask.runs.lectures.entry import aligned
from unmask.train.report import Table

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = [entry for entries in CHAPTERS.values() for entry in entries]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_runs_and_names_its_code_and_its_test(entry, tmp_path):
    assert (ROOT / "src" / "unmask" / entry.code).is_file()
    assert (ROOT / "tests" / entry.test).is_file()
    shown = entry.show(True)
    text = entry.text(shown)
    assert entry.title in text
    assert shown.finding.split()[0] in text
    assert all(len(one) > 60 for one in entry.about)
    entry.write(tmp_path / "x.html", shown)
    page = (tmp_path / "x.html").read_text()
    assert "<h1>" in page
    assert "<pre>def " in page
    assert '"""' not in page.partition("<pre>")[2]  # the text stands above, not in the code again


def test_names_differ():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_the_verb_lists_runs_and_refuses(tmp_path, capsys):
    main(["lecture"])
    listed = capsys.readouterr().out
    assert all(entry.name in listed for entry in ENTRIES)
    main(["lecture", "shift", "--quick", "--out", str(tmp_path / "a" / "x.html")])
    assert "which is rounding" in capsys.readouterr().out
    assert (tmp_path / "a" / "x.html").is_file()
    for wrong, message in (
        (["shfit"], "did you mean 'shift'"),
        (["shift", "--out", "x.txt"], "--out must end in .html or .svg"),
        (["shift", "--out", "x.svg"], "tables and no figure"),
        (["shift", "--all"], "not both"),
        (["--quick"], "need the name of an entry"),
    ):
        with pytest.raises(SystemExit):
            main(["lecture", *wrong])
        assert message in capsys.readouterr().err


def test_columns_are_aligned():
    table = Table("Two", ["name", "n"], [("a", 1), ("long", 20)], note="A note.")
    assert aligned(table).splitlines() == ["Two", "name   n", "----  --", "a      1", "long  20", "A note."]


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=8))
def test_the_gradient_of_a_softmax_by_autograd(scores):
    scores_S = torch.tensor(scores, dtype=torch.float64)
    wanted = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores_S).norm()
    torch.testing.assert_close(attention.gradient_norm(scores_S.softmax(-1)[None])[0], wanted)


def test_scores_of_random_vectors_peak_without_a_scale():
    weights, norms = attention.peaking.show(True).tables
    plain, scaled, by_d = zip(*(row[1:] for row in weights.rows), strict=True)
    assert plain[-1] > 0.9 > 0.5 > scaled[-1] > by_d[-1]
    assert abs(by_d[-1] - 1 / 16) < 0.01  # divided by d the weights are even
    assert norms.rows[-1][1] < 0.5 * norms.rows[-1][2]


@settings(max_examples=20)
@given(st.integers(0, 500), st.integers(-200, 200), st.sampled_from([2, 8, 32]))
def test_a_rotation_shifts_every_position(place, k, dim):
    at = Sinusoidal(dim).embed(torch.zeros(1, 2, dim, dtype=torch.float64), torch.tensor([[place, place + k]]))[0]
    torch.testing.assert_close(attention.rotation(dim, k) @ at[0], at[1], rtol=0, atol=1e-9)


@settings(max_examples=10)
@given(st.permutations(range(5)))
def test_attention_without_positions_permutes_with_its_words(order):
    generator = torch.Generator().manual_seed(0)
    layer, x = attention.seeded(Attention(8, 2), generator), torch.randn(5, 8, generator=generator)
    torch.testing.assert_close(layer(x[None])[0][order], layer(x[order][None])[0])


def test_receptive_fields_by_their_formulas():
    [table] = attention.reach.show(True).tables
    rows = {name: counts for name, *counts in table.rows}
    assert rows["convolution, kernel 3"] == [2 * n + 1 for n in range(1, 5)]
    assert rows["dilated causal, kernel 2"] == [2**n for n in range(1, 5)]
    assert set(rows["recurrent"]) == {17}  # the middle of 33 and all before it
    assert set(rows["self-attention"]) == {33}


def test_the_drawing_of_dilations_ends_in_all_inputs():
    drawing = np.array(attention.dilations([1, 2, 4, 8]).values)
    assert drawing.sum(1).tolist() == [1, 2, 4, 8, 16]


def test_the_memory_of_a_map():
    assert math.isclose(4 * 65_536**2 / 2**30, 16)
    assert "16 GiB" in attention.complexity.show(True).finding
