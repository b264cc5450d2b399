"""Damaged files of a collection: they are left out or replaced, counted, and named in a sentence."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from unmask.data.files.items import SHOWN
from unmask.errors import Missing, UnmaskError, plural

T = TypeVar("T")
MOST_DAMAGED = 0.1  # largest share of files that may be damaged


class Failures:
    """The files of a folder whose decoding failed, from all processes that share a copy of this.

    count  number of files of the folder
    noun   one of them: "picture"

    Each process appends to a temporary file, which exists after the first failure and is removed with this object.
    """

    def __init__(self, count: int, noun: str, path: Path | None = None) -> None:
        self.count, self.noun = count, noun
        self.path = path or Path(tempfile.gettempdir()) / f"unmask-{secrets.token_hex(16)}.jsonl"
        if path is None:
            weakref.finalize(self, _remove, self.path)
        self._own: set[str] = set()

    def note(self, reason: str) -> None:
        """Note a reason, which names the file. Raises UnmaskError if more than MOST_DAMAGED of the files fail."""
        if reason in self._own:
            return
        self._own.add(reason)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with contextlib.suppress(OSError), os.fdopen(os.open(self.path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(reason) + "\n")
        check_damaged(self.reasons(), self.count, self.noun)

    def reasons(self) -> list[str]:
        """The reasons so far, sorted, each once."""
        found = set(self._own)
        with contextlib.suppress(OSError, ValueError):
            found.update(json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines())
        return sorted(found)

    def said(self) -> tuple[str, ...]:
        """A sentence on the failures so far, if there are any."""
        reasons = self.reasons()
        if not reasons:
            return ()
        return (f"{damaged(reasons, self.count, self.noun)} In place of each, the next one is read.",)

    def __reduce__(self) -> tuple[Callable[[int, str, Path], Failures], tuple[int, str, Path]]:
        return Failures, (self.count, self.noun, self.path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def first_sound(read: Callable[[int], T], unit: int, count: int, failures: Failures | None) -> T:
    """`read(unit)`, or, if that cannot be decoded, the next unit that can, after the last the first. So a damaged file
    does not end a run, and the order stays a function of the seed.

    failures  notes what cannot be decoded; None: the first of them is an error

    Raises UnmaskError if no unit, or too few of a folder, can be decoded.
    """
    for number in ((unit + step) % count for step in range(count)):
        try:
            return read(number)
        except Missing:  # a package; the file may be valid
            raise
        except UnmaskError as error:
            if failures is None:
                raise
            failures.note(str(error))
    assert failures is not None
    raise UnmaskError(f"No {failures.noun} can be decoded.")


def damaged(reasons: Iterable[str], count: int, noun: str) -> str:
    """Sentences that say how many of `count` files are damaged, and why the first of them are."""
    reasons = list(reasons)
    more = f" And {len(reasons) - SHOWN:,} more." if len(reasons) > SHOWN else ""
    return f"{len(reasons):,} of {plural(count, noun)} cannot be read: {' '.join(reasons[:SHOWN])}{more}"


def check_damaged(reasons: Iterable[str], count: int, noun: str, most: float = MOST_DAMAGED) -> None:
    """Raises UnmaskError if more than a share `most` of `count` files are damaged."""
    reasons = list(reasons)
    if len(reasons) > most * count:
        raise UnmaskError(
            f"{damaged(reasons, count, noun)} At most {most:.0%} may be damaged; remove them, "
            "or build a corpus with a larger --most-damaged."
        )


def check_readable(reasons: Sequence[str], count: int, noun: str) -> None:
    """Raises UnmaskError for labelled files that cannot be read, if there are any.

    reasons  of each of them
    count    number of all files
    noun     one of them: "recording"
    """
    if reasons and count == 1:
        raise UnmaskError(reasons[0])
    if reasons:
        raise UnmaskError(f"{damaged(reasons, count, noun)} Remove them from the rows.")
