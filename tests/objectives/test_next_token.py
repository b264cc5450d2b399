"""NextToken and ScheduledSampling: the loss is PyTorch's, and replaced tokens are the model's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask.config import Config
from unmask.data.bitext.batching import collate_pairs
from unmask.errors import UnmaskError
from unmask.models import EncoderDecoder, State
from unmask.objectives import NextToken, ScheduledSampling
from unmask.types import Batch

V = 11
PAD, START, END = 0, 1, 2


class Bigram(EncoderDecoder):
    """What follows depends on the token before alone; notes what it was fed."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.table = nn.Parameter(torch.randn(V, V, generator=torch.Generator().manual_seed(0)))
        self.heads = nn.ModuleDict({"next": nn.Identity()})
        self.fed: list[Tensor] = []

    def forward(self, batch: Batch) -> Tensor:
        self.fed.append(batch.tokens)
        return self.table[batch.tokens]

    def prefill(self, batch: Batch, width: int = 1) -> State:
        raise NotImplementedError

    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        raise NotImplementedError


def batch(seed: int = 0, rows: int = 4) -> Batch:
    rng = np.random.default_rng(seed)
    texts = [rng.integers(3, V, rng.integers(1, 7)) for _ in range(2 * rows)]
    return collate_pairs(texts[:rows], texts[rows:], PAD, START, END)


@given(st.integers(0, 1_000), st.sampled_from([0.0, 0.1, 0.5]))
def test_the_loss_is_that_of_torch(seed: int, smoothing: float) -> None:
    model, given_batch = Bigram(), batch(seed)
    loss = NextToken(label_smoothing=smoothing).loss(model, given_batch)["next"]
    target = given_batch.targets["next"]
    logits = model(given_batch).flatten(0, 1)[target.places]
    expected = F.cross_entropy(logits, target.values, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.sum, expected)
    torch.testing.assert_close(loss.metrics["nll"], F.cross_entropy(logits, target.values, reduction="sum"))
    assert loss.count == given_batch.counts["next"] == len(target.values)
    assert loss.metrics["correct"] == (logits.argmax(-1) == target.values).sum()


def test_the_gradient_is_that_of_torch() -> None:
    model, given_batch = Bigram(), batch()
    NextToken(label_smoothing=0.1).loss(model, given_batch)["next"].sum.backward()
    ours = model.table.grad.clone()
    model.table.grad = None
    target = given_batch.targets["next"]
    logits = model(given_batch).flatten(0, 1)[target.places]
    F.cross_entropy(logits, target.values, label_smoothing=0.1, reduction="sum").backward()
    torch.testing.assert_close(ours, model.table.grad)


def test_all_tokens_are_replaced_by_what_the_model_says_of_the_true_ones() -> None:
    model, given_batch = Bigram(), batch(rows=6)
    ScheduledSampling(1.0).loss(model.train(), given_batch)
    true, fed = model.fed
    assert torch.equal(true, given_batch.tokens)
    expected = given_batch.tokens.clone()
    real = torch.ones_like(expected, dtype=torch.bool) if given_batch.documents is None else given_batch.documents > 0
    guesses = model.table[given_batch.tokens].argmax(-1)
    expected[:, 1:] = torch.where(real[:, 1:], guesses[:, :-1], expected[:, 1:])
    assert torch.equal(fed, expected)
    assert (fed[:, 0] == START).all()


def test_a_share_of_the_tokens_is_replaced() -> None:
    torch.manual_seed(0)
    model = Bigram()
    with torch.no_grad():
        model.table.zero_()[:, 3] = 1.0  # always says 3, which the texts below do not have
    texts = [np.full(50, 5)] * 40
    given_batch = collate_pairs(texts, texts, PAD, START, END)
    ScheduledSampling(0.25).loss(model.train(), given_batch)
    assert (model.fed[1][:, 1:] == 3).float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_evaluation_replaces_nothing() -> None:
    model, given_batch = Bigram().eval(), batch()
    loss = ScheduledSampling(1.0).loss(model, given_batch)["next"]
    assert len(model.fed) == 1
    torch.testing.assert_close(loss.sum, NextToken().loss(model, given_batch)["next"].sum)


@pytest.mark.parametrize("wrong", [lambda: NextToken(label_smoothing=1.0), lambda: ScheduledSampling(1.5)])
def test_shares_beyond_their_range_are_refused(wrong) -> None:
    with pytest.raises(UnmaskError, match=r"from 0"):
        wrong()
