"""The layout of tensors in Hugging Face folders: transposed and concatenated linear maps, for reading and for writing.

Shapes: I inputs of a map, O outputs of a map, P maps that a folder concatenates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.table import Table


def unfold(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split concatenated maps of a folder into one tensor [O, I] each, with the names of the table's rules.

    c_attn.weight [I, P * O] becomes c_attn.query.weight [O, I] and so on. Buffers are dropped. Raises UnmaskError for a
    tensor that cannot be split into its maps, and if the folder also stores a map separately.
    """
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        if any(_is(key, name) for name in table.buffers):
            continue
        module, _, kind = key.rpartition(".")
        if kind == "weight" and any(_is(module, name) for name in table.transposed) and tensor.ndim == 2:
            tensor = tensor.T
        parts = _parts(table, module)
        if not parts:
            out[key] = tensor
            continue
        if tensor.ndim == 0 or len(tensor) % len(parts):
            raise UnmaskError(
                f"'{key}' has the shape {list(tensor.shape)}, which does not split into {', '.join(parts)}."
            )
        for part, piece in zip(parts, tensor.chunk(len(parts)), strict=True):
            name = f"{module}.{part}.{kind}"
            if name in tensors:
                raise UnmaskError(f"The folder has both '{name}' and '{key}', which contains it. Keep the right one.")
            out[name] = piece
    return out


def fold(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `unfold`: tensors with the names of the table's rules -> tensors as a folder stores them."""
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        module, _, kind = key.rpartition(".")
        outer, _, part = module.rpartition(".")
        parts = _parts(table, outer)
        if part in parts:
            if part != parts[0]:
                continue  # it is concatenated to the first one
            tensor, module = torch.cat([tensors[f"{outer}.{one}.{kind}"] for one in parts]), outer
        if kind == "weight" and any(_is(module, name) for name in table.transposed):
            tensor = tensor.T
        out[f"{module}.{kind}".removeprefix(".")] = tensor
    return out


def without_copies(tensors: Mapping[str, Tensor], copies: Mapping[str, str], folder: Path) -> dict[str, Tensor]:
    """The tensors without copies of tied parameters. A copy replaces an original that is missing.

    copies  name of the copy -> name of the original

    Raises UnmaskError for a copy that differs from its original.
    """
    out = dict(tensors)
    for copy, original in copies.items():
        if copy in out:
            found = out.pop(copy)
            if not torch.equal(out.setdefault(original, found), found):
                raise UnmaskError(f"{folder}: '{copy}' differs from '{original}', but this model ties the two.")
    return out


def _parts(table: Table, module: str) -> tuple[str, ...]:
    """The names of the maps that a module of the folder concatenates; empty for a single map."""
    return next((parts for name, parts in table.packed.items() if _is(module, name)), ())


def _is(key: str, name: str) -> bool:
    """Whether a key matches a name of a table; {} in the name matches the number of a layer."""
    before, hole, after = name.partition("{}")
    if not hole:
        return key == name
    number = key.removeprefix(before).split(".")[0]
    return number.isdigit() and key == before + number + after
