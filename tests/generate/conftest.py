"""Lets the tests of this folder import `generate_toy`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)  # the models are so small that threads only wait for each other
sys.path.insert(0, str(Path(__file__).parent))
