"""Is a model as large as its weights? Known before any of its memory is taken, whatever config.json asks for."""

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

TIMES, BESIDE = 4, 1 << 26  # a model may have so many times the numbers of its weights, and so many beside: new heads
MOST = 2_000  # of layers, blocks or heads that one number or list may ask for, whether they share their weights or not
REPEATED = ("layers", "blocks", "heads", "groups", "stacks", "feedforwards", "highways")  # ends of what counts them

WRONG = (UnmaskError, RuntimeError, MemoryError, ValueError, TypeError, AssertionError, ArithmeticError, LookupError)


def build(make: Callable[[], M], config: Mapping[str, Any], weights: Iterable[Tensor], folder: Path) -> M:
    """The model that `make` builds, after it was built without memory and found to be no larger than its weights allow.

    config   its fields; those that count layers are checked first

    Raises UnmaskError where config.json asks for more than TIMES the numbers that the weights hold and BESIDE, or for
    what no model can be.
    """
    place = folder / "config.json"
    for name, value in flatten(config).items():
        asked = len(value) if isinstance(value, list | tuple) else value if name.endswith(REPEATED) else 0
        if isinstance(asked, int) and asked > MOST:
            raise UnmaskError(f"{place} asks for {asked:,} {name}, and no more than {MOST:,} are built.")
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
        raise UnmaskError(f"{place} describes no model that can be built: {reason}") from None


class _TooLargeError(Exception):
    """More numbers than the weights can fill."""


class _Unfilled(TorchFunctionMode):
    """Within it, nothing is drawn: without memory it means nothing, and the first draw takes most of a second."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "").endswith(("uniform_", "normal_")):
            return args[0] if args else kwargs["tensor"]  # of a tensor, or of torch.nn.init
        return function(*args, **(kwargs or {}))


class _Counted:
    """Within it, parameters and buffers that this thread adds to modules are counted, up to `most` numbers."""

    def __init__(self, most: int) -> None:
        self.left, self.thread = most, threading.get_ident()

    def count(self, module: nn.Module, name: str, x: Any) -> None:
        """Called by torch for each one, with whatever takes its place: nothing."""
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
