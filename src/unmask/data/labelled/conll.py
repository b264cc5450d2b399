"""CoNLL files: one word on each line, an empty line between sentences, and numbered columns of words and tags.

CoNLL-2000 and -2003 (Tjong Kim Sang & Buchholz 2000; Tjong Kim Sang & De Meulder 2003), CoNLL-U (Universal
Dependencies), WNUT, WikiANN, KLUE and files of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from unmask.data.files.lines import bare, lines
from unmask.data.files.tables import format_by_name
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural

Block = list[tuple[int, list[str]]]
"""The lines of a sentence: number and columns of each."""

HEAD = 200  # lines that show whether a file has columns of words and tags
SHOWN = 60  # most characters of a line in an error
_UNIVERSAL = 10  # columns of CoNLL-U, separated by tabs
_NUMBER, _NO_WORD = re.compile(r"\d+"), re.compile(r"\d+-\d+|\d+\.\d+")
_TAG = re.compile(r"[BIESLUM]-\S+|[!-/:-`{-~]+")  # with the prefix of a scheme, or without a, 1 and é
_COMMENT = re.compile(r"#+ ")
# If spaces separate the columns, "# x y" may be a word with its tags; only known headings are comments.
_HEADING = re.compile(r"#\s*(?:begin document|end document|newdoc|newpar|id\s|sent_id\s*=|text\s*=)")
_LANGUAGE = re.compile(r"[a-z]{2,12}(?:-[a-z]+)*:")


class Sentences(NamedTuple):
    """Rows of tagged words; the fields are in the order of those of `Dataset`.

    columns  role -> the column that was used
    notes    sentences on rows that were left out or changed, with counts and the first places
    """

    rows: tuple[Row, ...]
    columns: dict[str, str]
    notes: tuple[str, ...] = ()


def read_conll(
    path: Path,
    word: str | None = None,
    tag: str | None = None,
    *,
    labelled: bool = True,
    encoding: str | None = None,
) -> Sentences:
    """Read the sentences of a file. Columns are separated by tabs if most lines have a tab, else by blanks.

    word, tag  numbers of the columns, from 1; None: the first and last, and in CoNLL-U 2 and 4 (UPOS). A file is
               CoNLL-U by its name, or if its lines have ten columns and begin with a number
    labelled   False: sentences without tags, for prediction; columns of tags are ignored, and may be missing
    encoding   as for `data.files.lines.lines`

    -DOCSTART- ends a sentence, like an empty line. Comments are ignored: `# …` if tabs separate the columns, else known
    headings of documents and sentences. In CoNLL-U, contractions (3-4) and omitted words (8.1) are ignored too. The
    language before every word of WikiANN ("en:") is removed, with a note. Tags are stripped of blanks but not converted
    (`schemes.convert`). Raises UnmaskError, which names file and line, for a line with another number of columns than
    the first, without a tag, or with invalid bytes, and for a file without sentences.
    """
    numbers = [column_number(path, name) for name in (word, tag)]
    found = blocks(path, encoding)
    width = len(found[0][0][1])
    if width < 2 and labelled:
        raise UnmaskError(
            f"{path}:{found[0][0][0]} has only one column: {_shown(found[0][0][1])}; write a word and its tag, "
            "separated by a tab or blanks."
        )
    universal = is_universal(path, found)
    at = numbers[0] if numbers[0] is not None else 1 if universal else 0
    tagged = numbers[1] if numbers[1] is not None else 3 if universal else width - 1
    for block in found:
        check_columns(path, block, width, (at, tagged) if labelled else (at,))
    if universal:
        found = _with_words(path, [_words(path, block) for block in found])
    kept = [_row(path, block, at, tagged if labelled else None) for block in found]
    if len(kept) == 1 and any(" " in word.strip() for word in kept[0].words):
        raise UnmaskError(f"{path} has no blank lines, and texts instead of words: it is a table, not CoNLL.")
    tags = {"tags": f"column {tagged + 1}"} if labelled else {}
    return _without_language(Sentences(tuple(kept), {"words": f"column {at + 1}", **tags}))


def holds(path: Path, encoding: str | None = None) -> bool:
    """Whether a file holds words with tags, one on each line, and not a text on each: by its name, else if the columns
    of its first lines are equal in number and the last ones look like tags, such as O, B-per or NN."""
    if (named := format_by_name(path)) not in (None, "tsv"):
        return named == "conll"
    if not path.is_file() or not path.stat().st_size:
        return False
    head = [line for _, line in islice(lines(path, encoding=encoding, newline="\n", escaped=True), HEAD)]
    words = [line.rstrip("\r\n") for line in head if line.strip() and not line.startswith(("#", "-DOCSTART-"))]
    fields = [line.split("\t" if "\t" in line else None) for line in words]
    if len(fields) < 2 or len({len(one) for one in fields}) > 1 or len(fields[0]) < 2:
        return False
    tags = {one[-1].strip() for one in fields}
    return all(map(_TAG.fullmatch, tags)) and any(map(str.isupper, tags))  # not only the last points of sentences


def blocks(path: Path, encoding: str | None = None) -> list[Block]:
    """The lines of each sentence, without comments. Raises UnmaskError for a file without text or sentences."""
    read = lines(path, encoding=encoding, newline="\n")
    numbered = [(number, line.removesuffix("\n").removesuffix("\r")) for number, line in read]
    tabbed = _are_tabbed(line for _, line in numbered)
    found: list[Block] = [[]]
    for number, line in numbered:
        if "\r" in line:
            raise UnmaskError(f"{path}:{number} has a CR inside; save the file with the line ends LF or CRLF.")
        if line.startswith("-DOCSTART-") or not line.strip():
            found.append([])
        elif not _is_comment(line, tabbed):
            found[-1].append((number, line.split("\t") if tabbed else re.split(r"[ \t]+", line.strip(" \t"))))
    return _with_words(path, found)


def check_columns(path: Path, block: Block, width: int, needed: Iterable[int]) -> None:
    """Raises UnmaskError for the first line of a sentence that does not have `width` columns or lacks a needed one."""
    highest = max(needed)
    for number, fields in block:
        if len(fields) != width:
            raise UnmaskError(
                f"{path}:{number} has {plural(len(fields), 'column')}, but the lines before it have {width}: "
                f"{_shown(fields)}; give "
                "every word the same columns, separated everywhere by one tab or everywhere by blanks, and put an "
                "empty line between sentences."
            )
        if highest >= width:
            raise UnmaskError(
                f"{path}:{number} has {plural(width, 'column')}; there is no column {highest + 1}: {_shown(fields)}. "
                "Columns are counted from 1."
            )


def _shown(fields: list[str]) -> str:
    line = " | ".join(fields)
    return f"'{line if len(line) <= SHOWN else line[:SHOWN] + '…'}'"


def is_universal(path: Path, found: list[Block]) -> bool:
    """Whether a file is CoNLL-U: by its name, else by ten columns with the numbers of words first."""
    if ".conllu" in (suffix.lower() for suffix in bare(path).suffixes):
        return True
    first = found[0][0][1]
    return len(first) == _UNIVERSAL and (first[0] == "1" or first[0].startswith("1-"))


def _with_words(path: Path, found: list[Block]) -> list[Block]:
    """The sentences with words. Raises UnmaskError if there are none."""
    kept = [block for block in found if block]
    if not kept:
        raise UnmaskError(f"{path} has no sentences: each line must have a word and its tag.")
    return kept


def _words(path: Path, block: Block) -> Block:
    """The lines of CoNLL-U that are words."""
    for number, fields in block:
        if not (_NUMBER.fullmatch(fields[0]) or _NO_WORD.fullmatch(fields[0])):
            raise UnmaskError(
                f"{path}:{number} begins with '{fields[0]}', not with the number of a word as in CoNLL-U; "
                "if it is another format, give the file another suffix than .conllu."
            )
    return [(number, fields) for number, fields in block if _NUMBER.fullmatch(fields[0])]


def _row(path: Path, block: Block, word: int, tag: int | None) -> Row:
    words = tuple(fields[word] for _, fields in block)
    place = f"{path}:{block[0][0]}"
    if tag is None:
        return Row(" ".join(words), words=words, place=place)
    tags = tuple(fields[tag].strip() for _, fields in block)
    if "" in tags:
        raise UnmaskError(f"{path}:{block[tags.index('')][0]} has no tag: its column {tag + 1} is empty.")
    return Row(" ".join(words), words=words, tags=tags, place=place)


def _without_language(found: Sentences) -> Sentences:
    """Remove the language that WikiANN puts before each word."""
    match = _LANGUAGE.match(found.rows[0].words[0])
    prefix = match[0] if match else ""
    if not prefix or not all(word.startswith(prefix) for row in found.rows for word in row.words):
        return found
    rows = []
    for row in found.rows:
        words = tuple(word.removeprefix(prefix) for word in row.words)
        rows.append(Row(" ".join(words), words=words, tags=row.tags, place=row.place))
    return Sentences(tuple(rows), found.columns, (f'Every word began with "{prefix}", which was removed.',))


def column_number(path: Path, name: str | None) -> int | None:
    """The index of a column, from 0, for its number, from 1. Raises UnmaskError if `name` is not a number."""
    if name is None:
        return None
    if not (name.isdecimal() and int(name) > 0):
        raise UnmaskError(f"The columns of {path} have no names; give a number, counted from 1, instead of '{name}'.")
    return int(name) - 1


def _are_tabbed(texts: Iterable[str]) -> bool:
    """Whether most lines except comments have a tab, so that blanks belong to words."""
    votes = [("\t" in line) - ("\t" not in line) for line in texts if line.strip() and not _is_comment(line, True)]
    return sum(votes) > 0


def _is_comment(line: str, tabbed: bool) -> bool:
    if not line.startswith("#"):
        return False
    return bool(_COMMENT.match(line) or "\t" not in line) if tabbed else bool(_HEADING.match(line))
