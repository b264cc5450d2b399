"""A ResNet and a VGG are fine-tuned on squares of two colours, saved, served and resumed; running statistics are kept
with the weights, and stand still in a frozen trunk."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finetune_toy import Spy
from starlette.testclient import TestClient
from torch import Tensor

from unmask import huggingface
from unmask.cli import main
from unmask.data import collate
from unmask.data.examples import Groups, labelled
from unmask.data.labelled.rows import Row
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.models.resnet import ResNet
from unmask.models.swin import Swin
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.nn.buffers import persistent_buffers, stored
from unmask.objectives.contrastive import Contrastive, nt_xent
from unmask.runs.finetuning import FineTuning, Fit, begun, evaluate, finetune, fit
from unmask.runs.finetuning.supervised import Fitted
from unmask.runs.transfer import Transfer, prepare, remembering, scale
from unmask.serve import Predictor
from unmask.serve.http.app import build
from unmask.serve.http.pool import Pool
from unmask.tasks import Encoded, ImageClassification
from unmask.train.engine import Engine
from unmask.train.metrics import Meter
from unmask.train.optim import Optimizer
from unmask.train.trainer import Trainer, Training
from unmask.types import Kind, Signal

Image = pytest.importorskip("PIL.Image")

RESNET = ResNet(size=12, stem="small", dim=8, widths=(8, 16), depths=(1, 1), block="basic")
VGG = Vgg(size=12, widths=(8, 16), depths=(1, 2), norm=True)
PAGES = {"resnet": RESNET, "vgg": VGG}
TASK = ImageClassification(["red", "blue"])


def square(i: int, rng: np.random.Generator) -> np.ndarray:
    """A square of one colour, somewhere on grey noise: red for even numbers."""
    pixels = rng.integers(96, 160, (12, 12, 3), dtype=np.uint8)
    down, right = rng.integers(0, 7, 2)
    pixels[down : down + 6, right : right + 6] = (255, 0, 0) if i % 2 == 0 else (0, 0, 255)
    return pixels


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares as files, in a folder for each class."""
    folder, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    for i in range(96):
        place = folder / ("dev" if i % 4 > 1 else "train") / ("red", "blue")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(square(i, rng)).save(place / f"{i}.png")
    return folder


def processor_of(page: Any) -> ImageProcessor:
    return ImageProcessor(size=page.size).for_model(page)


def saved(page: Any, folder: Path) -> Path:
    huggingface.save(folder, page.build(seed=0), processor_of(page))
    return folder


def tune(model: Path, squares: Path, out: Path, **changes: object) -> dict[str, Any]:
    given: dict[str, object] = {"model": model, "train": squares / "train", "dev": squares / "dev", "out": out}
    given |= {"task": "image-classification", "seeds": 1, "device": "cpu", "precision": "fp32", "batch": 16}
    given |= {"epochs": 6, "lr": 1e-2, **changes}
    main(["finetune", *(part for name, value in given.items() for part in (f"--{name}", str(value)))])
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


@pytest.mark.parametrize("name", PAGES)
def test_two_colours_are_learned_scored_predicted_and_served(name: str, squares: Path, tmp_path: Path) -> None:
    trunk, out = saved(PAGES[name], tmp_path / "trunk"), tmp_path / "run"
    accuracy = tune(trunk, squares, out)["seeds"][0]["dev"]["accuracy"]
    assert accuracy > 0.9
    assert evaluate(out, squares / "dev")["metrics"]["accuracy"] == accuracy
    files = sorted(squares.glob("dev/*/*.png"))[::8]
    ours = Predictor(out, precision="fp32").answer([Picture(source=path) for path in files])
    assert {answer["label"] for answer in ours} == {"red", "blue"}
    http = TestClient(build(Pool([str(out)])))
    given = [{"picture": base64.b64encode(path.read_bytes()).decode()} for path in files]
    answers = http.post("/predict", json={"texts": given}).json()["answers"]
    assert [answer["label"] for answer in answers] == [answer["label"] for answer in ours]
    vectors = tmp_path / "vectors.npy"
    main(["embed", "--model", str(out), "--data", str(squares / "dev"), "--out", str(vectors)])
    assert np.load(vectors).shape == (48, 16)


