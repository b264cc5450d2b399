"""The search over transcripts, beside all alignments."""

import math
from collections import defaultdict
from itertools import groupby, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.generate.prefixes import Fusion, alignment, most_likely, search, stretches
from unmask.objectives.ctc import equation

BLANK, SPACE = 0, 3
PIECES = ("", "a", "b", " ")


def outputs(frames, seed, sharpness=1.0):
    logits = sharpness * np.random.default_rng(seed).standard_normal((frames, 4))
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def labels_of(path):
    return tuple(label for label, _ in groupby(path) if label != BLANK)


def all_transcripts(log_p):
    """Transcript -> log probability, over all alignments."""
    found = defaultdict(float)
    for path in product(range(4), repeat=len(log_p)):
        found[labels_of(path)] += math.exp(sum(log_p[f, label] for f, label in enumerate(path)))
    return {labels: math.log(p) for labels, p in found.items()}


@given(st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_without_a_limit_the_search_finds_every_transcript_with_its_probability(frames, seed):
    log_p = outputs(frames, seed)
    wanted = all_transcripts(log_p)
    found = search(log_p, BLANK, beams=10_000, floor=-math.inf)
    assert {one.labels: one.log_p for one in found} == pytest.approx(wanted)
    assert found[0].labels == max(wanted, key=wanted.get)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_sum_of_alignments_may_beat_the_best_alignment():
    """The example of Graves et al. 2006, figure 2: the best path is empty, the best transcript is not."""
    log_p = np.log(np.array([[0.6, 0.4, 1e-9, 1e-9], [0.6, 0.4, 1e-9, 1e-9]]))
    assert most_likely(log_p, BLANK) == ()
    assert search(log_p, BLANK, beams=4)[0].labels == (1,)


def language(words, ends):
    """Log probabilities by a rule: `ab` is likely, everything else is not."""
    return sum(-0.1 if word == "ab" else -3.0 for word in words) - 0.5 * ends


@given(st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_a_language_model_changes_the_order_by_its_formula(frames, seed):
    log_p = outputs(frames, seed)
    fusion = Fusion(language, PIECES, SPACE, weight=0.7, bonus=0.4)

    def score(labels, p):
        words = tuple("".join(PIECES[label] for label in labels).split())
        return p + 0.7 * language(words, True) + 0.4 * len(words)

    wanted = {labels: score(labels, p) for labels, p in all_transcripts(log_p).items()}
    found = search(log_p, BLANK, 10_000, fusion, floor=-math.inf)
    assert {one.labels: one.score for one in found} == pytest.approx(wanted)


def test_a_few_beams_find_the_best_transcript_of_sharp_outputs():
    log_p = outputs(6, 5, sharpness=4.0)
    wanted = all_transcripts(log_p)
    assert search(log_p, BLANK, beams=4)[0].labels == max(wanted, key=wanted.get)
    assert len(search(log_p, BLANK, beams=4)) == 4


@given(st.integers(1, 6), st.integers(0, 99), st.lists(st.integers(1, 3), max_size=3))
@settings(max_examples=30, deadline=None)
def test_an_alignment_is_the_most_probable_one_of_its_transcript(frames, seed, labels):
    log_p = outputs(frames, seed)
    paths = [path for path in product(range(4), repeat=frames) if labels_of(path) == tuple(labels)]
    if not paths:
        with pytest.raises(UnmaskError, match="does not fit"):
            alignment(log_p, labels, BLANK)
        return
    best = max(paths, key=lambda path: sum(log_p[f, label] for f, label in enumerate(path)))
    found = alignment(log_p, labels, BLANK)
    path = [BLANK] * frames
    for label, places in zip(labels, found, strict=True):
        for f in places:
            path[f] = label
    assert tuple(path) == best


def test_the_best_path_is_aligned_with_itself():
    log_p = outputs(40, 3, sharpness=3.0)
    labels = most_likely(log_p, BLANK)
    runs = [(label, len(list(run))) for label, run in groupby(log_p.argmax(-1).tolist())]
    ends = np.cumsum([n for _, n in runs])
    wanted = [range(end - n, end) for (label, n), end in zip(runs, ends.tolist(), strict=True) if label != BLANK]
    assert alignment(log_p, labels, BLANK) == wanted


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(2, 20))
@settings(max_examples=50, deadline=None)
def test_stretches_cover_all_frames_and_end_in_the_longest_pause_of_their_second_half(path, longest):
    log_p = np.where(np.arange(4) == np.array(path, int)[:, None], 0.0, -9.0)
    found = list(stretches(log_p, BLANK, longest))
    assert [f for own in found for f in own] == list(range(len(path)))
    assert all(len(own) <= longest for own in found)
    separate = True
    for own in found[:-1]:
        half = range(own.start + longest // 2, own.start + longest)
        runs = [
            (end - begin, begin, end)
            for begin in half
            for end in range(begin + 1, half.stop + 1)
            if not any(path[begin:end])
        ]
        if runs:
            longest_run = max(size for size, _, _ in runs)
            assert own.stop in {end - size // 2 for size, _, end in runs if size == longest_run}
        else:
            assert len(own) == longest
            separate = False
    if separate:
        labels = [label for own in found for label in most_likely(log_p[own.start : own.stop], BLANK)]
        assert tuple(labels) == most_likely(log_p, BLANK)


def test_the_search_is_bounded_by_the_loss():
    """Kept alignments are some of all: a probability is at most that of the loss."""
    log_p = outputs(30, 1)
    for one in search(log_p, BLANK, beams=8):
        whole = -float(equation(torch.from_numpy(log_p), torch.tensor(one.labels), BLANK))
        assert one.log_p <= whole + 1e-9


def test_a_search_needs_a_beam():
    with pytest.raises(UnmaskError, match="at least 1"):
        search(outputs(2, 0), BLANK, beams=0)
