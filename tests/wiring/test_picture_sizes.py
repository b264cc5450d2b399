"""Folders of pictures are trained at another size: from labels, and further from masked patches; MAE ends as a ViT."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.cli import main
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.models import Mae, Swin, Vit, resized
from unmask.models.model import ModelConfig
from unmask.runs import recipes
from unmask.runs.finetuning import evaluate
from unmask.runs.pretraining import Pretrain
from unmask.serve import Predictor
from unmask.tasks.summaries import summaries
from unmask.train.events import Step

Image = pytest.importorskip("PIL.Image")
transformers = pytest.importorskip("transformers")
SMALL = {"dim": 24, "layers": 1, "heads": 3, "hidden": 32}
DECODER = {"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 16}
PAGES: dict[str, ModelConfig] = {
    "ViT": Vit(size=8, patch=2, hides=True, **SMALL),
    "MAE": Mae(size=8, patch=2, **SMALL, **DECODER),
    "Swin": Swin(size=8, patch=2, dim=16, depths=(1, 1), heads=(2, 2), window=2, hides=True),
}
RECIPES = {"ViT": "simmim-tiny", "MAE": "mae-tiny", "Swin": "simmim-swin-tiny"}
CLASSES = {"ViT": "ViTForImageClassification", "MAE": "ViTForImageClassification", "Swin": "SwinForImageClassification"}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of one colour each, with noise, in a folder for each colour."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("pictures")
    for i in range(80):
        label, colour = (("red", (200, 40, 40)), ("blue", (40, 40, 200)))[i % 2]
        pixels = np.array(colour) + rng.integers(-40, 40, (10, 12, 3))
        place = folder / ("test" if i % 4 > 1 else "train") / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.png")
    return folder


def trunk(name: str, folder: Path) -> Path:
    page = PAGES[name]
    huggingface.save(folder / "trunk", page.build(seed=0), ImageProcessor(size=8).for_model(page))
    return folder / "trunk"


def tune(model: Path, pictures: Path, out: Path, **changes: object) -> None:
    given = {"model": model, "task": "image-classification", "train": pictures / "train", "dev": pictures / "test"}
    given |= {"epochs": 4, "lr": 3e-3, "seeds": 1, "batch": 8, "device": "cpu", "precision": "fp32", "out": out}
    main(["finetune", *(part for name, value in (given | changes).items() for part in (f"--{name}", str(value)))])


@pytest.mark.parametrize("size", [4, 12])
@pytest.mark.parametrize("name", PAGES)
def test_labels_are_learned_at_another_size(name, size, pictures, tmp_path):
    if name == "Swin":
        size *= 2  # a window must not be larger than the last grid for `transformers`
    tune(trunk(name, tmp_path), pictures, tmp_path / "run", size=size)
    loaded = huggingface.load(tmp_path / "run")
    assert (loaded.model.config.size, loaded.processor.size) == (size, size)
    result = json.loads((tmp_path / "run" / "results.json").read_text())["seeds"][0]["dev"]["accuracy"]
    assert result > 0.8
    assert evaluate(tmp_path / "run", pictures / "test")["metrics"]["accuracy"] == result

    model, report = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not report["missing_keys"]
    files = sorted(pictures.glob("test/*/*.png"))[::9]
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "run")
    pixels = processor([Image.open(path) for path in files], return_tensors="pt")
    assert pixels["pixel_values"].shape[2:] == (size, size)
    with torch.no_grad():
        expected = model.eval()(**pixels).logits.softmax(-1)
    answers = Predictor(tmp_path / "run", precision="fp32").answer([Picture(source=path) for path in files])
    for answer, row in zip(answers, expected, strict=True):
        assert answer["label"] == model.config.id2label[int(row.argmax())]
        assert answer["probability"] == pytest.approx(float(row.max()), abs=1e-4)


def run_of(name: str, folder: Path | None = None, **changes: object) -> object:
    page = PAGES[name].to_dict()
    config = recipes.find(RECIPES[name])
    if folder is not None:
        config = config.starting_from(folder)
    else:
        config = config.replace(model={field: page[field] for field in page if field != "length"})
        changes = {"size": 8, "patch": 2, **changes}
    usual = {"steps": 4, "save_every": 2, "batch": 8, "heldout": 4, "device": "cpu", "precision": "fp32"}
    changes |= {"square": 2} if name == "Swin" else {"square": 1} if name == "ViT" else {}
    return config.override({**usual, "minutes": None, **changes})


@pytest.mark.parametrize("name", PAGES)
def test_pretraining_continues_at_another_size_and_resumes(name, pictures, tmp_path):
    Pretrain(run_of(name), [pictures / "train"], tmp_path / "small").run()
    small = huggingface.load(tmp_path / "small").model
    config = run_of(name, tmp_path / "small", size=16)
    run = Pretrain(config, [pictures / "train"], tmp_path / "large")
    expected = resized(small, 16).state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in run.model.state_dict().items())
    run.run()
    assert huggingface.load(tmp_path / "large").processor.size == 16

    half = Pretrain(config, [pictures / "train"], tmp_path / "half")
    half.run(lambda event: event == Step(2) and half.trainer.stop("the test"))
    Pretrain(config, [pictures / "train"], tmp_path / "half", resume=True).run()
    one, two = (huggingface.load(tmp_path / part).model.state_dict() for part in ("large", "half"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert len(one) == len(expected)


def test_a_tuned_mae_is_a_vit_with_the_same_states(pictures, tmp_path):
    folder = trunk("MAE", tmp_path)
    loaded = huggingface.load(folder)
    assert isinstance(loaded.model.config, Mae)
    tune(folder, pictures, tmp_path / "run", strategy="frozen")
    tuned = huggingface.load(tmp_path / "run")
    assert type(tuned.model.config) is Vit
    found = sorted(pictures.glob("test/*/*.png"))
    examples = [loaded.processor.example(Picture(source=path).pixels()) for path in found]
    for pooling in ("summary", "mean"):  # a frozen trunk is that of the MAE
        before, after = (summaries(one.model, examples, one.processor, pooling) for one in (loaded, tuned))
        np.testing.assert_allclose(after, before, atol=1e-6)
    model, report = transformers.ViTForImageClassification.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not any(report.values())
    batch = tuned.processor.collate(examples)
    pixels = torch.from_numpy(np.stack([tuned.processor.pixels(Picture(source=path).pixels()) for path in found]))
    with torch.no_grad():
        logits = tuned.model.answer("image_classification", tuned.model(batch), batch.sequence_starts, batch)
        torch.testing.assert_close(logits, model.eval()(pixels).logits, atol=1e-5, rtol=1e-5)
    tune(tmp_path / "run", pictures, tmp_path / "again", epochs=1)  # a ViT now: its positions are trained, too
    one, two = (huggingface.load(tmp_path / part).model.state_dict() for part in ("run", "again"))
    assert not torch.equal(one["embedding.position.table.weight"], two["embedding.position.table.weight"])


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("ViT", 9, "A picture of 9 pixels cannot be cut into patches of 2"),
        ("ViT", 0, "A picture of 0 pixels cannot be cut into patches of 2"),
        ("Swin", 10, "do not divide 10 pixels evenly: choose a multiple of 4"),
    ],
)
def test_sizes_that_are_refused(name, size, message, pictures, tmp_path, capsys):
    folder = trunk(name, tmp_path)
    with pytest.raises(SystemExit):
        tune(folder, pictures, tmp_path / "run", size=size)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_another_patch_is_refused(pictures, tmp_path):
    Pretrain(run_of("ViT"), [pictures / "train"], tmp_path / "small").run()
    with pytest.raises(UnmaskError, match="leave --patch and --channels out"):
        Pretrain(run_of("ViT", tmp_path / "small", patch=4), [pictures / "train"], tmp_path / "large")
