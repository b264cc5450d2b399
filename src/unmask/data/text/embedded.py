"""The default corpus: the documentation installed with Python and with the packages that `unmask` needs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from unmask.data.text import markup
from unmask.data.text.docstrings import EVERYTHING, PACKAGES, passages
from unmask.data.text.reading import TextDocument


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence as words, and whether its author marked each word as code; `source` as in `documents`."""

    words: tuple[str, ...]
    tags: tuple[bool, ...]
    source: str


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """The installed version of a package, and the size of its text: documents, words and UTF-8 bytes."""

    version: str
    documents: int
    words: int
    bytes: int


def documents(
    exclude: Callable[[str], bool] | None = None, *, packages: Sequence[str] = EVERYTHING
) -> Iterator[TextDocument]:
    """The documentation in a fixed order; a document is a module, class or topic, and its paragraphs are lines.

    A paragraph that repeats an earlier one is dropped. If `exclude(source)` is true, the document is held out: neither
    it nor any of its sentences appears. The part of a source before the colon is the name of the package.
    """
    everything = passages(tuple(packages))
    held = [exclude is not None and exclude(passage.source) for passage in everything]
    held_sentences = {
        _key(sentence)
        for passage, out in zip(everything, held, strict=True)
        if out
        for paragraph in passage.paragraphs
        for sentence in paragraph
    }
    seen: set[str] = set()
    for passage, out in zip(everything, held, strict=True):
        lines = []
        for paragraph in passage.paragraphs if not out else ():
            text = " ".join(markup.plain(s) for s in paragraph if _key(s) not in held_sentences)
            key = _key(text)
            if key and key not in seen:
                seen.add(key)
                lines.append(text)
        if lines:
            yield TextDocument("\n".join(lines), passage.source)


def code_mentions(*, packages: Sequence[str] = EVERYTHING) -> Iterator[TaggedSentence]:
    """Sentences in which the author marked code that looks like a plain word, for the task of finding code words. The
    marks are removed.

    Sentences have 6 to 50 words and punctuation marks, and none is repeated; those with unmarked code are left out.
    """
    seen: set[str] = set()
    for passage in passages(tuple(packages)):
        for sentence in (s for paragraph in passage.paragraphs for s in paragraph):
            tagged = tag(sentence, passage.source)
            key = _key(sentence)
            if tagged is not None and key not in seen:
                seen.add(key)
                yield tagged


def heldout(source: str, fraction: float, salt: str = "") -> bool:
    """Whether a source belongs to a held-out part of about this fraction; a pure function of the arguments."""
    digest = hashlib.sha256(f"{salt}\0{source}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2**64


def facts(*, packages: Sequence[str] = EVERYTHING) -> dict[str, PackageFacts]:
    """Package -> its version and the size of its text; these versions determine the corpus."""
    counts: dict[str, list[int]] = {}
    for document in documents(packages=packages):
        count = counts.setdefault(document.source.partition(":")[0], [0, 0, 0])
        for i, more in enumerate((1, len(document.text.split()), len(document.text.encode()))):
            count[i] += more
    return {package: PackageFacts(version(package), *count) for package, count in counts.items()}


def version(package: str) -> str:
    """The installed version of a package of the corpus."""
    return platform.python_version() if package == "python" else importlib.metadata.version(PACKAGES[package])


_WORD = re.compile(r"['’]s\b|\w+(?:[-'’./]\w+)*|[^\w\s]")
# Signs of code without markup: underscores, calls, dotted or capitalised names, constants, variables, literals, shapes.
_UNMARKED_CODE = re.compile(
    r"\w_|_\w|\w\(|\w\.\w|[a-z][A-Z]|[a-z]Error\b|\b(?:None|True|False)\b|(?<![\w'’-])[b-zB-HJ-Z](?![\w-])|"
    r"(?<!\w)'[^' ]+'|[=<>{}\[\]/*+]|,\)"
)
_CONSTANTS = {"none", "true", "false", "nan", "inf", "self"}
_LONGEST_CODE = 4  # words and punctuation marks; longer code is an expression and not part of prose


def tag(sentence: str, source: str) -> TaggedSentence | None:
    """The tagged words of a marked sentence, or None if its labels would be too easy or unreliable."""
    if markup.OPEN not in sentence or markup.EMPHASIS in sentence:
        return None
    words: list[str] = []
    tags: list[bool] = []
    for i, piece in enumerate(re.split(f"[{markup.OPEN}{markup.CLOSE}]", sentence)):
        is_code = i % 2 == 1
        found = _WORD.findall(piece)
        if len(found) > _LONGEST_CODE if is_code else _UNMARKED_CODE.search(piece):
            return None
        words.extend(found)
        tags.extend([is_code] * len(found))
    if not 6 <= len(words) <= 50 or not any(t and _looks_plain(w) for w, t in zip(words, tags, strict=True)):
        return None
    return TaggedSentence(tuple(words), tuple(tags), source)


def _looks_plain(word: str) -> bool:
    """Whether a word looks like prose, so that only its context shows that it is code."""
    letters = len(word) > 2 and word.isascii() and word.isalpha()
    return letters and word[1:].islower() and word.lower() not in _CONSTANTS


_NOT_ALPHANUMERIC = re.compile(r"[\W_\ue000-\ue003]+")


def _key(sentence: str) -> str:
    """The key by which sentences are compared: their letters and digits, ignoring case, marks and punctuation."""
    return _NOT_ALPHANUMERIC.sub("", sentence).lower()
