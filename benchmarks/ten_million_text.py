"""Ten million words: half of them classic books, half reviews of films; the corpus of them, and the minimal pairs.

    python benchmarks/ten_million_text.py --data DATA --out FOLDER

DATA holds books/, imdb/ and blimp/. FOLDER gets a corpus and blimp/, which `unmask speedrun` reads.
"""

from __future__ import annotations

import argparse
import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path

from bench import common
from bench.common import Result
from unmask.errors import UnmaskError

WORDS = 10_200_000  # of which about 10 million are left to learn from
VOCABULARY = 8_192
HELDOUT = 0.02  # share of the documents, chosen by the hash of their text


def documents(data: Path, words: int) -> Iterator[tuple[str, str]]:
    """Text and source of chapters, then of reviews, each up to half of this many words.

    Raises UnmaskError where DATA has no such folders.
    """
    yield from _up_to(words // 2, _chapters(data / "books"))
    yield from _up_to(words // 2, _reviews(data / "imdb"))


def _chapters(folder: Path) -> Iterator[tuple[str, str]]:
    """The chapters of the books, which are the text between two headings, in the order of the names of the files."""
    paths = sorted(folder.glob("*.txt.gz"))
    if not paths:
        raise UnmaskError(f"There are no books (*.txt.gz) in {folder}; say with --data where the text is.")
    for path in paths:
        chapter: list[str] = []
        for line in [*_lines(path), "#"]:
            if not line.startswith("#"):
                chapter.append(line)
                continue
            text = "\n".join(chapter).strip(" \n-*_")
            if text:
                yield text, path.name
            chapter = []


def _reviews(folder: Path) -> Iterator[tuple[str, str]]:
    """The training reviews of IMDB, except for those that are also labelled test reviews."""
    test = {_plain(text) for text in _column(folder / "test_part.tsv.gz")}
    for text in _column(folder / "train.tsv.gz"):
        if _plain(text) not in test:
            yield text.replace("<br />", "\n"), "imdb"


def _column(path: Path) -> Iterator[str]:
    """The column `text` of a table without quotes."""
    lines = iter(_lines(path))
    place = next(lines).split("\t").index("text")
    return (line.split("\t")[place] for line in lines)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UnmaskError(f"There is no {path}; say with --data where the text is.")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\r\n") for line in file]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _up_to(words: int, texts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The first texts, until they have this many words."""
    found = 0
    for text, source in texts:
        if found >= words:
            return
        found += len(text.split())
        yield text, source


def corpus(data: Path, folder: Path, words: int, vocabulary: int) -> Result:
    """The corpus of this many words and word pieces, built once and kept in `folder`: its folder, and facts about it.

    Raises UnmaskError where the corpus there is of other text.
    """
    from unmask.data.text.building import Tally, deal
    from unmask.data.text.corpus import Corpus, build
    from unmask.data.text.parts import Seen
    from unmask.data.text.reading import TextDocument

    place = folder / f"corpus-{words}-{vocabulary}"
    texts = [TextDocument(text, source) for text, source in documents(data, words)]
    counts: dict[str, list[int]] = {"train": [], "heldout": []}
    for document, split in deal(Seen(texts, Tally()), HELDOUT):
        counts[split].append(len(document.text.split()))
    kept = (place / "manifest.json").is_file()
    found = Corpus(place) if kept else build(texts, place, vocabulary_size=vocabulary, heldout=HELDOUT)
    if [len(counts[split]) for split in counts] != [found.split(split).documents for split in counts]:
        raise UnmaskError(f"{place} holds a corpus of other text; give another --folder, or delete it.")
    parts = {
        split: {"words": sum(counts[split]), "documents": len(counts[split]), "tokens": found.split(split).tokens}
        for split in counts
    }
    return {
        "folder": str(place),
        "vocabulary": found.tokenizer.size,
        "fingerprint": found.tokenizer.fingerprint,
        **parts,
    }


def pairs(data: Path, folder: Path, paradigms: int | None) -> str:
    """The folder of the minimal pairs, unpacked: all paradigms, or the first ones.

    Raises UnmaskError where they are not in DATA.
    """
    packed, place = data / "blimp" / "blimp.tar.gz", folder / "blimp"
    if not packed.is_file():
        raise UnmaskError(f"There is no {packed}; say with --data where the minimal pairs are.")
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed) as archive:
        found = [member for member in archive if member.isfile() and member.name.endswith(".jsonl")]
        for member in found[:paradigms]:
            file = archive.extractfile(member)
            assert file is not None
            (place / Path(member.name).name).write_bytes(file.read())
    return str(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with books/, imdb/ and blimp/")
    parser.add_argument("--out", required=True, type=Path, help="folder of the corpus and the minimal pairs")
    parser.add_argument("--words", type=int, default=WORDS, help="of text (default: %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="word pieces (default: %(default)s)")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise UnmaskError(f"There is no folder {options.data}; say with --data where the text is.")
    built = corpus(options.data, options.out, options.words, options.vocabulary)
    print(f"--corpus {built['folder']} --minimal-pairs {pairs(options.data, options.out, None)}")


if __name__ == "__main__":
    common.command(main)
