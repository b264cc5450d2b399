"""Transfer of pictures: a classifier gets other labels, a tenth of its rate, a learning curve, and a data report."""

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
from unmask.errors import UnmaskError
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.data_report import data_report
from unmask.runs.finetuning.encoder import rate_of
from unmask.types import Head

Image = pytest.importorskip("PIL.Image")

PAGES = {
    "vgg": Vgg(size=12, widths=(8, 16), depths=(1, 2), norm=True),
    "vit": Vit(size=12, patch=4, dim=16, layers=2, heads=2, hidden=32),
}
HEAD = "image_classification"
COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 200, 0), "yellow": (255, 255, 0)}
TASK = "image-classification"


def squares(folder: Path, labels: tuple[str, ...], count: int, seed: int) -> Path:
    """Squares of one colour on grey noise, in a folder for each colour."""
    rng = np.random.default_rng(seed)
    for label in labels:
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(96, 160, (12, 12, 3), dtype=np.uint8)
            down, right = rng.integers(0, 7, 2)
            pixels[down : down + 6, right : right + 6] = COLOURS[label]
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two colours that no trunk has been trained on."""
    folder = tmp_path_factory.mktemp("target")
    for seed, (split, count) in enumerate((("train", 16), ("dev", 8))):
        squares(folder / split, ("green", "yellow"), count, seed)
    return folder


def classifier(page: Any, folder: Path, labels: tuple[str, ...] = ("red", "blue"), lr: float | None = 2e-2) -> Path:
    """A classifier, and run.json as a run from new weights at this rate has it."""
    model = page.build({HEAD: Head("sequence", len(labels))}, seed=0)
    huggingface.save(folder, model, ImageProcessor(size=page.size).for_model(page), labels=labels)
    if lr is not None:
        config = {"model": None, "fit": {"optimizer": {"lr": lr}}}
        (folder / "run.json").write_text(json.dumps({"kind": "finetuning", "config": config}))
    return folder


def tuned(model: Path, target: Path, out: Path, *more: str) -> dict[str, Any]:
    given = {"model": model, "train": target / "train", "dev": target / "dev", "out": out, "task": TASK}
    given |= {"seeds": 1, "device": "cpu", "precision": "fp32", "batch-size": 16, "epochs": 4}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value))), *more])
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def rate(out: Path) -> float:
    """The learning rate of a run."""
    found: float = json.loads((out / "run.json").read_text())["config"]["fit"]["optimizer"]["lr"]
    return found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("strategy", ["frozen", "top", "full"])
def test_a_classifier_learns_as_many_other_labels(name: str, strategy: str, target: Path, tmp_path: Path) -> None:
    """The three panels. Both tasks have two labels, so that the shape of the head does not tell them apart."""
    page = PAGES[name]
    before = classifier(page, tmp_path / "before")
    given = ["--strategy", strategy, "--lr", "1e-2", *(["--layers", "1"] if strategy == "top" else [])]
    found = tuned(before, target, tmp_path / "after", *given)
    said = "\n".join(found["notes"])
    assert f"New parts, with random weights: {HEAD}. Parts of the folder that are left out: {HEAD}." in said
    old, new = (huggingface.load(tmp_path / place) for place in ("before", "after"))
    assert (old.labels, new.labels) == (("red", "blue"), ("green", "yellow"))
    ours, theirs = (dict(loaded.model.named_parameters()) for loaded in (old, new))
    moved = {name for name, p in ours.items() if not torch.equal(p, theirs[name])}
    assert {name for name in ours if name.startswith("heads.")} <= moved
    last = {"vgg": "stack.stages.1.blocks.1.", "vit": "stack.blocks.1."}[name]
    trunk = {name for name in moved if not name.startswith("heads.")}
    if strategy == "frozen":
        assert not trunk
    elif strategy == "top":
        assert any(name.startswith(last) for name in trunk)
        assert all(name.startswith((last, "stack.norm.")) for name in trunk)
    else:
        assert any(not name.startswith((last, "stack.norm.")) for name in trunk)


@pytest.mark.parametrize(
    ("stored", "wanted", "kept"),
    [
        (("a", "b"), ("a", "b"), True),
        (("a", "b"), ("b", "a"), False),  # the same outputs in another order
        (("a", "b"), ("c", "d"), False),
        (("a", "b"), (), True),
        (("LABEL_0", "LABEL_1"), ("c", "d"), True),  # default names say nothing
        (("a", "b", "c"), ("a", "b"), False),
    ],
)
def test_a_head_is_kept_for_its_own_labels_alone(
    stored: tuple[str, ...], wanted: tuple[str, ...], kept: bool, tmp_path: Path
) -> None:
    classifier(PAGES["vgg"], tmp_path, stored)
    heads = {HEAD: Head("sequence", len(wanted) or len(stored))}
    loaded = huggingface.load(tmp_path, huggingface.SINGLE_STACK, heads=heads, outputs=wanted, seed=5)
    assert (loaded.new, loaded.dropped) == (((), ()) if kept else ((HEAD,), (HEAD,)))
    before = huggingface.load(tmp_path).model.heads[HEAD].get_parameter("output.weight")
    assert torch.equal(loaded.model.heads[HEAD].get_parameter("output.weight"), before) == kept


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], 2e-3),
        (["--from-scratch", "true"], 2e-3),
        (["--strategy", "top", "--layers", "1"], 2e-3),
        (["--strategy", "frozen"], 1e-3),
        (["--lr", "3e-4"], 3e-4),
    ],
)
def test_the_default_rate_is_a_tenth_of_that_of_the_folder(
    given: list[str], expected: float, target: Path, tmp_path: Path
) -> None:
    found = tuned(classifier(PAGES["vgg"], tmp_path / "trunk"), target, tmp_path / "run", *given)
    assert rate(tmp_path / "run") == pytest.approx(expected)
    assert any("trained at 0.02" in note for note in found["notes"]) == (expected == 2e-3)


def test_a_folder_of_another_program_has_the_usual_rate(target: Path, tmp_path: Path) -> None:
    tuned(classifier(PAGES["vgg"], tmp_path / "trunk", lr=None), target, tmp_path / "run")
    assert rate(tmp_path / "run") == 5e-5


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model": None, "fit": {"optimizer": {"lr": 0.01}}}, 0.01),  # `unmask train`
        ({"model": {"dim": 8}, "start": None, "training": {"optimizer": {"lr": 0.01}}}, 0.01),  # `unmask pretrain`
        ({"model": "runs/a", "fit": {"optimizer": {"lr": 0.01}}}, None),  # a rate that was lowered already
        ({"model": {"dim": 8}, "start": "runs/a", "training": {"optimizer": {"lr": 0.01}}}, None),
        ({"model": None, "fit": {"optimizer": "adam"}}, None),
        (None, None),
    ],
)
def test_the_rate_of_a_folder(config: dict[str, Any] | None, expected: float | None, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"config": config}))
    assert rate_of(tmp_path) == expected
    assert rate_of(tmp_path / "none") is None


def test_a_search_sets_the_rate_itself(target: Path, tmp_path: Path) -> None:
    """Its grid may have the default rate."""
    given = ["--search", "--grid.lr", "5e-5", "--grid.batch_size", "16", "--grid.epochs", "1"]
    trunk, out = classifier(PAGES["vgg"], tmp_path / "trunk"), tmp_path / "run"
    rows = ["--train", str(target / "train"), "--dev", str(target / "dev"), "--task", TASK, "--seeds", "1"]
    main(["finetune", "--model", str(trunk), *rows, "--device", "cpu", "--out", str(out), *given])
    assert rate(out) == 5e-5
    assert not any("trained at" in note for note in json.loads((out / "results.json").read_text())["notes"])


@pytest.mark.parametrize("given", [[], ["--from-scratch", "true"], ["--flip", "0.5", "--padding", "1"]])
def test_a_learning_curve_of_pictures(given: list[str], target: Path, tmp_path: Path) -> None:
    trunk, out = classifier(PAGES["vgg"], tmp_path / "trunk"), tmp_path / "run"
    rows = ["--train", str(target / "train"), "--dev", str(target / "dev"), "--task", TASK, "--seeds", "2"]
    rows += ["--epochs", "8", "--lr", "1e-2", "--device", "cpu", "--precision", "fp32", "--batch-size", "8"]
    main(["finetune", "--model", str(trunk), *rows, "--curve", "4,all", "--out", str(out), *given])
    runs = json.loads((out / "curve.json").read_text())["runs"]
    assert [(run["rows"], run["seed"]) for run in runs] == [(4, 0), (4, 1), (32, 0), (32, 1)]
    assert max(run["dev"]["accuracy"] for run in runs[2:]) > 0.8


def test_the_data_report_of_pictures(target: Path, tmp_path: Path) -> None:
    given = {"model": classifier(PAGES["vgg"], tmp_path), "train": target / "train", "dev": target / "dev"}
    said = data_report(FineTuning().override({"task": TASK, **given}))
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("green 16 50.0%") for line in lines)
    assert "32 rows are little data: fewer than 1,000." in lines
    assert "measured for texts only, so no strategy is advised" in said
    assert "three or more seeds" in said
    assert "Lengths" not in said
    assert "Text and model" not in said


def test_adapters_need_linear_layers(target: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match="LoRA adapts linear layers, and this model has none"):
        data_report(
            FineTuning().override(
                {
                    "task": TASK,
                    "strategy": "lora",
                    "model": classifier(PAGES["vgg"], tmp_path),
                    "train": target / "train",
                }
            )
        )
