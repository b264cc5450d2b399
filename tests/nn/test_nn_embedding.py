"""The input layer: token, segment, position, norm, dropout, in this order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unmask.errors import UnmaskError
from unmask.nn import Embedding, Learned, Position, Segment, Sinusoidal, Token

B, T, D, V = 2, 5, 8, 11
TOKENS = torch.tensor([[1, 2, 3, 4, 0], [10, 9, 8, 0, 0]])
SEGMENTS = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 0, 0, 0]])


def test_token_looks_up():
    token = Token(V, D)
    assert torch.equal(token(TOKENS), token.weight[TOKENS])
    assert [name for name, _ in token.named_parameters()] == ["weight"]


def test_factorised_token_saves_parameters():
    token = Token(V, D, factor=2)
    assert token.weight.shape == (V, 2)
    assert torch.equal(token(TOKENS), token.weight[TOKENS] @ token.project.weight.T)
    assert sum(p.numel() for p in token.parameters()) == V * 2 + 2 * D


def test_padding_has_no_gradient():
    token = Token(V, D, padding=0)
    assert token.weight[0].eq(0).all()
    token(TOKENS).sum().backward()
    assert token.weight.grad[0].eq(0).all()
    assert token.weight.grad[1].ne(0).all()


def test_segment_none_is_all_zero():
    segment = Segment(2, D)
    assert torch.equal(segment(SEGMENTS), segment.weight[SEGMENTS])
    zeros = segment(torch.zeros(B, T).long())
    assert torch.equal(segment(None).expand_as(zeros), zeros)


@pytest.mark.parametrize("positions", [None, torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 3, 4]])])
def test_embedding_is_norm_of_the_sum(positions):
    token, segment, position, norm = Token(V, D), Segment(2, D), Learned(T, D), nn.LayerNorm(D)
    embedding = Embedding(token, segment=segment, position=position, norm=norm)
    places = torch.arange(T).expand(B, T) if positions is None else positions
    expected = norm(token.weight[TOKENS] + segment.weight[SEGMENTS] + position.table.weight[places])
    torch.testing.assert_close(embedding(TOKENS, SEGMENTS, positions), expected)


def test_every_part_but_the_token_is_optional():
    token = Token(V, D)
    assert torch.equal(Embedding(token)(TOKENS, SEGMENTS), token(TOKENS))
    assert Embedding(token, position=Position())(TOKENS).shape == (B, T, D)


def test_project_widens_after_the_norm():
    """ALBERT: everything is added and normalised at the small width."""
    norm, project = nn.LayerNorm(4), nn.Linear(4, D)
    embedding = Embedding(Token(V, 4), position=Sinusoidal(4), norm=norm, project=project)
    small = Embedding(embedding.token, position=Sinusoidal(4), norm=norm)
    torch.testing.assert_close(embedding(TOKENS), project(small(TOKENS)))


def test_dropout_falls_after_the_norm():
    norm = nn.LayerNorm(64)
    embedding = Embedding(Token(V, 64), norm=norm, dropout=0.25)
    tokens = torch.randint(V, (64, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    y, kept = embedding(tokens), norm(embedding.token(tokens)) / 0.75
    assert y.eq(0).float().mean() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(y[y != 0], kept[y != 0])
    assert torch.equal(embedding.eval()(tokens), norm(embedding.token(tokens)))


@pytest.mark.parametrize(("wrong", "name"), [(11, "11"), (-1, "-1")])
def test_ids_that_do_not_exist_are_named(wrong, name):
    embedding = Embedding(Token(V, D), segment=Segment(2, D))
    tokens = TOKENS.clone()
    tokens[1, 1] = wrong
    with pytest.raises(UnmaskError, match=f"Token id {name} .* has 11 of them"):
        embedding(tokens)
    segments = SEGMENTS.clone()
    segments[0, 0] = wrong
    with pytest.raises(UnmaskError, match=f"Segment id {name} .* has 2 of them"):
        embedding(TOKENS, segments)


@pytest.mark.parametrize("position", [None, Learned(T, D), Sinusoidal(D)])
def test_precision(position):
    embedding = Embedding(Token(V, D), segment=Segment(2, D), position=position, norm=nn.LayerNorm(D))
    y = embedding(TOKENS, SEGMENTS)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(embedding(TOKENS, SEGMENTS).float(), y, atol=0.05, rtol=0.05)
    assert embedding.double()(TOKENS, SEGMENTS).dtype is torch.float64
    torch.testing.assert_close(embedding(TOKENS, SEGMENTS).float(), y, atol=1e-5, rtol=1e-5)
    assert embedding.bfloat16()(TOKENS).dtype is torch.bfloat16


def test_compiles_as_one_graph():
    embedding = Embedding(Token(V, D), segment=Segment(2, D), position=Learned(T, D, offset=1), norm=nn.LayerNorm(D))
    torch._dynamo.reset()
    compiled = torch.compile(embedding, backend="eager", fullgraph=True)
    positions = torch.arange(T).expand(B, T)
    torch.testing.assert_close(compiled(TOKENS, SEGMENTS, positions), embedding(TOKENS, SEGMENTS, positions))
