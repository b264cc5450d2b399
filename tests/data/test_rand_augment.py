"""RandAugment: its operations against those of Pillow or their definitions, and how they are drawn."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage

from unmask.data.pictures import rand_augment
from unmask.data.pictures.rand_augment import OPERATIONS, Edges, RandAugment
from unmask.errors import UnmaskError

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)
NEAREST, BILINEAR = Edges(77, 0), Edges(77, 2)


def picture(seed: int = 0, height: int = 24, width: int = 24, channels: int = 3, colours: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, colours, (height, width, channels), dtype=np.uint8)


def image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def equals(found: np.ndarray, theirs: Image.Image) -> None:
    np.testing.assert_array_equal(found, np.asarray(theirs).reshape(found.shape))


@settings(deadline=None)
@given(seeds, sizes, sizes, st.sampled_from((1, 3)), st.sampled_from((1, 2, 40, 256)))
def test_tables_of_values_are_those_of_pillow(seed, height, width, channels, colours):
    pixels = picture(seed, height, width, channels, colours)
    equals(rand_augment.autocontrast(pixels), ImageOps.autocontrast(image(pixels)))
    equals(rand_augment.equalize(pixels), ImageOps.equalize(image(pixels)))


def test_equalize_is_that_of_pillow_where_values_overflow():
    pixels = np.full((32, 32, 1), 9, np.uint8)
    pixels.ravel()[:509] = np.arange(509) % 200  # a step of 1 pixel, with 509 values below: they pass 255
    pixels[-1] = 250
    equals(rand_augment.equalize(pixels), ImageOps.equalize(image(pixels)))


@pytest.mark.parametrize("channels", [1, 3])
def test_solarize_posterize_and_sharpness_are_those_of_pillow(channels):
    pixels = picture(1, channels=channels)
    for threshold in (0, 25.6, 100, 128.0, 255, 256):
        equals(rand_augment.solarize(pixels, threshold), ImageOps.solarize(image(pixels), threshold))
    for bits in range(1, 9):
        equals(rand_augment.posterize(pixels, bits), ImageOps.posterize(image(pixels), bits))
    assert not rand_augment.posterize(pixels, 0).any()
    for factor in (0.0, 0.1, 1.0, 1.9):
        equals(rand_augment.sharpness(pixels, factor), ImageEnhance.Sharpness(image(pixels)).enhance(factor))


@pytest.mark.parametrize("factor", [0.1, 1.0, 1.9])
def test_sharpness_by_its_definition(factor):
    pixels = picture(2, 7, 9, 1)
    found = rand_augment.sharpness(pixels, factor)
    np.testing.assert_array_equal(found[[0, -1]], pixels[[0, -1]])
    for y in range(1, 6):
        for x in range(1, 8):
            smooth = (pixels[y - 1 : y + 2, x - 1 : x + 2].sum() + 4.0 * pixels[y, x, 0]) / 13
            wanted = min(max(factor * pixels[y, x, 0] + (1 - factor) * smooth, 0), 255)
            assert abs(float(found[y, x, 0]) - wanted) <= 1.5  # Pillow rounds the smoothed value, then cuts off


def moved(pixels: np.ndarray, source_of) -> np.ndarray:
    """Each pixel is the nearest one of `source_of(x, y)`, coordinates of centres."""
    found = np.full_like(pixels, 77)
    height, width = pixels.shape[:2]
    for y in range(height):
        for x in range(width):
            from_x, from_y = (math.floor(v) for v in source_of(x + 0.5, y + 0.5))
            if 0 <= from_x < width and 0 <= from_y < height:
                found[y, x] = pixels[from_y, from_x]
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("strength", [-0.9, 0.0, 0.37, 1.0])
def test_moves_by_their_definitions(strength, channels):
    pixels = picture(4, 21, 26, channels)
    s = strength + 1e-6  # no sample lies between two pixels
    angle = math.radians(30 * s)

    def turned(x: float, y: float) -> tuple[float, float]:
        x, y = x - 13, y - 10.5
        return x * math.cos(angle) - y * math.sin(angle) + 13, x * math.sin(angle) + y * math.cos(angle) + 10.5

    definitions = {
        "rotate": turned,
        "shear-x": lambda x, y: (x + 0.3 * s * y, y),
        "shear-y": lambda x, y: (x, y + 0.3 * s * x),
        "translate-x": lambda x, y: (x + 150 / 331 * 26 * s, y),
        "translate-y": lambda x, y: (x, y + 150 / 331 * 21 * s),
    }
    for name, source_of in definitions.items():
        found, wanted = OPERATIONS[name](pixels, s, NEAREST), moved(pixels, source_of)
        # Pillow computes in fixed point, so a sample next to the edge of a pixel may fall on the other side.
        assert (found != wanted).any(2).mean() < 0.01, name


def test_a_rotation_is_that_of_pillow_and_of_scipy():
    pixels = ndimage.gaussian_filter(picture(5, 32, 32).astype(float), (2, 2, 0)).astype(np.uint8)
    for degrees in (-27.0, 90.0, 13.0):
        found = rand_augment.rotate(pixels, degrees, fill=9, resample=2)
        theirs = image(pixels).rotate(degrees, Image.Resampling.BILINEAR, fillcolor=(9, 9, 9))
        assert abs(found.astype(int) - np.asarray(theirs)).max() <= 1
        smooth = ndimage.rotate(pixels.astype(float), degrees, order=1, reshape=False)
        inside = np.s_[10:22, 10:22]
        assert abs(found[inside] - smooth[inside]).max() <= 1.5


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 33), st.integers(1, 33), st.sampled_from((1, 3)))
def test_every_operation_keeps_the_form_and_is_the_identity_without_strength(seed, height, width, channels):
    pixels = picture(seed, height, width, channels)[:, ::-1]  # as a flip returns it
    for name, operation in OPERATIONS.items():
        for strength in (-3.0, -1.0, 0.4, 1.0, 3.0):
            found = operation(pixels, strength, BILINEAR)
            assert (found.shape, found.dtype) == (pixels.shape, np.uint8)
        if name not in ("autocontrast", "equalize"):
            np.testing.assert_array_equal(operation(pixels, 0.0, BILINEAR), pixels, err_msg=name)


def test_there_are_the_fourteen_operations_and_a_larger_magnitude_changes_more():
    pixels = ndimage.gaussian_filter(picture(6, 32, 32).astype(float), (3, 3, 0))
    pixels = np.clip((pixels - 127) * 6 + 127, 0, 255).astype(np.uint8)
    assert len(OPERATIONS) == 14
    for name in OPERATIONS.keys() - {"identity", "autocontrast", "equalize"}:
        for sign in (-1, 1):
            change = [
                abs(OPERATIONS[name](pixels, sign * s, BILINEAR).astype(int) - pixels).mean() for s in (0, 0.3, 0.6, 1)
            ]
            assert change == sorted(change), name
            assert change[3] > change[1], name


def test_outside_pixels_have_the_fill():
    for channels in (1, 3):
        found = OPERATIONS["translate-x"](picture(channels=channels), 1.0, NEAREST)
        assert (found[:, -10:] == 77).all()


def test_the_same_generator_gives_the_same_picture():
    augment = pickle.loads(pickle.dumps(RandAugment(3, 9, deviation=0.5)))  # noqa: S301
    before = picture()
    kept = before.copy()
    results = [augment(before, np.random.default_rng(seed)) for seed in range(20)]
    for seed, first in enumerate(results):
        np.testing.assert_array_equal(first, augment(before, np.random.default_rng(seed)))
    np.testing.assert_array_equal(before, kept)
    assert len({result.tobytes() for result in results}) > 15
    np.testing.assert_array_equal(RandAugment(0)(before, np.random.default_rng(0)), before)


def test_operations_and_directions_are_drawn_uniformly(monkeypatch):
    drawn: list[tuple[int, float]] = []

    def noting(number: int):
        return lambda picture, s, edges: drawn.append((number, s)) or picture

    monkeypatch.setattr(rand_augment, "_EACH", tuple(noting(number) for number in range(14)))
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        RandAugment(2, 4)(picture(), rng)
    counts = np.bincount([number for number, _ in drawn], minlength=14)
    assert counts.sum() == 6_000
    assert counts.min() > 0.8 * 6_000 / 14
    assert counts.max() < 1.2 * 6_000 / 14
    strengths = np.array([s for _, s in drawn])
    assert set(abs(strengths)) == {0.4}
    assert abs((strengths > 0).mean() - 0.5) < 0.05
    drawn.clear()
    for _ in range(1_000):
        RandAugment(2, 4, deviation=0.5)(picture(), rng)
    strengths = abs(np.array([s for _, s in drawn]))
    assert abs(strengths.mean() - 0.4) < 0.01
    assert abs(strengths.std() - 0.05) < 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": -1}, "at least 0, not -1"),
        ({"magnitude": 31}, "between 0 and 30, not 31"),
        ({"deviation": -0.5}, "at least 0, not -0.5"),
        ({"fill": 256}, "0 to 255, not 256"),
        ({"resample": 1}, "0, 2 or 3, not 1"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(UnmaskError, match=message):
        RandAugment(**changes)
