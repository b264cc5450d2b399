"""The benchmarks of electrocardiograms: their folds, and the plain models that unmask is compared with."""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import electrocardiograms
import signals


@given(counts=st.lists(st.integers(3, 40), min_size=1, max_size=4), folds=st.integers(2, 5))
def test_every_fold_has_the_same_share_of_each_class_and_sets_are_apart(counts, folds):
    labels = [name for name, count in zip("ANO~", counts, strict=False) for _ in range(count)]
    fold_N = electrocardiograms.folds(labels, folds)
    for name in set(labels):
        own = Counter(fold_N[np.array(labels) == name].tolist())
        sizes = [own[fold] for fold in range(folds)]
        assert max(sizes) - min(sizes) <= 1
    tested = []
    for fold in range(folds):
        sets = electrocardiograms.split(fold_N, fold)
        assert sorted(np.concatenate(list(sets.values())).tolist()) == list(range(len(labels)))
        tested += sets["test"].tolist()
    assert sorted(tested) == list(range(len(labels)))


@pytest.mark.parametrize("name", list(signals.PLAINS))
def test_both_sides_of_a_comparison_learn_the_same_model(name):
    """`prepared` compares the outputs; here the gradients of one batch, without dropout, are compared too."""
    sides = signals.prepared(name, argparse.Namespace(batch=1, whole=False))
    for model in (sides.model, sides.theirs):
        model.eval()
    sides.theirs.zero_grad()
    batch = sides.processor.collate(sides.examples[:2])
    places = sides.task.places(batch)
    page, labels = sides.model.config, torch.tensor([0, 1])
    ours = sides.model.answer(sides.task.name, sides.model(batch), places, batch)
    theirs = sides.theirs(*signals.padded([sides.features(page, window) for window in sides.windows[:2]]))
    for found in (ours, theirs):
        torch.nn.functional.cross_entropy(found, labels).backward()
    for own, other in zip(sides.model.parameters(), sides.theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=2e-4, rtol=2e-3)


def test_shorter_windows_are_padded_with_zeros():
    found = signals.padded([(np.ones((2, 3)), np.full(2, 5)), (np.ones((2, 1)), np.full(2, 6))])
    assert [tuple(one.shape) for one in found] == [(2, 2, 3), (2, 2)]
    assert found[0][1].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert found[1].tolist() == [[5, 5], [6, 6]]
