"""CIE Lab: published colours, the formulas pixel by pixel, the way back, and the classes of colourisation."""

from __future__ import annotations

import numpy as np

from unmask.data.pictures.colour import CLASSES, lightness, to_lab, to_rgb

PUBLISHED = {  # sRGB -> Lab with D65 (Lindbloom's calculator and the tables of EasyRGB)
    (255, 255, 255): (100, 0, 0),
    (0, 0, 0): (0, 0, 0),
    (255, 0, 0): (53.24, 80.09, 67.20),
    (0, 255, 0): (87.73, -86.18, 83.18),
    (0, 0, 255): (32.30, 79.19, -107.86),
    (255, 255, 0): (97.14, -21.55, 94.48),
    (0, 255, 255): (91.11, -48.09, -14.13),
    (255, 0, 255): (60.32, 98.23, -60.82),
    (128, 128, 128): (53.59, 0, 0),
}


def test_published_colours():
    found = to_lab(np.array([list(PUBLISHED)], np.uint8))[0]
    np.testing.assert_allclose(found, list(PUBLISHED.values()), atol=0.02)


def literal(red: int, green: int, blue: int) -> list[float]:
    """The formulas of IEC 61966-2-1 and CIE 15, for one pixel."""
    light = []
    for level in (red, green, blue):
        c = level / 255
        light.append(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
    x = 0.4124564 * light[0] + 0.3575761 * light[1] + 0.1804375 * light[2]
    y = 0.2126729 * light[0] + 0.7151522 * light[1] + 0.0721750 * light[2]
    z = 0.0193339 * light[0] + 0.1191920 * light[1] + 0.9503041 * light[2]

    def f(t: float) -> float:
        return t ** (1 / 3) if t > 216 / 24_389 else (24_389 / 27 * t + 16) / 116

    fx, fy, fz = f(x / 0.95047), f(y), f(z / 1.08883)
    return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)]


def test_the_formulas_pixel_by_pixel_and_back():
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    picture[0, :20] = np.arange(60).reshape(20, 3) // 6  # dark pixels, where the cube root ends
    found = to_lab(picture)
    expected = [[literal(*map(int, pixel)) for pixel in row] for row in picture]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.array_equal(to_rgb(found), picture)


def test_a_picture_without_its_colours_keeps_its_lightness():
    picture = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    grey = lightness(picture)
    assert (np.ptp(grey, axis=2) == 0).all()
    np.testing.assert_allclose(to_lab(grey)[..., 0], to_lab(picture)[..., 0], atol=0.3)  # half a level
    assert to_rgb(np.array([[[120.0, 0, 0], [-9, 0, 0]]])).tolist() == [[[255, 255, 255], [0, 0, 0]]]  # clipped


def test_classes_cover_the_colours_of_srgb():
    """The nearest point of the grid is a class, and no class is far from a colour."""
    assert (CLASSES.shape, len(np.unique(CLASSES, axis=0)), (CLASSES % 10).any()) == ((313, 2), 313, False)
    levels = np.append(np.arange(0, 255, 5), 255).astype(np.uint8)
    ab = to_lab(np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), -1).reshape(1, -1, 3))[0, :, 1:]
    known = set(map(tuple, CLASSES.astype(int).tolist()))
    assert set(map(tuple, (np.rint(ab / 10) * 10).astype(int).tolist())) <= known
    for point in CLASSES:
        assert np.abs(ab - point).max(1).min() < 15
