"""The plan of the quickstart: it keeps to its minutes, or says that they are too few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.runs.label_efficiency import COUNTS, Pace
from unmask.runs.quickstart_plan import COMPARISONS, LEAST, LEAST_SHARE, comparison_seconds, plan

seconds = st.floats(1e-4, 10)
paces = st.builds(Pace, step=seconds, answer=seconds, lexical=seconds)


@given(st.floats(0.01, 600), st.floats(0, 3_000), paces, st.integers(32, 20_000), st.integers(1, 2_000))
def test_the_plan_keeps_to_its_minutes_or_says_that_they_are_too_few(minutes, spent, pace, labelled, tested):
    found = plan(minutes, spent, pace, labelled, tested)
    assert found.fits == (found.seconds <= 60 * minutes * (1 + 1e-9))
    assert found.fits != any("too few" in note for note in found.notes)
    assert found.pretraining >= min(LEAST_SHARE * 60 * minutes, LEAST)
    assert found.comparison == comparison_seconds(pace, found.seeds, found.counts, found.sentences)
    assert set(found.counts) <= {count for count in COUNTS if count <= labelled}
    assert 1 <= found.sentences <= tested
    if not found.fits:  # then no smaller comparison was left to choose
        assert (found.seeds, found.counts) == (COMPARISONS[-1][0], COMPARISONS[-1][1])


@given(st.floats(0.5, 60), paces)
def test_a_slower_machine_never_has_a_fuller_comparison(minutes, pace):
    slower = Pace(2 * pace.step, 2 * pace.answer, 2 * pace.lexical)
    fast, slow = (plan(minutes, 10.0, one, 10_000, 900) for one in (pace, slower))
    assert (slow.seeds, len(slow.counts), slow.sentences) <= (fast.seeds, len(fast.counts), fast.sentences)


def test_what_is_left_out_is_said():
    full = plan(60, 40.0, Pace(0.05, 0.002, 1.0), 9_000, 855)
    assert (full.seeds, full.counts, full.sentences) == (3, COUNTS, 855)
    assert len(full.notes) == 1
    assert full.pretraining > 0.8 * 3_600
    short = plan(4, 40.0, Pace(0.05, 0.002, 1.0), 9_000, 855)
    assert short.seeds < 3
    assert "because 4 minutes allow no more on this machine" in short.notes[1]
    assert len(short.notes) == 2
    none = plan(1, 55.0, Pace(0.05, 0.002, 1.0), 9_000, 855)
    assert none.notes[-1].startswith("1 minute is too few on this machine: the shortest useful quickstart takes about")


def test_a_comparison_costs_what_its_parts_cost():
    once = comparison_seconds(Pace(1.0, 0.0, 0.0), 1, [32], 100)
    assert comparison_seconds(Pace(1.0, 0.0, 0.0), 3, [32], 100) == pytest.approx(3 * once)
    assert comparison_seconds(Pace(0.0, 1.0, 0.0), 2, [32, 100], 50) == pytest.approx(2 * 2 * 2 * 50)
    assert comparison_seconds(Pace(0.0, 0.0, 1.0), 2, [32, 100], 50) == pytest.approx(4)
