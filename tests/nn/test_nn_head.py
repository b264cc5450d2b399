"""Heads: their equations, the tie to the token vectors, precision."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unmask.nn import (
    Classifier,
    LanguageModelHead,
    Logits,
    Pooler,
    ProjectedHead,
    Projection,
    ScalarMix,
    ScaledTiedHead,
    Span,
    TiedHead,
    Token,
    UntiedHead,
    WideHead,
    logits_of,
)

M, D, V = 6, 8, 11


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(M, D, generator=torch.Generator().manual_seed(0))


def test_language_model_head_is_its_equation(x):
    token = Token(V, D)
    head = LanguageModelHead(token, D, activation=F.relu, eps=1e-5)
    nn.init.normal_(head.bias)
    hidden = (x @ head.dense.weight.T + head.dense.bias).clamp(min=0)
    hidden = (hidden - hidden.mean(-1, keepdim=True)) / (hidden.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(head(x), hidden @ token.weight.T + head.bias)


def test_language_model_head_of_a_factorised_token_works_at_the_small_width(x):
    head = LanguageModelHead(Token(V, D, factor=3), D)
    assert head.dense.weight.shape == (3, D)
    assert head(x).shape == (M, V)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = Token(V, D)
        self.head = LanguageModelHead(self.token, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


def test_the_tied_weight_is_stored_and_counted_once():
    model = Tied()
    assert [name for name in model.state_dict() if name.endswith("token.weight")] == ["token.weight"]
    assert {name.split(".")[0] for name, _ in model.head.named_parameters()} == {"dense", "norm", "bias"}


def test_the_tie_outlives_copies_moves_and_new_parameters(x):
    model = copy.deepcopy(Tied())
    assert model.head.token is model.token
    assert model.double().head(x.double()).dtype is torch.float64
    model = model.float().to("meta").to_empty(device="cpu")
    model.token.weight = nn.Parameter(torch.zeros(V, D))
    nn.init.zeros_(model.head.bias)
    for part in (model.head.dense, model.head.norm):
        part.reset_parameters()
    assert model.head(x).eq(0).all()


def test_the_tied_weight_learns_from_both_ends(x):
    model = Tied()
    model.head(x).square().sum().backward()
    output_side = model.token.weight.grad.clone()
    assert output_side.abs().sum() > 0
    model.token(torch.tensor([3])).sum().backward()
    expected = output_side.clone()
    expected[3] += 1
    torch.testing.assert_close(model.token.weight.grad, expected)


def test_pooler_is_its_equation(x):
    pooler = Pooler(D)
    torch.testing.assert_close(pooler(x), torch.tanh(x @ pooler.dense.weight.T + pooler.dense.bias))
    pooler = Pooler(D, dropout=1.0)  # so that nothing is left of x
    torch.testing.assert_close(pooler(x), pooler.dense.bias.tanh().expand_as(x))
    assert not torch.allclose(pooler.eval()(x), pooler.dense.bias.tanh())


def test_classifier_is_linear_after_dropout():
    classifier = Classifier(64, 64, dropout=0.4)
    nn.init.eye_(classifier.output.weight)
    nn.init.zeros_(classifier.output.bias)
    torch.manual_seed(0)
    y = classifier(torch.ones(100, 64))
    assert y.eq(0).float().mean() == pytest.approx(0.4, abs=0.02)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.6))
    assert torch.equal(classifier.eval()(torch.ones(3, 64)), torch.ones(3, 64))


def test_span_has_a_begin_and_an_end(x):
    span = Span(D)
    torch.testing.assert_close(span(x), x @ span.output.weight.T + span.output.bias)
    assert span(x.expand(3, M, D)).shape == (3, M, 2)


def test_projection_is_its_equation(x):
    projection = Projection(D, 5, 3)
    hidden = (x @ projection.dense.weight.T + projection.dense.bias).clamp(min=0)
    torch.testing.assert_close(projection(x), hidden @ projection.output.weight.T + projection.output.bias)


def test_scalar_mix_is_its_equation(x):
    mix = ScalarMix(3)
    torch.testing.assert_close(mix([x, 2 * x, 6 * x]), 3 * x)  # starts as the mean
    with torch.no_grad():
        mix.weight.copy_(torch.tensor([0.0, math.log(2), math.log(5)]))
        mix.scale.fill_(4)
    torch.testing.assert_close(mix([x, 2 * x, 6 * x]), 4 * (1 * x + 2 * 2 * x + 5 * 6 * x) / 8)
    with pytest.raises(ValueError, match="zip"):
        mix([x, x])


@pytest.mark.parametrize(
    "head", [Pooler(D), Classifier(D, 3), Span(D), Projection(D, 5, 3), Tied()], ids=lambda h: type(h).__name__
)
def test_precision(head, x):
    y = head(x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(head(x).float(), y, atol=0.1, rtol=0.05)
    double = copy.deepcopy(head).double()
    assert double(x.double()).dtype is torch.float64
    torch.testing.assert_close(double(x.double()).float(), y, atol=1e-5, rtol=1e-5)


def test_compiles_as_one_graph(x):
    model = Tied()
    torch._dynamo.reset()
    compiled = torch.compile(model.head, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model.head(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda token: LanguageModelHead(token, 8),
        lambda token: TiedHead(token, bias=True),
        ScaledTiedHead,
        lambda token: ProjectedHead(token, 8),
        lambda token: WideHead(token, 12, activation=F.relu, eps=1e-6),
        lambda token: UntiedHead(8, 30),
        lambda token: nn.Linear(8, 30),
        lambda token: nn.Sequential(nn.Linear(8, 8), TiedHead(token)),
    ],
    ids=["language model", "tied", "scaled", "projected", "wide", "untied", "linear", "chain"],
)
def test_the_product_of_a_head_is_what_it_answers(make):
    head = make(Token(30, 8))
    x = torch.randn(5, 12 if isinstance(head, WideHead) else 8)
    product = logits_of(head, x)
    assert isinstance(product, Logits)
    torch.testing.assert_close(product.made(), head(x))


def test_a_head_that_somebody_listens_to_is_called():
    head, heard = TiedHead(Token(30, 8)), []
    head.register_forward_hook(lambda module, given, said: heard.append(said))
    said = logits_of(head, torch.randn(5, 8))
    assert said is heard[0]
    assert isinstance(logits_of(Classifier(8, 2), torch.randn(5, 8)), torch.Tensor)
