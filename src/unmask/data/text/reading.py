"""Reads documents, one at a time, from files, folders, tables and data sets of the hub; sentences of a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from unmask.data.files import encodings
from unmask.data.files.lines import LONGEST_LINE, Blank, FileFacts, NotText, lines
from unmask.data.files.remote import Unreachable, place
from unmask.data.files.tables import Rows, format_by_name, hub_rows, on_hub, rows
from unmask.data.text.sentences import sentences
from unmask.data.text.vocabulary import clean
from unmask.errors import Missing, UnmaskError, kind_of, plural, unknown

__all__ = ["LONGEST_DOCUMENT", "LONGEST_LINE", "FileFacts", "TextDocument", "TextStatistics", "documents", "sentences"]

Per = Literal["blank-line", "line", "file"]
LONGEST_DOCUMENT = 1 << 24  # characters; a longer document is returned in parts, so that memory stays bounded
HELD = 1 << 26  # characters; documents of a file inside a folder are kept until the whole file is read, up to this size
MANY, SHORT = 50, 200  # if a file has MANY documents of fewer than SHORT characters on average, they are suspicious
Numbered = Iterator[tuple[int, str]]  # number of the line or row, and the text that begins there


@dataclass(frozen=True, slots=True)
class TextDocument:
    """One document and its source: `path`, `path:line` of its first line, or `path:row` of a table."""

    text: str
    source: str


@dataclass(slots=True)
class TextStatistics:
    """Statistics of reading; `documents` fills the one that it is given.

    files    path -> encoding, characters, documents and removed NULs of every file that was read
    skipped  path -> reason why a file was skipped: one inside a folder, or one without text among several
    """

    files: dict[str, FileFacts] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        return sum(facts.documents for facts in self.files.values())

    def losses(self, most: int | None = None) -> list[str]:
        """Lines on the files that were changed or skipped, from the function `losses`."""
        return losses({name: facts.nul for name, facts in self.files.items()}, self.skipped, most)

    def advice(self) -> str:
        """A sentence if blank lines seem to separate parts of documents instead of documents; else empty."""
        divided = {name: facts for name, facts in self.files.items() if facts.blank_lines and facts.documents >= MANY}
        short = [name for name, facts in divided.items() if facts.characters < SHORT * facts.documents]
        if not short:
            return ""
        documents = sum(facts.documents for facts in divided.values())
        average = self.files[short[0]].characters / self.files[short[0]].documents
        return (
            f"A blank line ends a document, so that {plural(len(divided), 'file')} became {documents:,} documents, "
            f"those of {short[0]} of {average:,.0f} characters on average; if a file is one document, use --per file."
        )


def losses(nul: Mapping[str, int], skipped: Mapping[str, str], most: int | None = None) -> list[str]:
    """Lines on files that were changed or skipped: for each file, the number of removed NUL characters or the reason
    for skipping it; then the number of skipped files, and of files without a line.

    most  largest number of files with a line; None: all
    """
    found = [
        *(f"{name}: passed over, {reason}" for name, reason in skipped.items()),
        *(f"{name}: NUL characters that were removed: {count:,}" for name, count in nul.items() if count),
    ]
    rest = 0 if most is None else max(0, len(found) - most)
    more = [f"{rest:,} more such files; unmask corpus check names them"] if rest else []
    count = [f"Passed over: {plural(len(skipped), 'file')}."] if skipped else []
    return [*found[: len(found) - rest], *more, *count]


def documents(
    paths: str | Path | Sequence[str | Path],
    *,
    per: Per = "blank-line",
    column: str = "text",
    encoding: str | None = None,
    statistics: TextStatistics | None = None,
) -> Iterator[TextDocument]:
    """The documents of files, folders and data sets of the hub, in order, read in bounded memory.

    paths       files; folders, read in the order of their names, with subfolders and without hidden names; both may be
                at addresses of fsspec, such as s3://bucket/folder, which need the `scale` extra;
                `hub:owner/name[/configuration][:split]`, which needs the `data` extra and a network
    per         documents of a plain-text file: `blank-line` (lines up to the next blank one), `line` or `file`
    column      column of JSON lines, CSV, TSV and Parquet that has the text; each row is a document
    encoding    encoding of files without a byte order mark; None: UTF-8
    statistics  filled while reading; if given, a named file without text is recorded there and skipped

    `.gz` and `.zst` files are decompressed. Text is UTF-8, UTF-16 or UTF-32 with a byte order mark, or in the given
    encoding. NUL is removed and counted; line ends become LF. A document of more than LONGEST_DOCUMENT characters is
    returned in parts.

    Raises UnmaskError immediately for a path that does not exist, and while reading for a file that is damaged, empty,
    not text or in another encoding, an unknown column, a row that is not valid, or a line of more than LONGEST_LINE
    characters. A file inside a folder with such an error is skipped as a whole and recorded, and reading continues.
    With `statistics`, this also holds for named files that are empty, unless all are.
    """
    if per not in ("blank-line", "line", "file"):
        raise unknown("way to divide text", per, ("blank-line", "line", "file"))
    if isinstance(paths, (str, Path)):
        paths = [paths]
    if not paths:
        raise UnmaskError("There is no text to read: give at least one file or folder.")
    noted = TextStatistics() if statistics is None else statistics
    how = _How(per, column, encodings.checked(encoding))
    sources = [_source(path, how, noted) for path in paths]
    return chain.from_iterable(sources) if statistics is None else _where_text_is(sources, statistics)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file or a data set of the hub, its size in bytes (0 if it is not known), and whether the user named it: other
    files are from a named folder."""

    path: str | Path
    size: int
    named: bool


def files(paths: Sequence[str | Path]) -> list[InputFile]:
    """All files from which `documents` reads some paths, in order. Raises UnmaskError for a path that does not
    exist."""
    found = []
    for path in paths:
        if on_hub(path):
            found.append(InputFile(path, 0, True))
            continue
        path = _existing(path)
        inner = list(_walk(path)) if path.is_dir() else [path]
        found += [InputFile(file, file.stat().st_size, file is path) for file in inner]
    return found


def documents_of(
    files: Sequence[InputFile], statistics: TextStatistics, *, per: Per, column: str, encoding: str | None
) -> Iterator[TextDocument]:
    """The documents of some of the `files`, as `documents` reads them among all others: there may be none."""
    how = _How(per, column, encodings.checked(encoding))
    for file in files:
        if not file.named:
            yield from _inside(_existing(file.path), how, statistics)
            continue
        try:
            yield from _source(file.path, how, statistics)
        except Blank as error:
            _pass_over(error.path, error, statistics)


@dataclass(frozen=True, slots=True)
class _How:
    """The arguments of `documents` that apply to files."""

    per: Per
    column: str
    encoding: str | None


def _where_text_is(sources: Sequence[Iterator[TextDocument]], statistics: TextStatistics) -> Iterator[TextDocument]:
    """The documents of all sources. Sources without text are skipped, unless all are without text."""
    count, blank = 0, None
    for source in sources:
        try:
            for document in source:
                count += 1
                yield document
        except Blank as error:
            blank = blank or error
            _pass_over(error.path, error, statistics)
    if not count and blank is not None:
        raise blank


def _pass_over(path: Path, error: UnmaskError, statistics: TextStatistics) -> None:
    statistics.files.pop(str(path), None)
    statistics.skipped[str(path)] = _reason(path, error)


def _reason(path: Path, error: UnmaskError) -> str:
    """The fault of a file, as a clause that follows its name."""
    if isinstance(error, NotText):
        return error.reason
    said = str(error).removesuffix(".")
    for start, instead in ((f"{path}:", "line "), (f"{path} ", "it ")):
        if said.startswith(start):
            return instead + said.removeprefix(start)
    return said


