"""ResNet against `transformers`, VGG against a plain sequence of the same layers: feature maps, logits, gradients,
running statistics, folders in both directions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from unmask import huggingface
from unmask.data import collate
from unmask.data.pictures.processor import ImageProcessor
from unmask.errors import UnmaskError
from unmask.models import resnet, vgg
from unmask.models.resnet import ResNet
from unmask.models.vgg import Vgg
from unmask.nn.buffers import stored
from unmask.types import Batch, Example, Head, Kind

transformers = pytest.importorskip("transformers")
HEADS = {"image_classification": Head("sequence", 5)}
SMALL = {"embedding_size": 6, "hidden_sizes": [8, 12], "depths": [1, 2], "image_size": 32}
CASES = {
    "bottleneck": {},
    "basic": {"layer_type": "basic", "depths": [2, 1]},
    "odd sides": {"image_size": 37},  # maps of 19, 10 and 5
    "odd widths": {"hidden_sizes": [9, 13, 17], "depths": [1, 1, 1], "layer_type": "basic", "embedding_size": 7},
    "one place": {"image_size": 5, "num_channels": 1},
    "halved in the first stage": {"downsample_in_first_stage": True},
    "other activation": {"hidden_act": "silu"},
    "halved early": {"downsample_in_bottleneck": True, "image_size": 33},
    "no projection": {"hidden_sizes": [6, 12], "layer_type": "basic"},
}


def theirs(kind: str, seed: int = 0, **changes: object) -> nn.Module:
    """A model of the reference with random weights and running statistics."""
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(transformers.ResNetConfig(**(SMALL | changes), num_labels=5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
            else:
                buffer.fill_(7)
    return model.eval()


def examples(model: nn.Module, pixels: torch.Tensor) -> list[Example]:
    config = model.config
    half = (0.5,) * config.channels
    processor = ImageProcessor(size=config.size, mean=half, std=half).for_model(config)
    return [processor.patches(one.numpy()) for one in pixels]


def rows(model: nn.Module, pixels: torch.Tensor) -> Batch:
    """A batch [B, T] of pictures [B, C, H, W] that are prepared, in the precision of the model."""
    batch = collate.pad(examples(model, pixels), Kind.PADDING, multiple=1)
    values = batch.signal.values.to(next(model.parameters()).dtype)
    return replace(batch, signal=replace(batch.signal, values=values))


def pictures(model: nn.Module, count: int = 3) -> torch.Tensor:
    return torch.randn(count, model.config.channels, model.config.size, model.config.size)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_feature_maps_logits_gradients_and_statistics(case, training, tmp_path):
    model = theirs("ResNetForImageClassification", **CASES[case])
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model
    model.train(training).double()
    ours.train(training).double()  # a norm of few values magnifies what is rounded
    pixels = pictures(ours)
    batch = rows(ours, pixels)
    hidden = ours(batch)
    found = model(pixels.double(), output_hidden_states=True)
    expected = found.hidden_states[-1]
    torch.testing.assert_close(hidden, expected.flatten(2).transpose(1, 2))
    starts = torch.arange(3) * batch.tokens.shape[1]
    torch.testing.assert_close(ours.summary(hidden, starts, batch), expected.mean((2, 3)))
    logits = ours.answer("image_classification", hidden, starts, batch)
    torch.testing.assert_close(logits, found.logits)

    found.logits.square().sum().backward()
    logits.square().sum().backward()
    with torch.no_grad():  # the names of a folder for gradients, too; its buffers are the statistics after this batch
        for parameter in (*model.parameters(), *ours.parameters()):
            parameter.copy_(parameter.grad)
    model.save_pretrained(tmp_path / "gradients")
    reference = stored(huggingface.load(tmp_path / "gradients").model)
    state = stored(ours)
    assert state.keys() == reference.keys()
    assert int(state["stack.stages.0.blocks.0.layers.0.norm.num_batches_tracked"]) == 7 + training
    for name, value in state.items():
        scale = float(reference[name].abs().max()) + 1e-3
        torch.testing.assert_close(value.float(), reference[name].float(), atol=1e-5 * scale, rtol=1e-5, msg=name)


@pytest.mark.parametrize("kind", ["ResNetModel", "ResNetForImageClassification"])
@pytest.mark.parametrize("case", ["bottleneck", "odd sides", "no projection"])
def test_folders_open_there_again(kind, case, tmp_path):
    model = theirs(kind, **CASES[case])
    model.save_pretrained(tmp_path / "theirs")
    ours = huggingface.load(tmp_path / "theirs").model
    huggingface.save(tmp_path / "ours", ours)
    again, report = getattr(transformers, kind).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in model.state_dict().items())
    with torch.no_grad():
        pixels = pictures(ours)
        torch.testing.assert_close(again(pixels)[0], model(pixels)[0])


def test_a_folder_without_a_size_has_that_of_its_processor(tmp_path):
    """`transformers` has no such field."""
    changes = {name: value for name, value in SMALL.items() if name != "image_size"}
    transformers.ResNetModel(transformers.ResNetConfig(**changes)).save_pretrained(tmp_path)
    assert huggingface.load(tmp_path).model.config.size == 224
    ImageProcessor(size=40, summaries=()).save(tmp_path)
    loaded = huggingface.load(tmp_path)
    assert loaded.model.config.size == huggingface.config_of(tmp_path).size == 40
    assert (loaded.processor.patch, loaded.model.config.grid) == (8, 5)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("pointwise", [False, True])
def test_vgg_is_a_sequence_of_its_layers(norm, pointwise, tmp_path):
    """Table 1, for stages of one, two and three convolutions."""
    page = Vgg(size=24, channels=2, widths=(4, 6, 8), depths=(1, 2, 3), norm=norm, pointwise=pointwise)
    model = page.build(HEADS, seed=3)
    layers, channels = list[nn.Module](), 2
    for dim, depth in zip(page.widths, page.depths, strict=True):
        for i in range(depth):
            kernel = 1 if pointwise and i == 2 else 3
            layers.append(nn.Conv2d(channels, dim, kernel, padding=kernel // 2, bias=not norm))
            layers += [nn.BatchNorm2d(dim)] * norm + [nn.ReLU()]
            channels = dim
        layers.append(nn.MaxPool2d(2))
    column = nn.Sequential(*layers)
    plain = nn.Sequential(column, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    plain.load_state_dict(dict(zip(plain.state_dict(), model.state_dict().values(), strict=True)))
    huggingface.save(tmp_path, model)
    again, plain = huggingface.load(tmp_path).model.double(), plain.double()
    pixels = pictures(model)
    batch, pixels = rows(again, pixels), pixels.double()
    for training in (True, False):
        again.train(training)
        plain.train(training)
        hidden = again(batch)
        expected = column(pixels)
        torch.testing.assert_close(hidden, expected.flatten(2).transpose(1, 2))
        for ours, other in zip(list(again.buffers()), list(column.buffers()), strict=True):
            torch.testing.assert_close(ours, other)
    logits = again.answer("image_classification", again(batch), torch.arange(3) * 9, batch)
    expected = plain(pixels)
    torch.testing.assert_close(logits, expected)
    logits.square().sum().backward()
    expected.square().sum().backward()
    for ours, other in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, other.grad)


@pytest.mark.parametrize(
    ("page", "count"), [("18", 11_689_512), ("34", 21_797_672), ("50", 25_557_032), ("101", 44_549_160)]
)
def test_published_numbers_of_parameters(page, count):
    """Of torchvision, the same layers."""
    model = ResNet(**resnet.SIZES[page]).build({"image_classification": Head("sequence", 1_000)}, seed=None)
    assert model.parameters_total == count


@pytest.mark.parametrize(
    ("page", "count"), [("11", 9_220_480), ("13", 9_404_992), ("16", 14_714_688), ("19", 20_024_384)]
)
def test_published_columns(page, count):
    """Of torchvision, the same layers without its classifier."""
    assert Vgg(**vgg.SIZES[page]).build(seed=None).parameters_total == count


@pytest.mark.parametrize(
    "page",
    [
        ResNet(**resnet.SIZES["cpu"]).replace(size=15),
        ResNet(size=40, dim=4, widths=(4, 8), depths=(1, 1)),
        Vgg(size=16, widths=(4, 6), depths=(1, 1)),
    ],
    ids=["small stem", "large stem", "vgg"],
)
def test_packed_and_padded_pictures_are_read_alike(page):
    model = page.build(HEADS, seed=1).eval()
    T = page.length
    found = examples(model, pictures(model, 5))
    with torch.no_grad():
        answers = []
        for batch in (
            collate.pad(found, Kind.PADDING, multiple=1),
            collate.pad(found, Kind.PADDING, multiple=64),
            collate.pack(found, 2 * T + 3, Kind.PADDING),
        ):
            starts = batch.sequence_starts
            hidden = model(batch)
            assert hidden.shape == (*batch.tokens.shape, page.width)
            answers.append(model.answer("image_classification", hidden, starts, batch))
            if batch.documents is None:  # a picture a row
                assert torch.equal(answers[-1], model.answer("image_classification", hidden, starts))
            assert torch.equal(answers[-1], model.answer("image_classification", hidden, starts + T - 1, batch))
    torch.testing.assert_close(answers[1], answers[0])
    torch.testing.assert_close(answers[2], answers[0])


def test_a_training_batch_of_one_value_a_channel_is_normalised_by_the_running_statistics():
    """A last batch of one small picture; PyTorch raises an error."""
    page = ResNet(size=8, dim=4, widths=(4, 8), depths=(1, 1), block="basic")
    model = page.build(HEADS, seed=0).train()
    batch = rows(model, pictures(model, 1))
    assert page.grid == 1
    assert model(batch).isfinite().all()
    tracked = {name: int(b) for name, b in model.named_buffers() if name.endswith("num_batches_tracked")}
    assert {n for name, n in tracked.items() if name.startswith("embedding")} == {1}
    assert {n for name, n in tracked.items() if name.startswith("stack.stages.1")} == {0}


@pytest.mark.parametrize(
    ("page", "changes", "message"),
    [
        (ResNet, {"depths": (1, 1)}, "for each stage"),
        (ResNet, {"depths": (1, 0, 1, 1)}, "for each stage"),
        (ResNet, {"widths": (2, 8, 8, 8)}, "at least 4"),
        (ResNet, {"size": 0}, "at least 1"),
        (Vgg, {"depths": (1,)}, "for each stage"),
        (Vgg, {"size": 48}, "cannot be halved 5 times: choose a size that 32 divides"),
    ],
)
def test_sizes_that_do_not_go_together(page, changes, message):
    with pytest.raises(UnmaskError, match=message):
        page(**changes)


def test_other_batches_are_refused():
    page = ResNet(size=16, dim=4, widths=(4,), depths=(1,))
    model = page.build()
    for wrong in (page.replace(size=24), page.replace(channels=1)):
        with pytest.raises(UnmaskError, match="must have 16 patches of 4 pixels and 3 channels"):
            model(rows(wrong.build(), pictures(wrong.build(), 1)))
    with pytest.raises(UnmaskError, match="only tokens"):
        model(Batch(torch.zeros(1, 3, dtype=torch.int64)))
