"""ViT and DeiT against `transformers`: hidden states, logits, gradients, folders in both directions, pixels."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.deit import Deit
from unmask.models.vit import Vit
from unmask.types import Batch, Head, Kind

transformers = pytest.importorskip("transformers")
PIL = pytest.importorskip("PIL.Image")
SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}
SMALL = SIZES | {"image_size": 12, "patch_size": 4, "encoder_stride": 4}
NAMES = {"ViT": "vit", "DeiT": "deit"}
CLASSIFIER = {"ViT": "ViTForImageClassification", "DeiT": "DeiTForImageClassificationWithTeacher"}


def theirs(family: str, kind: str, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**(SMALL | changes), num_labels=5)
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def rows(model: torch.nn.Module, pixels: torch.Tensor) -> Batch:
    """A batch [B, T] of pictures [B, C, H, W] that are prepared."""
    config = model.config
    processor = ImageProcessor(size=config.size, patch=config.patch, mean=(0.5,) * config.channels)
    processor = replace(processor, std=processor.mean).for_model(config)
    return collate.pad([processor.patches(one.numpy()) for one in pixels], Kind.PADDING, multiple=1)


@pytest.mark.parametrize("family", ["ViT", "DeiT"])
@pytest.mark.parametrize(("size", "patch", "channels"), [(12, 4, 3), (10, 5, 1), (9, 3, 3)])
def test_hidden_states_and_pooler_folders(family, size, patch, channels, tmp_path):
    model = theirs(family, f"{family}Model", image_size=size, patch_size=patch, num_channels=channels)
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model
    pixels = torch.randn(2, channels, size, size)
    with torch.no_grad():
        expected = model(pixels)
        torch.testing.assert_close(ours(rows(ours, pixels)), expected.last_hidden_state, atol=2e-5, rtol=1e-5)
    huggingface.save(tmp_path / "ours", ours)
    again, report = getattr(transformers, f"{family}Model").from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    with torch.no_grad():
        torch.testing.assert_close(again(pixels).pooler_output, expected.pooler_output)


@pytest.mark.parametrize("family", ["ViT", "DeiT"])
def test_logits_gradients_and_labels(family, tmp_path):
    model = theirs(family, CLASSIFIER[family])
    model.config.id2label = dict(enumerate(["a", "b", "c", "d", "e"]))
    model.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    ours, pixels = loaded.model, torch.randn(3, 3, 12, 12)
    assert loaded.labels == ("a", "b", "c", "d", "e")
    batch = rows(ours, pixels)
    T = batch.tokens.shape[1]
    logits = ours.answer("image_classification", ours(batch), torch.arange(3) * T, batch)
    expected = model(pixels).logits
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-5)
    expected.square().sum().backward()
    logits.square().sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    ours_grads = {name: parameter.grad for name, parameter in ours.named_parameters()}
    first = next(g for n, g in grads.items() if n.endswith("patch_embeddings.projection.weight"))
    torch.testing.assert_close(
        ours_grads["embedding.token.signal.project.weight"], first.flatten(1), atol=1e-3, rtol=1e-4
    )
    cls = next(g for n, g in grads.items() if n.endswith("cls_token"))
    torch.testing.assert_close(ours_grads["embedding.token.kinds.CLS"], cls[0, 0], atol=1e-3, rtol=1e-4)
    huggingface.save(tmp_path / "ours", ours, labels=loaded.labels)
    again, report = getattr(transformers, CLASSIFIER[family]).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values())
    torch.testing.assert_close(again(pixels).logits, expected)


@pytest.mark.parametrize("family", ["ViT", "DeiT"])
def test_masked_pictures(family, tmp_path):
    model = theirs(family, f"{family}ForMaskedImageModeling")
    model.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    ours, pixels = loaded.model, torch.randn(2, 3, 12, 12)
    hidden = torch.tensor([[1, 0, 1, 0, 0, 0, 1, 0, 1], [0, 0, 0, 1, 1, 0, 0, 0, 0]]).bool()
    with torch.no_grad():
        expected = model(pixels, bool_masked_pos=hidden)
        batch = rows(ours, pixels)
        first = len(ours.config.summaries)
        at = torch.cat([torch.zeros(2, first, dtype=torch.bool), hidden], 1)
        tokens = batch.tokens.masked_fill(at, int(Kind.MASK))
        places = at.flatten().nonzero()[:, 0]
        restored = ours.answer("patches", ours(replace(batch, tokens=tokens)), places)
    patches = rows(ours, expected.reconstruction).signal.values[hidden.flatten()]
    torch.testing.assert_close(restored, patches, atol=2e-5, rtol=1e-5)
    wanted = batch.signal.values[hidden.flatten()]
    torch.testing.assert_close((restored - wanted).abs().mean(), expected.loss, atol=1e-5, rtol=1e-4)
    huggingface.save(tmp_path / "ours", ours)
    _again, report = getattr(transformers, f"{family}ForMaskedImageModeling").from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values())


def test_a_fresh_model_opens_there(tmp_path):
    for config, head in ((Vit, "ViTForImageClassification"), (Deit, CLASSIFIER["DeiT"])):
        made = config(size=8, patch=4, dim=24, layers=2, heads=3, hidden=40)
        model = made.build({"image_classification": Head("sequence", 4)}, seed=1)
        assert model.positions == 4 + len(config.summaries)
        huggingface.save(tmp_path / head, model, ImageProcessor(size=8, patch=4).for_model(made), labels=list("abcd"))
        again, report = getattr(transformers, head).from_pretrained(tmp_path / head, output_loading_info=True)
        assert not any(report.values())
        assert huggingface.load(tmp_path / head).model.config == made
        assert isinstance(huggingface.load(tmp_path / head).processor, ImageProcessor)
        pixels = torch.randn(1, 3, 8, 8)
        with torch.no_grad():
            ours = model.eval().answer("image_classification", model(rows(model, pixels)), torch.tensor([0]))
            torch.testing.assert_close(ours, again(pixels).logits, atol=1e-5, rtol=1e-5)


def test_sizes_that_patches_do_not_divide():
    with pytest.raises(UnmaskError, match="cannot be cut into patches of 5"):
        Vit(size=12, patch=5)


# ------------------------------------------------------------------------------------------------ pixels


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ViTImageProcessor", {"size": {"height": 16, "width": 16}}),
        ("ViTImageProcessor", {"size": {"height": 24, "width": 24}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}),
        ("DeiTImageProcessor", {"size": {"height": 20, "width": 20}, "crop_size": {"height": 16, "width": 16}}),
        ("DeiTImageProcessor", {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 28}}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 15}, "crop_pct": 0.7, "resample": 2}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
    ],
)
@pytest.mark.parametrize("shape", [(16, 16), (31, 17), (5, 40)])
def test_pixels_are_those_of_the_processors_of_transformers(name, given, shape, tmp_path):
    other = getattr(transformers, name)(**given)
    other.save_pretrained(tmp_path)
    ours = ImageProcessor.load(tmp_path)
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    expected = other(PIL.fromarray(picture), return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(ours.pixels(picture), expected, atol=1e-6)
    ours.save(tmp_path / "ours")
    assert ImageProcessor.load(tmp_path / "ours") == ours
    again = transformers.AutoImageProcessor.from_pretrained(tmp_path / "ours")
    np.testing.assert_allclose(
        again(PIL.fromarray(picture), return_tensors="np")["pixel_values"][0], expected, atol=1e-6
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"do_resize": False}, "do_resize = false is not supported"),
        ({"size": {"height": 8, "width": 9}}, "must be the side of a square"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std no 0"),
        ({"image_mean": [0.5]}, "each of 1 or 3 channels"),
        ({"resample": 9}, "resample must be 0 to 5"),
        ({"summaries": ["WORD"]}, "kinds of places"),
        ({"size": 224, "crop_pct": 1.5}, "crop_pct = 1.5 must be the share of a side"),
        ({"size": 4, "do_center_crop": True, "crop_size": 8}, "8 pixels cannot be cut out of 4"),
    ],
)
def test_a_processor_that_cannot_be_read(values, message, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    with pytest.raises(UnmaskError, match=message):
        ImageProcessor.load(tmp_path)


def test_places_are_boxes_of_pixels():
    processor = ImageProcessor(size=8, patch=4)
    picture = np.zeros((16, 8, 3), np.uint8)
    assert processor.describe(picture, 0) is None
    found = [processor.describe(picture, place) for place in (1, 2, 4)]
    assert [(one.begin, one.end) for one in found] == [((0, 0), (4, 8)), ((4, 0), (8, 8)), ((4, 8), (8, 16))]
    box = replace(processor, size=6, summaries=()).describe(np.zeros((6, 12, 3), np.uint8), 3)
    assert (box.begin, box.end) == ((8, 4), (12, 6))  # the picture ends within its last patches
    cut = replace(processor, resize_to=8, ratio=True, summaries=())
    box = cut.describe(np.zeros((4, 8, 3), np.uint8), 0)
    assert (box.begin, box.end) == ((2, 0), (4, 2))  # of the middle of 8 x 16
    with pytest.raises(UnmaskError, match="5 places, so there is no place 5"):
        processor.describe(picture, 5)


# ------------------------------------------------------------------------------------------------ decoding


def encoded(picture, kind, **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def test_pictures_of_any_mode_are_decoded():
    rng = np.random.default_rng(0)
    colours = PIL.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8))
    for kind in ("PNG", "BMP", "TIFF"):
        np.testing.assert_array_equal(decode(encoded(colours, kind)), np.asarray(colours))
    for kind in ("JPEG", "GIF", "WEBP"):
        assert decode(encoded(colours, kind)).shape == (6, 5, 3)
    assert decode(encoded(colours.convert("CMYK"), "TIFF")).shape == (6, 5, 3)
    np.testing.assert_array_equal(
        decode(encoded(colours.convert("P"), "PNG")), np.asarray(colours.convert("P").convert("RGB"))
    )
    grey = colours.convert("L")
    np.testing.assert_array_equal(decode(encoded(grey, "PNG"), 1)[..., 0], np.asarray(grey))
    deep = PIL.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    np.testing.assert_array_equal(decode(encoded(deep, "PNG"), 1)[..., 0], np.asarray(grey))
    clear = PIL.new("RGBA", (2, 3), (9, 9, 9, 0))
    assert (decode(encoded(clear, "PNG")) == 255).all()
    turned = PIL.fromarray(np.asarray(colours))
    exif = turned.getexif()
    exif[0x0112] = 6
    assert decode(encoded(turned, "PNG", exif=exif)).shape == (5, 6, 3)


def test_what_cannot_be_decoded_is_named(tmp_path: Path, monkeypatch):
    place = tmp_path / "a.png"
    place.write_bytes(b"no picture")
    with pytest.raises(UnmaskError, match=r"a\.png cannot be decoded: it is not a picture in a known format"):
        decode(place)
    with pytest.raises(UnmaskError, match="There is no picture"):
        decode(tmp_path / "b.png")
    whole = encoded(PIL.new("RGB", (40, 40), (1, 2, 3)), "PNG")
    with pytest.raises(UnmaskError, match="cannot be decoded"):
        decode(whole[: len(whole) // 2])
    monkeypatch.setattr("unmask.data.pictures.decoding.MOST_PIXELS", 100)
    with pytest.raises(UnmaskError, match="40 x 40 pixels, but the limit is 100"):
        decode(whole)
