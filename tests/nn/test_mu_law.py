"""The μ-law, beside its formula written out and the nearest of all levels."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.nn.mu_law import compress, decode, encode, expand

SAMPLE = st.floats(-1, 1, width=32)


def formula(x: float, mu: float) -> float:
    return math.copysign(math.log(1 + mu * abs(x)) / math.log(1 + mu), x)


@given(SAMPLE, st.sampled_from([15, 255]))
def test_values_are_companded_by_the_equation_and_back(x, mu):
    y = compress(torch.tensor(x, dtype=torch.float64), mu)
    assert float(y) == pytest.approx(formula(x, mu), abs=1e-12)
    assert float(expand(y, mu)) == pytest.approx(x, abs=1e-12)


@given(SAMPLE, st.sampled_from([2, 16, 256]))
def test_a_sample_has_the_nearest_level(x, levels):
    distances = [abs(formula(x, levels - 1) - (2 * i / (levels - 1) - 1)) for i in range(levels)]
    code = int(encode(torch.tensor(x), levels))
    assert distances[code] == pytest.approx(min(distances), abs=1e-6)


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_levels_survive_and_samples_beyond_full_scale_are_clipped(levels):
    codes = torch.arange(levels)
    assert torch.equal(encode(decode(codes, levels), levels), codes)
    torch.testing.assert_close(decode(codes, levels), -decode(codes.flip(0), levels))
    assert encode(torch.tensor([-7.0, 7.0]), levels).tolist() == [0, levels - 1]
