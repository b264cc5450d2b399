"""Forms of files that hold pairs of texts but are not tables: dialogues, trees, the commands of SCAN."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.bitext import trees
from unmask.data.files.lines import lines
from unmask.data.files.tables import column_of, format_by_name, rows
from unmask.errors import UnmaskError

BETWEEN = " | "
"""Between the turns of a dialogue."""
TURNS = 3
"""Previous turns that are read, by default."""

Found = Iterator[tuple[int, str, str]]
"""The number of each pair (that of its line, if a line has one pair), its source and its target."""

_COMMAND = re.compile(r"IN: *(.*?) +OUT: *(.*)")
_TREE = re.compile(r"\([^\t]*\)")
_TALK = re.compile(r"""\{.*"(turns|dialogue)": *\[""")
_SAID = ("utterance", "text", "content")  # of a turn that is an object


@dataclass(frozen=True)
class Form:
    """A form of files.

    begins  whether a file with this first line has the form
    pairs   a file, its encoding and the number of previous turns -> its pairs
    """

    begins: Callable[[str], bool]
    pairs: Callable[[Path, str | None, int], Found]


def form_of(path: Path, format: str | None, encoding: str | None) -> Form | None:
    """The form of this name, or without a name that of the file; None for a table or plain text."""
    if format is not None:
        return FORMS.get(format)
    if format_by_name(path) not in (None, "jsonl"):
        return None
    first = next((line.strip() for _, line in lines(path, encoding=encoding) if line.strip()), "")
    return next((form for form in FORMS.values() if form.begins(first)), None)


def commands(path: Path, encoding: str | None, turns: int) -> Found:
    """Lines `IN: jump twice OUT: I_JUMP I_JUMP` (Lake and Baroni 2018). Raises UnmaskError for any other line."""
    for number, line in _filled(path, encoding):
        found = _COMMAND.fullmatch(line)
        if found is None:
            raise UnmaskError(f"{path}:{number}: the line must have the form IN: … OUT: …")
        yield number, found[1], found[2]


def bracketed(path: Path, encoding: str | None, turns: int) -> Found:
    """Trees, one a line: words and the tree as a sequence. Raises UnmaskError for a line that is not one tree."""
    for number, line in _filled(path, encoding):
        try:
            tree = trees.plain(trees.parse(line))
        except UnmaskError as error:
            raise UnmaskError(f"{path}:{number}: {error}") from None
        if tree is not None:
            yield number, " ".join(trees.words(tree)), trees.linear(tree)


def dialogues(path: Path, encoding: str | None, turns: int) -> Found:
    """Dialogues, one JSON object a line with a list `turns`: each turn after the first is a target, and the `turns`
    before it are its source. A turn is a text, or an object with an `utterance`. Pairs are numbered through the file.
    Raises UnmaskError for a row without such a list."""
    count = 0
    for number, values in rows(path, "jsonl", encoding=encoding):
        said = _turns(f"{path}:{number}", values)
        for place in range(1, len(said)):
            count += 1
            yield count, BETWEEN.join(said[max(0, place - turns) : place]), said[place]


def _turns(place: str, values: Mapping[str, Any]) -> list[str]:
    column = column_of(values, ("turns", "dialogue"))
    found = values.get(column) if column else None
    if not isinstance(found, list):
        raise UnmaskError(f"{place}: a dialogue must have a list of turns.")
    said = []
    for turn in found:
        name = column_of(turn, _SAID) if isinstance(turn, Mapping) else None
        text = turn[name] if isinstance(turn, Mapping) and name else turn
        if not isinstance(text, str):
            raise UnmaskError(f"{place}: each turn must be a text, or an object with an utterance.")
        said.append(" ".join(text.split()))
    return said


def _filled(path: Path, encoding: str | None) -> Iterator[tuple[int, str]]:
    return ((number, line.strip()) for number, line in lines(path, encoding=encoding) if line.strip())


FORMS: Mapping[str, Form] = {
    "scan": Form(lambda line: _COMMAND.fullmatch(line) is not None, commands),
    "trees": Form(lambda line: _TREE.fullmatch(line) is not None, bracketed),
    "dialogues": Form(lambda line: _TALK.match(line) is not None, dialogues),
}
"""Name of a form, as in `--format` -> how it is read."""
