"""Pictures on a GPU: the same losses and answers as on a CPU, up to rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.pictures.reading import by_class
from unmask.runs import recipes, supervised_recipes
from unmask.runs.finetuning import finetune
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor
from unmask.train.metrics import read

Image = pytest.importorskip("PIL.Image")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIZES = {"size": 16, "patch": 4, "dim": 32, "layers": 2, "heads": 2, "hidden": 64, "precision": "fp32"}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise in red and in blue, a folder for each."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for i in range(64):
        place = folder / ("red", "blue")[i % 2]
        place.mkdir(exist_ok=True)
        pixels = rng.integers(0, 100, (16, 16, 3), dtype=np.uint8)
        pixels[..., 2 * (i % 2)] += 100
        Image.fromarray(pixels).save(place / f"{i}.png")
    return folder


def losses(folder: Path, kind: str, name: str) -> list[float]:
    return [row[name] for row in read(folder / "metrics.jsonl", kind) if name in row]


@pytest.mark.parametrize("name", ["vit-tiny", "cct-tiny", "resnet-tiny"])
def test_supervised_training_has_the_same_losses_and_answers(name: str, pictures: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = SIZES if name == "vit-tiny" else {"precision": "fp32"}
    for device in ("cpu", "cuda"):
        changes = {"train": pictures, "minutes": None, "epochs": 3, "batch_size": 16, "lr": 1e-3}
        finetune(supervised_recipes.find(name).override({**sizes, **changes, "device": device}), tmp_path / device)
    found = [losses(tmp_path / device, "train", "loss/image_classification") for device in ("cpu", "cuda")]
    assert found[0]
    np.testing.assert_allclose(found[1], found[0], rtol=2e-2)
    rows = list(by_class(pictures))[:8]
    answers = [Predictor(tmp_path / "cuda", device=device, precision="fp32").answer(rows) for device in ("cpu", "cuda")]
    for on_cpu, on_gpu in zip(*answers, strict=True):
        assert on_cpu["label"] == on_gpu["label"]


@pytest.mark.parametrize("name", ["simclr-tiny", "mae-tiny", "rotation-tiny", "colour-tiny"])
def test_pre_training_has_the_same_losses(name: str, pictures: Path, tmp_path: Path) -> None:
    decoder = {"decoder_dim": 32, "decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 64}
    for device in ("cpu", "cuda"):
        changes = {**SIZES, **(decoder if name == "mae-tiny" else {}), "steps": 4, "minutes": None, "batch": 16}
        config = recipes.find(name).override({**changes, "heldout": 16, "lr": 1e-3, "device": device})
        Pretrain(config, [pictures], tmp_path / device).run()
        assert huggingface.load(tmp_path / device).model
    found = []
    for device in ("cpu", "cuda"):
        [*_, last] = read(tmp_path / device / "metrics.jsonl", "heldout")
        found.append({key: value for key, value in last.items() if key.startswith("loss/")})
    assert found[0]
    assert found[0].keys() == found[1].keys()
    for key, value in found[0].items():
        assert found[1][key] == pytest.approx(value, rel=2e-2)
