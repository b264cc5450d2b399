"""Feed-forward, residual, block, stack: their equations, their order, and where dropout falls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn import ALiBi, Attention, Block, FeedForward, GatedFeedForward, Mask, Residual, Stack, T5Bias

B, T, D, H = 2, 5, 8, 2


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def block(cross: bool = False) -> Block:
    def residual(f: nn.Module) -> Residual:
        return Residual(f, after=nn.LayerNorm(D))

    return Block(
        residual(Attention(D, H)), residual(FeedForward(D, 12)), cross=residual(Attention(D, H)) if cross else None
    )


class Constant(nn.Module):
    """A sub-layer that answers one everywhere, and keeps what it was asked."""

    def forward(self, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        self.seen, self.args, self.kwargs = x, args, kwargs
        return torch.ones_like(x)


# ----------------------------------------------------------------------------------------------- feed-forward


def test_feedforward_is_its_equation():
    f, x = FeedForward(D, 12, F.relu), rows(B, T, D)
    expected = (x @ f.up.weight.T + f.up.bias).clamp(min=0) @ f.down.weight.T + f.down.bias
    torch.testing.assert_close(f(x), expected)
    assert FeedForward(D, 12).activation is F.gelu


def test_gated_feedforward_is_its_equation():
    f, x = GatedFeedForward(D, 12, F.silu, bias=False), rows(B, T, D)
    gate, up = x @ f.gate.weight.T, x @ f.up.weight.T
    torch.testing.assert_close(f(x), (gate * gate.sigmoid() * up) @ f.down.weight.T)
    assert f.gate.bias is None
    assert f.up.bias is None
    assert f.down.bias is None


# --------------------------------------------------------------------------------------------------- residual


def test_residual_is_its_equation():
    before, after, f = nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)
    x = rows(B, T, D)
    torch.testing.assert_close(Residual(f, before=before, after=after)(x), after(x + f(before(x))))
    torch.testing.assert_close(Residual(f)(x), x + f(x))


def test_residual_hands_on_what_it_does_not_know():
    f = Constant()
    Residual(f)(rows(B, T, D), "memory", bias="bias")
    assert f.args == ("memory",)
    assert f.kwargs == {"bias": "bias"}


# -------------------------------------------------------------------------------------- where dropout falls


def dropped(y: Tensor, rate: float, kept: Tensor) -> None:
    """A share `rate` of y is zero, the rest is `kept` scaled up."""
    assert y.eq(0).float().mean() == pytest.approx(rate, abs=0.02)
    torch.testing.assert_close(y[y != 0], (kept / (1 - rate))[y != 0])


def identity(linear: nn.Linear) -> None:
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)


def test_residual_drops_the_branch_before_the_sum():
    x = rows(64, 64)
    residual = Residual(Constant(), dropout=0.2)
    torch.manual_seed(0)
    branch = (residual(x) - x).round(decimals=4)
    dropped(branch, 0.2, torch.ones_like(x))
    assert torch.equal(residual.f.seen, x)  # the input itself is whole
    torch.testing.assert_close(residual.eval()(x), x + 1)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_feedforward_drops_hidden_features(kind):
    f = kind(64, 64, F.relu, dropout=0.3)
    for linear in (f.up, f.down):
        identity(linear)
    if kind is GatedFeedForward:
        nn.init.zeros_(f.gate.weight)
        nn.init.ones_(f.gate.bias)
    x = rows(64, 64).abs() + 0.1
    torch.manual_seed(0)
    dropped(f(x), 0.3, x)
    torch.testing.assert_close(f.eval()(x), x)


def test_without_rates_training_is_evaluation():
    stack, x = Stack([block(), block()]), rows(B, T, D)
    assert torch.equal(stack.train()(x), stack.eval()(x))


# ------------------------------------------------------------------------------------------- block and stack


def test_block_runs_attention_then_cross_then_feedforward():
    part, x, memory = block(cross=True), rows(B, T, D), rows(B, 3, D, seed=1)
    expected = part.feedforward(part.cross(part.attention(x), memory))
    assert torch.equal(part(x, memory_BSD=memory), expected)


def test_a_decoder_without_a_memory_is_refused():
    with pytest.raises(UnmaskError, match="memory"):
        Stack([block(cross=True)])(rows(B, T, D))


def test_an_encoder_block_does_not_mind_a_memory():
    stack, x = Stack([block()]), rows(B, T, D)
    assert torch.equal(stack(x, memory=rows(B, 3, D)), stack(x))


def test_memory_mask_hides_memory():
    stack, x, memory = Stack([block(cross=True)]), rows(B, T, D), rows(B, 4, D, seed=1)
    y = stack(x, memory=memory, memory_mask=Mask(lengths=torch.tensor([2, 2])))
    torch.testing.assert_close(y, stack(x, memory=memory[:, :2]))
    assert not torch.allclose(y, stack(x, memory=memory))


def test_stack_runs_its_order_and_its_norm():
    a, b, norm, x = block(), block(), nn.LayerNorm(D), rows(B, T, D)
    assert torch.equal(Stack([a, b], norm=norm)(x), norm(b(a(x))))
    assert torch.equal(Stack([a, b], order=[1, 0, 1])(x), b(a(b(x))))
    assert torch.equal(Stack([a, b], order=[])(x), x)


def test_a_shared_block_is_stored_once():
    once, shared = Stack([block()]), Stack([block()], order=[0] * 12)
    assert sum(p.numel() for p in once.parameters()) == sum(p.numel() for p in shared.parameters())
    assert once.state_dict().keys() == shared.state_dict().keys()


@pytest.mark.parametrize("position", [T5Bias(H, 8, 16), ALiBi(H)])
def test_a_shared_position_bias_is_that_of_every_layer(position):
    """One scheme in the stack is the same as that scheme in each attention."""
    shared = Stack([block(), block()], position=position)
    each = Stack([block(), block()])
    each.load_state_dict(shared.state_dict(), strict=False)
    for part in each.blocks:
        part.attention.f.position = position
    x, mask = rows(B, T, D), Mask(causal=True, lengths=torch.tensor([5, 3]))
    torch.testing.assert_close(shared(x, mask=mask), each(x, mask=mask))
    assert not torch.allclose(shared(x), Stack(shared.blocks)(x))


def test_a_shared_position_bias_is_computed_once_a_forward(monkeypatch):
    position, calls = ALiBi(H), []
    whole = ALiBi.bias
    monkeypatch.setattr(ALiBi, "bias", lambda self, T, S, device: calls.append(T) or whole(self, T, S, device))
    Stack([block()], order=[0] * 6, position=position)(rows(B, T, D))
    assert calls == [T]
