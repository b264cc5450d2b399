"""What must hold for every position scheme: padding is neutral, causal is blind ahead, packed equals separate."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unmask.nn import (
    ALiBi,
    Attention,
    Block,
    Embedding,
    FeedForward,
    Learned,
    Mask,
    Position,
    Residual,
    Rotary,
    Sinusoidal,
    Stack,
    T5Bias,
    Token,
    TransformerXL,
)

D, H, K, V, LENGTH = 8, 2, 4, 17, 24
SCHEMES = ("none", "learned", "sinusoidal", "rotary", "t5", "t5 shared", "alibi", "alibi shared", "transformer-xl")
few = settings(max_examples=15, deadline=None)


class Encoder(nn.Module):
    """Two layers in float64, the scheme in its place, weights large enough for a leak to show."""

    def __init__(self, scheme: str, layers: int = 2):
        super().__init__()
        torch.manual_seed(0)
        inputs = {"learned": lambda: Learned(LENGTH, D), "sinusoidal": lambda: Sinusoidal(D)}
        inside = {
            "rotary": lambda: Rotary(K),
            "t5": lambda: T5Bias(H, 8, 16),
            "alibi": lambda: ALiBi(H),
            "transformer-xl": lambda: TransformerXL(D, H),
        }
        shared = {"t5 shared": lambda: T5Bias(H, 8, 16), "alibi shared": lambda: ALiBi(H)}

        def block() -> Block:
            attention = Attention(D, H, position=inside.get(scheme, Position)())
            return Block(Residual(attention, after=nn.LayerNorm(D)), Residual(FeedForward(D, 8), after=nn.LayerNorm(D)))

        self.embedding = Embedding(Token(V, D), position=inputs.get(scheme, Position)())
        self.stack = Stack([block() for _ in range(layers)], position=shared.get(scheme, Position)())
        for p in self.parameters():
            nn.init.normal_(p, std=0.5)
        self.double().requires_grad_(False)

    def forward(self, tokens: Tensor, mask: Mask | None = None, positions: Tensor | None = None) -> Tensor:
        return self.stack(self.embedding(tokens, None, positions), mask=mask, positions_BT=positions)


@pytest.fixture(scope="module", params=SCHEMES)
def encoder(request) -> Encoder:
    return Encoder(request.param)


sequences = st.lists(st.lists(st.integers(1, V - 1), min_size=1, max_size=7), min_size=1, max_size=3)
tokens = st.lists(st.integers(1, V - 1), min_size=2, max_size=9)


def test_order_matters_exactly_where_there_is_a_scheme(encoder, request):
    tokens = torch.tensor([[1, 2, 3, 4]])
    swapped = torch.tensor([[2, 1, 3, 4]])
    same = torch.allclose(encoder(tokens)[:, 3], encoder(swapped)[:, 3])
    assert same == ("none" in request.node.callspec.id)


@few
@given(sequences=sequences, extra=st.integers(0, 3), by_documents=st.booleans(), filler=st.integers(0, V - 1))
def test_padding_is_neutral(encoder, sequences, extra, by_documents, filler):
    lengths = torch.tensor([len(s) for s in sequences])
    width = int(lengths.max()) + extra
    rows = torch.tensor([s + [filler] * (width - len(s)) for s in sequences])
    real = torch.arange(width) < lengths[:, None]
    y = encoder(rows, Mask(documents=real.long()) if by_documents else Mask(lengths=lengths))
    assert y.isfinite().all()
    for row, sequence in zip(y, sequences, strict=True):
        torch.testing.assert_close(row[: len(sequence)], encoder(torch.tensor([sequence]))[0])


@few
@given(sequences=sequences, extra=st.integers(0, 3), causal=st.booleans(), window=st.none() | st.integers(1, 4))
def test_packed_is_separate(encoder, sequences, extra, causal, window):
    flat = [token for s in sequences for token in s] + [0] * extra
    documents = [i + 1 for i, s in enumerate(sequences) for _ in s] + [0] * extra
    positions = [place for s in sequences for place in range(len(s))] + [0] * extra
    rule = Mask(causal=causal, window=window)
    y = encoder(torch.tensor([flat]), rule & Mask(documents=torch.tensor([documents])), torch.tensor([positions]))[0]
    assert y.isfinite().all()
    begin = 0
    for sequence in sequences:
        alone = encoder(torch.tensor([sequence]), rule)[0]
        torch.testing.assert_close(y[begin : begin + len(sequence)], alone)
        begin += len(sequence)


@few
@given(row=tokens, data=st.data())
def test_causal_is_blind_to_the_future(encoder, row, data):
    at = data.draw(st.integers(1, len(row) - 1))
    other = row[:at] + [token % (V - 1) + 1 for token in row[at:]]
    y, changed = (encoder(torch.tensor([r]), Mask(causal=True))[0] for r in (row, other))
    torch.testing.assert_close(y[:at], changed[:at])
    assert not torch.allclose(y[at], changed[at])


@few
@given(row=tokens, window=st.integers(1, 4), causal=st.booleans(), data=st.data())
def test_one_layer_sees_its_window_and_nothing_else(row, window, causal, data):
    encoder = Encoder("learned", layers=1)
    at = data.draw(st.integers(0, len(row) - 1))
    other = [*row[:at], row[at] % (V - 1) + 1, *row[at + 1 :]]
    mask = Mask(window=window, causal=causal)
    y, changed = (encoder(torch.tensor([r]), mask)[0] for r in (row, other))
    for place in range(len(row)):
        sees = abs(place - at) < window and (not causal or at <= place)
        assert torch.allclose(y[place], changed[place], rtol=0, atol=1e-12) != sees


def test_a_rows_neighbours_in_the_batch_do_not_matter(encoder):
    rows = torch.randint(1, V, (3, 6), generator=torch.Generator().manual_seed(0))
    mask = Mask(lengths=torch.tensor([6, 0, 3]))
    torch.testing.assert_close(encoder(rows, mask)[:1], encoder(rows[:1], Mask(lengths=torch.tensor([6]))))


def test_positions_given_in_full_are_those_by_default(encoder):
    rows = torch.randint(1, V, (2, 6), generator=torch.Generator().manual_seed(0))
    assert torch.equal(encoder(rows, positions=torch.arange(6).expand(2, 6)), encoder(rows))
