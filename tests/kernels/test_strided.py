"""Strided convolutions against `conv1d`, with gradients, for any width of the kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from unmask.kernels.formats import autocast
from unmask.kernels.strided import strided


def flat(weight_OCK: torch.Tensor) -> torch.Tensor:
    return weight_OCK.transpose(1, 2).flatten(1)


@given(
    kernel=st.integers(1, 9),
    stride=st.integers(1, 6),
    more=st.integers(0, 20),
    channels=st.sampled_from([1, 3, 40]),
    bias=st.booleans(),
)
def test_outputs_and_gradients_are_those_of_a_convolution(kernel, stride, more, channels, bias):
    generator = torch.Generator().manual_seed(kernel)
    x_LC = torch.randn(kernel + more, channels, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, channels, kernel, generator=generator, dtype=torch.float64, requires_grad=True)
    bias_O = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True) if bias else None
    inputs = [x_LC, weight] + ([bias_O] if bias else [])
    wanted = F.conv1d(x_LC.t()[None], weight, bias_O, stride)[0].t()
    found = strided(x_LC, flat(weight), bias_O, stride)
    torch.testing.assert_close(found, wanted)
    dy = torch.randn(wanted.shape, generator=generator, dtype=torch.float64)
    for one, other in zip(torch.autograd.grad(found, inputs, dy), torch.autograd.grad(wanted, inputs, dy), strict=True):
        torch.testing.assert_close(one, other)


def test_a_sequence_shorter_than_the_kernel_has_no_outputs():
    assert strided(torch.zeros(3, 2), torch.zeros(4, 10), None, 2).shape == (0, 4)


def test_products_have_the_format_of_autocast():
    x_LC, weight = torch.randn(50, 40), torch.randn(8, 40, 3)
    with autocast("cpu", torch.bfloat16):
        found = strided(x_LC, flat(weight), None, 2)
    assert found.dtype is torch.bfloat16
    wanted = F.conv1d(x_LC.t()[None], weight, stride=2)[0].t()
    torch.testing.assert_close(found.float(), wanted, atol=0.02 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize("channels", [1, 40])
def test_a_part_of_a_buffer_is_read_where_it_lies(channels):
    buffer, weight = torch.randn(60, channels), torch.randn(4, channels, 5)
    torch.testing.assert_close(
        strided(buffer[7:], flat(weight), None, 3), strided(buffer[7:].clone(), flat(weight), None, 3)
    )
