"""The network over cepstra: its features are those of the numpy code, its layers are plain convolutions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.data import collate
from unmask.data.recordings.features import LogMel, Mfcc
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.models.mfcc_cnn import MfccCnn
from unmask.types import Batch, Head

PAGE = MfccCnn(rate=8_000, bands=20, cepstra=8, widths=(6, 8, 10), strides=(1, 2, 2), kernel=3, vector=4)
PROCESSOR = RecordingProcessor(rate=8_000).for_model(PAGE)


def recording(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(samples).astype(np.float32) * 0.1


def standardised(features_FC: np.ndarray) -> np.ndarray:
    return (features_FC - features_FC.mean(0)) / np.sqrt(features_FC.var(0) + 1e-5)


@pytest.mark.parametrize("rate", [8_000, 16_000])
@pytest.mark.parametrize("cepstra", [0, 13])
def test_features_are_those_of_the_numpy_code(rate, cepstra):
    page, samples = MfccCnn(rate=rate, bands=23, cepstra=cepstra), recording(rate // 2)
    found, real = page.embedding()(torch.from_numpy(samples), torch.tensor([len(samples)]))
    how = {"rate": rate, "hop": rate // 100, "window": rate // 40, "bands": 23}
    features = Mfcc(**how, cepstra=cepstra, deltas=0) if cepstra else LogMel(**how)
    np.testing.assert_allclose(found[0].numpy(), standardised(features(samples)), atol=2e-4)
    assert real.all()


def test_states_are_convolutions_of_the_cepstra():
    model, samples = PAGE.build().eval(), recording(3_000)
    x_1CK = model.embedding(torch.from_numpy(samples), torch.tensor([len(samples)]))[0].transpose(1, 2)
    for block in model.stack.blocks:
        C, W = x_1CK.shape[1], block.convolution
        kernel = W.weight.unflatten(1, (3, C)).transpose(1, 2)
        x_1CK = F.conv1d(x_1CK, kernel, W.bias, stride=block.stride, padding=1)
        x_1CK = F.layer_norm(x_1CK.transpose(1, 2), (len(W.bias),)).relu().transpose(1, 2)
    example = PROCESSOR.example(samples)
    batch = PROCESSOR.collate([example])
    hidden = model(batch)
    assert hidden.shape[1] == len(example.tokens) == PROCESSOR.frames(3_000)
    torch.testing.assert_close(hidden[0], x_1CK[0].T, atol=1e-3, rtol=1e-3)  # the gain of a recording has no effect


@given(sizes=st.lists(st.integers(200, 3_000), min_size=1, max_size=5), room=st.integers(0, 9))
def test_padded_packed_and_alone_are_the_same(sizes, room):
    model = PAGE.build({"word": Head("sequence", 3), "voice": Head("embedding", 5)}).eval()
    examples = [PROCESSOR.example(recording(size, seed)) for seed, size in enumerate(sizes)]

    def answers(batch: Batch) -> list[torch.Tensor]:
        hidden = model(batch)
        places = batch.starts + torch.tensor([len(one.tokens) - 1 for one in examples])
        return [
            torch.cat([hidden.flatten(0, 1)[batch.starts], hidden.flatten(0, 1)[places]]),
            *(model.answer(name, hidden, batch.starts, batch) for name in ("word", "voice")),
        ]

    longest = max(len(one.tokens) for one in examples)
    with torch.no_grad():
        padded = answers(collate.pad(examples, PROCESSOR.pad))
        packed = answers(collate.pack(examples, longest + room, PROCESSOR.pad))
        for i, one in enumerate(examples):
            hidden = model(batch := PROCESSOR.collate([one]))
            alone = [model.answer(name, hidden, batch.starts, batch)[0] for name in ("word", "voice")]
            for found in (padded, packed):
                torch.testing.assert_close(found[0][i], hidden[0, 0], atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(found[0][len(examples) + i], hidden[0, -1], atol=1e-5, rtol=1e-4)
                for answer, wanted in zip(found[1:], alone, strict=True):
                    torch.testing.assert_close(answer[i], wanted, atol=1e-5, rtol=1e-4)


def test_sizes_that_do_not_go_together():
    for wrong in ({"kernel": 4}, {"widths": (8,)}, {"widths": (), "strides": ()}, {"strides": (1, 0, 1)}):
        with pytest.raises(UnmaskError, match="the kernel must be odd"):
            PAGE.replace(**wrong)


def test_a_batch_of_texts_is_refused():
    with pytest.raises(UnmaskError, match="reads recordings"):
        PAGE.build()(Batch(torch.ones(1, 3, dtype=torch.int64)))
