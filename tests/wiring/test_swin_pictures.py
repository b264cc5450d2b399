"""A Swin is fine-tuned on squares of two colours, scored, saved, and predicts; it opens in `transformers`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.models.swin import Swin
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """A square of one colour, somewhere on grey noise, in a folder for each class."""
    rng = np.random.default_rng(0)
    for i in range(96):
        label = ("red", "blue")[i % 2]
        pixels = rng.integers(96, 160, (12, 12, 3), dtype=np.uint8)
        down, right = rng.integers(0, 7, 2)
        pixels[down : down + 6, right : right + 6] = (255, 0, 0) if label == "red" else (0, 0, 255)
        place = tmp_path / "pictures" / ("dev" if i % 4 > 1 else "train") / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{i}.png")
    return tmp_path / "pictures"


def test_a_swin_learns_two_colours_and_predicts(squares: Path, tmp_path: Path) -> None:
    trunk, out = tmp_path / "trunk", tmp_path / "run"
    page = Swin(size=12, patch=2, dim=16, depths=(2, 2), heads=(2, 4), window=2)
    huggingface.save(trunk, page.build(seed=0), ImageProcessor(size=12).for_model(page))
    given = {"model": trunk, "train": squares / "train", "dev": squares / "dev", "out": out, "epochs": 6, "lr": 3e-3}
    given |= {"task": "image-classification", "seeds": 1, "device": "cpu", "precision": "fp32", "batch": 16}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])
    assert json.loads((out / "results.json").read_text())["seeds"][0]["dev"]["accuracy"] > 0.9

    files = sorted(squares.glob("dev/*/*.png"))[::8]
    ours = Predictor(out, precision="fp32").answer([Picture(source=path) for path in files])
    assert {answer["label"] for answer in ours} == {"red", "blue"}
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model, report = transformers.SwinForImageClassification.from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    processor = transformers.AutoImageProcessor.from_pretrained(out)
    pixels = processor([Image.open(path) for path in files], return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**pixels).logits.softmax(-1)
    assert [answer["label"] for answer in ours] == [model.config.id2label[i] for i in probabilities.argmax(-1).tolist()]
    for answer, row in zip(ours, probabilities, strict=True):
        assert answer["probability"] == pytest.approx(float(row.max()), abs=1e-4)


def test_hidden_patches_are_refused(squares: Path, tmp_path: Path) -> None:
    page = Swin(size=12, patch=2, dim=16, depths=(2, 2), heads=(2, 4), window=2)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), ImageProcessor(size=12).for_model(page))
    able = "rotations of pictures or orders of tiles of pictures"
    with pytest.raises(UnmaskError, match=f"This Swin learns {able}, not masked patches of pictures"):
        Pretrain(recipes.find("simmim-tiny").starting_from(tmp_path / "trunk"), [squares], tmp_path / "run")
