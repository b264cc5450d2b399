"""Copies: pictures or recordings with the same content, found by their hashes and described in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from unmask.data.files.items import SHOWN, visible
from unmask.errors import plural


def copies_of(digests: Iterable[Hashable]) -> dict[int, int]:
    """The number of each file whose content an earlier one has -> the number of the first of these."""
    first: dict[Hashable, int] = {}
    found = {}
    for number, digest in enumerate(digests):
        if (earlier := first.setdefault(digest, number)) != number:
            found[number] = earlier
    return found


def copies_note(
    copies: Mapping[int, int], name: Callable[[int], str], label: Callable[[int], object], noun: str
) -> list[str]:
    """A sentence on files with the same content, if there are any; those with different labels are named first.

    copies  as `copies_of` returns them
    noun    one of the files: "picture"
    """
    if not copies:
        return []
    other = [number for number, first in copies.items() if label(number) != label(first)]
    shown = [*other, *(number for number in copies if number not in set(other[:SHOWN]))][:SHOWN]
    examples = ", ".join(f"{visible(name(n))} = {visible(name(copies[n]))}" for n in shown)
    conflict = f", {len(other):,} of them with another label" if other else ""
    are = "is a copy of another one" if len(copies) == 1 else "are copies of other ones"
    return [f"{plural(len(copies), noun)} {are}{conflict} ({examples}{', ...' if len(copies) > SHOWN else ''})"]
