"""The tasks of `tasks.py`: the files of their rows, the number of rows, and one plain format that both sides read.

Every set becomes JSON lines of one of four forms: {text, pair, label}, {words, tags}, {id, question, context,
answers} and {text, question, choices, label}.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.files import atomic

Record = dict[str, Any]
Opened = Callable[[str], list[str]]
"""Lines of a file of the task's folder, which may be packed (.gz), by its name without .gz."""


class Missing(Exception):
    """A file that is not there."""


@dataclass(frozen=True)
class Task:
    """A row of the table.

    folder     of DATA
    kind       classification, regression, tagging, question-answering or multiple-choice
    metric     the score in the table; the others are in the JSON
    rows, dev  how many training and dev rows are used unless --full is given, evenly spaced; None: all
    read       the records of "train" or "dev"
    length     longest sequence, in tokens
    first      take the first rows in place of evenly spaced ones
    note       a note below the table
    """

    folder: str
    kind: str
    metric: str
    read: Callable[[Opened, str], list[Record]]
    rows: int | None = None
    dev: int | None = None
    length: int = 128
    first: bool = False
    note: str = ""


@dataclass(frozen=True)
class Prepared:
    """Files of a task as both sides read them, with the numbers of rows that are used and that exist."""

    files: dict[str, str]
    used: dict[str, int]
    there: dict[str, int]
    constant: Any


def prepare(name: str, data: Path, folder: Path, *, limits: tuple[int | None, int | None]) -> Prepared:
    """Write the rows of a task as JSON lines. Raises Missing where DATA has not all of its files.

    limits  the greatest number of training and dev rows, which come from `caps`
    """
    task = TASKS[name]
    files: dict[str, str] = {}
    used: dict[str, int] = {}
    there: dict[str, int] = {}
    kept: dict[str, list[Record]] = {}
    for split, limit in zip(("train", "dev"), limits, strict=True):
        rows = task.read(_opener(data / task.folder), split)
        kept[split] = rows[:limit] if task.first and split == "train" else spaced(rows, limit)
        there[split], used[split] = len(rows), len(kept[split])
        path = folder / f"{name}.{split}.jsonl"
        with atomic(path) as temporary:  # another process may read the same rows
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in kept[split])
            temporary.write_text("".join(lines), encoding="utf-8")
        files[split] = str(path)
    return Prepared(files, used, there, constant(task.kind, kept["train"]))


def caps(name: str, *, full: bool, quick: bool) -> tuple[int | None, int | None]:
    """The greatest number of training and dev rows."""
    if quick:
        return 300, 100
    return (None, None) if full else (TASKS[name].rows, TASKS[name].dev)


def spaced(rows: list[Record], limit: int | None) -> list[Record]:
    """`limit` rows at even distances: files are often in the order of their sources."""
    if limit is None or limit >= len(rows):
        return rows
    return [rows[i * len(rows) // limit] for i in range(limit)]


def constant(kind: str, train: Sequence[Record]) -> Any:
    """The answer that a baseline gives to every row: the most frequent one of the training rows."""
    if kind == "question-answering":
        return ""
    if kind == "regression":
        return sum(float(row["label"]) for row in train) / len(train)
    found = (tag for row in train for tag in row["tags"]) if kind == "tagging" else (row["label"] for row in train)
    return Counter(found).most_common(1)[0][0]


def records(path: str) -> list[Record]:
    """The rows of a file that `prepare` wrote."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line]


def _opener(folder: Path) -> Opened:
    def opened(name: str) -> list[str]:
        path = next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)
        if path is None:
            raise Missing(f"there is no {name}.gz in {folder}")
        unpack = gzip.open if path.suffix == ".gz" else open
        with unpack(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            return [line.rstrip("\r\n") for line in file]

    return opened


# ------------------------------------------------------------------------------------------------ texts


def table(
    train: str, dev: str, *columns: str, label: str, halves: int | None = None
) -> Callable[[Opened, str], list[Record]]:
    """Reader of TSV files with a header and without quotes.

    columns  of the text, and of the second one where there is one
    halves   for train and dev in one file: the number of its first rows that are for training; the others are for dev
    """

    def read(opened: Opened, split: str) -> list[Record]:
        header, *lines = (line.split("\t") for line in opened(train if split == "train" else dev))
        at = [header.index(column) for column in (*columns, label)]
        rows = [[line[i] for i in at] for line in lines if len(line) > max(at)]
        if halves is not None:
            rows = rows[:halves] if split == "train" else rows[halves:]
        # A row with an empty text or a label that the annotators did not agree on cannot be learned from.
        return [_text(*row) for row in rows if all(value.strip() for value in row) and row[-1] != "-"]

    return read


def _text(text: str, *rest: str) -> Record:
    *pair, label = rest
    return {"text": text, **({"pair": pair[0]} if pair else {}), "label": label}


def cola(opened: Opened, split: str) -> list[Record]:
    """Columns source, label, mark, sentence; the dev rows of GLUE are both dev files."""
    names = ["in_domain_train.tsv"] if split == "train" else ["in_domain_dev.tsv", "out_of_domain_dev.tsv"]
    rows = [line.split("\t") for name in names for line in opened(name)]
    return [{"text": row[3], "label": row[1]} for row in rows if len(row) == 4]


# ------------------------------------------------------------------------------------------------ tagged words


def words(train: str, dev: str, *, word: int, tag: int, halves: int | None = None) -> Callable[[Opened, str], Any]:
    """Reader of one word a line, in CoNLL columns counted from 0. Tags of spans become IOB2."""

    def read(opened: Opened, split: str) -> list[Record]:
        lines = opened(train if split == "train" else dev)
        found = [
            {"words": [line[word] for line in block], "tags": begun([line[tag] for line in block])}
            for block in _blocks(lines)
        ]
        return found if halves is None else found[:halves] if split == "train" else found[halves:]

    return read


def _blocks(lines: Sequence[str]) -> Iterator[list[list[str]]]:
    """The columns of the words of each sentence."""
    block: list[list[str]] = []
    tabs = sum("\t" in line for line in lines) * 2 > sum(bool(line) for line in lines)
    for line in [*lines, ""]:
        columns = line.split("\t") if tabs else line.split()
        if not line:
            if block:
                yield block
            block = []
        elif line.startswith("-DOCSTART-") or not columns[0].strip():
            continue  # KLUE has lines of blanks, which are between words
        elif tabs and line.startswith(("# ", "## ")):
            continue  # comments; where blanks part the columns, # is a word
        elif len(columns) == 10 and not columns[0].isdigit():
            continue  # in CoNLL-U, contractions and words that were left out
        else:
            block.append(columns)


def begun(tags: Sequence[str]) -> list[str]:
    """IOB1 as IOB2, where every span begins with B-; other tags as they are."""
    found = []
    for before, tag in zip(["O", *tags[:-1]], tags, strict=True):
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        found.append(f"B-{tag[2:]}" if begins else tag)
    return found


# ------------------------------------------------------------------------------------------------ questions, choices


def squad(*names: str) -> Callable[[Opened, str], list[Record]]:
    """Reader of SQuAD files called {name}, with {split} in the name, one after the other."""

    def read(opened: Opened, split: str) -> list[Record]:
        chosen = [name.format(split=split) for name in names if split == "train" or "{split}" in name]
        files = [json.loads("\n".join(opened(name))) for name in chosen]
        return [
            _question(f"{i}-{qa['id']}", qa, paragraph["context"])
            for i, file in enumerate(files)
            for article in file["data"]
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]

    return read


def _question(name: str, qa: Record, context: str) -> Record:
    answers = [] if qa.get("is_impossible") else qa["answers"]
    places = {"text": [a["text"] for a in answers], "answer_start": [a["answer_start"] for a in answers]}
    return {"id": name, "question": qa["question"], "context": context, "answers": places}


def arc(opened: Opened, split: str) -> list[Record]:
    """Easy and challenge; rows whose key is none of the four choices are left out."""
    names = ["easy_train.csv", "challenge_train.csv"] if split == "train" else ["easy_dev.csv"]
    rows = [row for name in names for row in csv.reader(opened(name))]
    keys = {key: i for letters in ("ABCD", "1234") for i, key in enumerate(letters)}
    sound = [row for row in rows if len(row) == 6 and all(field.strip() for field in row) and row[5] in keys]
    return [{"text": row[0], "choices": row[1:5], "label": keys[row[5]]} for row in sound]


def dream(opened: Opened, split: str) -> list[Record]:
    """Questions on dialogues, whose turns are joined."""
    items = json.loads("\n".join(opened(f"{split}.json")))
    return [
        {
            "text": " ".join(turns),
            "question": asked["question"],
            "choices": asked["choice"],
            "label": asked["choice"].index(asked["answer"]),
        }
        for turns, questions, _ in items
        for asked in questions
    ]


ENGLISH = "the checkpoint knows English only"
SHIFTS = tuple(f"{domain}_{{split}}.json" for domain in ("new_wiki", "reddit", "amazon_reviews"))
TSV = ("train.tsv", "dev.tsv")
PARTS = ("train_part.tsv", "dev_part.tsv")
KLUE, XNLI = "klue-ner-v1.1_dev.tsv", "xnli.test.ko.tsv"

TASKS = {
    "sst2": Task("sst2", "classification", "accuracy", table(*TSV, "sentence", label="label"), rows=2_500, first=True),
    "cola": Task("cola", "classification", "matthews", cola, rows=3_500),
    "mrpc": Task("mrpc", "classification", "f1", table(*TSV, "#1 String", "#2 String", label="Quality"), rows=1_500),
    "stsb": Task(
        "stsb",
        "regression",
        "spearman",
        table(*TSV, "sentence1", "sentence2", label="score"),
        rows=1_200,
        dev=700,
    ),
    "rte": Task("rte", "classification", "accuracy", table(*TSV, "sentence1", "sentence2", label="label"), rows=800),
    "qqp": Task(
        "qqp",
        "classification",
        "f1",
        table("train_10k.tsv", "dev_5k.tsv", "question1", "question2", label="is_duplicate"),
        rows=1_500,
        dev=700,
        note="a balanced part: 9,917 training rows in all",
    ),
    "qnli": Task(
        "qnli",
        "classification",
        "accuracy",
        table(*PARTS, "question", "sentence", label="label"),
        rows=1_000,
        note="a part: 3,821 training rows in all",
    ),
    "mnli": Task(
        "mnli",
        "classification",
        "accuracy",
        table(*PARTS, "premise", "hypothesis", label="gold_label"),
        rows=1_200,
        dev=700,
        note="a part: 6,865 training rows in all",
    ),
    "squadshifts": Task(
        "squadshifts",
        "question-answering",
        "f1",
        squad(*SHIFTS),
        rows=150,
        dev=80,
        length=384,
        note="three domains merged",
    ),
    "squad2": Task(
        "squad2",
        "question-answering",
        "f1",
        squad("{split}_part.json", "train_part2.json"),
        rows=150,
        dev=80,
        length=384,
        note="a part: 4,807 training questions in all; half of them have no answer",
    ),
    "conll2003": Task(
        "conll2003", "tagging", "f1", words("eng.train", "eng.testa", word=0, tag=3), rows=2_000, dev=1_000
    ),
    "conll2000": Task(
        "conll2000", "tagging", "f1", words("train.txt", "test.txt", word=0, tag=2), rows=2_000, dev=1_000
    ),
    "ewt": Task(
        "ud-english-ewt",
        "tagging",
        "accuracy",
        words("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", word=1, tag=3),
        rows=1_500,
        dev=700,
    ),
    "arc": Task(
        "arc",
        "multiple-choice",
        "accuracy",
        arc,
        rows=500,
        dev=400,
        note="easy and challenge, dev of easy; without 133 + 22 rows that have not four choices and a sound key",
    ),
    "dream": Task("dream", "multiple-choice", "accuracy", dream, rows=100, dev=80, length=256),
    "kornli": Task(
        "kornli",
        "classification",
        "accuracy",
        table(XNLI, XNLI, "sentence1", "sentence2", label="gold_label", halves=3_999),
        rows=600,
        dev=400,
        note=ENGLISH,
    ),
    "korsts": Task(
        "korsts",
        "regression",
        "spearman",
        table("sts-train.tsv", "sts-dev.tsv", "sentence1", "sentence2", label="score"),
        rows=600,
        dev=400,
        note=ENGLISH,
    ),
    "klue-ner": Task(
        "klue",
        "tagging",
        "f1",
        words(KLUE, KLUE, word=0, tag=1, halves=4_000),
        rows=800,
        dev=400,
        note=f"a tag for every character; {ENGLISH}",
    ),
}
