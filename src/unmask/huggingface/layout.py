"""How tensors lie in foreign folders: maps that are transposed, and maps that lie side by side in one; both ways.

Shapes: I width of what a map reads, O of what it gives, P maps that lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.huggingface.table import Table


def unfold(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a folder, each map for itself as [O, I], under the names that the rules of the table know.

    c_attn.weight [I, P * O] becomes c_attn.query.weight [O, I] and so on; buffers are left out. Raises UnmaskError for
    a tensor that does not come apart.
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
            raise UnmaskError(f"'{key}' has the shape {list(tensor.shape)}, which does not hold {', '.join(parts)}.")
        for part, piece in zip(parts, tensor.chunk(len(parts)), strict=True):
            name = f"{module}.{part}.{kind}"
            if name in tensors:
                raise UnmaskError(f"'{name}' is there beside '{key}', which contains it. Keep the right one.")
            out[name] = piece
    return out


def fold(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What `unfold` takes apart, put together again: tensors under the names of the rules -> as a folder has them."""
    out: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        module, _, kind = key.rpartition(".")
        outer, _, part = module.rpartition(".")
        parts = _parts(table, outer)
        if part in parts:
            if part != parts[0]:
                continue  # it came with the first one
            tensor, module = torch.cat([tensors[f"{outer}.{one}.{kind}"] for one in parts]), outer
        if kind == "weight" and any(_is(module, name) for name in table.transposed):
            tensor = tensor.T
        out[f"{module}.{kind}".removeprefix(".")] = tensor
    return out


def without_copies(tensors: Mapping[str, Tensor], copies: Mapping[str, str], folder: Path) -> dict[str, Tensor]:
    """The tensors without copies of tied parameters, `copies` being name -> name of the original; a copy stands in for
    an original that is not there. Raises UnmaskError for a copy that differs."""
    out = dict(tensors)
    for copy, original in copies.items():
        if copy in out:
            found = out.pop(copy)
            if not torch.equal(out.setdefault(original, found), found):
                raise UnmaskError(f"{folder}: '{copy}' differs from '{original}', but this model ties the two.")
    return out


def _parts(table: Table, module: str) -> tuple[str, ...]:
    """What lies side by side in a module of theirs; nothing where it is one map."""
    return next((parts for name, parts in table.packed.items() if _is(module, name)), ())


def _is(key: str, name: str) -> bool:
    """Whether a key is that of a table, in which {} stands for the number of a layer."""
    before, hole, after = name.partition("{}")
    if not hole:
        return key == name
    number = key.removeprefix(before).split(".")[0]
    return number.isdigit() and key == before + number + after
