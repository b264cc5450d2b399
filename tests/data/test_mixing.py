"""Mixup and CutMix: pixels, labels and weights agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.pictures.mixing import Mixing, cutmix, mixup
from unmask.errors import UnmaskError

seeds = st.integers(0, 2**32 - 1)
alphas = st.sampled_from((0.1, 0.8, 1.0, 5.0))


def batch(N: int = 6, height: int = 8, width: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of one value each, which is their label."""
    labels = np.arange(N)
    return np.broadcast_to(labels[:, None, None, None], (N, 3, height, width)).astype(np.float32), labels


@given(seeds, st.integers(1, 7), alphas)
def test_mixup_is_the_mean_of_both_pictures_with_the_weights_of_the_labels(seed, N, alpha):
    pixels, labels = batch(N)
    kept = pixels.copy()
    found = mixup(pixels, labels, alpha, np.random.default_rng(seed))
    wanted = found.weights * found.labels + (1 - found.weights) * found.others
    np.testing.assert_allclose(found.pixels, np.broadcast_to(wanted[:, None, None, None], pixels.shape), atol=1e-5)
    assert sorted(found.others) == list(labels)
    assert found.pixels.dtype == np.float32
    assert (found.weights == np.float32(np.random.default_rng(seed).beta(alpha, alpha))).all()
    np.testing.assert_array_equal(pixels, kept)


@settings(deadline=None)
@given(seeds, st.integers(1, 7), st.integers(1, 20), st.integers(1, 20), alphas)
def test_cutmix_weighs_the_labels_by_the_exact_number_of_pixels(seed, N, height, width, alpha):
    pixels, labels = batch(N, height, width)
    kept = pixels.copy()
    found = cutmix(pixels, labels, alpha, np.random.default_rng(seed))
    for one, label, other, weight in zip(*found, strict=True):
        inside = one[0] != label
        assert set(np.unique(one)) <= {label, other}
        if other != label:
            assert 1 - inside.mean() == pytest.approx(weight, abs=1e-6)
            rows, columns = inside.any(1).sum(), inside.any(0).sum()
            assert inside.sum() == rows * columns  # one box
    assert len(set(found.weights)) == 1
    assert sorted(found.others) == list(labels)
    np.testing.assert_array_equal(pixels, kept)


def test_boxes_have_the_sizes_and_places_of_the_paper():
    """Before it is cut off, a box has a share of 1 - lambda, which is uniform for alpha = 1, about a uniform centre."""
    pixels, labels = batch(2, 32, 32)
    rng, shares, covered = np.random.default_rng(0), [], np.zeros((32, 32))
    for _ in range(4_000):
        found = cutmix(pixels, labels, 1.0, rng)
        if found.others[0] != 0:
            inside = found.pixels[0, 0] != 0
            shares.append(inside.mean())
            covered += inside
    # E over r = sqrt(1 - lambda) and the centre: a side of r covers r - r^2 / 4 of an axis after it is cut off; the
    # mean of (r - r^2 / 4)^2 with density 2 r is 1/2 - 1/5 + 1/48.
    assert np.mean(shares) == pytest.approx(1 / 2 - 1 / 5 + 1 / 48, abs=0.03)
    np.testing.assert_allclose(covered, covered[::-1, ::-1], atol=0.15 * covered.max())


def test_mixing_chooses_by_its_probabilities():
    pixels, labels = batch(16)
    pixels = pixels + np.random.default_rng(1).standard_normal(pixels.shape, np.float32) / 100
    rng, kinds = np.random.default_rng(0), []
    for _ in range(2_000):
        found = Mixing(rate=0.8, switch=0.25)(pixels, labels, rng)
        same = np.isin(found.pixels, pixels).all()  # CutMix moves pixels, mixup makes new ones
        none = (found.others == labels).all() and (found.weights == 1).all() and np.array_equal(found.pixels, pixels)
        kinds.append("none" if none else "cutmix" if same else "mixup")
    shares = {kind: kinds.count(kind) / 2_000 for kind in ("none", "cutmix", "mixup")}
    assert shares == pytest.approx({"none": 0.2, "cutmix": 0.2, "mixup": 0.6}, abs=0.04)


def test_an_alpha_of_zero_leaves_one_out():
    pixels, labels = batch(16)
    for seed in range(20):
        blended = Mixing(cutmix=0)(pixels, labels, np.random.default_rng(seed))
        moved = Mixing(mixup=0)(pixels, labels, np.random.default_rng(seed))
        neither = Mixing(mixup=0, cutmix=0)(pixels, labels, np.random.default_rng(seed))
        assert not np.isin(blended.pixels, pixels).all()
        assert np.isin(moved.pixels, pixels).all()
        assert neither.pixels is pixels
        assert (neither.weights == 1).all()


@given(seeds)
def test_the_same_generator_gives_the_same_batch(seed):
    pixels = np.random.default_rng(seed).standard_normal((5, 1, 6, 6), np.float32)
    soft_labels = np.eye(5, dtype=np.float32)
    one, two = (Mixing()(pixels, soft_labels, np.random.default_rng(seed)) for _ in range(2))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
    weights = one.weights[:, None]
    mixed = weights * one.labels + (1 - weights) * one.others
    np.testing.assert_allclose(mixed.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixup": -0.1}, "alpha of mixup is a number of at least 0, not -0.1"),
        ({"cutmix": float("inf")}, "alpha of cutmix is a number of at least 0, not inf"),
        ({"rate": 1.1}, "rate of mixing is a probability between 0 and 1, not 1.1"),
        ({"switch": -1.0}, "switch of mixing is a probability between 0 and 1, not -1.0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(UnmaskError, match=message):
        Mixing(**changes)
