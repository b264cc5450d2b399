"""From samples to frames: where recordings lie in a buffer, norms over a recording, positions, and the property that a
recording is answered alike alone, padded and packed, whatever lies beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.models.hubert import Hubert
from unmask.models.inference_encoder import InferenceStack, inference_layout
from unmask.models.log_mel import LogMelEncoder
from unmask.models.speech import SpeechEncoder
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.nn.recordings import (
    Convolutions,
    PositionalConvolution,
    RecordingNorm,
    StridedConvolution,
    Tape,
    reach,
)
from unmask.types import Batch, Head, Kind, Signal

LAYERS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=4)


@given(LAYERS, st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_frames_of_a_recording_lie_where_the_tape_says(layers, more):
    """The frames are those of a stack of convolutions over the recording alone."""
    kernels, strides = zip(*layers, strict=True)
    hop, window = reach(kernels, strides)
    lengths = [window + n for n in more]
    samples = torch.randn(sum(lengths), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    front = Convolutions([StridedConvolution(1, 1, k, s, activation=lambda x: x) for k, s in layers]).double()
    tape = Tape.of(lengths, hop, window)
    buffer = tape.lay(samples)
    assert all(begin % hop == 0 for begin in tape.begins)
    assert len(buffer) == tape.size
    with torch.no_grad():
        found, after = front(buffer, tape)
        assert len(found) == after.size
        for i, one in enumerate(samples.split(lengths)):
            alone = one[None, None]
            for layer, stride in zip(front.layers, strides, strict=True):
                alone = F.conv1d(alone, layer.weight[:, None], stride=stride)
            assert after.lengths[i] == alone.shape[-1] == RecordingProcessor(hop=hop, window=window).frames(len(one))
            rows = after.rows(found.device)[sum(after.lengths[:i]) : sum(after.lengths[: i + 1])]
            torch.testing.assert_close(found[rows, 0], alone[0, 0])


def test_an_empty_batch_has_an_empty_tape():
    page = Wav2Vec2(**SMALL)
    signal = Signal(torch.empty(0, dtype=torch.int64), torch.empty(0), torch.empty(0, dtype=torch.int64))
    batch = Batch(torch.empty(0, 8, dtype=torch.int64), documents=torch.empty(0, 8, dtype=torch.int64), signal=signal)
    assert page.build()(batch).shape == (0, 8, page.dim)


@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(0, 3))
def test_the_norm_of_a_recording_is_group_norm_of_it_alone(lengths, gap):
    begins = np.cumsum([0, *(n + gap for n in lengths[:-1])]).tolist()
    tape = Tape(tuple(begins), tuple(lengths), begins[-1] + lengths[-1] + gap)
    x_LC = torch.randn(tape.size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    norm, group = RecordingNorm(3).double(), nn.GroupNorm(3, 3).double()
    with torch.no_grad():
        for one, other in zip(norm.parameters(), group.parameters(), strict=True):
            other.copy_(one.normal_(generator=torch.Generator().manual_seed(2)))
    found = norm(x_LC, tape)
    for begin, length in zip(begins, lengths, strict=True):
        alone = group(x_LC[begin : begin + length].t()[None])[0].t()
        torch.testing.assert_close(found[begin : begin + length], alone)


def test_the_norm_of_a_single_place_is_the_bias():
    norm = RecordingNorm(3)
    nn.init.constant_(norm.bias, 2.0)
    found = norm(torch.randn(1, 3), Tape((0,), (1,), 1))
    torch.testing.assert_close(found, torch.full((1, 3), 2.0), atol=1e-4, rtol=0)


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 12))
def test_positions_are_a_convolution_with_weight_norm(kernel, groups, frames):
    dim = 2 * groups
    position = PositionalConvolution(dim, kernel, groups).double()
    position.initialise(torch.Generator().manual_seed(0))
    plain = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=groups).double()
    with torch.no_grad():
        plain.weight.copy_(position.direction)
        plain.bias.copy_(position.bias.normal_(generator=torch.Generator().manual_seed(1)))
    normed = nn.utils.parametrizations.weight_norm(plain, dim=2)
    torch.testing.assert_close(
        position.scale, normed.parametrizations.weight.original0
    )  # drawn before it is normalised
    with torch.no_grad():
        changed = position.scale.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
        normed.parametrizations.weight.original0.copy_(changed)
    x_BTD = torch.randn(2, frames, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(position(x_BTD), x_BTD + F.gelu(normed(x_BTD.mT))[..., :frames].mT)


SMALL = {
    "channels": (6, 8, 8), "kernels": (7, 3, 2), "strides": (4, 2, 2), "dim": 12, "layers": 2, "heads": 2, "hidden": 20,
    "position_kernel": 6, "position_groups": 3, "delay_dims": (6, 8), "delay_kernels": (3, 2), "projection": 5,
    "delay_dilations": (1, 2), "vector": 4,
}  # fmt: skip
STABLE = {"pre_norm": True, "conv_norm": "layer", "conv_bias": True}
PAGES: dict[str, SpeechEncoder] = {
    "group norm, post-norm": Wav2Vec2(**SMALL),
    "layer norm, pre-norm": Wav2Vec2(**SMALL, **STABLE),
    "group norm, pre-norm": Hubert(**SMALL, pre_norm=True),
    "mean of all layers": Hubert(**(SMALL | {"position_kernel": 5}), **STABLE, mixes=True),
}
PAGES["log-mel"] = LogMelEncoder(
    **{name: x for name, x in SMALL.items() if name not in ("channels", "kernels", "strides")}, rate=800, bands=6
)
HEADS = {"tags": Head("token", 3), "classes": Head("sequence", 2), "vector": Head("embedding", 4)}
MODELS = {name: page.build(HEADS, seed=0).eval() for name, page in PAGES.items()}


def answers(model, batch: Batch, frames: list[int]) -> list[list[Tensor]]:
    """For each recording its states, frames, and the answers of every head."""
    assert batch.starts is not None
    hidden, features, _ = model.forward_with_frames(batch)
    classes, vectors = (model.answer(name, hidden, batch.starts, batch) for name in ("classes", "vector"))
    found = []
    for i, (start, n) in enumerate(zip(batch.starts.tolist(), frames, strict=True)):
        places = torch.arange(start, start + n)
        states = [x.flatten(0, 1)[places] for x in (hidden, features)]
        found.append([*states, model.answer("tags", hidden, places, batch), classes[i], vectors[i]])
    return found


@pytest.mark.parametrize("layout", MODELS)
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(28, 900), min_size=1, max_size=5), seed=st.integers(0, 99), masks=st.booleans())
def test_a_recording_is_answered_alike_alone_padded_and_packed(layout, lengths, seed, masks):
    model, processor = MODELS[layout], RecordingProcessor().for_model(PAGES[layout])
    rng = np.random.default_rng(seed)
    examples = [processor.example(rng.standard_normal(n).astype(np.float32)) for n in lengths]
    for example in examples if masks else ():
        example.tokens[rng.random(len(example.tokens)) < 0.3] = Kind.MASK
    frames = [len(one.tokens) for one in examples]
    with torch.no_grad():
        alone = [answers(model, processor.collate([one]), [n])[0] for one, n in zip(examples, frames, strict=True)]
        padded = answers(model, processor.collate(examples), frames)
        packed = answers(model, collate.pack(examples, max(frames) + 9, processor.pad), frames)
    for one, *others in zip(alone, padded, packed, strict=True):
        for other in others:
            for wanted, found in zip(one, other, strict=True):
                torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stack", [1, 2, 3])
def test_log_mel_features_are_the_formula_written_out(stack):
    """Power of windows of 25 ms in mel bands, its logarithm, adjacent windows side by side, normalised over time."""
    page = LogMelEncoder(dim=12, heads=2, layers=1, hidden=8, position_groups=3, rate=800, bands=5, stacked=stack)
    model = page.build().eval()
    lengths = [page.window + 3 * page.hop + 5, page.window + 1 * page.hop]
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal(n).astype(np.float32) for n in lengths]
    processor = RecordingProcessor(normalise=False, rate=800).for_model(page)
    batch = processor.collate([processor.example(one) for one in samples])
    _, _, features = model.forward_with_frames(batch)
    mel = lambda hertz: 1127 * np.log1p(hertz / 700)  # noqa: E731
    edges = np.linspace(mel(20), mel(400), 7)
    places = mel(np.arange(129) * 800 / 256)
    filters = np.stack([np.interp(places, edges[i : i + 3], [0, 1, 0]) for i in range(5)], 1)
    for row, one in enumerate(samples):
        windows = []
        for begin in range(0, len(one) - 20 + 1, 8):
            x = one[begin : begin + 20] - one[begin : begin + 20].mean()
            x = x - 0.97 * np.concatenate([x[:1], x[:-1]])
            n = np.arange(20)
            x = x * (0.5 - 0.5 * np.cos(2 * np.pi * n / 19)) ** 0.85
            spectrum = np.abs([np.sum(x * np.exp(-2j * np.pi * k * n / 256)) for k in range(129)]) ** 2
            windows.append(np.log(np.maximum(spectrum @ filters, 1e-10)))
        frames = processor.frames(len(one))
        wanted = np.stack([np.concatenate(windows[i * stack : (i + 1) * stack]) for i in range(frames)])
        wanted = (wanted - wanted.mean(0)) / np.sqrt(wanted.var(0) + 1e-5)
        np.testing.assert_allclose(features[row, :frames].detach().numpy(), wanted, atol=1e-3)
        assert not features[row, frames:].any()


def test_a_batch_of_other_frames_is_refused():
    model = MODELS["group norm, post-norm"]
    with pytest.raises(UnmaskError, match="has a frame for every 16 samples, with windows of 23"):
        model(
            RecordingProcessor(hop=20, window=40).collate([RecordingProcessor(hop=20, window=40).example(np.ones(400))])
        )
    with pytest.raises(UnmaskError, match="the batch has no samples"):
        model(Batch(torch.full((1, 4), int(Kind.SIGNAL))))


def test_gradients_of_the_convolutions_are_scaled():
    processor = RecordingProcessor().for_model(PAGES["layer norm, pre-norm"])
    batch = processor.collate([processor.example(np.random.default_rng(0).standard_normal(300).astype(np.float32))])
    found = []
    for factor in (1.0, 0.1):
        model = Wav2Vec2(**SMALL, **STABLE, feature_gradient=factor).build(seed=0).eval()
        model(batch).square().sum().backward()
        found.append((model.embedding.features.layers[1].weight.grad, model.embedding.project.weight.grad))
    torch.testing.assert_close(found[1][0], 0.1 * found[0][0])
    torch.testing.assert_close(found[1][1], found[0][1])


@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5])
def test_x_vectors_of_very_short_recordings_are_numbers(frames):
    model = MODELS["group norm, post-norm"]
    processor = RecordingProcessor().for_model(model.config)
    samples = np.random.default_rng(0).standard_normal(processor.samples(frames)).astype(np.float32)
    batch = processor.collate([processor.example(samples)])
    assert batch.tokens.shape == (1, frames)
    vector = model.answer("vector", model(batch), batch.starts, batch)
    vector.sum().backward()
    assert vector.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    model.zero_grad()


@pytest.mark.parametrize("conv_norm", ["group", "layer"])
def test_the_inference_layout_answers_as_the_model(conv_norm):
    page = Wav2Vec2(**SMALL).replace(conv_norm=conv_norm, pre_norm=conv_norm == "layer")
    model = page.build({"ctc": Head("token", 5)}).eval()
    quick = inference_layout(model)
    assert isinstance(quick.stack, InferenceStack)
    processor = RecordingProcessor().for_model(page)
    rng = np.random.default_rng(0)
    examples = [processor.example(rng.normal(size=processor.samples(n)).astype(np.float32)) for n in (9, 5, 7)]
    for batch in (
        processor.collate(examples),
        collate.pack(examples, 16, processor.pad),
        processor.collate(examples[:1]),
    ):
        with torch.inference_mode():
            seen = slice(None) if batch.documents is None else batch.documents > 0
            torch.testing.assert_close(quick(batch)[seen], model(batch)[seen], atol=2e-5, rtol=1e-5)
