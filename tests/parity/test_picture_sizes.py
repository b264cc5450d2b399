"""Pictures of another size than the model was trained on, against `interpolate_pos_encoding` of `transformers`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models import Bert, Mae, Vit, resized
from unmask.models.mae import Grid
from unmask.models.model import Model
from unmask.types import Batch, Head, Kind

transformers = pytest.importorskip("transformers")
TRANSFORMER = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
SWIN = {"embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2}
MODELS = {
    "ViTForImageClassification": ("ViTConfig", TRANSFORMER),
    "DeiTForImageClassificationWithTeacher": ("DeiTConfig", TRANSFORMER),
    "SwinForImageClassification": ("SwinConfig", SWIN),
    "absolute SwinForImageClassification": ("SwinConfig", SWIN | {"use_absolute_embeddings": True}),
}


def theirs(name: str, size: int, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    config, sizes = MODELS[name]
    made = getattr(transformers, config)(**(sizes | {"image_size": size, "patch_size": 2} | changes), num_labels=5)
    model = getattr(transformers, name.split()[-1])(made)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def rows(model: Model, pixels: torch.Tensor) -> Batch:
    """A batch [B, T] of pictures [B, C, H, W] that are prepared."""
    half = (0.5,) * model.config.channels
    processor = ImageProcessor(size=model.config.size, mean=half, std=half).for_model(model.config)
    return collate.pad([processor.patches(one.numpy()) for one in pixels], Kind.PADDING, multiple=1)


def logits(model: Model, pixels: torch.Tensor) -> torch.Tensor:
    batch = rows(model, pixels)
    return model.answer("image_classification", model(batch), batch.sequence_starts, batch)


@pytest.mark.parametrize("before", [8, 20, 36])  # grids of 4, 10 and 18 patches of a side
@pytest.mark.parametrize("after", [12, 28])
@pytest.mark.parametrize("name", MODELS)
def test_logits_at_another_size(name, before, after, tmp_path):
    model = theirs(name, before)
    model.save_pretrained(tmp_path / "theirs")
    half = {"height": before, "width": before}
    transformers.ViTImageProcessor(size=half).save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    other = huggingface.resized(loaded, after)
    pixels = torch.randn(2, 3, after, after)
    with torch.no_grad():
        expected = model(pixels, interpolate_pos_encoding=True).logits
        torch.testing.assert_close(logits(other.model, pixels), expected, atol=1e-5, rtol=1e-5)
    assert (other.model.config.size, other.processor.size, other.model.training) == (after, after, False)
    assert (loaded.model.config.size, loaded.processor.size) == (before, before)  # the folder stays as it was

    huggingface.save(tmp_path / "ours", other.model, other.processor, labels=list("abcde"))
    again, report = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    with torch.no_grad():
        torch.testing.assert_close(again(pixels).logits, expected, atol=1e-5, rtol=1e-5)
    assert transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours").size == {"height": after, "width": after}


@pytest.mark.parametrize("name", ["ViTForImageClassification", "DeiTForImageClassificationWithTeacher"])
@pytest.mark.parametrize(("before", "after"), [(9, 15), (15, 9), (21, 3), (3, 12)])
def test_odd_grids(name, before, after, tmp_path):
    model = theirs(name, before, patch_size=3, num_channels=1)
    model.save_pretrained(tmp_path)
    ours, pixels = huggingface.load(tmp_path).model, torch.randn(2, 1, after, after)
    with torch.no_grad():
        expected = model(pixels, interpolate_pos_encoding=True).logits
        other = resized(ours, after)
        torch.testing.assert_close(logits(other, pixels), expected, atol=1e-5, rtol=1e-5)
    first = len(ours.config.summaries)
    names = ("embedding.position.table.weight", "embedding.token.kinds.CLS")
    one, two = (model.state_dict() for model in (ours, other))
    assert torch.equal(one[names[0]][:first], two[names[0]][:first])  # the places of the summaries keep their vectors
    assert torch.equal(one[names[1]], two[names[1]])


def test_the_same_size_is_the_same_model():
    model = Vit(size=8, patch=2, dim=24, layers=1, heads=3, hidden=40).build(
        {"patches": Head("token", 12)}, pooler=True
    )
    other = resized(model, 8)
    assert model.training
    assert other.training
    one, two = model.state_dict(), other.state_dict()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("after", [4, 16, 20])
def test_fixed_positions_are_computed_for_the_new_grid(after):
    page = Mae(size=12, patch=4, dim=24, layers=1, heads=3, hidden=40, decoder_dim=16, decoder_layers=1)
    model = page.build({"pixels": Head("pixels", 48, pretraining=True)}, seed=1)
    other = resized(model, after)
    found, expected = other.state_dict(), model.state_dict()
    assert other.config == replace(page, size=after)
    assert found.keys() == expected.keys()
    for name, width in (("embedding.position.table.weight", 24), ("heads.pixels.position.table.weight", 16)):
        assert torch.equal(found.pop(name), Grid(after // 4, width).table.weight)
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_centre_crop_keeps_its_share():
    processor = ImageProcessor(size=224, resize_to=256).resized(112)
    assert (processor.size, processor.resize_to) == (112, 128)


@pytest.mark.parametrize(
    ("page", "size", "message"),
    [
        (Vit(size=8, patch=2, dim=24, layers=1, heads=3, hidden=40), 9, "9 pixels cannot be cut into patches of 2"),
        (Vit(size=8, patch=2, dim=24, layers=1, heads=3, hidden=40), 0, "0 pixels cannot be cut into patches of 2"),
        (Bert(vocabulary=9, dim=8, layers=1, heads=2, hidden=8), 8, "A Bert reads no pictures"),
    ],
)
def test_sizes_that_a_model_cannot_read(page, size, message):
    with pytest.raises(UnmaskError, match=message):
        resized(page.build(), size)


def test_a_swin_is_resized_to_what_its_stages_divide(tmp_path):
    theirs("SwinForImageClassification", 18).save_pretrained(tmp_path)  # grids of 9 and 5, which are padded
    model = huggingface.load(tmp_path).model
    assert resized(model, 18).config.size == 18
    with pytest.raises(UnmaskError, match="do not divide 22 pixels evenly: choose a multiple of 4"):
        resized(model, 22)
