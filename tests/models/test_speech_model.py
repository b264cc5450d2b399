"""Models of recordings in training: what each strategy trains, recomputed activations, bfloat16, means of layers."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unmask.data.recordings.processor import RecordingProcessor
from unmask.errors import UnmaskError
from unmask.kernels.formats import autocast
from unmask.models.bert import Bert
from unmask.models.hubert import SIZES as HUBERT_SIZES
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import SIZES, Wav2Vec2
from unmask.runs.transfer.strategy import Transfer, depths, prepare
from unmask.train.engine import recompute_blocks
from unmask.types import Batch, Head

SMALL: dict[str, Any] = {
    "channels": (6, 8), "kernels": (7, 3), "strides": (4, 2), "dim": 12, "layers": 3, "heads": 2, "hidden": 20,
    "position_kernel": 6, "position_groups": 3, "projection": 5,
}  # fmt: skip
HEADS = {"classes": Head("sequence", 2)}
FRONT = "embedding.features."
UPPER = ("heads.", "stack.", *(f"embedding.{part}" for part in ("position", "project", "feature_norm", "mask", "norm")))


def batch() -> Batch:
    processor = RecordingProcessor().for_model(Wav2Vec2(**SMALL))
    rng = np.random.default_rng(0)
    return processor.collate([processor.example(rng.standard_normal(n).astype(np.float32)) for n in (300, 160)])


def gradients(model: Any) -> dict[str, torch.Tensor]:
    given = batch()
    model.answer("classes", model(given), given.starts, given).square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("transfer", "trained"),
    [
        (Transfer(), ("",)),
        (Transfer(strategy="upper"), UPPER),
        (Transfer(strategy="top", layers=1), ("heads.", "stack.blocks.2.")),
        (Transfer(strategy="frozen"), ("heads.",)),
    ],
)
def test_what_a_strategy_trains(transfer, trained):
    model = Wav2Vec2(**SMALL).build(HEADS)
    tuning = prepare(model, transfer)
    wanted = {name for name, _ in model.named_parameters() if name.startswith(trained)}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == wanted
    model.train()
    tuning.on_step(0, 10)
    assert gradients(model).keys() == wanted - {"embedding.mask"} | ({"embedding.mask"} & wanted)
    assert model.front.training == any(name.startswith(FRONT) for name in wanted)


def test_layers_that_read_samples_are_the_lowest():
    model = Wav2Vec2(**SMALL).build(HEADS)
    found = depths(model)
    assert {found[name] for name in found if name.startswith(FRONT)} == {5}
    assert found["embedding.project.weight"] == 4
    tuning = prepare(model, Transfer(strategy="gradual", layer_decay=0.5))
    assert tuning.scale("embedding.features.layers.0.weight") == 0.5**4
    assert [tuning.reach(step, 6) for step in range(6)] == [0, 1, 2, 3, 4, 5]


def test_a_model_without_samples_refuses_the_strategy():
    model = Bert(vocabulary=9, dim=8, layers=1, heads=2, hidden=8, length=8).build()
    with pytest.raises(UnmaskError, match="strategy upper is for models of recordings"):
        prepare(model, Transfer(strategy="upper"))


def test_recomputed_activations_have_the_same_gradients():
    model = Hubert(**SMALL, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0).build(HEADS).train()
    wanted = gradients(model)
    model.zero_grad()
    recompute_blocks(model)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, wanted[name])


@pytest.mark.parametrize("layout", [{}, {"pre_norm": True, "conv_norm": "layer", "conv_bias": True}])
def test_bfloat16_is_close(layout):
    model = Wav2Vec2(**SMALL, **layout).build(HEADS).eval()
    wanted = model(batch())
    with autocast("cpu", torch.bfloat16):
        found = model(batch())
        gradients(model)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, wanted, atol=0.1, rtol=0.1)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_mean_of_layers_weighs_their_states():
    model = Hubert(**SMALL, mixes=True).build().eval()
    nn.init.normal_(model.mix.weight, generator=torch.Generator().manual_seed(0))
    states = torch.stack(model.hidden_states(batch()))
    shares = model.mix.weight.softmax(0)
    torch.testing.assert_close(model(batch()), torch.einsum("l,lbtd->btd", shares, states))
    assert not model.sequences_apart
    assert Hubert(**SMALL).build().sequences_apart


def test_published_sizes():
    """Numbers of parameters, in millions: Baevski et al. 2020, section 4.2; Hsu et al. 2021, table 1; Babu et al. 2021,
    table 2."""
    wanted = {"base": 95, "large": 317, "xls-r-0.3b": 317, "xls-r-1b": 965, "xls-r-2b": 2162}
    heads = {"contrastive": Head("quantised")}
    with torch.device("meta"):
        found = {name: Wav2Vec2(**SIZES[name]).build(heads, seed=None).parameters_total / 1e6 for name in wanted}
        hubert = {name: Hubert(**size).build(seed=None).parameters_total / 1e6 for name, size in HUBERT_SIZES.items()}
    assert {name: pytest.approx(n, rel=0.01) for name, n in wanted.items()} == found
    assert hubert == {
        "base": pytest.approx(95, 0.01),
        "large": pytest.approx(317, 0.01),
        "x-large": pytest.approx(964, 0.01),
    }


def test_layers_of_different_numbers_are_refused():
    with pytest.raises(UnmaskError, match="channels, kernels, strides must have one positive number"):
        Wav2Vec2(channels=(4, 4))
    with pytest.raises(UnmaskError, match="delay_dims, delay_kernels, delay_dilations must have one"):
        Hubert(delay_dims=(4, 4))


def test_layer_drop_skips_whole_layers_in_training_alone():
    """Each pass is one of all subsets of the layers, which occur as often as independent draws make them."""
    page = Wav2Vec2(**SMALL).replace(layers=2, layer_drop=0.25, dropout=0.0, attention_dropout=0.0)
    page = page.replace(activation_dropout=0.0, pre_norm=True)
    stack = page.build(seed=0).stack
    x_BTD = torch.randn(2, 5, page.dim, generator=torch.Generator().manual_seed(1))
    wanted = {}
    for kept in product((False, True), repeat=2):
        y_BTD = x_BTD
        for block, is_kept in zip(stack.blocks, kept, strict=True):
            y_BTD = block(y_BTD) if is_kept else y_BTD
        wanted[kept] = stack.norm(y_BTD).detach()
    assert torch.equal(stack.eval()(x_BTD), wanted[True, True])
    stack.train()
    counts = Counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(400):
            found = stack(x_BTD)
            [kept] = [kept for kept, y_BTD in wanted.items() if torch.allclose(found, y_BTD, atol=1e-6)]
            counts[kept] += 1
        while kept != (False, True):
            found = stack(x_BTD)
            [kept] = [kept for kept, y_BTD in wanted.items() if torch.allclose(found, y_BTD, atol=1e-6)]
    found.sum().backward()
    assert all(not p.grad.any() for p in stack.blocks[0].parameters())
    assert any(p.grad.any() for p in stack.blocks[1].parameters())
    for kept, count in counts.items():
        assert count / 400 == pytest.approx(math.prod(0.75 if one else 0.25 for one in kept), abs=0.08)
