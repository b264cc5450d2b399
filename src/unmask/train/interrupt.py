"""SIGTERM and Ctrl-C as a request: finish the step, save, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Self


class Cut(BaseException):
    """Raised to end an evaluation after a signal (`cuttable`); its message is the name of the signal."""


class Interrupt:
    """A context in which the first SIGTERM or SIGINT sets `name`; the second one has its usual effect.

    Outside the main thread it does nothing, because Python allows no handlers there.

    heard     number of the last signal in this process, 0 for none; it sets the exit status of a command
    cuttable  whether the process is inside `cuttable()`
    """

    heard: ClassVar[int] = 0
    cuttable: ClassVar[bool] = False

    def __init__(self) -> None:
        self.name: str | None = None
        self.cuts = False
        self._previous: dict[int, Any] = {}

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """A context in which a signal raises `Cut` inside `cuttable()`."""
        self.cuts = True
        try:
            yield
        finally:
            self.cuts = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        Interrupt.heard = number
        self._restore()
        if self.cuts and Interrupt.cuttable:
            raise Cut(self.name)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._previous = {}


@contextmanager
def cuttable() -> Iterator[None]:
    """A context in which a signal may raise `Cut`, if the active `Interrupt` is inside `cutting()`. It is for work that
    takes long, has no effects until it ends, and can be repeated."""
    Interrupt.cuttable = True
    try:
        yield
    finally:
        Interrupt.cuttable = False