def test_the_settings_of_a_run_on_a_single_place_run_again(squares: Path, tmp_path: Path) -> None:
    trunk = saved(Vgg(size=4, widths=(8, 16), depths=(1, 1)), tmp_path / "trunk")
    tune(trunk, squares, tmp_path / "one", epochs=1)
    config = FineTuning.of_run(json.loads((tmp_path / "one" / "run.json").read_text())["config"])
    assert config.rows.length == 1
    finetune(config, tmp_path / "two")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_settings_that_suit_no_optimizer_leave_no_run(squares: Path, tmp_path: Path) -> None:
    config = FineTuning(model=saved(VGG, tmp_path / "trunk"), task="image-classification")
    for changes, message in (({"algorithm": "muon"}, "repeated blocks"), ({"lr": 0.0}, "must be above 0")):
        with pytest.raises(UnmaskError, match=message):
            finetune(config.override({"train": squares / "train", **changes}), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_resnet_of_transformers_is_fine_tuned_and_opens_there_again(squares: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "theirs")
    ImageProcessor(size=16, summaries=()).save(tmp_path / "theirs")
    tune(tmp_path / "theirs", squares, tmp_path / "run", epochs=2)
    model, report = transformers.ResNetForImageClassification.from_pretrained(
        tmp_path / "run", output_loading_info=True
    )
    assert not any(report.values())
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "run")
    files = sorted(squares.glob("dev/*/*.png"))[::8]
    pixels = processor([Image.open(path) for path in files], return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**pixels).logits.softmax(-1)
    ours = Predictor(tmp_path / "run", precision="fp32").answer([Picture(source=path) for path in files])
    for answer, row in zip(ours, probabilities, strict=True):
        assert answer["probability"] == pytest.approx(float(row.max()), abs=1e-4)


# ------------------------------------------------------------------------------------------------ running statistics


def encoded(page: Any, count: int, seed: int = 0) -> Encoded:
    rng, processor = np.random.default_rng(seed), processor_of(page)
    examples = []
    for i in range(count):
        target = {TASK.name: (np.zeros(1, np.int64), np.array([i % 2]))}
        examples.append(replace(processor.example(square(i, rng)), targets=target))
    return Encoded(examples, np.arange(count), [Row(label=TASK.labels[i % 2]) for i in range(count)], page.length)


def built(name: str) -> Model:
    """A model whose running statistics are those of some pictures."""
    model = PAGES[name].build(TASK.heads, seed=0).train()
    with torch.no_grad():
        for seed in range(2, 8):
            model(collate.pad(encoded(PAGES[name], 8, seed).examples, Kind.PADDING, multiple=1))
    return model


def copied(model: Model) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in stored(model).items()}


def fitted(model: Model, transfer: Transfer | None = None, **more: Any) -> Fitted:
    config = Fit().override({"epochs": 3, "batch_size": 8, "lr": 1e-2, "precision": "fp32", "device": "cpu", **more})
    return fit(model, TASK, encoded(model.config, 24), encoded(model.config, 16, 1), config, pad=-1, transfer=transfer)


def moved(before: dict[str, Tensor], model: Model) -> set[str]:
    return {name for name, x in stored(model).items() if not torch.equal(x, before[name])}


@pytest.mark.parametrize("name", PAGES)
def test_a_frozen_trunk_keeps_its_statistics_and_only_the_head_moves(name: str) -> None:
    model = built(name)
    before = copied(model)
    fitted(model, Transfer(strategy="frozen"))
    assert moved(before, model) == {f"heads.{TASK.name}.output.{part}" for part in ("weight", "bias")}


@pytest.mark.parametrize("name", PAGES)
def test_the_last_blocks_move_with_their_statistics_and_the_others_stand_still(name: str) -> None:
    model = built(name)
    before = copied(model)
    fitted(model, Transfer(strategy="top", layers=1))
    last = f"stack.stages.1.blocks.{PAGES[name].depths[1] - 1}."
    names = {name for name in before if name.startswith((last, "heads."))}
    assert any(name.endswith("running_var") for name in names)
    assert moved(before, model) == names


