"""The deep convolutional network over electrocardiograms: its layers by plain functions, and what padding changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.ecg_cnn import EcgCnn
from unmask.nn.records import RecordConvolution, RecordNorm
from unmask.types import Head

PAGE = EcgCnn(blocks=6, filters=3, doubled=2, kernel=4, dropout=0.0)
PROCESSOR = SignalProcessor().for_model(PAGE)


def record(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((samples, 1)).astype(np.float32)


def same(convolution: RecordConvolution, x: torch.Tensor) -> torch.Tensor:
    """A convolution with padding "same" of Keras (TensorFlow's documentation of `tf.nn.convolution`)."""
    kernel, stride, size = convolution.kernel_size[0], convolution.stride[0], x.shape[-1]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return F.conv1d(F.pad(x, (total // 2, total - total // 2)), convolution.weight, convolution.bias, stride)


def test_states_are_those_of_the_published_wiring():
    """The wiring of the authors' network.py: a first convolution, then blocks, of which the first has no activation at
    its beginning; shortcuts by pooling, with zero channels."""
    model = PAGE.build().eval()
    generator = torch.Generator().manual_seed(1)
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)

    def activated(layer, x):
        norm = layer.norm
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps).relu()

    with torch.no_grad():
        found = model(PROCESSOR.collate([PROCESSOR.example(record(64))]))
        x = torch.from_numpy(PROCESSOR.values(record(64))).T[None]
        x = activated(model.embedding.layer, same(model.embedding.convolution, x))
        for index, block in enumerate(model.stack.blocks):
            shortcut = F.max_pool1d(x, 2) if index % 2 else x
            if index and index % 2 == 0:
                shortcut = torch.cat([shortcut, torch.zeros_like(shortcut)], 1)
            y = x if index == 0 else activated(block.before, x)
            y = same(block.convolution, activated(block.between, same(block.down, y)))
            x = y + shortcut
        x = activated(model.stack.layer, x)
    assert x.shape == (1, 12, 8)
    torch.testing.assert_close(found, x.transpose(1, 2))


def test_the_published_sizes():
    page = EcgCnn()
    model = page.build({"tagging": Head("token", 4)})
    assert (page.segment, page.width) == (256, 256)
    assert [block.convolution.out_channels for block in model.stack.blocks] == [32 << i // 4 for i in range(16)]
    convolutions = [part for part in model.modules() if isinstance(part, torch.nn.Conv1d)]
    assert len(convolutions) == 33
    assert {part.kernel_size for part in convolutions} == {(16,)}


@given(kernel=st.integers(1, 9), stride=st.integers(1, 3), places=st.integers(1, 9))
def test_outputs_of_a_convolution_are_one_for_each_stride(kernel, stride, places):
    if kernel < stride:
        return
    convolution, x = RecordConvolution(2, 3, kernel, stride), torch.randn(2, 2, places * stride)
    found = convolution(x)
    assert found.shape == (2, 3, places)
    torch.testing.assert_close(found, same(convolution, x))


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_the_norm_of_training_has_the_statistics_of_real_places(sizes):
    norm, plain = RecordNorm(3).train(), torch.nn.BatchNorm1d(3).train()
    x_RCN = torch.randn(len(sizes), 3, max(sizes), generator=torch.Generator().manual_seed(0))
    real_RN = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    found = norm(x_RCN, real_RN)
    wanted = plain(torch.cat([x_RCN[r, :, :size].T for r, size in enumerate(sizes)]))
    parts = torch.cat([found[r, :, :size].T for r, size in enumerate(sizes)])
    torch.testing.assert_close(parts, wanted)
    torch.testing.assert_close((norm.running_mean, norm.running_var), (plain.running_mean, plain.running_var))
    assert not found.transpose(1, 2)[~real_RN].any()


def test_padding_does_not_change_training():
    """The gradient of a padded batch is that of the same records when more padding follows."""
    examples = [PROCESSOR.example(record(64, 0)), PROCESSOR.example(record(24, 1))]
    gradients = []
    for more in (0, 5):
        model = PAGE.build().train()
        batch = PROCESSOR.collate(examples)
        if more:
            longer = PROCESSOR.example(record(8 * (8 + more), 2))
            batch = PROCESSOR.collate([*examples, longer])
            documents = batch.documents.clone()
            documents[2] = 0
            keep = batch.signal.places < 2 * batch.tokens.shape[1]
            signal = type(batch.signal)(batch.signal.places[keep], batch.signal.values[keep])
            batch = type(batch)(batch.tokens, documents=documents, starts=batch.starts[:2], signal=signal)
        hidden = model(batch)
        (hidden[0, :8].square().sum() + hidden[1, :3].sum()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_single_place_can_be_trained_on():
    batch = PROCESSOR.collate([PROCESSOR.example(record(8))])
    assert PAGE.build().train()(batch).isfinite().all()


@pytest.mark.parametrize("wrong", [{"blocks": 0}, {"blocks": 33}, {"filters": 0}, {"doubled": 0}, {"kernel": 1}])
def test_numbers_that_do_not_go_together(wrong):
    with pytest.raises(UnmaskError, match="blocks ="):
        PAGE.replace(**wrong)
