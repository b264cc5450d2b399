"""Semantic roles: sentences with marked predicates, and the tags of the arguments of each predicate.

CoNLL-2005 and -2012 (Carreras & Màrquez 2005; Pradhan et al. 2012), and one block for each predicate with IOB tags.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from unmask.data.labelled.conll import Block, Sentences, blocks, check_columns, column_number
from unmask.data.labelled.rows import Row, listed
from unmask.data.labelled.schemes import Span, convert, parts, spans, to_tags
from unmask.errors import UnmaskError, plural

UNMARKED = frozenset({"", "-", "_", "O", "0", "*"})
"""Values in the column of predicates for words that are not predicates."""

_BRACKET = re.compile(r"(?:\(([^\s()*]+))?\*(\))?")
_ONTONOTES = 12  # smallest number of columns of CoNLL-2012: 11 before the arguments, and the coreference after them


class _Layout(NamedTuple):
    """Indices of the columns, from 0; the columns of arguments end before `end`; None: with the last one."""

    word: int
    predicate: int
    begin: int
    end: int | None


def read_roles(
    path: Path | str,
    *,
    word: str | None = None,
    predicate: str | None = None,
    arguments: str | None = None,
    encoding: str | None = None,
) -> Sentences:
    """Read a row for each predicate: the words of its sentence, its index among them, and its arguments as IOB2 tags.

    word, predicate, arguments  numbers, from 1, of the columns of words, of predicate marks, and of the first
                                predicate's arguments, which the columns of other predicates follow. None: 1, 2, and the
                                column after `predicate`; in CoNLL-2012, which is detected by its columns, 4, 8 and 12,
                                without the last column, which is coreference
    encoding                    as for `data.files.lines.lines`

    A word is a predicate if its mark is not `-`, `_`, `O`, `0` or `*`: for instance a lemma, a sense, V or 1. The
    arguments of the first predicate are in the first column, and so on; they are brackets (`(A0*`, `*`, `*)`) or tags
    of IOB1, IOB2, IOBES or BILOU. A file with a block for each predicate has one such column. Lines and comments are as
    in `read_conll`. Sentences without a predicate give no row and are counted in `notes`.

    Raises UnmaskError, which names file and line, if the numbers of predicates and of argument columns differ, for
    unmatched brackets, arguments that are neither brackets nor tags, a V that is not at its predicate, and a file
    without predicates.
    """
    path = Path(path)
    numbers = [column_number(path, name) for name in (word, predicate, arguments)]
    found = blocks(path, encoding)
    layout = _layout(found, *numbers)
    rows: list[Row] = []
    without: list[str] = []
    for block in found:
        check_columns(path, block, len(block[0][1]), layout[:2])
        of_block = _rows(path, block, layout)
        rows += of_block
        if not of_block:
            without.append(f"{path}:{block[0][0]}")
    if not rows:
        raise UnmaskError(
            f"{path} has no predicates: its column {layout.predicate + 1} marks no word; give the column that does."
        )
    notes = (f"Sentences without a predicate: {len(without):,} ({listed(without)}).",) if without else ()
    names = {"words": layout.word, "predicate": layout.predicate, "tags": layout.begin}
    columns = {role: f"column {place + 1}" for role, place in names.items()}
    return Sentences(tuple(rows), {**columns, "tags": f"{columns['tags']} on"}, notes)


def _layout(found: list[Block], word: int | None, predicate: int | None, arguments: int | None) -> _Layout:
    """The given columns, and the usual ones of the form of the file for the others."""
    ontonotes = all(len(fields) >= _ONTONOTES and fields[2] == str(i) for i, (_, fields) in enumerate(found[0]))
    usual = _Layout(3, 7, 11, -1) if ontonotes else _Layout(0, 1, 2, None)
    if predicate is not None:
        usual = usual._replace(predicate=predicate, begin=predicate + 1)
    if word is not None:
        usual = usual._replace(word=word)
    return usual if arguments is None else usual._replace(begin=arguments)


def _rows(path: Path, block: Block, layout: _Layout) -> list[Row]:
    """The rows of a sentence, one for each predicate."""
    numbers = [number for number, _ in block]
    words = tuple(fields[layout.word] for _, fields in block)
    marked = [i for i, (_, fields) in enumerate(block) if fields[layout.predicate].strip() not in UNMARKED]
    columns = list(zip(*(fields[layout.begin : layout.end] for _, fields in block), strict=True))
    if not marked and all(field.strip() in ("O", "*") for column in columns for field in column):
        return []
    if len(marked) != len(columns):
        found = plural(len(marked), "predicate")
        lines = ", ".join(str(numbers[i]) for i in marked[:5]) or "none"
        raise UnmaskError(
            f"{path}:{numbers[0]}: the sentence has {found} in column {layout.predicate + 1} "
            f"(line {lines}), but {plural(len(columns), 'column')} of arguments, starting with column "
            f"{layout.begin + 1}; each predicate needs one."
        )
    rows = []
    for k, (predicate, column) in enumerate(zip(marked, columns, strict=True)):
        tags = _tags(path, numbers, [field.strip() for field in column], layout.begin + k + 1)
        verbs = [span for span in spans(tags) if span[2] == "V"]
        if verbs and not any(begin <= predicate < end for begin, end, _ in verbs):
            raise UnmaskError(
                f"{path}:{numbers[verbs[0][0]]} has the V of column {layout.begin + k + 1}, but its predicate "
                f"'{words[predicate]}' is marked in line {numbers[predicate]}; the columns of arguments must be in the "
                "order of the predicates."
            )
        place = f"{path}:{numbers[predicate]}"
        rows.append(Row(" ".join(words), words=words, tags=tags, predicate=predicate, place=place))
    return rows


def _tags(path: Path, numbers: list[int], fields: Sequence[str], column: int) -> tuple[str, ...]:
    """Convert a column of arguments to IOB2 tags."""
    if any("*" in field for field in fields):
        return to_tags(_brackets(path, numbers, fields, column), len(fields))
    for number, field in zip(numbers, fields, strict=True):
        if parts(field) is None:
            raise UnmaskError(
                f"{path}:{number} has '{field}' in column {column}; arguments must be tags, such as B-A0, or brackets, "
                "such as (A0* and *)."
            )
    return convert(fields, "IOB2")


def _brackets(path: Path, numbers: list[int], fields: Sequence[str], column: int) -> list[Span]:
    """The arguments of a column of brackets."""
    found: list[Span] = []
    kind, begin = "", -1
    for i, (number, field) in enumerate(zip(numbers, fields, strict=True)):
        match = _BRACKET.fullmatch(field)
        where = f"{path}:{number} has '{field}' in column {column}"
        if match is None:
            raise UnmaskError(f"{where}, which is not a bracket: write (A0* to open, * to continue, *) to close.")
        if match[1] is not None:
            if begin >= 0:
                raise UnmaskError(f"{where}, but {kind} of line {numbers[begin]} is not closed yet.")
            kind, begin = match[1], i
        if match[2] is not None:
            if begin < 0:
                raise UnmaskError(f"{where}, but there is nothing to close.")
            found.append((begin, i + 1, kind))
            begin = -1
    if begin >= 0:
        raise UnmaskError(
            f"{path}:{numbers[begin]} opens {kind} in column {column}, which its sentence does not close; "
            "put *) at its last word."
        )
    return found
