"""Entries on sound and records beside formulas and plain recomputations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from unmask.runs.lectures import signals


def test_a_frame_sees_what_its_gradient_reaches():
    [table] = signals.frames.show(True).tables
    samples = torch.zeros(1, 1, 1_200, requires_grad=True)
    x = samples
    for _, kernel, stride, *_ in table.rows:
        x = torch.nn.functional.conv1d(x, torch.ones(1, 1, kernel), stride=stride)
    [first] = torch.autograd.grad(x[0, 0, 0], samples, retain_graph=True)
    [second] = torch.autograd.grad(x[0, 0, 1], samples)
    hop, window = table.rows[-1][3:5]
    assert (first[0, 0] > 0).nonzero().flatten().tolist() == list(range(window))
    assert (second[0, 0] > 0).nonzero()[0] == hop


def test_about_half_of_the_frames_are_masked():
    shown = signals.masked_frames.show(True)
    [(share, stretch, longest)] = shown.tables[0].rows
    assert share == pytest.approx(1 - (1 - 0.065) ** 10, abs=0.02)
    assert 10 < stretch < longest


def test_the_perplexity_of_a_codebook_is_the_exponential_of_its_entropy():
    [table] = signals.quantiser.show(True).tables
    even, uneven, collapsed = table.rows
    assert 16 >= even[1] > uneven[1] > collapsed[1] == 1
    assert collapsed[2:] == (1, 1.0)
    share = uneven[3]  # the largest entropy of 15 entries with this largest share
    assert uneven[1] <= math.exp(-share * math.log(share) - (1 - share) * math.log((1 - share) / 14)) + 1e-6


def test_the_recursion_sums_all_paths():
    [table] = signals.ctc_alignments.show(True).tables
    for _, alignments, paths, recursion in table.rows:
        assert paths == pytest.approx(recursion, rel=1e-9)
        assert alignments > 0
    assert table.rows[0][1] == math.comb(5 + 3, 2 * 3)  # of three different letters
    assert table.rows[2][1] == math.comb(5 + 3 - 1, 2 * 3)  # two equal ones need a blank


def test_mel_by_its_formula():
    [table] = signals.mel_scale.show(True).tables
    for hertz, mel in table.rows:
        assert mel == pytest.approx(2_595 * math.log10(1 + hertz / 700), rel=1e-4)


def test_fibrillation_is_irregular():
    [table] = signals.rhythms.show(True).tables
    normal, fibrillation = table.rows
    assert normal[3] < 0.1 < fibrillation[3]
    for _, beats, pulse, _ in table.rows:
        assert pulse == pytest.approx(beats * 3, rel=0.1)  # 20 s


def test_the_weights_are_near_the_beats():
    shown = signals.beat_attention.show(True)
    [(_, places, share, near)] = shown.tables[0].rows
    weights = np.array([y for _, y in shown.figures[1].series[0].points])
    assert len(weights) == places
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert near > 2 * share
