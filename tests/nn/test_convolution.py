"""Convolutions against torch.nn.functional.conv1d, windows against whole sequences, weight norm against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import nn

from unmask.errors import UnmaskError
from unmask.nn import (
    CausalConvolution,
    CentredConvolution,
    DilatedStack,
    GatedBlock,
    GatedConvolution,
    Window,
    weight_norm,
)

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conv1d(convolution, x_BTD, left, right):
    """The same weights through the library's convolution, which wants [C, D, K] and [B, D, T]."""
    weight = convolution.weight.unflatten(1, (convolution.kernel, -1)).transpose(1, 2)
    padded = F.pad(x_BTD.transpose(1, 2), (left, right))
    return F.conv1d(padded, weight, convolution.bias, dilation=convolution.dilation).transpose(1, 2)


# ------------------------------------------------------------------------------------------------ convolutions


@given(st.sampled_from([1, 3, 5]), st.integers(1, 3), st.integers(1, 9))
def test_a_centred_convolution_is_that_of_torch(kernel, dilation, T):
    convolution, x = CentredConvolution(3, 4, kernel, dilation=dilation), rows(2, T, 3)
    side = (kernel - 1) * dilation // 2
    torch.testing.assert_close(convolution(x), conv1d(convolution, x, side, side), **CLOSE)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_a_causal_convolution_is_that_of_torch(kernel, dilation, T):
    convolution, x = CausalConvolution(3, 4, kernel, dilation=dilation), rows(2, T, 3)
    torch.testing.assert_close(convolution(x), conv1d(convolution, x, (kernel - 1) * dilation, 0), **CLOSE)


