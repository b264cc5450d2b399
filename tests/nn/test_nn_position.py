"""Position schemes against their formulas, written out with loops."""

from __future__ import annotations

import math

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.nn import (
    ALiBi,
    Attention,
    Embedding,
    Learned,
    Position,
    Rotary,
    Sinusoidal,
    Stack,
    T5Bias,
    Token,
    TransformerXL,
)

B, T, S, D, H, K = 2, 3, 5, 8, 2, 4


def doubles(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_no_scheme_changes_nothing():
    x, position = doubles(B, T, D), Position()
    assert position.embed(x) is x
    assert position.rotate(x, x) == (x, x)
    assert position.bias(T, S) is None
    assert position.score(x, x, 1.0) is None


# -------------------------------------------------------------------------------------------------- learned


def test_learned_adds_its_row():
    position = Learned(6, D, offset=2)
    x = torch.randn(B, T, D)
    assert position.table.weight.shape == (8, D)
    for t in range(T):
        assert torch.equal(position.embed(x)[:, t], x[:, t] + position.table.weight[2 + t])
    places = torch.tensor([[0, 1, 0], [3, 4, 5]])
    for b in range(B):
        for t in range(T):
            expected = x[b, t] + position.table.weight[2 + places[b, t]]
            assert torch.equal(position.embed(x, places)[b, t], expected)


def test_learned_refuses_what_is_beyond_its_table():
    position = Learned(4, D, offset=2)
    position.embed(torch.zeros(1, 4, D))
    with pytest.raises(UnmaskError, match="5 tokens is beyond the 4 positions"):
        position.embed(torch.zeros(1, 5, D))
    position.embed(torch.zeros(1, 8, D), torch.tensor([[0, 1, 2, 3] * 2]))  # a long row of short sequences is fine
    with pytest.raises(UnmaskError, match="Position 4 is beyond the 4 positions"):
        position.embed(torch.zeros(1, 5, D), torch.arange(5)[None])


# ----------------------------------------------------------------------------------------------- sinusoidal


def test_sinusoidal_is_the_formula():
    """Vaswani et al. 2017, section 3.5."""
    added = Sinusoidal(D).embed(torch.zeros(1, 50, D, dtype=torch.float64))[0]
    for place in (0, 1, 7, 49):
        for i in range(D // 2):
            angle = place / 10_000 ** (2 * i / D)
            assert added[place, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert added[place, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_sinusoidal_at_given_places():
    x, places = doubles(B, T, D), torch.tensor([[0, 1, 0], [4, 5, 6]])
    every = Sinusoidal(D).embed(torch.zeros(1, 9, D, dtype=torch.float64))[0]
    torch.testing.assert_close(Sinusoidal(D).embed(x, places), x + every[places])


@pytest.mark.parametrize("scheme", [Sinusoidal, Rotary, lambda dim: TransformerXL(dim, 1)])
def test_odd_widths_are_refused(scheme):
    with pytest.raises(UnmaskError, match="even"):
        scheme(7)


# --------------------------------------------------------------------------------------------------- rotary


def test_rotary_turns_pairs_by_their_angle():
    """Su et al. 2021, equation 34, with features i and i + K/2 as the pair."""
    q, k = doubles(1, 1, S, K), doubles(1, 1, S, K, seed=1)
    for before, after in zip((q, k), Rotary(K, base=100.0).rotate(q, k), strict=True):
        for place in range(S):
            for i in range(K // 2):
                a, b = before[0, 0, place, i].item(), before[0, 0, place, i + K // 2].item()
                turned = complex(a, b) * complex(
                    math.cos(place * 100 ** (-2 * i / K)), math.sin(place * 100 ** (-2 * i / K))
                )
                assert after[0, 0, place, i].item() == pytest.approx(turned.real)
                assert after[0, 0, place, i + K // 2].item() == pytest.approx(turned.imag)


def test_rotary_products_know_only_the_distance():
    rotary, q, k = Rotary(K), doubles(1, 1, 1, K).expand(1, 1, 9, K), doubles(1, 1, 1, K, seed=1).expand(1, 1, 9, K)
    turned_q, turned_k = rotary.rotate(q, k)
    scores = (turned_q @ turned_k.mT)[0, 0]
    for distance in range(-8, 9):
        line = scores.diagonal(distance)
        torch.testing.assert_close(line, line[:1].expand_as(line))
    assert scores[0].std() > 0.01


def test_rotary_far_away_in_bfloat16_keeps_places_apart():
    x = torch.ones(1, 1, 2, K, dtype=torch.bfloat16)
    turned, _ = Rotary(K).bfloat16().rotate(x, x, torch.tensor([[1000, 1001]]))
    expected, _ = Rotary(K).rotate(x.double(), x.double(), torch.tensor([[1000, 1001]]))
    torch.testing.assert_close(turned.double(), expected, atol=0.02, rtol=0.02)


def test_rotary_refuses_heads_of_another_width():
    with pytest.raises(UnmaskError, match="heads of width 4"):
        Attention(16, 2, position=Rotary(4))(torch.zeros(1, 3, 16))


# ------------------------------------------------------------------------------------------- T5 bias and ALiBi


def test_t5_buckets_near_far_and_past_the_last():
    position = T5Bias(H, buckets=8, furthest=16)
    distances = torch.tensor([-100, -16, -5, -2, -1, 0, 1, 2, 5, 16, 100])
    assert position.bucket(distances).tolist() == [3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7]
    causal = T5Bias(H, buckets=8, furthest=16, causal=True)
    assert causal.bucket(distances).tolist() == [7, 7, 4, 2, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("buckets", "furthest", "causal"), [(3, 128, False), (1, 128, True), (32, 8, False), (32, 16, True)]
)
def test_t5_refuses_buckets_that_cannot_be(buckets, furthest, causal):
    with pytest.raises(UnmaskError, match="buckets"):
        T5Bias(H, buckets, furthest, causal)


def test_alibi_is_slope_times_distance():
    bias = ALiBi(8).bias(T, S)
    for h in range(8):
        for t in range(T):
            for s in range(S):
                assert bias[h, t, s].item() == pytest.approx(-(2.0 ** -(h + 1)) * abs(S - T + t - s))


def test_alibi_slopes_between_powers_of_two():
    slopes = -ALiBi(6).bias(1, 2)[:, 0, 0]
    expected = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    torch.testing.assert_close(slopes, torch.tensor(expected))


# -------------------------------------------------------------------------------------------- Transformer-XL


@pytest.mark.parametrize("heads_of_keys", [4, 2, 1])
def test_transformer_xl_term_by_term(heads_of_keys):
    """Dai et al. 2019, section 3.3: (a) q·k is attention's own; b = q·Wr, c = u·k and d = v·Wr are the scheme's."""
    heads, dim, scale = 4, 16, 0.7
    position = TransformerXL(dim, heads).double()
    with torch.no_grad():
        for p in position.parameters():
            p.copy_(doubles(*p.shape, seed=3))
    q, k = doubles(B, heads, T, 4), doubles(B, heads_of_keys, S, 4, seed=1)

    def r(distance: int, h: int) -> torch.Tensor:
        angle = [distance / 10_000 ** (2 * i / dim) for i in range(dim // 2)]
        wave = torch.tensor([math.sin(a) for a in angle] + [math.cos(a) for a in angle], dtype=torch.float64)
        return (position.project.weight @ wave)[4 * h : 4 * h + 4]

    expected = torch.zeros(B, heads, T, S, dtype=torch.float64)
    for b in range(B):
        for h in range(heads):
            for t in range(T):
                for s in range(S):
                    away = r((S - T + t) - s, h)
                    term_b = q[b, h, t] @ away
                    term_c = position.u[h] @ k[b, h // (heads // heads_of_keys), s]
                    term_d = position.v[h] @ away
                    expected[b, h, t, s] = scale * (term_b + term_c + term_d)
    torch.testing.assert_close(position.score(q, k, scale), expected)


def test_transformer_xl_attention_is_softmax_of_all_four_terms():
    attention = Attention(D, H, position=TransformerXL(D, H)).double()
    x = doubles(B, S, D)
    q, k, v = (f(x).unflatten(-1, (H, K)).transpose(1, 2) for f in (attention.query, attention.key, attention.value))
    scores = q @ k.mT * K**-0.5 + attention.position.score(q, k, K**-0.5)
    expected = attention.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x), expected)


# ------------------------------------------------------------------------------------------------ wrong places


@pytest.mark.parametrize("position", [Learned(4, D), Sinusoidal(D)])
def test_input_schemes_belong_to_the_embedding(position):
    for build in (lambda: Attention(D, H, position=position), lambda: Stack([], position=position)):
        with pytest.raises(UnmaskError, match="the Embedding"):
            build()


@pytest.mark.parametrize("position", [Rotary(K), TransformerXL(D, H)])
def test_attention_schemes_belong_to_attention(position):
    for build in (lambda: Embedding(Token(5, D), position=position), lambda: Stack([], position=position)):
        with pytest.raises(UnmaskError, match="each Attention"):
            build()


def test_bias_schemes_may_be_shared_or_of_one_layer():
    Stack([], position=ALiBi(H))
    Attention(D, H, position=ALiBi(H))
    with pytest.raises(UnmaskError, match="the Stack"):
        Embedding(Token(5, D), position=ALiBi(H))
