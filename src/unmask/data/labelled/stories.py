"""Stories of two people and a thing, with clusters of mentions, for a first run of coreference: made up from sentences
with places for names and pronouns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unmask import files
from unmask.data.labelled.rows import Discourse

NAMES = {
    "F": ["Anna", "Clara", "Eva", "Ida", "Nora", "Ruth", "Maria", "Helen", "Lucy", "Jane"],
    "M": ["Paul", "Karl", "Otto", "Tom", "David", "Peter", "Henry", "Frank", "Simon", "Mark"],
    "T": ("a book", "a letter", "an old map", "a red box", "a bicycle", "a clock"),
    "P": ["Rome", "Paris", "Vienna", "Lisbon", "Oslo", "Prague"],
}
BEGINNINGS = ("F met M in P .", "M wrote to F .", "F saw M at the station in P .", "M is a friend of F .")
LATER = (
    "F:She gave M:him T . M:He liked T:it .",
    "M:He told F:her about T . F:She wanted T:it .",
    "F:She lost F:her keys .",
    "M:He sold M:his house in P .",
    "F called M . M:He was late .",
    "M waited for F , but F:she did not come .",
    '" I:I saw T in P , " I:she said . F found T:it there .'.replace("I:", "F:"),
)
SHARE = 10  # one story of so many is for evaluation


def stories(number: int, seed: int = 0) -> list[Discourse]:
    """Stories of two to four sentences or so. Equal seeds give equal stories."""
    rng = np.random.default_rng(seed)
    return [_story(rng, f"story {i}") for i in range(number)]


def _story(rng: np.random.Generator, place: str) -> Discourse:
    of = {kind: str(rng.choice(names)) for kind, names in NAMES.items()}
    chosen = [str(rng.choice(BEGINNINGS)), *rng.choice(LATER, rng.integers(1, 4), replace=False).tolist()]
    words: list[str] = []
    starts: list[int] = []
    found: dict[str, list[tuple[int, int]]] = {}
    for sentence in " ".join(chosen).split(" . "):
        starts.append(len(words))
        for part in [*sentence.removesuffix(" .").split(), "."]:
            kind, _, pronoun = part.partition(":")
            own = (pronoun or of.get(kind, kind)).split()
            if kind in of:
                found.setdefault(kind, []).append((len(words), len(words) + len(own)))
            words += own
    clusters = tuple(tuple(spans) for spans in found.values())
    return Discourse(" ".join(words), words=tuple(words), place=place, starts=tuple(starts), clusters=clusters)


def columns(rows: list[Discourse]) -> str:
    """Documents in the columns that `labelled.coreference.read_documents` reads."""
    return "".join(_columns(row, number) for number, row in enumerate(rows))


def _columns(row: Discourse, number: int) -> str:
    marks: list[list[str]] = [[] for _ in row.words]
    for cluster, spans in enumerate(row.clusters):
        for begin, end in spans:
            if end - begin == 1:
                marks[begin].append(f"({cluster})")
            else:
                marks[begin].append(f"({cluster}")
                marks[end - 1].append(f"{cluster})")
    lines = [f"#begin document (story); part {number:03}"]
    for i, (word, own) in enumerate(zip(row.words, marks, strict=True)):
        start = max(s for s in row.starts if s <= i)
        lines += [""] * (i == start > 0) + [f"story\t{number}\t{i - start}\t{word}\t{'|'.join(own) or '-'}"]
    return "\n".join([*lines, "", "#end document", ""])


def write(folder: Path | str, number: int = 400, seed: int = 0) -> None:
    """Write train.conll and dev.conll into a folder."""
    rows = stories(number, seed)
    held = max(1, number // SHARE)
    for name, part in (("train", rows[held:]), ("dev", rows[:held])):
        files.write_text(Path(folder) / f"{name}.conll", columns(part))
