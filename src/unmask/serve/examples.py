"""Examples: items that fit one model, for a page that has something to show before anybody types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.text.corpus import Corpus
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.serve.opened import Opened
from unmask.tasks import dev_rows
from unmask.visualize.numbers import Data
from unmask.visualize.words import Vectors

MOST = 4
SHORT = 25  # characters of an input, below which it is the last choice
SEARCHED = 200
WORDS = 24  # most words of a text of a corpus
KNOWN = 0.75  # share of the words of a general sentence that are one token, from which on it fits a vocabulary
GENERAL = (
    "The animal didn't cross the street because it was too tired.",
    "The chef cooked the meal and served it to the guests.",
    "He sat on the bank of the river.",
    "The bank raised its interest rates.",
)
SUM = "king - man + woman"


def examples(opened: Opened, *, data: bool = True) -> Data:
    """{"items": at most MOST objects such as {"text"} or {"question", "context"}, "source": where they are from,
    "english": whether general English sentences fit the vocabulary}.

    They are dev rows of the run of the folder (long ones with a right answer first), or its samples, or held-out text
    of its corpus, or general sentences whose words the vocabulary knows. Without any of these, there are no items.

    data  whether to show data of the training; without, only the general sentences
    """
    if opened.vectors is not None:
        return {"items": _of_vectors(opened.vectors), "source": "its vocabulary", "english": False}
    of_training = {
        "dev rows of its run": _of_dev_rows(opened.folder),
        "samples of its run": _of_samples(opened.folder),
        "held-out text of its corpus": _of_corpus(opened.folder),
    }
    general = [*_general(opened)]
    english = bool(general)
    for source, items in ((of_training if data else {}) | {"general sentences": general}).items():
        if found := [*islice(items, MOST)]:
            return {"items": found, "source": source, "english": english}
    return {"items": [], "source": "", "english": english}


def _of_dev_rows(folder: Path) -> Iterator[Data]:
    rows, seen = [row for row in dev_rows.read(folder) if _named(row.get("input"))], set[str]()
    for row in sorted(rows, key=lambda row: (len(str(row["input"])) < SHORT, _is_wrong(row))):
        if str(row["input"]) in seen:
            continue
        seen.add(str(row["input"]))
        yield _named(row["input"]) | {"expected": row["expected"]} if "expected" in row else _named(row["input"])


def _is_wrong(row: Data) -> bool:
    error = row.get("error", 0)
    return isinstance(error, int | float) and error > 0


def texts_of(opened: Opened, *, data: bool = True) -> list[str]:
    """Texts to search: those of the dev rows, held-out sentences of the corpus, and the general sentences, SEARCHED at
    most of each; only the last without `data` of the training."""
    if not data:
        return [*GENERAL]
    rows = (_named(row.get("input")) for row in dev_rows.read(opened.folder))
    found = [row["text"] for row in islice(rows, SEARCHED) if isinstance(row.get("text"), str)]
    return [*found, *(one["text"] for one in islice(_of_corpus(opened.folder), SEARCHED)), *GENERAL]


def _named(item: Any) -> Data:
    """An input of a request as an object; an empty one for a damaged input."""
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, list):
        return dict(zip(("text", "pair"), item, strict=False))
    if not isinstance(item, Mapping):
        return {}
    words = item.get("words")
    return {"text": " ".join(map(str, words))} if isinstance(words, list) else dict(item)


def _of_samples(folder: Path) -> Iterator[Data]:
    """The texts of the last line of samples.jsonl."""
    path = folder / "samples.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n") if path.is_file() else [""]
    try:
        samples = json.loads(lines[-1])["samples"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    for one in samples if isinstance(samples, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("text"), str) and not one.get("pictures"):
            yield {"text": one["text"]}


def _of_corpus(folder: Path) -> Iterator[Data]:
    """The first sentences of held-out documents. Checksums are not compared: reading the whole corpus takes long."""
    path = folder / "run.json"
    try:
        named = read_json(path).get("corpora") if path.is_file() else None
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            return
        corpus = Corpus(Path(named[0]), verify=False)
        documents, tokenizer = corpus.split("heldout"), corpus.tokenizer
    except UnmaskError:  # the corpus is gone, or holds no text
        return
    for document in documents:
        text = " ".join(tokenizer.decode(document.sentences[0]).split()[:WORDS])
        if len(text.split()) > 3:
            yield {"text": text}


def _general(opened: Opened) -> Iterator[Data]:
    if opened.reads_texts:
        yield from ({"text": text} for text in GENERAL if knows(opened.vocabulary, text))


def knows(tokenizer: Tokenizer, text: str) -> bool:
    """Whether at least KNOWN of the words of a text are one known token."""
    words = [word for word in text.split() if word.isalpha()]
    ids = tokenizer.ids(words)
    return sum(len(one) == 1 and one[0] != tokenizer.unknown for one in ids) >= KNOWN * len(words)


def _of_vectors(vectors: Vectors) -> list[Data]:
    words = [word for word in SUM.split() if word.isalpha()]
    if all(word in vectors.index for word in words):
        return [{"text": SUM}]
    return [{"text": word} for word in vectors.words if word.isalpha()][:MOST]
