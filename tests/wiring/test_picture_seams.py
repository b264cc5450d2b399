"""Parts of the toolkit for pictures that meet in one run: folders and objectives, models and tasks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data.pictures.decoding import encode
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.pictures.reading import Picture
from unmask.errors import UnmaskError
from unmask.models.model import ModelConfig
from unmask.models.resnet import SIZES as RESNET_SIZES
from unmask.models.resnet import ResNet
from unmask.models.swin import SIZES, Swin
from unmask.models.vgg import SIZES as VGG_SIZES
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.runs import recipes, supervised_recipes
from unmask.serve import Predictor
from unmask.tasks.distillation import Distilled
from unmask.tasks.image_classification import ImageClassification
from unmask.train import distributed
from unmask.train.engine import recompute_blocks
from unmask.types import Head

SMALL = {"size": 16, "patch": 4, "dim": 32, "layers": 1, "heads": 2, "hidden": 64}
DECODER = {"decoder_dim": 16, "decoder_layers": 1, "decoder_heads": 2}
LABELLED = ["vit-tiny", "deit-tiny", "swin-tiny", "cct-tiny", "resnet-tiny", "vgg-tiny"]
CHANGED = {
    "simmim-tiny": {"rate": 0.5, "square": 4},
    "mae-tiny": {"rate": 0.5, **DECODER},
    "simclr-tiny": {"colour": 0.25, "projection": 16},
    "cmc-tiny": {"crop": 0.5, "projection": 16},
    "colour-tiny": {"uniform": 0.25, "colour_cell": 2},
    "super-resolution-tiny": {"upscaling": 2},
    "rotation-tiny": {"crop": 0.75},
    "jigsaw-tiny": {"orders": 7, "jitter": 1},
}
"""Recipe -> fields that differ from its defaults."""


def saved(page: ModelConfig, place, heads) -> ImageProcessor:
    processor = ImageProcessor(size=page.size).for_model(page)
    huggingface.save(place, page.build(heads), processor)
    return processor


@pytest.mark.parametrize("recipe", CHANGED)
def test_a_run_without_a_recipe_goes_on_with_what_the_folder_learned(recipe, tmp_path):
    """The objective has the fields of the run of the folder; without a run.json they are the defaults."""
    config = recipes.find(recipe).override({**SMALL, **CHANGED[recipe]})
    processor = config.objective.processor(ImageProcessor())
    page = config.model.replace(**config.objective.model_fields(processor))
    saved(page, tmp_path, config.objective.build(processor).heads)
    assert recipes.choose(None, str(tmp_path))[1].objective == type(config.objective)().of_model(page)
    facts = {"config": {"objective": json.loads(json.dumps(config.objective.to_dict()))}}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert recipes.choose(None, str(tmp_path))[1].objective == config.objective


@pytest.mark.parametrize("recipe", LABELLED)
def test_the_optimizer_of_a_recipe_finds_the_weights_of_its_model(recipe):
    """Muon needs the repeated blocks of a model: those of stages too."""
    config = supervised_recipes.find(recipe)
    model = config.page.build({"image_classification": Head("sequence", 2)})
    config.fit.optimizer.build(model)
    blocks = distributed.blocks(model)
    assert len(blocks) == len(model.blocks)
    assert all(one is other for one, other in zip(blocks, model.blocks, strict=True))


def test_the_blocks_of_a_swin_are_recomputed_without_a_change():
    page = Swin(**SIZES["cpu"]).replace(drop_path=0.0)
    losses = []
    for recompute in (False, True):
        model = page.build(seed=0)
        inner = [block.feedforward for block in distributed.blocks(model)]
        seen = []
        for part in inner:
            part.register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        if recompute:
            recompute_blocks(model)
        processor = ImageProcessor(size=32).for_model(page)
        pixels_HWC = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        loss = model(processor.collate([processor.example(pixels_HWC)])).square().sum()
        loss.backward()
        assert len(seen) == len(inner) * (2 if recompute else 1)
        losses.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other)


def test_merged_states_are_not_compared_with_those_of_a_teacher():
    task, page = ImageClassification(["a", "b"]), Swin(**SIZES["cpu"])
    student, teacher = (page.build(task.heads, seed=seed) for seed in (0, 1))
    aim, processor = Distilled(task, teacher, hidden=1.0), ImageProcessor(size=32).for_model(page)
    row = Picture(label="a", source=encode(np.zeros((32, 32, 3), np.uint8)))
    encoded = aim.prepare(task.encode([row], processor, 0))
    batch = encoded.collating(processor.pad)([encoded.examples], np.random.default_rng(0))
    with pytest.raises(UnmaskError, match="leave --distillation"):
        aim.loss(student, batch)


@pytest.mark.parametrize(
    ("page", "kind"),
    [(Vit(**SMALL, hides=True), "ViT"), (Swin(**SIZES["cpu"]).replace(hides=True), "Swin")],
    ids=["vit", "swin"],
)
def test_a_classifier_has_no_vector_for_masked_patches(page, kind, tmp_path):
    """A folder of masked patches keeps it; the answers of the classifier stay the same."""
    saved(page, tmp_path / "masked", {"patches": Head("token", 3 * page.patch**2, pretraining=True)})
    classifier = huggingface.load(tmp_path / "masked", heads={"image_classification": Head("sequence", 2)}).model
    processor = ImageProcessor(size=page.size).for_model(page)
    huggingface.save(tmp_path / "tuned", classifier, processor, labels=["a", "b"])
    found = huggingface.load(tmp_path / "tuned").model
    assert (classifier.config.hides, found.config.hides) == (True, False)
    assert huggingface.load(tmp_path / "masked").model.config.hides
    pixels_HWC = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    batch, place = processor.collate([processor.example(pixels_HWC)]), torch.zeros(1, dtype=torch.long)
    with torch.inference_mode():
        one, other = (m.answer("image_classification", m(batch), place, batch) for m in (classifier, found))
    assert torch.equal(one, other)
    transformers = pytest.importorskip("transformers")
    opened = getattr(transformers, f"{kind}ForImageClassification")
    _, report = opened.from_pretrained(tmp_path / "tuned", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]


def test_a_damaged_picture_of_a_request_is_named_alone(tmp_path):
    """The advice for a set of labelled pictures, to build a corpus, does not fit a request."""
    page = Vit(**SMALL)
    model = page.build({"image_classification": Head("sequence", 2)}).eval()
    huggingface.save(tmp_path, model, ImageProcessor(size=16).for_model(page), labels=["a", "b"])
    sound = encode(np.zeros((16, 16, 3), np.uint8))
    rows = [Picture(place=f"Text {i}", source=source) for i, source in ((1, sound), (2, sound[:40]), (3, sound))]
    with pytest.raises(UnmaskError, match=r"^Text 2: The picture cannot be decoded: [^.]*\.$"):
        Predictor(tmp_path).answer(rows)


@pytest.mark.parametrize("page", [ResNet(**RESNET_SIZES["cpu"]), Vgg(**VGG_SIZES["cpu"])], ids=["resnet", "vgg"])
def test_blocks_with_running_statistics_are_not_recomputed(page):
    with pytest.raises(UnmaskError, match="twice a step"):
        recompute_blocks(page.build())
