"""SIGTERM and Ctrl-C as a wish: finish the step, save, leave."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, Self


class Cut(BaseException):
    """Ends an evaluation for a signal (`cuttable`), whose name it has."""


class Interrupt:
    """Within it, the first SIGTERM or SIGINT sets `name`; the second one has its usual effect.

    Outside the main thread, where Python allows no handlers, it does nothing.

    heard  number of the last signal that was heard in this process, 0 for none: the status that a command ends with
    """

    heard: ClassVar[int] = 0
    cuttable: ClassVar[bool] = False

    def __init__(self) -> None:
        self.name: str | None = None
        self.cuts = False
        self._previous: dict[int, Any] = {}

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Within it, a signal raises `Cut` in what is `cuttable`."""
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
    """Within it, a signal may raise `Cut`, where the `Interrupt` that hears it `cuts`: for what takes long, leaves no
    trace before it has ended, and can be made again."""
    Interrupt.cuttable = True
    try:
        yield
    finally:
        Interrupt.cuttable = False
