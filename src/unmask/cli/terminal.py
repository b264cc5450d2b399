"""Terminal: what texts of others hold for a terminal to obey is shown to people instead."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from unmask.errors import harmless


class Harmless:
    """A stream of text that writes everything harmlessly, and is otherwise the stream that it was given.

    What colours its own output writes to `rich_proxied_file`, the stream itself; `rich` does by that name.
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
    """Standard output for text that holds colours of ours, and of others only what `harmless` made of it."""
    return getattr(sys.stdout, "rich_proxied_file", sys.stdout)


@contextmanager
def harmless_streams() -> Iterator[None]:
    """Within it, standard error is harmless, and standard output where it is a terminal: a file or a pipe gets every
    text as it is."""
    before = sys.stdout, sys.stderr
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout = Harmless(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Harmless(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