def test_a_full_run_moves_everything() -> None:
    model = built("resnet")
    before = copied(model)
    fitted(model, Transfer(layer_decay=0.5))
    assert moved(before, model) == before.keys()


def test_rates_fall_from_block_to_block() -> None:
    rates = scale(PAGES["vgg"].build(TASK.heads), Transfer(layer_decay=0.5))
    found = [rates[f"stack.stages.{name}.convolution.weight"] for name in ("1.blocks.1", "1.blocks.0", "0.blocks.0")]
    assert found == [1, 0.5, 0.25]
    rates = scale(PAGES["resnet"].build(TASK.heads), Transfer(layer_decay=0.5))
    assert rates["stack.stages.0.blocks.0.layers.1.norm.bias"] == 0.5
    assert rates["embedding.convolution.weight"] == 0.25


def test_lora_needs_linear_layers() -> None:
    with pytest.raises(UnmaskError, match="this model has none: choose another --strategy"):
        fitted(built("resnet"), Transfer(strategy="lora"))


def test_new_blocks_have_new_statistics() -> None:
    model = built("resnet")
    prepare(model, Transfer(reinitialise=1))
    first, last = (model.blocks[i].layers[0].norm for i in (0, 1))
    assert not last.running_mean.any()
    assert int(last.num_batches_tracked) == 0
    assert first.running_mean.all()


