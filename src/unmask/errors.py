"""UnmaskError, whose message is a plain sentence for a person, and helpers that build such messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 1_500  # characters of a message; files may bring in names of any length
MANY, SIMILAR = 20, 5  # known names that are not all listed; those that are listed of them


class UnmaskError(Exception):
    """The input is wrong, or the environment lacks something.

    The message is one plain sentence: what is wrong (file, row, field) and what to do about it. The command
    line prints it without a traceback and exits with status 2; in Python it is an ordinary exception.

    Messages quote names from files that may be untrusted. Unprintable characters are escaped, so that the message stays
    on one line, and the middle of a message of more than LONGEST characters is cut out.
    """

    def __str__(self) -> str:
        message = super().__str__()
        if not message.isprintable():
            message = "".join(c if c.isprintable() or c == "\N{NO-BREAK SPACE}" else ascii(c)[1:-1] for c in message)
        half = LONGEST // 2
        return message if len(message) <= LONGEST else f"{message[:half]} … {message[-half:]}"


class Missing(UnmaskError):
    """A package is not installed; an extra of `unmask` installs it."""


def needs(what: str, extra: str, instead: str = "") -> Missing:
    """A `Missing` error that names the feature and its packages, the extra that installs them, and an alternative.

    >>> str(needs("The service needs starlette and uvicorn", "serve"))
    "The service needs starlette and uvicorn: run pip install 'unmask[serve]'."
    """
    return Missing(f"{what}: run pip install 'unmask[{extra}]'{f', or {instead}' if instead else ''}.")


class NoField(UnmaskError):
    """There is no field `name`, but those of `known`."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, list(known)
        super().__init__(str(unknown("field", name, self.known)))


class FieldError(UnmaskError):
    """A config has no such field, or its value is wrong. The message is `before`, the name of the config, and `after`.

    owner  class of the config
    place  dotted name of the config in the one that holds it, which the message has instead of the class
    """

    def __init__(self, before: str, owner: str, after: str, place: str = "") -> None:
        super().__init__(f"{before}{place or owner}{after}")
        self.parts, self.place = (before, owner, after), place


@contextmanager
def in_part(name: str) -> Iterator[None]:
    """A context that handles the part `name` of a config: a `FieldError` tells its place."""
    try:
        yield
    except FieldError as error:
        raise FieldError(*error.parts, ".".join(filter(None, (name, error.place)))) from None


class Stopped(UnmaskError):
    """A signal ended a run, which can be continued; the message says how."""


def unknown(kind: str, name: str, known: Iterable[str], where: object = "") -> UnmaskError:
    """An `UnmaskError` for an unknown name, which suggests the most similar known name.

    where  the file that lacks it

    >>> str(unknown("field", "stepz", ["steps", "minutes"]))
    "There is no field 'stepz'; did you mean 'steps'? Known: minutes, steps."
    """
    names, missing = sorted(known), f"There is no {kind} '{name}'{f' in {where}' if where else ''}"
    likeliest = nearest(name, names)
    hint = f"; did you mean '{likeliest}'?" if likeliest else "."
    if len(names) > MANY:
        similar = difflib.get_close_matches(name, names, n=SIMILAR, cutoff=0.0)
        return UnmaskError(f"{missing}{hint} The most similar of {len(names)}: {', '.join(similar)}.")
    return UnmaskError(f"{missing}{hint} Known: {', '.join(names) or 'none'}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to `name`, or None if none is similar enough.

    >>> nearest("clasification", ["classification", "tagging"]), nearest("x", ["classification"])
    ('classification', None)
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def kind_of(value: Any) -> str:
    """The type of a JSON value, in words: text, a number, a decimal number, a list, an object, true, null.

    >>> f"must be text, not {kind_of(3)}"
    'must be text, not a number'
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "text", int: "a number", float: "a decimal number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a value of the type {type(value).__name__}")


def plural(number: float, noun: str, nouns: str = "") -> str:
    """A count with its noun; `nouns` is the plural if it is irregular.

    >>> plural(1, "document"), plural(2_000, "row"), plural(3.5, "minute"), plural(0, "entry", "entries")
    ('1 document', '2,000 rows', '3.5 minutes', '0 entries')
    """
    shown = f"{int(number):,}" if float(number).is_integer() else f"{number:g}"
    return f"{shown} {noun if number == 1 else nouns or f'{noun}s'}"


OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, line separators, overrides of the writing direction, and unpaired
surrogates, which cannot be encoded."""


def harmless(text: str) -> str:
    r"""The text with the characters that control a terminal written as Python escapes.

    >>> print(harmless("red \x1b[31m, and\tthe rest"))
    red \x1b[31m, and	the rest
    """
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
