"""Entries on pictures beside plain recomputations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unmask.runs.lectures import pictures


def test_places_and_their_numbers():
    [table] = pictures.patches.show(True).tables
    for pixels, patch, places, numbers, pairs in table.rows:
        assert places == (pixels // patch) ** 2 + 1
        assert numbers == patch * patch * 3
        assert pairs == places**2


def test_patches_are_parts_of_the_picture():
    [gallery] = pictures.patches.show(True).figures
    assert len(gallery.pictures) == 2 + 16
    whole = pictures.landscape(32)
    assert gallery.pictures[2].content == pictures.png(whole[:8, :8])
    assert gallery.pictures[17].content == pictures.png(whole[24:, 24:])
    cut = np.full((40, 40, 3), 255, np.uint8)  # with two white pixels after each patch
    for row in range(4):
        for column in range(4):
            patch = whole[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            cut[10 * row : 10 * row + 8, 10 * column : 10 * column + 8] = patch
    assert gallery.pictures[1].content == pictures.png(cut)


def test_windows_after_the_shift_hide_what_was_apart():
    shown = pictures.shifted_windows.show(True)
    first, second, mask = (np.array(figure.values) for figure in shown.figures)
    assert (first[:4, :4] == first[0, 0]).all()
    assert (second[2:6, 2:6] == second[2, 2]).all()  # moved by two places
    assert len(np.unique(second)) == 4
    place = np.arange(16)  # the last window holds four parts of 2 x 2 places
    part = place // 8 * 2 + place % 4 // 2
    assert (mask == (part[:, None] == part)).all()


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_contrastive_loss_by_its_equation(temperature):
    z = F.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1)
    wanted = 0.0
    for i, other in ((0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)):
        scores = [float(z[i] @ z[k]) / temperature for k in range(6) if k != i]
        wanted -= float(z[i] @ z[other]) / temperature - math.log(sum(map(math.exp, scores)))
    assert float(pictures.nt_xent(z, temperature).sum) == pytest.approx(wanted)


def test_equal_views_cost_what_their_cosines_allow():
    [table] = pictures.contrastive.show(True).tables
    for temperature, _, _, equal in table.rows[-2:]:  # 126 others with cosines around 0
        assert equal == pytest.approx(math.log(1 + 126 * math.exp(-1 / temperature)), rel=0.05)


def test_the_hardest_triplets_teach_longest():
    [table] = pictures.triplets.show(True).tables
    for _, every, semi_hard, hard in table.rows:
        assert every <= semi_hard <= hard
    assert table.rows[0][3] == 1 > table.rows[-1][3]