@pytest.mark.parametrize("at", [1, 2])
def test_the_best_evaluation_has_its_own_statistics(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier evaluation is the best: the model ends with the weights and the statistics that it had then."""
    model, seen = built("resnet"), list[dict[str, Tensor]]()

    def scores(self: ImageClassification, model: Model, *_: Any) -> dict[str, float]:
        seen.append(copied(model))
        return {"accuracy": float(len(seen) - 1 == at)}

    monkeypatch.setattr(ImageClassification, "evaluate", scores)
    found = fitted(model)
    assert (found.step, len(seen)) == (3 * at, 4)
    assert not moved(seen[at], model)
    assert moved(seen[3], model) == seen[3].keys()


@pytest.mark.parametrize("strategy", ["full", "frozen"])
def test_a_run_that_dies_ends_as_if_it_had_not(strategy: str, squares: Path, tmp_path: Path) -> None:
    trunk = saved(RESNET, tmp_path / "trunk")
    given = {"model": trunk, "train": squares / "train", "dev": squares / "dev", "task": "image-classification"}
    given |= {"seeds": 1, "device": "cpu", "precision": "fp32", "batch_size": 16, "epochs": 4, "lr": 1e-2}
    config = FineTuning().override({**given, "strategy": strategy})
    finetune(config, tmp_path / "whole")

    class Deadly(Spy):
        def show(self, row: dict[str, Any]) -> None:
            if row["step"] == 7:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(config, tmp_path / "again", display=Deadly())
    finetune(begun(tmp_path / "again"), tmp_path / "again", resume=True)
    one, two = (huggingface.load(tmp_path / name).model for name in ("whole", "again"))
    if strategy == "full":
        assert not moved(copied(one), two)
    else:  # the states of the trunk are computed again, in other batches
        for name, x in stored(one).items():
            torch.testing.assert_close(stored(two)[name], x, atol=1e-5, rtol=1e-4)


def test_a_step_that_is_skipped_changes_no_statistics() -> None:
    model = built("resnet")
    engine = Engine(model, TASK, Optimizer(lr=1e-2), device=torch.device("cpu"), precision="fp32")
    batch = collate.pad(encoded(RESNET, 4).examples, Kind.PADDING, multiple=1)
    before = copied(model)
    assert batch.signal is not None
    values = batch.signal.values.clone()
    values[0, 0] = float("inf")
    meter = Meter()
    engine.step([replace(batch, signal=Signal(batch.signal.places, values))], batch.counts, 1e-2, meter)
    assert not moved(before, model)
    engine.step([batch], batch.counts, 1e-2, meter)
    assert moved(before, model) == before.keys()


def test_measuring_the_time_of_a_step_changes_no_statistics(tmp_path: Path) -> None:
    model = built("resnet")
    before = copied(model)
    data = labelled(Groups(encoded(RESNET, 24).examples, None), 8, pad=Kind.PADDING, seed=0)
    Trainer(model, TASK, data, Training(steps=2, precision="fp32", device="cpu"), tmp_path).plan()
    assert not moved(before, model)


def test_the_mean_of_folders_has_the_mean_statistics_and_the_largest_count(tmp_path: Path) -> None:
    models = [RESNET.build(seed=seed) for seed in range(2)]
    for i, model in enumerate(models):
        for buffer in persistent_buffers(model).values():
            buffer.fill_(4 * i)
        huggingface.save(tmp_path / str(i), model)
    mean = huggingface.average([tmp_path / "0", tmp_path / "1"])
    norm = huggingface.load(tmp_path / "0", weights=mean).model.embedding.norm
    assert torch.equal(norm.running_var, torch.full((8,), 2.0))
    assert int(norm.num_batches_tracked) == 4


# ------------------------------------------------------------------------------------------------ other models


@pytest.mark.parametrize(
    "page", [RESNET, Vit(size=12, patch=4, dim=8, layers=1, heads=2, hidden=8)], ids=["ResNet", "ViT"]
)
def test_the_states_of_a_frozen_trunk_are_those_of_the_picture(page: Any) -> None:
    """All pictures have the same tokens."""
    model = page.build(TASK.heads, seed=0).eval()
    batches = [collate.pad(encoded(page, 3, seed).examples, Kind.PADDING, multiple=1) for seed in (0, 1, 0)]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
        with remembering(model, Transfer(strategy="frozen")):
            found = [model(batch) for batch in batches]
            assert len(model.forward.states) == 6
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_last_blocks_of_a_swin_are_trained() -> None:
    """Its blocks lie in stages; the merging of patches goes with the block before it."""
    page = Swin(size=12, patch=2, dim=8, depths=(2, 2), heads=(2, 2), window=3)
    model = page.build(TASK.heads, seed=0)
    before = copied(model)
    fitted(model, Transfer(strategy="top", layers=2))
    trained = ("stack.stages.1.", "stack.norm.", "heads.")
    names = {name for name in before if name.startswith(trained)}
    assert moved(before, model) == names
    rates = scale(model, Transfer(layer_decay=0.5))
    assert [
        rates[f"stack.stages.0.{name}"] for name in ("merge.reduction.weight", "blocks.0.feedforward.f.up.bias")
    ] == [0.25, 0.125]


@pytest.mark.parametrize("name", PAGES)
def test_two_views_are_compared_by_the_mean_of_the_map(name: str) -> None:
    """SimCLR, whose target is the first place of a row: a patch here, or a class token that the model does not read."""
    page, rng = PAGES[name], np.random.default_rng(0)
    bare = processor_of(page)
    settings = {"temperature": 0.1, "colour": 0.5, "crop": 0.5, "projection": 8}
    objectives = [Contrastive(one, **settings) for one in (bare, replace(bare, summaries=(int(Kind.CLS),)))]
    model = page.build(objectives[0].heads, seed=0).train()
    pictures = [square(i, rng) for i in range(4)]
    for objective in objectives:
        batch = objective.rows(pictures, np.random.default_rng(1))
        hidden, first = model(batch), torch.arange(8) * batch.tokens.shape[1]
        found = objective.score(model, hidden, batch)
        maps = hidden.unflatten(0, (8, 1))[:, 0, len(objective.processor.summaries) :]
        expected = nt_xent(model.heads["views"](maps.mean(1)), 0.1)
        torch.testing.assert_close(found.sum, expected.sum)
        torch.testing.assert_close(model.summary(hidden, first, batch), maps.mean(1))
        assert found.count == 8
