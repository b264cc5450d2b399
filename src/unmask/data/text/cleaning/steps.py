"""Steps of datatrove's pipelines that are ours: files in, words of any language, tokens out. They need datatrove."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.extractors.trafilatura import Trafilatura
from datatrove.pipeline.filters.language_filter import LanguageFilter
from datatrove.pipeline.readers.warc import process_record
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.word_tokenizers import WordTokenizer

from unmask.data.files.lines import opened
from unmask.data.files.parts import CHUNK, Share
from unmask.data.files.remote import absolute, fetched, place
from unmask.data.files.tables import rows
from unmask.data.labelled.words import split_words
from unmask.data.text import corpus
from unmask.data.text.reading import InputFile, TextDocument, TextStatistics, documents_of
from unmask.data.text.sentences import sentences
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import MANIFEST

PASSED_OVER = "passed over"  # begins the name of a count of files
HTML = "html"  # entry of the metadata of a document that is HTML

_ARCHIVE = re.compile(r"\.(warc|wet)(\.gz|\.zst)?$", re.IGNORECASE)
_PAGE = re.compile(r"\.html?(\.gz|\.zst)?$", re.IGNORECASE)
_APART = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")  # written without spaces

Documents = Iterable[Document]


class Read(PipelineStep):
    """Reads the files of a task: a run of neighbours, of about the same size for every task.

    files  all files, in order
    how    as in `documents_of`

    A damaged file of a folder is passed over and counted. Raises UnmaskError for one that is named, with its row, and
    for a damaged archive, with its record.
    """

    type, name = "📖 - READER", "Files"

    def __init__(self, files: Sequence[InputFile], how: dict[str, Any]) -> None:
        super().__init__()
        self.files, self.how = list(files), how

    def run(self, data: Documents | None = None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        statistics = TextStatistics()
        for i in Share(rank + 1, world_size).of([file.size for file in self.files]):
            for document in self._read(self.files[i], statistics):
                self.stat_update("total")
                yield document
        for path, reason in statistics.skipped.items():
            self.stat_update(f"{PASSED_OVER} {path}: {reason}", unit="file")

    def _read(self, file: InputFile, statistics: TextStatistics) -> Iterator[Document]:
        if _ARCHIVE.search(str(file.path)):
            return _archive(str(file.path))
        html = bool(_PAGE.search(str(file.path)))
        how = {**self.how, "per": "file"} if html else self.how
        found = documents_of([file], statistics, **how)
        return (Document(one.text, one.source, metadata={HTML: html}) for one in found)


def _archive(path: str) -> Iterator[Document]:
    from warcio.archiveiterator import ArchiveIterator

    number = 0
    html = ".wet" not in path.lower()  # WET has plain text
    try:
        with opened(place(path)) as stream:
            for record in ArchiveIterator(stream):
                if found := process_record(record):
                    number += 1
                    yield Document(found.pop("text"), f"{path}:{number}", metadata={HTML: html, **found})
            while stream.read(CHUNK):  # where a file is cut, warcio ends without an error
                pass
    except ImportError as error:  # python-magic needs a library of the system
        raise UnmaskError(
            f"{path} cannot be read: {error}; install libmagic with the packages of the system."
        ) from None
    except Exception as error:  # warcio and each kind of compression have their own
        raise UnmaskError(
            f"{path} is damaged after page {number}: fetch it again, or leave it out ({error})."
        ) from None


class Extract(Trafilatura):
    """The main text of documents that are HTML; all others pass. The text of a page does not depend on other pages."""

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds, deduplicate=False)

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        for html, group in groupby(data, key=lambda document: document.metadata.pop(HTML, False)):
            if not html:
                yield from group
                continue
            import trafilatura  # noqa: F401  (pages are extracted in a fork, whose first page would take too long)

            yield from super().run(group, rank, world_size)


class Words(WordTokenizer):
    """Words as `split_words` finds them, and each Chinese or Japanese character, for any language without a model."""

    def word_tokenize(self, text: str) -> list[str]:
        return _words(text)

    def sent_tokenize(self, text: str) -> list[str]:
        return sentences(text)

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        found, end = [], 0
        for sentence in sentences(text):  # which has all characters of the text except whitespace
            begin, left = end, sum(not character.isspace() for character in sentence)
            while left:
                left -= not text[end].isspace()
                end += 1
            found.append((begin, end))
        return found


@lru_cache(maxsize=1)  # several filters want the words of one document
def _words(text: str) -> list[str]:
    return [word for word, _ in split_words(_APART.sub(r" \g<0> ", text))]


class Languages(LanguageFilter):
    """Keeps documents of some languages, by a local model. Raises UnmaskError for a file that is no fastText model, and
    for a language that it does not know."""

    def __init__(self, path: str, languages: Sequence[str], score: float) -> None:
        super().__init__(list(languages), score)
        self.path = path
        known = [label.removeprefix("__label__") for label in _model(path).get_labels()]
        if missing := [name for name in languages if name not in known]:
            more = f"{', '.join(sorted(known)[:20])}{', …' if len(known) > 20 else ''}"
            raise UnmaskError(f"{path} does not know the language '{missing[0]}'; it knows: {more}.")

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        self.model._model = _model(self.path)
        return super().run(data, rank, world_size)


def _model(path: str) -> Any:
    from fasttext.FastText import _FastText

    if not Path(path).is_file():
        raise UnmaskError(f"There is no file {path}.")
    try:
        return _FastText(path)
    except ValueError as error:
        raise UnmaskError(f"{path} cannot be read as a fastText model: {error}") from None


class Write(JsonlWriter):
    """Writes the documents of a task as JSON lines, RANK.jsonl.gz, also if there are none."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, expand_metadata=True)

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        self._get_output_file_with_retry(_file(rank))
        return super().run(data, rank, world_size)


