"""Terminal: control characters in texts of others are shown, not obeyed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from unmask.errors import harmless


class Harmless:
    """A text stream that escapes control characters (`errors.harmless`), and otherwise acts like the wrapped stream.

    Code that colours its output writes to `rich_proxied_file`, the wrapped stream; `rich` looks for this name.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def coloured() -> Any:
    """Standard output without escaping, for text that has colours and whose foreign parts `harmless` has escaped."""
    return uncovered(sys.stdout)


def uncovered(stream: Any) -> Any:
    """A stream without escaping, for text of our own."""
    return getattr(stream, "rich_proxied_file", stream)


@contextmanager
def harmless_streams() -> Iterator[None]:
    """A context in which standard error escapes control characters, and so does standard output if it is a terminal. A
    file or a pipe receives every text unchanged."""
    before = sys.stdout, sys.stderr
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = Harmless(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Harmless(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
