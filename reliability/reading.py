"""The readers of files from others: a reader for each kind of file, and a valid file for it."""

from __future__ import annotations

import gzip
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from unmask.huggingface.table import as_heads

ROWS = b'text,label\nhello there,1\nnot so good,0\n"a, b",1\n'
SQUAD = b"""{"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "The river is long.", "qas": [
{"id": "1", "question": "What is long?", "answers": [{"text": "The river", "answer_start": 0}]}]}]}]}"""


@dataclass(frozen=True)
class Reader:
    """A reader for a kind of file, and a valid file of that kind."""

    read: Callable[[Path], Any]
    sample: bytes = b""
    name: str = ""

    def __call__(self, path: Path) -> Any:
        return self.read(path)

    def warm(self) -> None:
        """Read a valid file, so that later measurements do not include imports."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.name
            if self.sample:
                path.write_bytes(self.sample)
            else:
                write_model(path)
            self.read(path)


def write_model(folder: Path) -> Path:
    """Write a tiny BERT with a head for classification, and its tokenizer."""
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.models.bert import Bert

    tokenizer = Tokenizer.train(["the river is long and the film was good"] * 5, 60)
    config = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=16)
    huggingface.save(folder, config.build(as_heads({"classification": 2})), tokenizer, labels=["bad", "good"])
    return folder


def _model(folder: Path) -> Any:
    from unmask.serve.predictor import Predictor

    return Predictor(folder)("the river")


def _table(path: Path) -> Any:
    from unmask.data.labelled import dataset

    return dataset.read(path)


def _text(path: Path) -> Any:
    from unmask.data.text import reading as text

    return sum(len(document.text) for document in text.documents([path]))


def _questions(path: Path) -> Any:
    from unmask.data.labelled import squad

    return squad.read(path)


def _vectors(path: Path) -> Any:
    from unmask.runs.word_vectors import formats

    return formats.read(path)


def _choices(path: Path) -> Any:
    from unmask.data.labelled import choices

    return choices.read(path)


def _pairs(path: Path) -> Any:
    from unmask.data.labelled import pairs

    return pairs.read(path)


def _roles(path: Path) -> Any:
    from unmask.data.labelled.roles import read_roles

    return read_roles(path)


def _bitext(path: Path) -> Any:
    from unmask.data.bitext import reading as bitext

    return bitext.read(path)


def _minimal_pairs(path: Path) -> Any:
    from unmask.runs import minimal_pairs

    return minimal_pairs.read([path])


def _trec(path: Path) -> Any:
    from unmask.data.labelled import glue

    return glue.split("TREC-6", path.parent, "train")


def _lists(path: Path) -> Any:
    from unmask.runs.word_vectors import reading

    return list(reading.read([path]))


def _edges(path: Path) -> Any:
    from unmask.runs.word_vectors import walks

    return walks.edges(path)


def _metrics(path: Path) -> Any:
    from unmask.train import metrics

    return metrics.read(path)


def _words(path: Path) -> Any:
    from unmask.data.text.tokenizer import Tokenizer

    return Tokenizer.load(path.parent).encode("a river").ids


LIST = b"""{"id": "1", "question": {"stem": "What is wet?", "choices": [{"text": "rain", "label": "A"},
{"text": "fire", "label": "B"}]}, "answerKey": "A"}
""".replace(b",\n", b", ")

READERS: dict[str, Reader] = {
    "model": Reader(_model, name="model"),
    "table.csv": Reader(_table, ROWS, "table.csv"),
    "table.tsv": Reader(_table, b"text\tlabel\nhello there\t1\nnot so good\t0\n", "table.tsv"),
    "table.jsonl": Reader(_table, b'{"text": "a b", "label": "x"}\n{"text": "c", "label": "y"}\n', "table.jsonl"),
    "table.json": Reader(_table, b'[{"text": "a b", "label": "x"}, {"text": "c", "label": "y"}]', "table.json"),
    "words.conll": Reader(_table, b"EU B-ORG\nrejects O\n\nPeter B-PER\nBlack I-PER\n", "words.conll"),
    "text.txt": Reader(_text, "Some text. With é.\n\nAnd more of it.\n".encode(), "text.txt"),
    "squad.json": Reader(_questions, SQUAD, "squad.json"),
    "choices.jsonl": Reader(_choices, LIST, "choices.jsonl"),
    "pairs.tsv": Reader(_pairs, b"sentence1\tsentence2\tscore\nA b.\tB a.\t4.5\nC.\tD.\t1\n", "pairs.tsv"),
    "roles.txt": Reader(_roles, b"The - B-A0\nriver - I-A0\nruns V B-V\n", "roles.txt"),
    "bitext.tsv": Reader(_bitext, b"the river\tder Fluss\na film\tein Film\n", "bitext.tsv"),
    "bitext.jsonl": Reader(_bitext, b'{"translation": {"en": "the river", "de": "der Fluss"}}\n' * 2, "bitext.jsonl"),
    "blimp.jsonl": Reader(
        _minimal_pairs, b'{"sentence_good": "It is.", "sentence_bad": "It are.", "UID": "a"}\n', "blimp.jsonl"
    ),
    "train_5500.label": Reader(_trec, b"LOC:city What is it ?\nNUM:date When ?\n", "train_5500.label"),
    "lists.jsonl": Reader(_lists, b'["a", "b"]\n[3, 17, 4]\n', "lists.jsonl"),
    "graph.txt": Reader(_edges, b"a b\nb c\n", "graph.txt"),
    "metrics.jsonl": Reader(_metrics, b'{"step": 1, "split": "train", "loss": 1.5}\n', "metrics.jsonl"),
    "vocab.txt": Reader(_words, b"\n".join([b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]", b"river"]), "vocab.txt"),
    "vectors.txt": Reader(_vectors, b"2 3\nriver 0.1 0.2 0.3\nfilm 1 2 -3e-1\n", "vectors.txt"),
}
READERS["text.txt.gz"] = Reader(_text, gzip.compress(READERS["text.txt"].sample, mtime=0), "text.txt.gz")
READERS["vectors.bin"] = Reader(_vectors, b"1 2\nriver " + struct.pack("<2f", 0.5, 1.0) + b"\n", "vectors.bin")
READERS["text.txt.zst"] = Reader(_text, zstandard.compress(READERS["text.txt"].sample), "text.txt.zst")
