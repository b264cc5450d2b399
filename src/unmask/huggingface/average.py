"""Checkpoint averaging: the mean of the last checkpoints of a run (Vaswani et al. 2017, section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.weights import read_tensors


def average(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoint folders, by name, computed in float64 and returned in their dtype.

    A single integer, such as the number of batches that running statistics have seen, becomes the largest. Other
    tensors of integers must be equal in all folders. Raises `UnmaskError` if they are not, if a folder has no weights,
    and if its names or shapes differ from the first.
    """
    if not folders:
        raise UnmaskError("There is no checkpoint to average; name at least one folder.")
    first = read_tensors(folders[0])
    sums = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for folder in folders[1:]:
        tensors = read_tensors(folder)
        for name in sorted(first.keys() ^ tensors.keys()):
            raise UnmaskError(f"'{name}' is in only one of {folders[0]} and {folder}: they hold different models.")
        for name, tensor in tensors.items():
            if tensor.shape != first[name].shape:
                raise UnmaskError(
                    f"'{name}' has the shape {list(tensor.shape)} in {folder}, but {list(first[name].shape)} in "
                    f"{folders[0]}: they hold different models."
                )
            if tensor.is_floating_point():
                sums[name] += tensor
            elif not tensor.ndim:
                sums[name] = torch.maximum(sums[name], tensor)
            elif not torch.equal(tensor, first[name]):
                raise UnmaskError(f"'{name}' holds integers and differs in {folder}: only floats can be averaged.")
    return {
        name: (total / len(folders)).to(first[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }
