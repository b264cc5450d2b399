"""Text in: files, folders, tables and hub data sets to documents, one at a time; sentences of a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from unmask.data.lines import LONGEST_LINE, Blank, FileFacts, NotText, lines
from unmask.data.sentences import sentences
from unmask.data.tables import Rows, format_by_name, hub_rows, rows
from unmask.data.vocabulary import clean
from unmask.errors import UnmaskError, kind_of, unknown

__all__ = ["LONGEST_DOCUMENT", "LONGEST_LINE", "FileFacts", "TextDocument", "TextStatistics", "documents", "sentences"]

Per = Literal["blank-line", "line", "file"]
LONGEST_DOCUMENT = 1 << 24  # characters; a longer one is handed out in parts, so that memory stays bounded
Numbered = Iterator[tuple[int, str]]  # line or row, and the text that begins there


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One document and where it comes from: `path`, `path:line` of its first line, or `path:row` of a table."""

    text: str
    source: str


@dataclass(slots=True)
class TextStatistics:
    """What reading has found out so far; hand one to `documents` to learn it.

    files    path -> encoding, characters, documents, replaced bytes and removed NULs of every file that was read
    skipped  path -> why a file inside a folder, or one without text beside others, was passed over
    """

    files: dict[str, FileFacts] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """Bytes, over all files, that their encoding does not know and that became U+FFFD."""
        return sum(facts.replaced for facts in self.files.values())

    @property
    def documents(self) -> int:
        return sum(facts.documents for facts in self.files.values())


def losses(replaced: Mapping[str, int], skipped: Mapping[str, str]) -> list[str]:
    """What was not read as it stands, a line for each file: bytes that became U+FFFD, and why one was passed over."""
    return [
        *(f"{name}: bytes that are no text of its encoding: {count:,}" for name, count in replaced.items() if count),
        *(f"{name}: passed over, {reason}" for name, reason in skipped.items()),
    ]


def documents(
    paths: str | Path | Sequence[str | Path],
    *,
    per: Per = "blank-line",
    column: str = "text",
    statistics: TextStatistics | None = None,
) -> Iterator[TextDocument]:
    """The documents of files, folders and hub data sets, in order, read in bounded memory.

    paths       files; folders, read in the order of their names, subfolders included, hidden names left out;
                `hub:owner/name[/configuration][:split]` with the `data` extra and a network
    per         of plain text: what makes a document. `blank-line`: lines up to the next blank one; `line`; `file`.
    column      of JSON lines, CSV, TSV and Parquet: the field that holds the text; each row is a document
    statistics  filled while reading; where it is given, to tell of it, a named file without text is passed over

    `.gz` and `.zst` files are opened as what they hold. Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark;
    bytes that are neither become U+FFFD and are counted. NUL is removed; line ends become LF. A document longer
    than LONGEST_DOCUMENT characters comes in parts.

    Raises UnmaskError at once for a path that does not exist, and while reading for a file that is damaged, empty
    or not text, an unknown column, or a line of more than LONGEST_LINE characters. Inside folders, files that are
    empty or not text are passed over and noted; so are, with `statistics`, named files that are empty, unless all are.
    """
    if per not in ("blank-line", "line", "file"):
        raise unknown("way to divide text", per, ("blank-line", "line", "file"))
    if isinstance(paths, (str, Path)):
        paths = [paths]
    if not paths:
        raise UnmaskError("There is no text to read: name at least one file or folder.")
    noted = TextStatistics() if statistics is None else statistics
    sources = [_source(path, per, column, noted) for path in paths]
    return chain.from_iterable(sources) if statistics is None else _where_text_is(sources, statistics)


def _where_text_is(sources: Sequence[Iterator[TextDocument]], statistics: TextStatistics) -> Iterator[TextDocument]:
    """The documents of all sources; those without any text are passed over, unless all are."""
    count, blank = 0, None
    for source in sources:
        try:
            for document in source:
                count += 1
                yield document
        except Blank as error:
            blank = blank or error
            _pass_over(error, statistics)
    if not count and blank is not None:
        raise blank