def test_gradients_are_those_of_torch():
    ours, x = CausalConvolution(3, 4, 3, dilation=2), rows(2, 7, 3).requires_grad_()
    wanted = rows(2, 7, 4, seed=1)
    got = torch.autograd.grad((ours(x) * wanted).sum(), [x, ours.weight, ours.bias])
    true = torch.autograd.grad((conv1d(ours, x, 4, 0) * wanted).sum(), [x, ours.weight, ours.bias])
    torch.testing.assert_close(got, true, **CLOSE)


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (2, 4), (3, 2)])
def test_a_causal_convolution_is_blind_to_the_future(kernel, dilation):
    x = rows(1, 12, 3).requires_grad_()
    gradient = torch.autograd.grad(CausalConvolution(3, 4, kernel, dilation=dilation)(x)[0, 6].sum(), x)[0]
    seen = gradient[0].abs().sum(-1).nonzero().flatten().tolist()
    assert seen == [p for p in range(7) if (6 - p) % dilation == 0 and (6 - p) // dilation < kernel]


def test_a_gated_block_is_the_published_formula():
    block = GatedBlock(GatedConvolution(CentredConvolution(3, 8, 3)), project=nn.Linear(3, 4))
    x = rows(2, 6, 3)
    a, b = conv1d(block.gated.convolution, x, 1, 1).chunk(2, dim=-1)
    torch.testing.assert_close(block(x), (block.project(x) + a * b.sigmoid()) * 0.5**0.5, **CLOSE)


def test_a_padded_row_gives_what_it_gives_alone():
    blocks = [GatedBlock(GatedConvolution(CentredConvolution(3, 6, 5))) for _ in range(3)]
    long, short = rows(1, 9, 3), rows(1, 4, 3, seed=1)
    padded = torch.cat([long, F.pad(short, (0, 0, 0, 5), value=7.0)])  # padding has vectors too
    real = torch.tensor([[1.0] * 9, [1.0] * 4 + [0.0] * 5])[..., None]
    for block in blocks:
        padded, long, short = block(padded, real), block(long), block(short)
    torch.testing.assert_close(padded[0], long[0], **CLOSE)
    torch.testing.assert_close(padded[1, :4], short[0], **CLOSE)


def test_the_dropout_of_a_gated_convolution_is_on_its_input():
    gated = GatedConvolution(CentredConvolution(4, 4, 1), dropout=1.0)
    nn.init.zeros_(gated.convolution.bias)
    assert gated(rows(1, 3, 4)).eq(0).all()
    assert gated.eval()(rows(1, 3, 4)).ne(0).any()


# ------------------------------------------------------------------------------------------------ windows


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_sequence_in_pieces_gives_what_it_gives_whole(kernel, dilation, pieces):
    convolution, x, window = CausalConvolution(3, 4, kernel, dilation=dilation), rows(2, sum(pieces), 3), Window()
    fed = torch.cat([convolution(piece, window) for piece in x.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(fed, convolution(x), **CLOSE)
    assert window.past.shape == (2, convolution.reach, 3)  # no more than that is kept


def test_a_window_follows_its_rows():
    convolution, x, window = CausalConvolution(3, 4, 3, dilation=2), rows(3, 5, 3), Window()
    window.select(torch.tensor([0, 2]))  # before the first token there is nothing to choose from
    convolution(x, window)
    chosen, more = torch.tensor([2, 0, 0, 1]), rows(4, 2, 3, seed=1)
    window.select(chosen)
    whole = convolution(torch.cat([x[chosen], more], dim=1))
    torch.testing.assert_close(convolution(more, window), whole[:, 5:], **CLOSE)


# ------------------------------------------------------------------------------------------------ WaveNet


def wavenet(stack, x_BTD):
    """Equation 2 of van den Oord et al. 2016, and its figure 4, with the library's convolution."""
    skips = 0
    for i, convolution in enumerate(stack.convolutions):
        f, g = conv1d(convolution, x_BTD, convolution.reach, 0).chunk(2, dim=-1)
        z = torch.tanh(f) * torch.sigmoid(g)
        skips = skips + stack.skips[i](z)
        if i + 1 < len(stack.convolutions):
            x_BTD = x_BTD + stack.residuals[i](z)
    return skips


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_dilated_stack_is_the_direct_one(kernel):
    stack, x = DilatedStack(4, 5, [1, 2, 4, 1, 2], kernel=kernel), rows(2, 20, 4)
    torch.testing.assert_close(stack(x), wavenet(stack, x), **CLOSE)


def test_every_parameter_of_a_dilated_stack_gets_a_gradient():
    stack = DilatedStack(4, 5, [1, 2, 4])
    stack(rows(1, 10, 4)).sum().backward()
    assert all(p.grad is not None for p in stack.parameters())


@pytest.mark.parametrize(
    ("kernel", "dilations", "field"), [(2, [1, 2, 4], 8), (2, [1, 2, 1, 2], 7), (3, [1, 2, 4], 15)]
)
def test_the_receptive_field_is_exact(kernel, dilations, field):
    stack, x = DilatedStack(4, 5, dilations, kernel=kernel).double(), rows(1, 30, 4).double().requires_grad_()
    gradient = torch.autograd.grad(stack(x)[0, 20].sum(), x)[0][0].abs().sum(-1)
    assert stack.receptive_field == field
    assert gradient.nonzero().flatten().tolist() == list(range(20 - field + 1, 21))


def test_a_dilated_stack_writes_token_by_token():
    stack, x = DilatedStack(4, 5, [1, 2, 4]), rows(2, 12, 4)
    windows = stack.windows()
    fed = torch.cat([stack(x[:, t : t + 1], windows) for t in range(12)], dim=1)
    torch.testing.assert_close(fed, stack(x), **CLOSE)
    assert [window.past.shape[1] for window in windows] == [1, 2, 4]


def test_published_wavenet_sees_1024_samples_a_block():
    assert DilatedStack(1, 1, [2**i for i in range(10)]).receptive_field == 1024


# ------------------------------------------------------------------------------------------------ weight norm


def test_weight_norm_is_that_of_torch():
    ours, theirs = nn.Linear(5, 3), nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    ours, theirs = weight_norm(ours), nn.utils.parametrizations.weight_norm(theirs)
    x = rows(4, 5)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    got, true = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for name in ("parametrizations.weight.original0", "parametrizations.weight.original1", "bias"):
        torch.testing.assert_close(got[name].grad, true[name].grad.view_as(got[name]), **CLOSE)


def test_what_is_assigned_is_the_weight():
    layer, wanted = weight_norm(nn.Linear(5, 3)), rows(3, 5)
    with torch.no_grad():
        layer.weight = wanted
    torch.testing.assert_close(layer.weight, wanted, **CLOSE)


@pytest.mark.parametrize("settings", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_a_kept_weight_is_made_anew_after_a_step(settings):
    layer = weight_norm(nn.Linear(5, 3)).eval()
    x, optimizer = rows(4, 5), torch.optim.AdamW(layer.parameters(), lr=0.1, **settings)
    layer(x).sum().backward()
    with torch.no_grad():
        before = layer.weight
        assert layer.weight is before  # kept
    layer.train()
    optimizer.step()
    layer.eval()
    with torch.no_grad():
        after = layer.weight
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, layer.weight.detach(), **CLOSE)  # with gradients it is always computed


def test_a_kept_weight_is_made_anew_when_parameters_change_in_place():
    layer = weight_norm(nn.Linear(5, 3)).eval()
    with torch.no_grad():
        for p in layer.parametrizations.weight.parameters():
            before = layer.weight
            p.add_(rows(*p.shape))
            assert not torch.allclose(layer.weight, before)


def test_a_kept_weight_is_made_anew_after_loading_moving_and_copying():
    layer = weight_norm(nn.Linear(5, 3)).eval()
    with torch.no_grad():
        other, first = weight_norm(nn.Linear(5, 3)), layer.weight
        layer.load_state_dict(load(save(other.state_dict())))  # through a file's bytes, too
        torch.testing.assert_close(layer.weight, other.weight)
        assert not torch.allclose(layer.weight, first)
        assert layer.double().weight.dtype == torch.float64
        twin = copy.deepcopy(layer)
        twin.weight = torch.ones(3, 5, dtype=torch.float64)
        assert not torch.allclose(layer.weight, twin.weight)


def test_a_kept_weight_does_not_hide_gradients():
    layer = weight_norm(nn.Linear(5, 3)).eval()
    with torch.inference_mode():
        layer(rows(4, 5))
    layer(rows(4, 5)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CentredConvolution(2, 2, 4), "odd, not 4"),
        (lambda: CausalConvolution(2, 2, 0), "at least 1"),
        (lambda: CausalConvolution(2, 2, 2, dilation=0), "at least 1"),
        (lambda: DilatedStack(2, 2, []), "at least one layer"),
    ],
)
def test_what_makes_no_sense_is_refused(make, says):
    with pytest.raises(UnmaskError, match=says):
        make()
