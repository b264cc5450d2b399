"""Lets the tests of this folder import `sides`; dropout that does the same on both sides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch.nn.functional as F
from torch import Tensor

from unmask.nn import attention, dropout

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("generated", "families")


@pytest.fixture
def fading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that makes all numbers smaller, by how much depends on its rate: a site too many or too few shows."""

    def fade(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * (1 - p / 2) if training else x

    monkeypatch.setattr(F, "dropout", fade)
    monkeypatch.setattr(dropout, "dropout", fade)
    monkeypatch.setattr(attention, "dropout", fade)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draws", type=int, default=100, help="cases of each family in the long form of generated parity")


@pytest.fixture
def draws(request: pytest.FixtureRequest) -> int:
    """How many cases of each family the long form of generated parity draws."""
    return int(request.config.getoption("--draws", default=100))
