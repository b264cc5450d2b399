"""The operations and the parameters that `unmask.runs.cost` counts are those that PyTorch counts in the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from unmask.data.recordings.processor import RecordingProcessor
from unmask.huggingface.table import as_heads
from unmask.models import Bert, Transformer
from unmask.models.wav2vec2 import Wav2Vec2
from unmask.runs import cost
from unmask.types import Batch

SMALL = Bert(vocabulary=100, dim=16, layers=3, heads=2, hidden=40, length=24, dropout=0.0, attention_dropout=0.0)


@pytest.mark.parametrize(("length", "answered"), [(8, 3), (24, 7)])
def test_operations_are_those_that_pytorch_counts(length: int, answered: int) -> None:
    model = SMALL.build(as_heads({"mlm": 0}))
    tokens = torch.arange(4 * length).view(4, length) % SMALL.vocabulary
    written_out = sdpa_kernel(SDPBackend.MATH)  # the counter does not know the fused kernel of the CPU
    with written_out, FlopCounterMode(display=False) as counter:
        model.answer("mlm", model(Batch(tokens)), torch.arange(answered)).sum().backward()
    assert counter.get_total_flops() == 4 * cost.training_flops(SMALL, length, answered / 4)


def test_operations_of_a_translation_are_those_that_pytorch_counts() -> None:
    page = Transformer(
        vocabulary=50, dim=16, encoder_layers=2, decoder_layers=3, encoder_heads=2, decoder_heads=2, encoder_hidden=24,
        decoder_hidden=40,
    )  # fmt: skip
    model = page.build(seed=0).eval()
    batch = Batch(torch.arange(7)[None] + 3, source=Batch(torch.arange(11)[None] + 3))
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.answer("next", model(batch), torch.arange(7))
    assert counter.get_total_flops() == cost.translation_flops(page, 11, 7)


@pytest.mark.parametrize("config", [SMALL, Bert()])
def test_parameters_are_those_of_the_model(config: Bert) -> None:
    with torch.device("meta"):
        model = config.build(as_heads({"mlm": 0}))
    assert sum(p.numel() for p in model.parameters()) == cost.parameters(config, config.length, config.segments)


def test_operations_over_a_recording_are_those_that_pytorch_counts() -> None:
    page = Wav2Vec2(
        channels=(8, 12), kernels=(10, 8), strides=(5, 8), dim=16, layers=2, heads=2, hidden=40, position_kernel=8,
        position_groups=2,
    )  # fmt: skip
    processor = RecordingProcessor(rate=8_000).for_model(page)
    samples = processor.samples(60)
    model, batch = page.build(), processor.collate([processor.example(np.ones(samples, np.float32))])
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(batch)
    assert counter.get_total_flops() == pytest.approx(cost.speech_flops(page, samples), rel=0.01)


def test_weights_that_are_sharded_are_sent_half_as_often_again() -> None:
    joined = cost.Cluster(flops=1e12, bandwidth=1e9, latency=0.001)
    assert joined.shard_exchange(1e9, 1) == 0
    assert joined.shard_exchange(1e9, 4, passes=2) == pytest.approx(5 * (0.75 + 0.003))
    assert joined.shard_exchange(1e9, 1_000) == pytest.approx(1.5 * joined.all_reduce(1e9, 1_000))


def test_bert_large_costs_what_six_operations_a_parameter_say() -> None:
    """6 P T (Kaplan et al. 2020, section 2.1) counts no attention, and P the weights of the layers alone."""
    large = Bert(dim=1024, layers=24, heads=16, hidden=4096)
    weights = 24 * 12 * 1024**2
    assert cost.training_flops(large, 128, 0) == pytest.approx(6 * weights * 128, rel=0.03)


def test_an_exchange_sends_twice_the_gradients() -> None:
    joined = cost.Cluster(flops=1e12, bandwidth=1e9)
    assert joined.all_reduce(1e9, 1) == 0
    assert joined.all_reduce(1e9, 2) == pytest.approx(1.0)
    assert joined.all_reduce(1e9, 1024) == pytest.approx(2.0, rel=1e-3)


def test_an_exchange_hides_behind_the_backward_pass_and_no_longer() -> None:
    hidden = cost.Cluster(flops=1e12, bandwidth=1e9, overlap=1.0)
    assert hidden.step(6e12, 1e9, 2) == pytest.approx(3.0)  # one second of exchange, two of backward
    assert hidden.step(6e11, 1e9, 2) == pytest.approx(0.3 + 1.0 - 0.2)
