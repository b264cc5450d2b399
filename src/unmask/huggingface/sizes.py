"""Checks the size of a model against its weights before it allocates memory, so that no config.json can exhaust it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode

from unmask.config import flatten
from unmask.errors import UnmaskError

M = TypeVar("M", bound=nn.Module)

TIMES, BESIDE = 4, 1 << 26  # a model may have TIMES as many numbers as its weights, and BESIDE more for new heads
MOST = 2_000  # the most layers, blocks or heads in one field or list, with shared weights or not
REPEATED = (
    "layers",
    "blocks",
    "heads",
    "groups",
    "stacks",
    "feedforwards",
    "highways",
    "depths",
)  # ends of such fields

WRONG = (UnmaskError, RuntimeError, MemoryError, ValueError, TypeError, AssertionError, ArithmeticError, LookupError)


def build(make: Callable[[], M], config: Mapping[str, Any], weights: Iterable[Tensor], folder: Path) -> M:
    """The model that `make` builds. The function first builds it on the meta device, without memory, to count its size.

    config   the fields of the page; those that count layers are checked first
    weights  the tensors of the folder

    Raises UnmaskError if the model has more numbers than TIMES those of the weights plus BESIDE, if a field exceeds
    MOST, or if `make` fails.
    """
    place = folder / "config.json"
    for name, value in flatten(config).items():
        several = isinstance(value, list | tuple)
        numbers = [*(value if several else [value])] if name.endswith(REPEATED) else []
        asked = max((n for n in (len(value) if several else 0, *numbers) if isinstance(n, int)), default=0)
        if asked > MOST:
            raise UnmaskError(f"{place} asks for {asked:,} {name}; the limit is {MOST:,}.")
    held = sum(x.numel() for x in weights)
    try:
        with _Counted(TIMES * held + BESIDE), torch.device("meta"), _Unfilled():
            make()
        return make()
    except _TooLargeError:
        raise UnmaskError(
            f"{place} describes a model many times the size of its weights, which hold {held:,} numbers; "
            "restore it from a copy."
        ) from None
    except WRONG as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise UnmaskError(f"{place} describes a model that cannot be built: {reason}") from None


class _TooLargeError(Exception):
    """The model has too many numbers for its weights."""


class _Unfilled(TorchFunctionMode):
    """A context that skips random initialisation: meta tensors have no values, and the first draw of a process takes
    almost a second."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "").endswith(("uniform_", "normal_")):
            return args[0] if args else kwargs["tensor"]  # args[0] of a method, tensor= of torch.nn.init
        return function(*args, **(kwargs or {}))


class _Counted:
    """A context that counts the numbers in parameters and buffers that this thread adds to modules; raises
    _TooLargeError above `most`."""

    def __init__(self, most: int) -> None:
        self.left, self.thread = most, threading.get_ident()

    def count(self, module: nn.Module, name: str, x: Any) -> None:
        """A hook that torch calls for each one; it returns None and so does not replace the tensor."""
        if isinstance(x, Tensor) and threading.get_ident() == self.thread:
            self.left -= x.numel() + 1
            if self.left < 0:
                raise _TooLargeError

    def __enter__(self) -> None:
        self.hooks = [
            register_module_parameter_registration_hook(self.count),
            register_module_buffer_registration_hook(self.count),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
