"""WordNet: the senses of a word as sets of synonyms, and what is above them. The discrete counterpart of word vectors.

Two formats are read: the database files of Princeton (index.noun, data.noun, ...; manual page wndb(5WN)), which Open
English WordNet has too, and JSON lines of Open English WordNet (entries.jsonl, synsets.jsonl, or .gz of both).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError

PARTS_OF_SPEECH = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}  # s: an adjective near another one
ABOVE = ("@", "@i")  # pointers to hypernyms: of a kind, and of an instance
_MARKER = re.compile(r"\((a|p|ip)\)$")  # where an adjective may stand


@dataclass(frozen=True)
class Synset:
    """A set of synonyms.

    part       part of speech: n, v, a, r; s for an adjective that is near another one
    words      the synonyms, the usual one first
    definition
    hypernyms  identifiers of the more general synsets
    """

    part: str
    words: tuple[str, ...]
    definition: str
    hypernyms: tuple[str, ...]


class Lexicon(Protocol):
    """Synsets by word and by identifier."""

    def senses(self, word: str) -> list[Synset]:
        """The synsets of a word, for each part of speech the usual one first."""

    def synset(self, name: str) -> Synset:
        """The synset of an identifier."""


def read(folder: str | Path) -> Lexicon:
    """The lexicon in a folder. Raises UnmaskError if the folder has neither format."""
    folder = Path(folder)
    for ending in ("", ".gz"):
        if (folder / f"synsets.jsonl{ending}").is_file() and (folder / f"entries.jsonl{ending}").is_file():
            return JsonLines(folder / f"entries.jsonl{ending}", folder / f"synsets.jsonl{ending}")
    if (folder / "index.noun").is_file() and (folder / "data.noun").is_file():
        return Princeton(folder)
    raise UnmaskError(
        f"{folder} holds no WordNet: give a folder with index.noun and data.noun (and verb, adj, adv), or with "
        "entries.jsonl and synsets.jsonl."
    )


def senses(lexicon: Lexicon, word: str) -> list[Synset]:
    """The synsets of a word. Raises UnmaskError if it has none."""
    found = lexicon.senses(word)
    if not found:
        raise UnmaskError(f"'{word}' is not in this WordNet; it holds base forms, such as 'go' for 'went'.")
    return found


def above(lexicon: Lexicon, synset: Synset) -> Iterator[Synset]:
    """The first hypernym, its first hypernym, and so on to the top. Raises UnmaskError if they form a circle."""
    seen = set()
    while synset.hypernyms:
        name = synset.hypernyms[0]
        if name in seen:
            raise UnmaskError(f"The hypernyms of this WordNet form a circle at {name}.")
        seen.add(name)
        synset = lexicon.synset(name)
        yield synset


class Princeton:
    """The database files of a folder: a line of an index has the byte offsets of the synsets of a word."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def senses(self, word: str) -> list[Synset]:
        """As in `Lexicon`. Raises UnmaskError for damaged files."""
        wanted = word.lower().replace(" ", "_")
        found = []
        for part in ("n", "v", "a", "r"):
            path = self.folder / f"index.{PARTS_OF_SPEECH[part]}"
            for number, line in lines(path) if path.is_file() else ():
                fields = line.split()
                if fields and fields[0] == wanted and not line.startswith(" "):
                    with _sound(path, number):
                        found += [self.synset(offset + part) for offset in fields[-int(fields[2]) :]]
        return found

    def synset(self, name: str) -> Synset:
        """The synset of an offset and a part of speech, 02512053n. Raises UnmaskError for damaged files."""
        path = self.folder / f"data.{PARTS_OF_SPEECH.get(name[-1:])}"
        with _sound(path, name), open(path, "rb") as file:
            file.seek(int(name[:-1]))
            left, _, gloss = file.readline().decode("utf-8").partition("|")
            offset, _, part, count, *fields = left.split()
            if offset != name[:-1]:
                raise ValueError(offset)
            end = 2 * int(count, 16)
            pointers = fields[end + 1 : end + 1 + 4 * int(fields[end])]
            words = tuple(_MARKER.sub("", word).replace("_", " ") for word in fields[:end:2])
            four = zip(pointers[0::4], pointers[1::4], pointers[2::4], strict=False)
            hypernyms = tuple(at + of for symbol, at, of in four if symbol in ABOVE)
            return Synset(part, words, gloss.split('; "')[0].strip(), hypernyms)


class JsonLines:
    """The entries and the synsets of two files, which are read whole when they are first asked for."""

    def __init__(self, entries: Path, synsets: Path) -> None:
        self.entries, self.synsets = entries, synsets

    def senses(self, word: str) -> list[Synset]:
        """As in `Lexicon`. Raises UnmaskError for damaged files."""
        return [self.synset(name) for name in self.names.get(word.lower(), ())]

    def synset(self, name: str) -> Synset:
        """The synset of an identifier, 02512053-n. Raises UnmaskError for damaged files."""
        with _sound(self.synsets, name):
            of = self.facts[name]
            definitions, hypernyms = of["definition"], of.get("hypernym", ())
            return Synset(of["partOfSpeech"], tuple(of["members"]), definitions[0], tuple(hypernyms))

    @cached_property
    def names(self) -> Mapping[str, list[str]]:
        """The identifiers of the synsets of each word, in lower case; nouns, verbs, adjectives, adverbs."""
        found: dict[str, list[tuple[int, str]]] = {}
        for number, entry in _objects(self.entries):
            with _sound(self.entries, number):
                place = "nvasr".index(entry["pos"][0])
                found.setdefault(entry["lemma"].lower(), []).extend((place, s["synset"]) for s in entry["sense"])
        return {word: [name for _, name in sorted(of, key=lambda one: one[0])] for word, of in found.items()}

    @cached_property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """The fields of each synset, by its identifier."""
        return {str(synset.get("id")): synset for _, synset in _objects(self.synsets)}


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines(path):
        with _sound(path, number):
            found = json.loads(line)
            found.keys()  # an object
        yield number, found


@contextmanager
def _sound(path: Path, place: object) -> Iterator[None]:
    """Raises UnmaskError in place of the errors that damaged files lead to."""
    try:
        yield
    except UnmaskError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError, RecursionError):
        raise UnmaskError(f"{path} is damaged at {place}: it is not in the format of WordNet.") from None
