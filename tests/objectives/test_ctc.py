"""Connectionist temporal classification, beside torch and the sum over all alignments."""

from itertools import groupby, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.objectives.ctc import ctc, equation, frames_needed


def outputs(frames, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(frames, classes, generator=generator, dtype=torch.float64)


def read(path, blank):
    """The labels that an alignment stands for."""
    return [label for label, _ in groupby(path) if label != blank]


@given(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2), st.integers(0, 99), st.data())
@settings(max_examples=60)
def test_the_equation_is_the_sum_over_all_alignments(frames, labels, blank, seed, data):
    values = data.draw(st.lists(st.sampled_from([c for c in range(3) if c != blank]), min_size=labels, max_size=labels))
    log_p = outputs(frames, 3, seed).log_softmax(-1)
    paths = [path for path in product(range(3), repeat=frames) if read(path, blank) == values]
    found = equation(log_p, torch.tensor(values, dtype=torch.int64), blank)
    assert bool(paths) == (frames >= frames_needed(np.array(values, np.int64)))
    if not paths:
        assert found > 1e29
        return
    likelihoods = torch.stack([sum(log_p[f, c] for f, c in enumerate(path)) for path in paths])
    torch.testing.assert_close(found, -likelihoods.logsumexp(0))


def test_the_probabilities_of_all_transcripts_sum_to_one():
    log_p = outputs(4, 3).log_softmax(-1)
    transcripts = [values for n in range(5) for values in product((1, 2), repeat=n)]
    fitting = [values for values in transcripts if frames_needed(np.array(values, np.int64)) <= 4]
    total = sum(torch.exp(-equation(log_p, torch.tensor(values, dtype=torch.int64), 0)) for values in fitting)
    assert float(total) == pytest.approx(1)


@pytest.mark.parametrize("blank", [0, 4])
def test_packed_recordings_have_the_loss_and_the_gradient_of_the_equation(blank):
    frames, lengths = torch.tensor([7, 3, 12]), torch.tensor([3, 0, 5])
    logits = outputs(22, 5).requires_grad_()
    values = torch.tensor([1, 1, 2, 3, 2, 2, 1, 3])
    log_p = logits.log_softmax(-1)
    parts = zip(log_p.split(frames.tolist()), values.split(lengths.tolist()), strict=True)
    plain = torch.stack([equation(one, labels, blank) for one, labels in parts])
    found = ctc(log_p, frames, values, lengths, blank)
    torch.testing.assert_close(found.double(), plain, atol=1e-5, rtol=1e-5)
    (theirs,) = torch.autograd.grad(found.sum(), logits, retain_graph=True)
    (ours,) = torch.autograd.grad(plain.sum(), logits)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)


def test_the_equation_equals_the_loss_of_torch():
    log_p = outputs(30, 9).log_softmax(-1)
    values = torch.randint(1, 9, (11,), generator=torch.Generator().manual_seed(1))
    theirs = F.ctc_loss(log_p[:, None], values[None], torch.tensor([30]), torch.tensor([11]), reduction="sum")
    torch.testing.assert_close(equation(log_p, values, 0), theirs)


def test_a_transcript_that_does_not_fit_is_impossible():
    log_p = outputs(3, 3).log_softmax(-1)
    assert ctc(log_p, torch.tensor([3]), torch.tensor([1, 1, 2]), torch.tensor([3]), 0).isinf().all()
    assert frames_needed(np.array([1, 1, 2])) == 4
    assert frames_needed(np.array([], np.int64)) == 0
