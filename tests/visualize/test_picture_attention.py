"""Attention over a picture: the numbers of the view are those of the model, and the picture is what it reads."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.deit import Deit
from unmask.models.swin import Swin
from unmask.models.vit import Vit
from unmask.serve.opened import open_model
from unmask.types import Head
from unmask.visualize import attention
from unmask.visualize.numbers import unpacked
from unmask.visualize.picture_attention import over_picture

Image = pytest.importorskip("PIL.Image")
SIZES = {"size": 8, "patch": 2, "dim": 16, "layers": 2, "heads": 2, "hidden": 32, "std": 0.3}
PICTURE = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("page", [Vit(**SIZES), Deit(**SIZES), Vit(**SIZES, channels=1)], ids=["vit", "deit", "grey"])
def test_the_numbers_are_those_of_the_model(page):
    model = page.build(seed=0).eval()
    half = (0.5,) * page.channels
    processor = ImageProcessor(size=8, patch=2, mean=half, std=half).for_model(page)
    picture = PICTURE[..., : page.channels]
    found = over_picture(model, processor, picture)
    T = 16 + len(page.summaries)
    assert (found["grid"], len(found["summaries"]), found["layers"], found["heads"]) == (4, T - 16, 2, 2)
    expected = attention.weights(model, processor.collate([processor.example(picture)]), "encoder")
    for part in found["details"]:
        weights = unpacked(part["weights"])
        np.testing.assert_allclose(weights, expected[part["layer"]][part["heads"]], atol=1e-3)
    np.testing.assert_allclose(unpacked(found["rollout"]).sum(-1), np.ones(T), atol=2e-3)
    shown = np.frombuffer(base64.b64decode(found["picture"]["data"]), np.uint8).reshape(8, 8, 3)
    np.testing.assert_array_equal(shown, np.broadcast_to(picture, (8, 8, 3)))


def test_a_file_is_shown_from_the_command_line(tmp_path: Path, capsys):
    head = {"image_classification": Head("sequence", 2)}
    processor = ImageProcessor(size=8, patch=2)
    huggingface.save(tmp_path / "classes", Vit(**SIZES).build(head), processor, labels=["a", "b"])
    huggingface.save(tmp_path / "trunk", Vit(**SIZES).build({}), processor)
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    for name in ("classes", "trunk"):
        out = tmp_path / f"{name}.html"
        main(["show", "attention", "--model", str(tmp_path / name), str(tmp_path / "a.png"), "--out", str(out)])
        assert '"view":"picture-attention"' in out.read_text()
    for given, sentence in (
        ([], "This model reads pictures: name the file of one."),
        ([str(tmp_path / "b.png")], "There is no picture"),
        ([str(tmp_path / "a.png"), "--pair", "x"], "leave --pair out"),
    ):
        with pytest.raises(SystemExit):
            main(["show", "attention", "--model", str(tmp_path / "trunk"), *given, "--out", str(tmp_path / "c.html")])
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "c.html").exists()


def test_windows_have_no_attention_over_the_whole_picture(tmp_path: Path):
    page = Swin(size=8, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=2)
    huggingface.save(tmp_path / "swin", page.build({}), ImageProcessor(size=8, patch=2).for_model(page))
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    with pytest.raises(UnmaskError, match="patches all attend to each other"):
        open_model(tmp_path / "swin").attention(str(tmp_path / "a.png"))


def test_a_drawing_for_a_paper(tmp_path: Path):
    pytest.importorskip("matplotlib")
    huggingface.save(tmp_path / "trunk", Vit(**SIZES).build({}), ImageProcessor(size=8, patch=2))
    Image.fromarray(PICTURE).save(tmp_path / "a.png")
    out = tmp_path / "attention.png"
    main(["show", "attention", "--model", str(tmp_path / "trunk"), str(tmp_path / "a.png"), "--out", str(out)])
    assert np.asarray(Image.open(out)).std() > 1
