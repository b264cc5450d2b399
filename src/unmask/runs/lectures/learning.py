"""How the small models of the entries learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from unmask.types import Loss

M = TypeVar("M", bound=nn.Module)


def learn(model: M, loss: Callable[[], Loss], steps: int, rate: float) -> M:
    """The model after so many steps of Adam on the mean of a loss, in evaluation mode.

    loss  computes it anew for each step
    """
    adam = torch.optim.Adam(model.train().parameters(), rate)
    for _ in range(steps):
        found = loss()
        adam.zero_grad()
        (found.sum / found.count).backward()
        adam.step()
    return model.eval()
