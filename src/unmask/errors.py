"""The one error that is meant for a person: a plain sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnmaskError(Exception):
    """Wrong input or a failed promise of the environment.

    The message is one plain sentence: what is wrong (file, row, field) and what to do about it. The command
    line prints it without a traceback and exits with status 2; in Python it is an ordinary exception.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> UnmaskError:
    """An `UnmaskError` for a name that does not exist, which suggests the nearest ones that do.

    >>> str(unknown("field", "stepz", ["steps", "minutes"]))
    "There is no field 'stepz'; did you mean 'steps'? Known: minutes, steps."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return UnmaskError(f"There is no {kind} '{name}'{hint} Known: {', '.join(names) or 'none'}.")
