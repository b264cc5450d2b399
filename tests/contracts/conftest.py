"""Lets the tests of this folder import `contracts_vit`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the models are so small that threads only wait for each other
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A run's folder that does not exist yet."""
    return tmp_path / "run"
