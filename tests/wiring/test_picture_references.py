"""Plain references for pictures: their features against the formulas, and what they score on digits."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_toy import write_digits

from unmask.cli import main
from unmask.data.pictures.reading import Picture
from unmask.tasks.lexical.regression import STRENGTHS
from unmask.tasks.picture_references import (
    BLOCK,
    CELL,
    CLIP,
    EPS,
    ORIENTATIONS,
    SIDE,
    oriented_gradients,
    pixel_values,
    regression_on_pictures,
)


def by_loops(picture: np.ndarray) -> np.ndarray:
    """HOG of Dalal & Triggs 2005 (section 6), pixel by pixel."""
    H, W, C = picture.shape
    cells = np.zeros((H // CELL, W // CELL, ORIENTATIONS))
    for y in range(H):
        for x in range(W):
            gradients = [
                (picture[min(y + 1, H - 1), x, c] - picture[max(y - 1, 0), x, c],
                 picture[y, min(x + 1, W - 1), c] - picture[y, max(x - 1, 0), c])
                for c in range(C)
            ]  # fmt: skip
            down, right = max(gradients, key=lambda one: np.hypot(*one))
            degrees = np.degrees(np.arctan2(down, right)) % 180
            for k in range(ORIENTATIONS):
                centre = (k + 0.5) * 180 / ORIENTATIONS
                distance = abs((degrees - centre + 90) % 180 - 90) / (180 / ORIENTATIONS)
                cells[y // CELL, x // CELL, k] += max(0.0, 1 - distance) * np.hypot(down, right)
    found = []
    for y in range(len(cells) - BLOCK + 1):
        for x in range(len(cells) - BLOCK + 1):
            block = cells[y : y + BLOCK, x : x + BLOCK].transpose(2, 0, 1).ravel()
            block = np.minimum(block / np.sqrt((block**2).sum() + EPS**2), CLIP)
            found.append(block / np.sqrt((block**2).sum() + EPS**2))
    return np.concatenate(found)


@pytest.mark.parametrize("channels", [1, 3])
def test_oriented_gradients_are_those_of_the_formula(channels):
    picture = np.random.default_rng(0).random((16, 16, channels))
    np.testing.assert_allclose(oriented_gradients(picture), by_loops(picture), atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.1, 0.5), st.floats(0, 0.4))
def test_oriented_gradients_do_not_depend_on_light(seed, contrast, brightness):
    picture = np.random.default_rng(seed).random((16, 16, 1))
    expected = oriented_gradients(picture)
    np.testing.assert_allclose(oriented_gradients(contrast * picture + brightness), expected, atol=1e-5)


def test_a_picture_of_one_colour_has_no_gradients():
    assert not oriented_gradients(np.full((16, 16, 3), 0.5)).any()
    assert (pixel_values(np.full((2, 3, 1), 0.5)) == 0.5).all()


def test_the_references_of_digits_are_scored(tmp_path: Path, capsys):
    pytest.importorskip("PIL")
    write_digits(tmp_path, 400, test=4)
    given = {"task": "image-classification", "train": tmp_path / "train", "dev": tmp_path / "test"}
    main(["baseline", *(part for name, value in given.items() for part in (f"--{name}", str(value))), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert list(found["scores"]) == ["baseline", "pixels", "hog"]
    assert found["scores"]["baseline"]["dev"]["accuracy"] < 0.3
    assert min(found["scores"][name]["dev"]["accuracy"] for name in ("pixels", "hog")) > 0.85


def test_few_pictures_are_answered_as_by_all_their_features(tmp_path: Path):
    """A regression in the span of the training pictures is that on their pixels."""
    pytest.importorskip("PIL.Image")
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, SIDE, SIDE, 3), dtype=np.uint8)
    pixels[:20, :10] //= 2
    true = np.repeat([0, 1], 20)
    rows = [Picture(source=_png(one)) for one in pixels]
    answers = regression_on_pictures(rows, pixel_values, true, 2)(rows[::3])
    features = (pixels / 255).reshape(40, -1)
    found = [LogisticRegression(C=C, max_iter=5_000).fit(features, true) for C in STRENGTHS]
    expected = [one.predict_proba(features[::3]) for one in found]
    assert any(np.allclose(np.concatenate(answers), one, atol=2e-3) for one in expected)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
