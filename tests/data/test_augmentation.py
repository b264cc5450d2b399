"""Augmentation of pictures: random crops, flips, colours, blur and erasing."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from unmask.data.augmentation import Maybe, compose
from unmask.data.pictures import augmentation
from unmask.data.pictures.augmentation import (
    ColourJitter,
    GaussianBlur,
    HorizontalFlip,
    PadAndCrop,
    RandomErasing,
    RandomGrey,
    RandomResizedCrop,
)
from unmask.errors import UnmaskError

EVERY = (
    RandomResizedCrop(24),
    PadAndCrop(4),
    HorizontalFlip(),
    ColourJitter(0.8, 0.8, 0.8, 0.2),
    RandomGrey(0.5),
    GaussianBlur(),
    RandomErasing(),
    Maybe(GaussianBlur(), 0.5),
)
seeds = st.integers(0, 2**32 - 1)


def picture(seed: int = 0, height: int = 24, width: int = 24, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("part", [*EVERY, compose(*EVERY)])
def test_the_same_generator_gives_the_same_picture_of_the_same_shape(part, channels):
    before = picture(channels=channels)
    kept, part = before.copy(), pickle.loads(pickle.dumps(part))  # noqa: S301
    for seed in range(8):
        first, second = (part(before, np.random.default_rng(seed)) for _ in range(2))
        assert first.shape == before.shape
        assert first.dtype == np.uint8
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(before, kept)


@settings(deadline=None)
@given(seeds, st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 1))
def test_a_crop_lies_within_the_picture(seed, height, width, smallest):
    crop = RandomResizedCrop(8, area=(smallest, 1.0))
    top, left, tall, wide = crop.box(height, width, np.random.default_rng(seed))
    assert tall >= 1
    assert wide >= 1
    assert top >= 0
    assert left >= 0
    assert top + tall <= height
    assert left + wide <= width


@settings(deadline=None)
@given(seeds, st.sampled_from((1, 3)))
def test_strength_zero_is_the_identity(seed, channels):
    before, rng = picture(seed, channels=channels), np.random.default_rng(seed)
    zero = (
        RandomResizedCrop(24, area=(1.0, 1.0), ratio=(1.0, 1.0)),
        PadAndCrop(0),
        HorizontalFlip(0),
        ColourJitter(),
        RandomGrey(0),
        GaussianBlur((0.0, 0.0)),
        RandomErasing(0),
    )
    np.testing.assert_array_equal(compose(*zero)(before, rng), before)
    for change, neutral in (("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0)):
        np.testing.assert_array_equal(getattr(augmentation, change)(before, neutral), before)


@given(seeds)
def test_two_flips_are_the_identity(seed):
    before, rng, flip = picture(seed), np.random.default_rng(seed), HorizontalFlip(1.0)
    np.testing.assert_array_equal(flip(before, rng), before[:, ::-1])
    np.testing.assert_array_equal(flip(flip(before, rng), rng), before)


def test_colours_by_hand():
    pixels = np.array([[[200, 100, 50], [0, 0, 0]]], np.uint8)
    luma = 0.299 * 200 + 0.587 * 100 + 0.114 * 50  # 124.2
    brighter = augmentation.brightness(pixels, 1.5)
    np.testing.assert_array_equal(brighter[0], [[255, 150, 75], [0, 0, 0]])
    half = augmentation.saturation(pixels, 0.5)
    np.testing.assert_array_equal(half[0, 0], [round(0.5 * v + 0.5 * luma) for v in (200, 100, 50)])
    flat = augmentation.contrast(pixels, 0.5)
    np.testing.assert_array_equal(flat[0, 0], [round(0.5 * v + 0.25 * luma) for v in (200, 100, 50)])


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize(
    ("change", "enhance"),
    [
        (augmentation.brightness, ImageEnhance.Brightness),
        (augmentation.contrast, ImageEnhance.Contrast),
        (augmentation.saturation, ImageEnhance.Color),
    ],
)
def test_colours_are_those_of_pillow(change, enhance, factor):
    pixels = picture(3)
    theirs = np.asarray(enhance(Image.fromarray(pixels)).enhance(factor)).astype(int)
    # Pillow rounds grey to whole numbers, and cuts the fraction of the result off.
    assert abs(change(pixels, factor).astype(int) - theirs).max() <= 2


def test_hue_of_red_turns_through_the_colours():
    red = np.array([[[255, 0, 0]]], np.uint8)
    for sixth, colour in enumerate(
        ((255, 0, 0), (255, 255, 0), (0, 255, 0), (0, 255, 255), (0, 0, 255), (255, 0, 255))
    ):
        np.testing.assert_array_equal(augmentation.hue(red, sixth / 6)[0, 0], colour)
        np.testing.assert_array_equal(augmentation.hue(red, sixth / 6 - 1)[0, 0], colour)


def test_erasing_fills_one_box():
    before = np.full((32, 32, 3), 9, np.uint8)
    for seed in range(20):
        erased = (RandomErasing(1.0)(before, np.random.default_rng(seed)) == 0).all(2)
        rows, columns = erased.any(1).sum(), erased.any(0).sum()
        assert rows * columns == erased.sum()
        assert 0 < erased.mean() < 0.4


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomResizedCrop(0),
        lambda: RandomResizedCrop(8, area=(0.0, 1.0)),
        lambda: RandomResizedCrop(8, ratio=(2.0, 1.0)),
        lambda: PadAndCrop(-1),
        lambda: HorizontalFlip(1.5),
        lambda: ColourJitter(hue=0.6),
        lambda: GaussianBlur((2.0, 1.0)),
        lambda: RandomErasing(area=(0.5, 1.5)),
    ],
)
def test_impossible_strengths_are_refused(make):
    with pytest.raises(UnmaskError):
        make()