def _pass_over(error: NotText, statistics: TextStatistics) -> None:
    statistics.files.pop(str(error.path), None)
    statistics.skipped[str(error.path)] = error.reason


def _source(path: str | Path, per: Per, column: str, statistics: TextStatistics) -> Iterator[TextDocument]:
    if str(path).startswith("hub:"):
        return _hub(str(path), column, statistics)
    path = Path(path)
    if not path.exists():
        raise UnmaskError(f"There is no file or folder {path}.")
    if path.is_dir():
        return _folder(path, per, column, statistics)
    return _file(path, per, column, statistics)


def _hub(name: str, column: str, statistics: TextStatistics) -> Iterator[TextDocument]:
    facts = statistics.files[name] = FileFacts()
    yield from _counted(_texts(name, hub_rows(name, column), column), name, facts)
    if not facts.documents:
        raise UnmaskError(f"{name} holds no text in its column '{column}'.")


def _file(path: Path, per: Per, column: str, statistics: TextStatistics, doubt: bool = False) -> Iterator[TextDocument]:
    """Documents of one file; `doubt` is for files that nobody named, which may well be no text."""
    facts = statistics.files[str(path)] = FileFacts()
    format = format_by_name(path)
    if format is None or format == "conll":
        texts = _divide(lines(path, facts, doubt=doubt), per)
    else:
        texts = _texts(path, rows(path, format, column=column, facts=facts, doubt=doubt), column)
    yield from _counted(texts, str(path), facts)
    if not facts.documents:
        raise Blank(path, "it holds no text")


def _counted(texts: Numbered, source: str, facts: FileFacts) -> Iterator[TextDocument]:
    for number, text in texts:
        for part in _parts(text):
            facts.documents += 1
            facts.characters += len(part)
            yield TextDocument(part, f"{source}:{number}")


def _folder(folder: Path, per: Per, column: str, statistics: TextStatistics) -> Iterator[TextDocument]:
    count = 0
    for path in _walk(folder):
        try:
            for document in _file(path, per, column, statistics, doubt=True):
                count += 1
                yield document
        except NotText as error:
            _pass_over(error, statistics)
    if not count:
        raise UnmaskError(f"There is no text in the folder {folder}.")


def _walk(folder: Path) -> Iterator[Path]:
    """Files below the folder, sorted by name within each folder; links to folders are not followed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UnmaskError(f"The folder {folder} cannot be read: {error.strerror}.") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _walk(entry)
        elif entry.is_file():
            yield entry


def _divide(numbered: Numbered, per: Per) -> Numbered:
    """Number of the first line and text of each document of a plain-text file."""
    held: list[str] = []
    size = first = 0
    for number, line in numbered:
        blank = not line.strip()
        ends = per == "line" or (per == "blank-line" and blank) or size + len(line) > LONGEST_DOCUMENT
        if held and ends:
            yield first, "".join(held).strip()
            held, size = [], 0
        if held or not blank:
            first = first if held else number
            held.append(line)
            size += len(line)
    if held:
        yield first, "".join(held).strip()


def _texts(source: Path | str, table: Rows, column: str) -> Numbered:
    """Number and text of each row of a table, but for those whose text is null."""
    for number, values in table:
        value = values[column]
        if value is None:
            continue
        if not isinstance(value, str):
            raise UnmaskError(f"{source}:{number}: '{column}' must be text, not {kind_of(value)}.")
        yield number, _tidy(value)


def _tidy(text: str) -> str:
    """A field of a table, as lines of a file are tidied: LF line ends, neither NUL nor lone surrogates."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")).strip()


def _parts(text: str) -> Iterator[str]:
    """The text itself, cut at line ends or spaces where it is too long for one document; nothing where it is empty."""
    begin = 0
    while len(text) - begin > LONGEST_DOCUMENT:
        end = max(text.rfind(mark, begin + 1, begin + LONGEST_DOCUMENT) for mark in "\n ")
        end = end if end > begin else begin + LONGEST_DOCUMENT
        yield text[begin:end]
        begin = end
    if text[begin:]:
        yield text[begin:]
