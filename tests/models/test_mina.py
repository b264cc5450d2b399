"""MINA by the equations of its paper, written out with loops, and with the filters and spectra of scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import butter, lfilter, periodogram

from unmask.data import collate
from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.mina import SIZES, Mina
from unmask.nn.rhythms import KnowledgeAttention, SegmentConvolution, deviations, powers, steps
from unmask.types import Batch, Head

PAGE = Mina(segment=20, kernel=6, stride=3, filters=5, hidden=4, compared=3, outputs=6)
PROCESSOR = SignalProcessor().for_model(PAGE)


def record(samples: int, seed: int = 0, leads: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((samples, leads)).astype(np.float32)


def softmax(scores: list[float]) -> np.ndarray:
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def attend(layer: KnowledgeAttention, x: list[np.ndarray], known: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """sum_i a_i x_i, e_i = v . tanh(W [x_i; k_i])."""
    W, v = layer.project.weight.detach().numpy(), layer.score.weight.detach().numpy()[0]
    weights = softmax([float(v @ np.tanh(W @ np.append(x_i, k_i))) for x_i, k_i in zip(x, known, strict=True)])
    return sum(a * x_i for a, x_i in zip(weights, x, strict=True)), weights


def lstm(network: Any, x: list[np.ndarray], suffix: str) -> list[np.ndarray]:
    """The outputs of one direction, from its first token to its last."""
    W, U, b, c = (
        getattr(network, f"{name}_l0{suffix}").detach().numpy().astype(np.float64)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h, cell, found = np.zeros(U.shape[1]), np.zeros(U.shape[1]), []
    for one in x:
        i, f, g, o = np.split(W @ one + b + U @ h + c, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        h = o * np.tanh(cell)
        found.append(h)
    return found


def test_a_record_is_read_by_the_equations_of_the_paper():
    model = PAGE.build({"rhythms": Head("sequence", 3)}).eval()
    batch = PROCESSOR.collate([PROCESSOR.example(record(200))])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that attention is far from even
        hidden = model(batch)
        found, looked = model.answer("rhythms", hidden, batch.starts, batch)[0], model.looked(batch)
    x_N = PROCESSOR.values(record(200))[:, 0].astype(np.float64)
    numbers, band_powers = [], []
    for f, (low, high, block) in enumerate(zip(PAGE.low, PAGE.high, model.stack.blocks, strict=True)):
        y_N = lfilter(*butter(1, [low, high], "band", fs=300), x_N) if high else x_N
        change_N = np.array([0.0] + [abs(y_N[n] - y_N[n - 1]) for n in range(1, 200)])
        convolution, known = block.convolution, block.known
        W, b = convolution.weight.detach().numpy()[:, 0], convolution.bias.detach().numpy()
        V, c = known.weight.detach().numpy()[0, 0], known.bias.item()
        vectors, spread = [], []
        for k in range(10):
            y_S, change_S = y_N[20 * k : 20 * k + 20], change_N[20 * k : 20 * k + 20]
            windows = [slice(3 * p, 3 * p + 6) for p in range(5)]
            places = [np.maximum(W @ y_S[window] + b, 0) for window in windows]
            vector, weights = attend(block.beats, places, [max(float(V @ change_S[w]) + c, 0) for w in windows])
            np.testing.assert_allclose(looked.beats[0, k, f], weights, atol=1e-4)
            vectors.append(vector)
            spread.append(np.std(y_S))
        network = block.recurrent.kernel
        outputs = zip(lstm(network, vectors, ""), lstm(network, vectors[::-1], "_reverse")[::-1], strict=True)
        states = [np.concatenate(both) for both in outputs]
        pooled, weights = attend(block.rhythm, states, spread)
        np.testing.assert_allclose(looked.rhythm[0, :, f], weights, atol=1e-4)
        M, d = block.output.weight.detach().numpy(), block.output.bias.detach().numpy()
        numbers.append(np.maximum(M @ pooled + d, 0))
        band_powers.append(periodogram(y_N, 300)[1].sum())
    pooled, weights = attend(model.stack.attention, numbers, band_powers)
    np.testing.assert_allclose(looked.bands[0], weights, atol=1e-4)
    output = model.heads["rhythms"].output
    np.testing.assert_allclose(found, output.weight.detach().numpy() @ pooled + output.bias.detach().numpy(), atol=1e-4)


@given(
    rate=st.sampled_from([100, 300, 500]),
    low=st.floats(0.001, 20),
    width=st.floats(0.5, 25),
    kind=st.sampled_from(["band", "low", "high"]),
    samples=st.integers(10, 700),
)
def test_bands_are_those_of_scipy(rate, low, width, kind, samples):
    bounds = {"band": (low, low + width), "low": (0.0, low), "high": (low, 0.0)}[kind]
    page = Mina(rate=rate, segment=10, kernel=4, low=bounds[:1], high=bounds[1:])
    x_N = record(samples)[:, 0]
    found = page.embedding()(torch.from_numpy(x_N)[None, None])[0, 0, 0]
    both = [bound for bound in bounds if bound]
    wanted = lfilter(*butter(1, both if len(both) == 2 else both[0], kind, fs=rate), x_N)
    np.testing.assert_allclose(found, wanted, atol=3e-5)


@given(samples=st.integers(20, 300), more=st.integers(0, 50), rate=st.sampled_from([100, 300]))
def test_knowledge_features_are_those_of_numpy_and_scipy(samples, more, rate):
    x_N = record(samples)[:, 0]
    padded = torch.from_numpy(np.pad(x_N, (0, more)))[None, None]
    power = powers(padded, torch.arange(samples + more)[None] < samples, rate)
    np.testing.assert_allclose(power.item(), periodogram(x_N, rate)[1].sum(), rtol=1e-4)
    np.testing.assert_allclose(steps(torch.from_numpy(x_N)[None, None])[0, 0, 1:], np.abs(np.diff(x_N)))
    cut = x_N[:20].reshape(2, 1, 10)
    np.testing.assert_allclose(deviations(torch.from_numpy(cut)[None])[0, :, 0], cut[:, 0].std(-1), rtol=1e-5)


@given(leads=st.integers(1, 3), samples=st.integers(4, 60), kernel=st.integers(1, 40), stride=st.integers(1, 5))
def test_a_convolution_in_segments_is_that_of_torch(leads, samples, kernel, stride):
    convolution = SegmentConvolution(leads, 5, min(kernel, samples), stride)
    x_NLS = torch.randn(3, leads, samples, generator=torch.Generator().manual_seed(samples), requires_grad=True)
    found = convolution(x_NLS)
    wanted = F.conv1d(x_NLS, convolution.weight, convolution.bias, stride).transpose(1, 2)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    given = (x_NLS, convolution.weight, convolution.bias)
    rates = torch.linspace(-1, 1, found.numel()).view_as(found)
    for own, other in zip(
        torch.autograd.grad((found * rates).sum(), given),
        torch.autograd.grad((wanted * rates).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(own, other, atol=1e-3, rtol=1e-4)


def test_weights_of_attention_are_in_the_order_of_the_batch_and_add_up_to_1():
    model = PAGE.build().eval()
    examples = [PROCESSOR.example(record(size, seed)) for seed, size in enumerate((60, 200, 20, 140))]
    with torch.no_grad():
        alone = [model.looked(PROCESSOR.collate([one])) for one in examples]
        for batch in (PROCESSOR.collate(examples), collate.pack(examples, 11, PROCESSOR.pad)):
            found = model.looked(batch)
            for r, (one, example) in enumerate(zip(alone, examples, strict=True)):
                K = len(example.tokens)
                torch.testing.assert_close(found.beats[r, :K], one.beats[0])
                torch.testing.assert_close(found.rhythm[r, :K], one.rhythm[0])
                torch.testing.assert_close(found.bands[r], one.bands[0])
                assert not found.rhythm[r, K:].any()
                torch.testing.assert_close(found.rhythm[r].sum(0), torch.ones(4))


def test_ablations_leave_out_what_they_say():
    for name, size in SIZES.items():
        model = Mina(**size).build({"rhythms": Head("sequence", 2)})
        names = {key.split(".")[3] for key in model.state_dict() if key.startswith("stack.blocks")}
        assert ("rhythm" in names) == (name in ("mina", "acrnn"))
        assert ("beats" in names) == (name == "mina")
        assert ("recurrent" in names) == (name != "cnn")
        assert len(model.stack.blocks) == (4 if name == "mina" else 1)


def test_a_mean_reads_real_segments_alone():
    page = PAGE.replace(**SIZES["cnn"])
    model = page.build({"rhythms": Head("sequence", 2)}).eval()
    batch = PROCESSOR.collate([PROCESSOR.example(record(200)), PROCESSOR.example(record(60, 1))])
    with torch.no_grad():
        hidden = model(batch)
        block, head = model.stack.blocks[0], model.heads["rhythms"]
        numbers = block.output(hidden[1, :3, :-2].mean(0)).relu()
        found = model.answer("rhythms", hidden, batch.starts, batch)
    torch.testing.assert_close(found[1], head(numbers))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"low": (1.0,)}, "two bounds for each band"),
        ({"kernel": 21}, "must hold the kernel"),
        ({"low": (0.0, 9.0, 10.0, 0.1), "high": (0.0, 5.0, 50.0, 0.5)}, "must ascend"),
        ({"rate": 90}, "does not exist at 90 samples a second"),
    ],
)
def test_numbers_that_do_not_go_together(wrong, message):
    with pytest.raises(UnmaskError, match=message):
        PAGE.replace(**wrong)


def test_batches_that_the_model_cannot_read():
    model = PAGE.build()
    with pytest.raises(UnmaskError, match="reads signals"):
        model(Batch(torch.ones(1, 3, dtype=torch.int64)))
    other = SignalProcessor(segment=25)
    with pytest.raises(UnmaskError, match="segments of 20 samples of 1 leads"):
        model(other.collate([other.example(record(100))]))
