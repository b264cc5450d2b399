"""Probes of layers: one is logistic regression, a sum finds the layer that knows, folds keep groups apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from unmask.data.labelled.dataset import Dataset
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.errors import UnmaskError
from unmask.models.cpc import Cpc
from unmask.runs.finetuning.layer_probing import _groups, _splits, fitted
from unmask.tasks.summaries import layer_summaries, summaries


def _rows(N: int = 90, D: int = 5, C: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true_N = rng.integers(0, C, N)
    return rng.normal(size=(N, D)) + rng.normal(size=(C, D))[true_N], true_N


def test_one_layer_is_logistic_regression() -> None:
    x_ND, true_N = _rows()
    weight_CD, bias_C, shares = fitted(x_ND[None], true_N, 3)
    expected = LogisticRegression(C=1.0, max_iter=1_000, tol=1e-8).fit(x_ND, true_N)
    logits, others = x_ND @ weight_CD.T + bias_C, expected.decision_function(x_ND)
    np.testing.assert_allclose(_softmax(logits), _softmax(others), atol=5e-3)
    assert shares.tolist() == [1.0]


def _softmax(x_NC: np.ndarray) -> np.ndarray:
    e_NC = np.exp(x_NC - x_NC.max(1, keepdims=True))
    return e_NC / e_NC.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sum_gives_its_weight_to_the_layer_that_knows(seed: int) -> None:
    x_ND, true_N = _rows()
    noise = np.random.default_rng(1).normal(size=(2, *x_ND.shape))
    _, _, shares = fitted(np.stack([noise[0], x_ND, noise[1]]), true_N, 3, seed)
    assert shares.argmax() == 1
    assert shares[1] > 0.6
    assert shares.sum() == pytest.approx(1.0)


def test_groups_are_left_out_in_turn() -> None:
    rows = Dataset(Path("x"), tuple(Recording(label="a", place=str(i), group="ab"[i % 2]) for i in range(7)), {})
    first, second = _groups(rows)
    assert (first.name, first.test.tolist(), first.train.tolist()) == ("a", [0, 2, 4, 6], [1, 3, 5])
    assert (second.name, second.test.tolist(), second.train.tolist()) == ("b", [1, 3, 5], [0, 2, 4, 6])
    with pytest.raises(UnmaskError, match="at least two"):
        _groups(rows.take([0, 2]))
    (fold,) = _splits({"train": 3, "dev": 2})
    assert (fold.name, fold.train.tolist(), fold.test.tolist()) == ("dev", [0, 1, 2], [3, 4])


def test_the_mean_of_the_last_layer_is_that_of_the_states() -> None:
    page = Cpc(channels=(6, 7), kernels=(10, 8), strides=(5, 4), dim=6, layers=2)
    processor, rng = RecordingProcessor(rate=8_000).for_model(page), np.random.default_rng(0)
    examples = [processor.example(rng.normal(size=n).astype(np.float32)) for n in (300, 90, 170)]
    model = page.build()
    layers = layer_summaries(model, examples, processor)
    assert [layer.shape for layer in layers] == [(3, 7), (3, 6), (3, 6)]
    np.testing.assert_allclose(layers[-1], summaries(model, examples, processor, "mean"), atol=1e-6)
