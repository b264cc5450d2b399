"""A Swin learns squares of two colours by masked patches and by labels, and predicts; it opens in `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.models.swin import Swin
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics

Image = pytest.importorskip("PIL.Image")
GOLDEN = Path(__file__).parents[1] / "golden" / "pretrain-simmim-swin-tiny.json"


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


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    """Pictures of one colour each, with noise."""
    rng, folder = np.random.default_rng(0), tmp_path / "colours"
    folder.mkdir()
    for i in range(200):
        pixels = rng.integers(30, 226, 3) + rng.integers(-20, 20, (12, 12, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return folder


def tune(model: Path, squares: Path, out: Path, epochs: int = 6) -> None:
    given = {"model": model, "train": squares / "train", "dev": squares / "dev", "out": out}
    given |= {"epochs": epochs, "lr": 3e-3}
    given |= {"task": "image-classification", "seeds": 1, "device": "cpu", "precision": "fp32", "batch": 16}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])


def test_a_swin_learns_two_colours_and_predicts(squares: Path, tmp_path: Path) -> None:
    trunk, out = tmp_path / "trunk", tmp_path / "run"
    page = Swin(size=12, patch=2, dim=16, depths=(2, 2), heads=(2, 4), window=2)
    huggingface.save(trunk, page.build(seed=0), ImageProcessor(size=12).for_model(page))
    tune(trunk, squares, out)
    assert json.loads((out / "results.json").read_text())["seeds"][0]["dev"]["accuracy"] > 0.9

    files = sorted(squares.glob("dev/*/*.png"))[::8]
    ours = Predictor(out, precision="fp32").answer([Picture(source=path) for path in files])
    assert {answer["label"] for answer in ours} == {"red", "blue"}
    transformers = pytest.importorskip("transformers")
    model, report = transformers.SwinForImageClassification.from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    processor = transformers.AutoImageProcessor.from_pretrained(out)
    pixels = processor([Image.open(path) for path in files], return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**pixels).logits.softmax(-1)
    assert [answer["label"] for answer in ours] == [model.config.id2label[i] for i in probabilities.argmax(-1).tolist()]
    for answer, row in zip(ours, probabilities, strict=True):
        assert answer["probability"] == pytest.approx(float(row.max()), abs=1e-4)


def config(**changes: object) -> Any:
    sizes = {"size": 12, "patch": 2, "square": 2, "window": 3, "dim": 16, "depths": "2,1", "heads": "2,2"}
    usual = {"steps": 60, "lr": 3e-3, "batch": 16, "device": "cpu", "precision": "fp32", "heldout": 8, "minutes": None}
    return recipes.find("simmim-swin-tiny").override({**sizes, **usual, **changes})


def test_masked_patches_are_learned_resumed_and_fine_tuned(colours: Path, squares: Path, tmp_path: Path) -> None:
    usual = config(save_every=30, evaluate_every=30)
    run = Pretrain(usual, [colours], tmp_path / "run", recipe="simmim-swin-tiny")
    found = run.run()
    values = torch.cat([batch.targets["patches"].values for batch in run.heldout])
    constant = (values - values.median(0).values).abs().mean()  # the best picture without reading any
    assert found.heldout["loss/patches"] < 0.7 * constant

    half = Pretrain(usual, [colours], tmp_path / "half", recipe="simmim-swin-tiny")
    half.run(lambda event: event == Step(30) and half.trainer.stop("the test"))
    Pretrain(usual, [colours], tmp_path / "half", resume=True).run()
    one, two = (huggingface.load(tmp_path / name).model.state_dict() for name in ("run", "half"))
    assert all(torch.equal(one[name], two[name]) for name in one)

    transformers = pytest.importorskip("transformers")
    model, report = transformers.SwinForMaskedImageModeling.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not any(report.values())
    assert model.config.encoder_stride == 4
    tune(tmp_path / "run", squares, tmp_path / "tuned", epochs=1)
    _, report = transformers.SwinForImageClassification.from_pretrained(tmp_path / "tuned", output_loading_info=True)
    assert not report["missing_keys"]


def test_the_loss_trace_is_the_golden_one(colours: Path, tmp_path: Path) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(steps=12, lr=1e-3, log_every=1), [colours], tmp_path / "run").run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/patches"], 4) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    assert len(trace) == 12
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


def test_a_model_without_a_vector_for_masked_patches(squares: Path, tmp_path: Path) -> None:
    page = Swin(size=12, patch=2, dim=16, depths=(2, 2), heads=(2, 4), window=2)
    huggingface.save(tmp_path / "trunk", page.build(seed=0), ImageProcessor(size=12).for_model(page))
    with pytest.raises(UnmaskError, match="a model without a vector for masked patches"):
        Pretrain(recipes.find("simmim-swin-tiny").starting_from(tmp_path / "trunk"), [squares], tmp_path / "run")
