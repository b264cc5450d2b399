"""Swin against `transformers`: hidden states, logits, gradients, folders in both directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models.swin import SIZES, Swin
from unmask.objectives.masked_patches import MaskedPatches
from unmask.types import Batch, Example, Head, Kind

transformers = pytest.importorskip("transformers")
SMALL = {"patch_size": 2, "embed_dim": 8, "depths": [2, 3], "num_heads": [2, 4], "layer_norm_eps": 1e-3}
CASES = {
    "divisible": {"image_size": 16, "window_size": 4},
    "padded": {"image_size": 20, "window_size": 4},  # grids of 10 and 5
    "odd": {"image_size": 18, "window_size": 5},  # grids of 9 and 5: the second is one window
    "even window, odd grids": {"image_size": 14, "window_size": 2, "num_channels": 1, "patch_size": 1},
    "three stages": {"image_size": 26, "window_size": 3, "depths": [1, 2, 2], "num_heads": [1, 2, 4]},
    "absolute positions": {"image_size": 16, "window_size": 4, "use_absolute_embeddings": True},
    "no bias": {"image_size": 12, "window_size": 3, "qkv_bias": False, "mlp_ratio": 1.5, "hidden_act": "relu"},
}


def theirs(kind: str, seed: int = 0, **changes: object) -> torch.nn.Module:
    torch.manual_seed(seed)
    config = transformers.SwinConfig(**(SMALL | changes), num_labels=5)
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def examples(model: torch.nn.Module, pixels: torch.Tensor) -> list[Example]:
    config = model.config
    half = (0.5,) * config.channels
    processor = ImageProcessor(size=config.size, patch=config.patch, mean=half, std=half).for_model(config)
    return [processor.patches(one.numpy()) for one in pixels]


def rows(model: torch.nn.Module, pixels: torch.Tensor) -> Batch:
    """A batch [B, T] of pictures [B, C, H, W] that are prepared."""
    return collate.pad(examples(model, pixels), Kind.PADDING, multiple=1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_hidden_states_logits_and_gradients(case, seed, tmp_path):
    model = theirs("SwinForImageClassification", seed, **CASES[case])
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model.eval()
    config = ours.config
    pixels = torch.randn(3, config.channels, config.size, config.size)
    batch = rows(ours, pixels)
    hidden = ours(batch)
    torch.testing.assert_close(hidden, model.swin(pixels).last_hidden_state, atol=5e-5, rtol=1e-4)
    logits = ours.answer("image_classification", hidden, torch.arange(3) * batch.tokens.shape[1], batch)
    expected = model(pixels).logits
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-4)

    expected.square().sum().backward()
    logits.square().sum().backward()
    with torch.no_grad():  # the names of a folder for gradients, too
        for parameter in (*model.parameters(), *ours.parameters()):
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    model.save_pretrained(tmp_path / "gradients")
    gradients = huggingface.load(tmp_path / "gradients").model.state_dict()
    for name, gradient in ours.state_dict().items():
        scale = float(gradients[name].abs().max()) + 1e-3
        torch.testing.assert_close(gradient, gradients[name], atol=1e-4 * scale, rtol=1e-3, msg=name)


@pytest.mark.parametrize("kind", ["SwinModel", "SwinForImageClassification"])
@pytest.mark.parametrize("case", CASES)
def test_folders_open_there_again(kind, case, tmp_path):
    model = theirs(kind, **CASES[case])
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model
    huggingface.save(tmp_path / "ours", ours)
    again, report = getattr(transformers, kind).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    pixels = torch.randn(2, ours.config.channels, ours.config.size, ours.config.size)
    with torch.no_grad():
        torch.testing.assert_close(again(pixels)[0], model(pixels)[0])


MASKED = {
    "two stages": {"image_size": 16, "window_size": 4, "encoder_stride": 4},
    "three stages": {"image_size": 24, "window_size": 3, "depths": [1, 2, 2], "num_heads": [1, 2, 4]},
    "one stage, grey": {"image_size": 8, "depths": [2], "num_heads": [2], "num_channels": 1, "encoder_stride": 2},
    "absolute positions": {"image_size": 16, "patch_size": 1, "encoder_stride": 2, "use_absolute_embeddings": True},
}


@pytest.mark.parametrize("case", MASKED)
def test_masked_pictures(case, tmp_path):
    model = theirs("SwinForMaskedImageModeling", **({"window_size": 4, "encoder_stride": 8} | MASKED[case]))
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model.eval()
    config = ours.config
    assert (set(ours.heads), config.hides) == ({"patches"}, True)
    pixels = torch.randn(3, config.channels, config.size, config.size)
    half = (0.5,) * config.channels
    processor = ImageProcessor(size=config.size, mean=half, std=half).for_model(config)
    objective = MaskedPatches(processor, rate=0.4, square=1)
    batch = objective.corrupt(rows(ours, pixels), np.random.default_rng(1))
    target = batch.targets["patches"]
    masked = torch.zeros(batch.tokens.numel(), dtype=torch.bool).index_fill(0, target.places, True)
    expected = model(pixels, bool_masked_pos=masked.view(3, -1))
    loss = objective.score(ours, ours(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, atol=1e-5, rtol=1e-4)
    every = torch.arange(batch.tokens.numel())
    with torch.no_grad():
        restored = ours.answer("patches", ours(batch), every, batch)
        assert torch.equal(restored[target.places], ours.answer("patches", ours(batch), target.places))
    there = rows(ours, expected.reconstruction.detach()).signal.values
    torch.testing.assert_close(restored, there, atol=1e-4, rtol=1e-3)

    expected.loss.backward()
    (loss.sum / loss.count).backward()
    assert not [name for name, parameter in ours.named_parameters() if parameter.grad is None]
    with torch.no_grad():  # the names of a folder for gradients, too
        for parameter in (*model.parameters(), *ours.parameters()):
            parameter.copy_(parameter.grad)
    model.save_pretrained(tmp_path / "gradients")
    gradients = huggingface.load(tmp_path / "gradients").model.state_dict()
    for name, gradient in ours.state_dict().items():
        scale = float(gradients[name].abs().max()) + 1e-6
        torch.testing.assert_close(gradient, gradients[name], atol=1e-3 * scale, rtol=1e-3, msg=name)

    huggingface.save(tmp_path / "ours", ours)
    again, report = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    assert again.config.encoder_stride == model.config.encoder_stride
    state = again.state_dict()
    for name, value in type(model).from_pretrained(tmp_path / "gradients").state_dict().items():
        scale = float(value.abs().max()) + 1e-6
        torch.testing.assert_close(state[name], value, atol=1e-3 * scale, rtol=1e-3, msg=name)


def test_packed_masked_pictures_are_restored_alike():
    made = Swin(size=8, patch=1, dim=8, depths=(2, 2), heads=(2, 2), window=4, hides=True, absolute=True)
    model = made.build({"patches": Head("token", 3)}, seed=1).eval()
    found = examples(model, torch.randn(3, 3, 8, 8))
    with torch.no_grad():
        answers = []
        for batch in (collate.pad(found, Kind.PADDING, multiple=80), collate.pack(found, 150, Kind.PADDING)):
            places = batch.signal.places[[5, 70, 130, 191]]
            tokens = batch.tokens.flatten().index_fill(0, places, int(Kind.MASK)).view_as(batch.tokens)
            batch = replace(batch, tokens=tokens)
            answers.append(model.answer("patches", model(batch), places, batch))
    assert answers[0].shape == (4, 3)
    torch.testing.assert_close(answers[1], answers[0])


def test_a_decoder_that_restores_other_pixels_is_refused(tmp_path):
    theirs("SwinForMaskedImageModeling", image_size=16, window_size=4, encoder_stride=8).save_pretrained(tmp_path)
    with pytest.raises(UnmaskError, match="must restore the 4 x 4 pixels"):
        huggingface.load(tmp_path)


def test_grids_that_stages_do_not_divide_have_no_masked_patches():
    with pytest.raises(UnmaskError, match="do not divide 6 pixels evenly: choose a multiple of 4"):
        Swin(size=6, patch=1, dim=8, depths=(1, 1, 1), heads=(2, 2, 2)).build({"patches": Head("token", 3)})


def test_a_fresh_model_opens_there(tmp_path):
    made = Swin(**SIZES["cpu"])
    model = made.build({"image_classification": Head("sequence", 4)}, seed=1).eval()
    assert model.positions == 16**2
    assert len(model.blocks) == 6
    processor = ImageProcessor(size=32).for_model(made)
    huggingface.save(tmp_path, model, processor, labels=list("abcd"))
    again, report = transformers.SwinForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    loaded = huggingface.load(tmp_path)
    assert loaded.model.config == made
    assert loaded.processor == processor
    pixels = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        ours = model.answer("image_classification", model(rows(model, pixels)), torch.tensor([0]))
        torch.testing.assert_close(ours, again(pixels).logits, atol=1e-5, rtol=1e-4)


def test_the_published_number_of_parameters():
    model = Swin(**SIZES["tiny"]).build({"image_classification": Head("sequence", 1_000)}, seed=None)
    assert model.parameters_total == 28_288_354  # table 1: 29 M


def test_packed_and_padded_pictures_are_read_alike():
    made = Swin(size=6, patch=1, dim=8, depths=(2, 2), heads=(2, 2), window=3)
    model = made.build({"image_classification": Head("sequence", 4)}, seed=1).eval()
    found = examples(model, torch.randn(5, 3, 6, 6))
    with torch.no_grad():
        answers = []
        for batch in (
            collate.pad(found, Kind.PADDING, multiple=1),
            collate.pad(found, Kind.PADDING, multiple=64),
            collate.pack(found, 80, Kind.PADDING),
        ):
            starts = batch.sequence_starts
            answers.append(model.answer("image_classification", model(batch), starts, batch))
            assert torch.equal(answers[-1], model.answer("image_classification", model(batch), starts + 35, batch))
    torch.testing.assert_close(answers[1], answers[0])
    torch.testing.assert_close(answers[2], answers[0])


def test_a_window_larger_than_the_grid_is_the_grid():
    """The reference fails there, as its biases have the shape of a whole window. Here offsets keep their biases."""
    small, large = (
        Swin(size=4, patch=1, dim=8, depths=(2,), heads=(2,), window=window).build().eval() for window in (4, 6)
    )
    state = small.state_dict()
    for name in state:
        if name.endswith("position.table"):
            wide = torch.zeros(11, 11, 2)
            wide[2:9, 2:9] = torch.randn(7, 7, 2)
            state[name].copy_(wide[2:9, 2:9].flatten(0, 1))
            state[name] = wide.flatten(0, 1)
    large.load_state_dict(state)
    batch = rows(small, torch.randn(2, 3, 4, 4))
    with torch.no_grad():
        torch.testing.assert_close(large(batch), small(batch))


def test_stochastic_depth_leaves_out_parts_of_a_picture_while_training():
    model = Swin(size=4, patch=1, dim=8, depths=(2,), heads=(2,), window=4, drop_path=0.5).build()
    assert [block.attention.f.dropout.p for block in model.blocks] == [0.0, 0.5]
    branch, x = model.blocks[1].attention.f, torch.randn(200, 16, 8)
    torch.manual_seed(0)
    with torch.no_grad():
        found, full = branch(x), branch.eval()(x)
    left_out = (found == 0).flatten(1).all(1)
    assert 0.3 < left_out.float().mean() < 0.7
    torch.testing.assert_close(found[~left_out], 2 * full[~left_out])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 12, "patch": 5}, "cannot be cut into patches of 5"),
        ({"depths": (2, 2)}, "for each stage"),
        ({"depths": (2, 0, 2, 2)}, "for each stage"),
        ({"window": 0}, "must be at least 1"),
        ({"drop_path": 1.0}, "less than 1"),
    ],
)
def test_sizes_that_do_not_go_together(changes, message):
    with pytest.raises(UnmaskError, match=message):
        Swin(**changes)


def test_pictures_of_another_size_are_refused():
    model = Swin(size=4, patch=1, dim=8, depths=(1,), heads=(2,), window=4).build()
    other = Swin(size=6, patch=1, dim=8, depths=(1,), heads=(2,), window=4).build()
    with pytest.raises(UnmaskError, match="must have 16 patches"):
        model(rows(other, torch.randn(1, 3, 6, 6)))
