"""Entries on recordings: which inputs a stack reads, beside brute force, and the error of levels beside its formula."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from unmask.runs.lectures import sound


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 40))
def test_the_lines_lead_from_the_output_to_all_inputs_that_it_reads(steps, length):
    drawn = sound.edges(steps, length)
    sums = {0}
    for step in steps:
        sums |= {total + step for total in sums}
    assert {below for below, _ in drawn[0]} == {length - 1 - total for total in sums if total < length}
    for step, pairs, above in zip(steps, drawn, [*drawn[1:], [(length - 1, 0)]], strict=True):
        assert {place for _, place in pairs} == {below for below, _ in above}
        assert all(place - below in (0, step) for below, place in pairs)


def test_four_layers_read_five_samples_or_sixteen():
    shown = sound.dilations.show(True)
    assert [row[1] for row in shown.tables[0].rows] == [5, 16]
    assert len({below for below, _ in sound.edges([1, 2, 4, 8], 16)[0]}) == 16
    assert "1,024" in shown.finding


def test_even_levels_lose_what_is_quiet_and_levels_of_the_mu_law_less():
    rows = sound.mu_law.show(False).tables[0].rows
    assert [row[0] for row in rows] == [0, -10, -20, -30, -40, -50]
    for decibels, even, companded in rows[:3]:
        # The error of even levels is uniform, of variance (2 / 256)² / 12; that of the signal falls with its volume.
        assert abs(even - (rows[0][1] + decibels)) < 0.5
        assert companded > even
    assert rows[0][2] - rows[3][2] < 8  # dB, where even levels lose about 30
    assert math.isclose(sound.clearness(*map(sound.torch.tensor, ([3.0, 4.0], [3.0, 4.5]))), 20, abs_tol=1e-5)
