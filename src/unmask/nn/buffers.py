"""The tensors of a module that its outputs depend on: parameters, and buffers such as running statistics."""

from __future__ import annotations

from torch import Tensor, nn


def persistent_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that belong to the state of a module, by name, each once. Unlike `state_dict`, this leaves a sharded
    module as it is."""
    parts = dict(module.named_modules())

    def persists(name: str) -> bool:
        owner, _, last = name.rpartition(".")
        return last not in parts[owner]._non_persistent_buffers_set

    return {name: buffer for name, buffer in module.named_buffers() if persists(name)}


def stored(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and persistent buffers by name, shared ones once. The tensors are those of the module: a copy into
    them changes it."""
    return {name: p.detach() for name, p in module.named_parameters()} | persistent_buffers(module)
