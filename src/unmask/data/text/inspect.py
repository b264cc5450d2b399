"""Corpus check: a description of a text before a corpus is built: size, lengths, duplicates, encodings, leakage."""

from __future__ import annotations

import hashlib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unmask.data.text.reading import TextDocument, TextStatistics, losses
from unmask.data.text.sentences import sentences

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
EXPECTED_CONTROLS = "\t\n\r"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in words: the mean, and the QUANTILES from the shortest to the longest."""

    mean: float
    quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Leakage:
    """The overlap of another text with this one, ignoring case and whitespace.

    documents, lines   number of distinct documents, and of lines of at least four words, of the other text
    documents_found    number of these documents that this text has too
    lines_found        number of these lines that this text has too
    """

    documents: int
    documents_found: int
    lines: int
    lines_found: int


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file: its encoding, its documents, and the NUL characters that were removed."""

    encoding: str
    documents: int
    nul: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    bytes                 size of the text in UTF-8
    duplicate_documents   number of copies beyond the first, ignoring case and whitespace; likewise for sentences
    scripts               script -> share of the letters, most frequent first
    controls              name of a suspicious character (control, direction mark, U+FFFD, …) -> number of occurrences
    skipped               file -> reason why it was skipped
    advice                a better way to divide the text into documents; empty if the documents seem plausible
    """

    documents: int
    sentences: int
    words: int
    characters: int
    bytes: int
    document_lengths: Lengths
    sentence_lengths: Lengths
    duplicate_documents: int
    duplicate_sentences: int
    scripts: dict[str, float]
    controls: dict[str, int]
    files: dict[str, FileReport]
    skipped: dict[str, str]
    leakage: Leakage | None
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def check(
    documents: Iterable[TextDocument],
    statistics: TextStatistics | None = None,
    *,
    against: Iterable[TextDocument] | None = None,
) -> Report:
    """Read all documents once and describe them.

    statistics  the object that the reader of the documents fills
    against     another text, such as a test set, whose lines should not occur here; it takes 8 bytes of memory a line

    Memory: 12 bytes a document and a sentence. Duplicates are detected by 64-bit hashes: among a billion sentences,
    about 0.03 are miscounted.
    """
    seen = _Prints(against is not None)
    characters: Counter[str] = Counter()
    document_lengths, sentence_lengths = array("I"), array("I")
    size = 0
    for document in documents:
        split = sentences(document.text)
        seen.add(document.text, split)
        characters.update(document.text)
        size += len(document.text.encode("utf-8", "surrogatepass"))
        sentence_words = [len(sentence.split()) for sentence in split]
        sentence_lengths.extend(sentence_words)
        document_lengths.append(sum(sentence_words))
    facts = statistics or TextStatistics()
    return Report(
        documents=len(document_lengths),
        sentences=len(sentence_lengths),
        words=sum(document_lengths),
        characters=characters.total(),
        bytes=size,
        document_lengths=_lengths(document_lengths),
        sentence_lengths=_lengths(sentence_lengths),
        duplicate_documents=_copies(seen.documents),
        duplicate_sentences=_copies(seen.sentences),
        scripts=_scripts(characters),
        controls=_controls(characters),
        files={name: FileReport(f.encoding, f.documents, f.nul) for name, f in facts.files.items()},
        skipped=dict(facts.skipped),
        leakage=None if against is None else _leakage(seen, against),
        advice=facts.advice(),
    )


def render(report: Report) -> str:
    """The report as plain lines for a terminal."""
    lines = [
        f"documents   {report.documents:,}   sentences {report.sentences:,}   words {report.words:,}",
        f"size        {report.characters:,} characters, {report.bytes:,} bytes",
        f"lengths     words, {' / '.join(_percent(q) for q in QUANTILES)}",
        f"  documents {_row(report.document_lengths)}",
        f"  sentences {_row(report.sentence_lengths)}",
        f"duplicates  {_of(report.duplicate_documents, report.documents, 'documents')}, "
        f"{_of(report.duplicate_sentences, report.sentences, 'sentences')}",
        "scripts     " + (", ".join(f"{name} {share:.1%}" for name, share in report.scripts.items()) or "no letters"),
    ]
    if report.controls:
        found = ", ".join(f"{name} × {count:,}" for name, count in report.controls.items())
        lines.append(f"suspicious  {found}")
    encodings = Counter(file.encoding for file in report.files.values())
    if encodings:
        lines.append(f"encodings   {', '.join(f'{name} × {count:,}' for name, count in encodings.most_common())}")
    lines += [f"  {loss}" for loss in losses({name: file.nul for name, file in report.files.items()}, report.skipped)]
    if report.leakage is not None:
        leak = report.leakage
        lines.append(
            f"leakage     {_of(leak.documents_found, leak.documents, 'documents')} and "
            f"{_of(leak.lines_found, leak.lines, 'lines')} of the other text are found here"
        )
    if report.advice:
        lines.append(report.advice)
    return "\n".join(lines)


class _Prints:
    """64-bit hashes of documents, sentences and, if `with_lines`, lines."""

    def __init__(self, with_lines: bool) -> None:
        self.documents, self.sentences = array("Q"), array("Q")
        self.lines: array[int] | None = array("Q") if with_lines else None

    def add(self, text: str, split: list[str]) -> None:
        self.documents.append(_print(text))
        self.sentences.extend(map(_print, split))
        if self.lines is not None:
            self.lines.extend(_lines(text))


def _leakage(seen: _Prints, against: Iterable[TextDocument]) -> Leakage:
    documents, lines = array("Q"), array("Q")
    for document in against:
        documents.append(_print(document.text))
        lines.extend(_lines(document.text))
    assert seen.lines is not None
    other_documents, other_lines = _unique(documents), _unique(lines)
    return Leakage(
        documents=len(other_documents),
        documents_found=int(np.isin(other_documents, _unique(seen.documents)).sum()),
        lines=len(other_lines),
        lines_found=int(np.isin(other_lines, _unique(seen.lines)).sum()),
    )


def _lines(text: str) -> list[int]:
    """Hashes of the lines that are long enough to be distinctive: at least four words."""
    return [_print(line) for line in text.splitlines() if len(line.split(maxsplit=4)) >= 4]


def _print(text: str) -> int:
    words = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _unique(prints: array[int]) -> np.ndarray:
    return np.unique(np.frombuffer(prints, np.uint64)) if prints else np.empty(0, np.uint64)


def _copies(prints: array[int]) -> int:
    return len(prints) - len(_unique(prints))


def _lengths(lengths: array[int]) -> Lengths:
    if not lengths:
        return Lengths(0.0, (0.0,) * len(QUANTILES))
    values = np.frombuffer(lengths, np.uint32)
    return Lengths(float(values.mean()), tuple(np.quantile(values, QUANTILES).tolist()))


def _scripts(characters: Counter[str]) -> dict[str, float]:
    """Script -> share of the letters. With few exceptions, the first word of a letter's Unicode name is its script."""
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if character.isalpha():
            name = unicodedata.name(character, "OTHER").split()[0].split("-")[0]
            scripts["Han" if name == "CJK" else name.capitalize()] += count
    return {name: count / scripts.total() for name, count in scripts.most_common()}


def _controls(characters: Counter[str]) -> dict[str, int]:
    """Characters that are usually errors: control, format (except joiners), private use, surrogates, and U+FFFD."""
    found: Counter[str] = Counter()
    for character, count in characters.items():
        # Joiners are usual in Indic scripts, Persian and emoji.
        if character in EXPECTED_CONTROLS or character in "\u200c\u200d":
            continue
        if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
            name = unicodedata.name(character, "")
            found[f"U+{ord(character):04X}{f' {name.lower()}' if name else ''}"] += count
    return dict(found.most_common())


def _percent(quantile: float) -> str:
    return {0.0: "shortest", 1.0: "longest"}.get(quantile, f"{quantile:.0%}")


def _row(lengths: Lengths) -> str:
    return f"{' / '.join(f'{q:,.0f}' for q in lengths.quantiles)}   mean {lengths.mean:,.1f}"


def _of(count: int, total: int, what: str) -> str:
    return f"{count:,} of {total:,} {what} ({count / max(total, 1):.1%})"
