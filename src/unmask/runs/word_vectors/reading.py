"""Sequences for word2vec: prose split into words, lines of tokens, JSON lists of items."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.config import Config
from unmask.data.files.lines import FileFacts, lines
from unmask.data.files.tables import format_by_name
from unmask.data.labelled.words import split_words
from unmask.data.text import embedded
from unmask.data.text.reading import TextDocument, TextStatistics, documents
from unmask.data.text.sentences import sentences
from unmask.errors import UnmaskError

_ASCII_WORD = re.compile(r"\w+(?:'\w+)*")
_LETTER = re.compile(r"\w")
_TIDY = str.maketrans({"_": " ", "’": "'"})  # `_` marks emphasis, or joins words of a phrase; don’t becomes don't


@dataclass(frozen=True, kw_only=True)
class Reading(Config):
    """How files become sequences of words.

    tokens    words: prose, split into sentences and words, without punctuation; spaces: each line is a sequence of
              tokens separated by white space
    lower     lower-case the text
    column    field of the prose in JSON lines, CSV, TSV and Parquet
    encoding  encoding of files without a byte order mark that are not UTF-8, such as cp1252 or euc-kr
    """

    tokens: Literal["words", "spaces"] = "words"
    lower: bool = True
    column: str = "text"
    encoding: str | None = None


def read(
    paths: Sequence[str | Path], reading: Reading | None = None, statistics: TextStatistics | None = None
) -> Iterator[list[str]]:
    """The sequences of files and folders, in order, in bounded memory.

    statistics  filled while documents are read, as by `data.text.reading.documents`

    In a JSONL file whose lines are lists, `["a", "b"]` or `[3, 17, 4]`, each list is a sequence. Other files are text,
    read by `data.text.reading.documents`, compressed or not. Raises UnmaskError for a path that does not exist, a
    file that is damaged or empty, and a list with anything but texts and whole numbers.
    """
    reading = Reading() if reading is None else reading
    for path in map(Path, paths):
        if path.is_file() and format_by_name(path) == "jsonl" and _holds_lists(path, reading.encoding):
            yield from _lists(path, reading.encoding)
        elif reading.tokens == "spaces" and path.is_file() and format_by_name(path) is None:
            for _, line in lines(path, FileFacts(), encoding=reading.encoding):
                if found := (line.lower() if reading.lower else line).split():
                    yield found
        else:
            texts = documents([path], column=reading.column, encoding=reading.encoding, statistics=statistics)
            yield from cut(texts, reading)


def cut(texts: Iterable[TextDocument], reading: Reading | None = None) -> Iterator[list[str]]:
    """Documents as sequences of words."""
    reading = Reading() if reading is None else reading
    for document in texts:
        text = document.text.lower() if reading.lower else document.text
        if reading.tokens == "spaces":
            yield from (found for line in text.split("\n") if (found := line.split()))
        else:  # split into sentences before lower-casing, because capitals help to find their ends
            for sentence in sentences(document.text):
                if found := words(sentence.lower() if reading.lower else sentence):
                    yield found


def words(sentence: str) -> list[str]:
    """The words of a sentence: the tokens with a letter or a digit."""
    sentence = sentence.translate(_TIDY)
    if sentence.isascii():
        return _ASCII_WORD.findall(sentence)
    return [word for word, _ in split_words(sentence) if _LETTER.search(word)]


def documentation(reading: Reading | None = None) -> Iterator[list[str]]:
    """The default corpus: the documentation that is installed with Python and its packages."""
    return cut(embedded.documents(), reading)


def _holds_lists(path: Path, encoding: str | None) -> bool:
    return any(line.lstrip().startswith("[") for _, line in _first(path, encoding))


def _first(path: Path, encoding: str | None) -> Iterator[tuple[int, str]]:
    """The first line that is not blank."""
    for number, line in lines(path, encoding=encoding, newline="\n"):
        if line.strip():
            yield number, line
            return


def _lists(path: Path, encoding: str | None) -> Iterator[list[str]]:
    for number, line in lines(path, encoding=encoding, newline="\n"):
        if not line.strip():
            continue
        try:
            items = json.loads(line)
        except (ValueError, RecursionError):
            items = None
        if not isinstance(items, list) or not set(map(type, items)) <= {str, int} or "" in items:
            raise UnmaskError(f'{path}:{number} must be a list of texts or whole numbers, such as ["a", "b"].')
        yield [str(item) for item in items]