def _source(path: str | Path, how: _How, statistics: TextStatistics) -> Iterator[TextDocument]:
    if on_hub(path):
        return _hub(str(path), how.column, statistics)
    found = _existing(path)
    return (_folder if found.is_dir() else _file)(found, how, statistics)


def _existing(path: str | Path) -> Any:
    found = place(path)
    if not found.exists():
        raise UnmaskError(f"There is no file or folder {found}.")
    return found


def _hub(name: str, column: str, statistics: TextStatistics) -> Iterator[TextDocument]:
    facts = statistics.files[name] = FileFacts()
    yield from _counted(_texts(name, hub_rows(name, column), column), name, facts)
    if not facts.documents:
        raise UnmaskError(f"{name} holds no text in its column '{column}'.")


def _file(path: Path, how: _How, statistics: TextStatistics) -> Iterator[TextDocument]:
    facts = statistics.files[str(path)] = FileFacts()
    format = format_by_name(path)
    if format is None or format == "conll":
        facts.blank_lines = how.per == "blank-line"
        texts = _divide(lines(path, facts, encoding=how.encoding), how.per)
    else:
        texts = _texts(path, rows(path, format, column=how.column, facts=facts, encoding=how.encoding), how.column)
    yield from _counted(texts, str(path), facts)
    if not facts.documents:
        raise Blank(path, "it holds no text")


def _counted(texts: Numbered, source: str, facts: FileFacts) -> Iterator[TextDocument]:
    for number, text in texts:
        for part in _parts(text):
            facts.documents += 1
            facts.characters += len(part)
            yield TextDocument(part, f"{source}:{number}")


def _folder(folder: Path, how: _How, statistics: TextStatistics) -> Iterator[TextDocument]:
    count, first = 0, ""
    for path in _walk(folder):
        for document in _inside(path, how, statistics):
            count += 1
            yield document
        if not first and (reason := statistics.skipped.get(str(path))):
            first = f"{path} was passed over: {reason}"
    if not count:
        raise UnmaskError(f"There is no text in the folder {folder}{first and f' ({first})'}.")


def _inside(path: Path, how: _How, statistics: TextStatistics) -> Iterator[TextDocument]:
    """The documents of a file of a folder; none if it cannot be read as text."""
    try:
        found = _whole(partial(_file, path, how, statistics))
    except (Missing, Unreachable):  # the file may be valid
        raise
    except UnmaskError as error:
        _pass_over(path, error, statistics)
        return
    yield from found


def _whole(read: Callable[[], Iterator[TextDocument]]) -> Iterator[TextDocument]:
    """The documents of a file, after it was read to its end: an error is raised before the first document. A file of
    more than HELD characters is read twice, so that memory stays bounded."""
    held: list[TextDocument] = []
    size = 0
    for document in read():
        size += len(document.text)
        if size <= HELD:
            held.append(document)
        else:
            held.clear()
    return iter(held) if size <= HELD else read()


def _walk(folder: Path) -> Iterator[Path]:
    """Files below the folder, sorted by name within each folder; links to folders are not followed."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
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
    """The number of the first line, and the text, of each document of a plain-text file."""
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
    """The number and text of each row of a table, except rows whose text is null."""
    for number, values in table:
        value = values[column]
        if value is None:
            continue
        if not isinstance(value, str):
            raise UnmaskError(f"{source}:{number}: '{column}' must be text, not {kind_of(value)}.")
        yield number, _tidy(value)


def _tidy(text: str) -> str:
    """Clean a field of a table like the lines of a file: LF line ends, no NUL, no lone surrogates."""
    return clean(text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")).strip()


def _parts(text: str) -> Iterator[str]:
    """The text, cut at line ends or spaces if it is too long for one document; nothing if it is empty."""
    begin = 0
    while len(text) - begin > LONGEST_DOCUMENT:
        end = max(text.rfind(mark, begin + 1, begin + LONGEST_DOCUMENT) for mark in "\n ")
        end = end if end > begin else begin + LONGEST_DOCUMENT
        yield text[begin:end]
        begin = end
    if text[begin:]:
        yield text[begin:]
