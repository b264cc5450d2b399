"""Documents with clusters of mentions: columns of CoNLL-2012 and LitBank, and the pronouns of GAP.

Pradhan et al. 2012, "CoNLL-2012 Shared Task: Modeling Multilingual Unrestricted Coreference in OntoNotes"; Bamman et
al. 2020, "An Annotated Dataset of Coreference in English Literature"; Webster et al. 2018, "Mind the GAP".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from unmask.data.files.tables import format_by_name, read_table, rows
from unmask.data.labelled.conll import Block, blocks, check_columns
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Ambiguous, Clusters, Discourse, WordSpan
from unmask.data.labelled.words import split_words
from unmask.errors import UnmaskError, plural

WORD, FEWEST = 3, 5  # index of the column of words; least number of columns: document, part, number, word, coreference
NONE = frozenset({"", "-", "_", "*"})
CLOSERS = frozenset("\"'”’»)]") | {"''"}
STOPS = frozenset(".!?…") | {"..."}
GAP = ("Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset", "B-coref")

_MARK = re.compile(r"(\()?(\d+)(\))?")


def read_documents(path: Path, *, labelled: bool = True, encoding: str | None = None) -> Dataset:
    """The documents of a file, or of all files *.conll of a folder, in the order of their names.

    A line has the columns document, part, number of the word in its sentence, and word, and in the last one what begins
    or ends there: `(3` begins a mention of cluster 3, `3)` ends one, `(3)` is one of one word; `|` stands between
    several. An empty line ends a sentence.

    labelled  False: without clusters, for prediction

    Raises UnmaskError, which names file and line, for a line with too few columns, a mark of another form, a mention
    that is not closed in its document or not open; and for files without any cluster.
    """
    files = sorted(path.glob("*.conll")) if path.is_dir() else [path]
    if not files:
        raise UnmaskError(f"{path} has no file *.conll: each holds documents in columns.")
    rows = [row for file in files for row in _documents(file, labelled, encoding)]
    if labelled and not any(row.clusters for row in rows):
        raise UnmaskError(f"{path} has no clusters: the last column of each word must say what begins or ends there.")
    columns = {"words": f"column {WORD + 1}", **({"clusters": "the last column"} if labelled else {})}
    return Dataset(path, tuple(rows), columns)


def _documents(path: Path, labelled: bool, encoding: str | None) -> list[Discourse]:
    found = blocks(path, encoding)
    for block in found:
        number, fields = block[0]
        if len(fields) < FEWEST:
            raise UnmaskError(
                f"{path}:{number} has {plural(len(fields), 'column')}; it needs document, part, number of the word, "
                "word, and in the last column the coreference, separated by tabs or blanks."
            )
        check_columns(path, block, len(fields), (WORD,))
    parts = [list(lines) for block in found for _, lines in groupby(block, key=_name)]  # a document ends a sentence
    named = groupby(parts, key=lambda part: _name(part[0]))
    return [_document(path, name, list(sentences), labelled) for name, sentences in named]


def _name(line: tuple[int, list[str]]) -> str:
    """The document and its part."""
    return " ".join(line[1][:2])


def _document(path: Path, name: str, sentences: list[Block], labelled: bool) -> Discourse:
    lines = [line for block in sentences for line in block]
    words = tuple(fields[WORD] for _, fields in lines)
    starts = [0]
    for block in sentences[:-1]:
        starts.append(starts[-1] + len(block))
    clusters = _clusters(path, [(number, fields[-1].strip()) for number, fields in lines]) if labelled else ()
    place = f"{path}:{lines[0][0]}"
    return Discourse(" ".join(words), words=words, id=name, place=place, starts=tuple(starts), clusters=clusters)


def _clusters(path: Path, marks: list[tuple[int, str]]) -> Clusters:
    """The clusters of a document; `marks` are the number of the line and the last column of each word."""
    begun: dict[str, list[int]] = defaultdict(list)
    found: dict[str, set[WordSpan]] = defaultdict(set)
    for word, (number, cell) in enumerate(marks):
        if cell in NONE:
            continue
        for part in cell.split("|"):
            match = _MARK.fullmatch(part)
            if match is None or not (match[1] or match[3]):
                raise UnmaskError(
                    f"{path}:{number} has '{part}' in its last column; write (3 to begin a mention of cluster 3, 3) to "
                    "end it, (3) for one word, and | between several."
                )
            if match[1]:
                begun[match[2]].append(word)
            if match[3]:
                if not begun[match[2]]:
                    raise UnmaskError(f"{path}:{number} ends a mention of cluster {match[2]}, but none is open.")
                found[match[2]].add((begun[match[2]].pop(), word + 1))
    left = next(((places[0], name) for name, places in begun.items() if places), None)
    if left is not None:
        raise UnmaskError(
            f"{path}:{marks[left[0]][0]} begins a mention of cluster {left[1]}, which its document does not end."
        )
    return tuple(tuple(sorted(spans)) for spans in found.values())


def sentence_starts(words: tuple[str, ...]) -> tuple[int, ...]:
    """The words that begin a sentence, by the stops and closing quotes before them."""
    starts, stopped = [0], False
    for number, word in enumerate(words[:-1], 1):
        stopped = word in STOPS or (stopped and word in CLOSERS)
        if stopped and words[number] not in CLOSERS | STOPS:
            starts.append(number)
    return tuple(starts)


# ------------------------------------------------------------------------------------------------ GAP


def is_gap(path: Path, encoding: str | None = None) -> bool:
    """Whether a file is a table of GAP, by its name and its first line."""
    if path.is_dir() or format_by_name(path) != "tsv":
        return False
    _, first = next(rows(path, "tsv", encoding=encoding), (0, {}))
    return set(GAP) <= set(first)


def read_gap(path: Path, encoding: str | None = None) -> Dataset:
    """The rows of a table of GAP: a text, a pronoun, and two names; labels say which one it means.

    Raises UnmaskError, which names file and row, for an offset at which the text has something else, and for a label
    other than TRUE and FALSE.
    """
    table = read_table(path, "tsv", encoding=encoding)
    found = tuple(_ambiguous(values, f"{path}:{number}") for number, values in table.rows)
    return Dataset(path, found, {"text": "Text", "pronoun": "Pronoun", "names": "A, B", "label": "A-coref, B-coref"})


def _ambiguous(values: Mapping[str, Any], place: str) -> Ambiguous:
    text = values["Text"]
    split = split_words(text)
    words = tuple(word for word, _ in split)
    places = [where for _, where in split]
    pronoun, *names = (
        _words_at(text, places, values[name], values[f"{name}-offset"], place) for name in ("Pronoun", "A", "B")
    )
    return Ambiguous(
        text,
        words=words,
        place=place,
        starts=sentence_starts(words),
        pronoun=pronoun,
        names=(names[0], names[1]),
        meant=(_truth(values, "A-coref", place), _truth(values, "B-coref", place)),
    )


def _words_at(text: str, places: list[tuple[int, int]], name: str, offset: str, place: str) -> WordSpan:
    """The words of `name`, which stands in the text at an offset in characters."""
    if not offset.isdecimal() or not text.startswith(name, int(offset)):
        raise UnmaskError(f"{place}: the text does not have '{name}' at character {offset}.")
    begin, end = int(offset), int(offset) + len(name)
    inside = [i for i, (low, high) in enumerate(places) if low < end and high > begin]
    return inside[0], inside[-1] + 1


def _truth(values: Mapping[str, Any], column: str, place: str) -> bool:
    label = str(values[column]).upper()
    if label not in ("TRUE", "FALSE"):
        raise UnmaskError(f"{place}: {column} must be TRUE or FALSE, not '{values[column]}'.")
    return label == "TRUE"
