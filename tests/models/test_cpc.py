"""CPC: its layers compared with those of PyTorch, one recording at a time; recordings do not depend on each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask import huggingface
from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.models.cpc import Cpc, CpcModel
from unmask.objectives.contrastive_prediction import ContrastivePrediction
from unmask.types import Batch, Head, Kind

PAGE = Cpc(channels=(6, 7, 5), kernels=(10, 8, 4), strides=(5, 4, 2), dim=6, layers=2)
PROCESSOR = RecordingProcessor(rate=8_000).for_model(PAGE)
HEADS = {"prediction": Head("predictions", 3, pretraining=True)}


def _built(page: Cpc = PAGE) -> CpcModel:
    model = page.build(HEADS, seed=0).double().eval()
    assert isinstance(model, CpcModel)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def _sounds(*frames: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=PROCESSOR.samples(n) + i).astype(np.float32) for i, n in enumerate(frames)]


def _batch(sounds: list[np.ndarray], length: int | None = None) -> Batch:
    examples = [PROCESSOR.example(sound) for sound in sounds]
    batch = collate.pad(examples, Kind.PADDING) if length is None else collate.pack(examples, length, Kind.PADDING)
    assert batch.signal is not None
    return batch.map(lambda x: x.double() if x.is_floating_point() else x)


def _reference(model: CpcModel, sound: np.ndarray, page: Cpc) -> tuple[Tensor, Tensor]:
    """Frames [F, C] and states [F, D], by torch.nn alone."""
    x_CL = torch.from_numpy(PROCESSOR.values(sound)).double()[None]
    for layer, stride in zip(model.embedding.features.layers, page.strides, strict=True):  # type: ignore[union-attr]
        weight = layer.weight.unflatten(1, (layer.kernel, -1)).transpose(1, 2)
        x_CL = F.conv1d(x_CL, weight, layer.bias, stride=stride)
        if page.conv_norm == "layer":
            x_CL = F.layer_norm(x_CL.T, (len(x_CL),), layer.norm.weight, layer.norm.bias).T
        x_CL = x_CL.relu()
    network = nn.GRU(page.channels[-1], page.dim, page.layers, batch_first=True).double()
    for i, block in enumerate(model.stack.blocks):
        for name, value in block.network.kernel.named_parameters():
            getattr(network, name.replace("_l0", f"_l{i}")).data.copy_(value)
    return x_CL.T, network(x_CL.T[None])[0][0]


@pytest.mark.parametrize("norm", ["layer", "none"])
@torch.no_grad()
def test_frames_and_states_are_those_of_convolutions_and_a_gru(norm: str) -> None:
    page = PAGE.replace(conv_norm=norm)
    model, sounds = _built(page), _sounds(9, 4, 6)
    batch = _batch(sounds, 13)
    hidden_BTD, frames_BTC, features_BTC = model.forward_with_frames(batch)
    assert batch.starts is not None
    for sound, start in zip(sounds, batch.starts.tolist(), strict=True):
        frames_FC, states_FD = _reference(model, sound, page)
        places = torch.arange(start, start + len(frames_FC))
        torch.testing.assert_close(frames_BTC.flatten(0, 1)[places], frames_FC)
        torch.testing.assert_close(features_BTC.flatten(0, 1)[places], frames_FC)
        torch.testing.assert_close(hidden_BTD.flatten(0, 1)[places], states_FD)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(12, 30))
@torch.no_grad()
def test_packed_padded_and_single_recordings_are_equal(frames: list[int], length: int) -> None:
    model, sounds = _built(), _sounds(*frames)
    packed, padded = _batch(sounds, length), _batch(sounds)
    found = [(batch, model.hidden_states(batch)) for batch in (packed, padded)]
    for i, sound in enumerate(sounds):
        alone = model.hidden_states(_batch([sound]))
        for batch, states in found:
            start = int(batch.starts[i])  # type: ignore[index]
            places = torch.arange(start, start + frames[i])
            for layer, own in zip(states, alone, strict=True):
                torch.testing.assert_close(layer.flatten(0, 1)[places], own[0, : frames[i]])


def test_the_loss_and_its_gradients_are_those_of_single_recordings() -> None:
    objective, model = ContrastivePrediction(PROCESSOR, steps=3), _built()
    sounds, rng = _sounds(9, 4, 6, 3), np.random.default_rng(0)

    def found(batches: list[Batch]) -> tuple[float, list[Tensor]]:
        model.zero_grad()
        losses = [objective.loss(model, objective.corrupt(batch, rng))["prediction"] for batch in batches]
        total = torch.stack([loss.sum for loss in losses]).sum()
        total.backward()
        return total.item(), [p.grad for p in model.parameters() if p.grad is not None]

    alone, gradients = found([_batch([sound]) for sound in sounds])
    for batch in (_batch(sounds, 13), _batch(sounds)):
        total, others = found([batch])
        assert total == pytest.approx(alone, rel=1e-5)
        for own, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_a_state_does_not_depend_on_what_follows() -> None:
    model, sound = _built(), _sounds(10)[0]
    shorter = sound[: PROCESSOR.samples(6)]
    processor = RecordingProcessor(rate=8_000, hop=PROCESSOR.hop, window=PROCESSOR.window, normalise=False)
    with torch.no_grad():
        whole, part = (model(processor.collate([processor.example(x)]).map(_double)) for x in (sound, shorter))
    torch.testing.assert_close(whole[:, :6], part)


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def test_a_folder_brings_back_the_model(tmp_path: Path) -> None:
    model, batch = _built().float(), _batch(_sounds(7, 5), 12).map(lambda x: x.float() if x.is_floating_point() else x)
    huggingface.save(tmp_path, model, PROCESSOR)
    loaded = huggingface.load(tmp_path)
    assert loaded.processor == PROCESSOR
    with torch.no_grad():
        for name in ("forward_with_frames", "__call__"):
            torch.testing.assert_close(getattr(loaded.model, name)(batch), getattr(model, name)(batch))
        places = torch.tensor([0, 3])
        hidden = model(batch)
        torch.testing.assert_close(
            loaded.model.answer("prediction", hidden, places), model.answer("prediction", hidden, places)
        )


def test_sizes_of_the_paper() -> None:
    page = Cpc()
    assert (page.hop, page.window) == (160, 465)  # 10 ms at 16 kHz
    with pytest.raises(UnmaskError, match="one number for each convolution"):
        Cpc(channels=(4,))