class ReadAgain(PipelineStep):
    """Reads what `Write` wrote for the same task. Raises UnmaskError, with the row, if it is missing or damaged."""

    type, name = "📖 - READER", "Documents"

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def run(self, data: Documents | None = None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        path = place(self.folder) / _file(rank)
        if not path.exists():
            raise UnmaskError(f"{path} is missing: delete the folder of the pipeline, and run the command again.")
        with opened(path) as stream:
            blank = not stream.peek(1)
        for number, values in () if blank else rows(path, "jsonl"):
            self.stat_update("total")
            found = dict(values)
            try:
                yield Document(found.pop("text"), found.pop("id"), metadata=found)
            except KeyError as error:
                raise UnmaskError(f"{path}:{number} has no {error}: it was not written by this pipeline.") from None


class Tokens(PipelineStep):
    """Writes the documents of a task as one part of a corpus (`corpus.build_part`).

    out      address or absolute path of the corpus
    inputs   what all parts are made of
    """

    type, name = "💽 - WRITER", "Tokens"

    def __init__(self, out: str, tokenizer: str, inputs: str, heldout: float) -> None:
        super().__init__()
        self.out, self.tokenizer, self.inputs, self.heldout = out, tokenizer, inputs, heldout

    def run(self, data: Documents, rank: int = 0, world_size: int = 1) -> None:
        with self.track_time("task"), fetched(place(self.tokenizer)) as folder:
            part = corpus.build_part(
                (TextDocument(one.text, one.id) for one in data),
                self.out,
                Share(rank + 1, world_size),
                self.inputs,
                tokenizer=Tokenizer.load(folder),
                heldout=self.heldout,
            )
        self.stat_update("documents", value=part.manifest["documents"])


class Merge(PipelineStep):
    """Joins the parts of all tasks to the corpus `out`, unless a task that was killed afterwards has done so."""

    type, name = "💽 - WRITER", "Merge"

    def __init__(self, out: str) -> None:
        super().__init__()
        self.out = out

    def run(self, data: None = None, rank: int = 0, world_size: int = 1) -> None:
        with self.track_time("task"):
            if not (absolute(self.out) / MANIFEST).is_file():
                corpus.merge(self.out)


def _file(rank: int) -> str:
    return f"{rank:05d}.jsonl.gz"
