"""A tiny trunk and rows that a word decides, for tests of what is built on fine-tuning."""

from __future__ import annotations

import signal

import numpy as np

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.bert import Bert

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "dull"]
FILLER = ["the", "film", "was", "and", "it", "had", "a", "plot", "of", "some", "kind", "in", "which", "people", "talk"]
SIZE = {"layers": 1, "dim": 32, "heads": 2, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0, "std": 0.1}


def write_trunk(folder, length=32):
    tokenizer = Tokenizer.train([" ".join([*GOOD, *BAD, *FILLER])] * 5, 200)
    huggingface.save(folder, Bert(vocabulary=tokenizer.size, length=length, **SIZE).build(), tokenizer)
    return folder


def reviews(n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        words = list(rng.choice(FILLER, rng.integers(3, 9)))
        words.insert(int(rng.integers(len(words))), str(rng.choice(GOOD if i % 2 else BAD)))
        rows.append((f"{' '.join(words)} n{seed}x{i}", str(i % 2)))
    return rows


def write_tsv(path, rows, head=("sentence", "label")):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join("\t".join(row) for row in [head, *rows]) + "\n", encoding="utf-8")
    return path


def write_sets(folder):
    for name, n, seed in (("train", 64, 1), ("dev", 24, 2), ("test", 24, 3)):
        write_tsv(folder / f"{name}.tsv", reviews(n, seed))
    return folder


def fields(trunk, files):
    """What makes a run of a second."""
    values = {"model": trunk, "train": files / "train.tsv", "dev": files / "dev.tsv", "lr": 3e-3, "epochs": 4}
    return {**values, "least_steps": 1, "batch_size": 16, "precision": "fp32", "device": "cpu"}


def arguments(trunk, files, **more):
    """The same, as the command line takes them."""
    return [part for name, value in {**fields(trunk, files), **more}.items() for part in (f"--{name}", str(value))]


class Spy:
    """A display that remembers."""

    def __init__(self):
        self.notes = []

    def start(self, step, total): ...
    def show(self, row): ...
    def close(self): ...

    def note(self, text):
        self.notes.append(text)


class Stopper(Spy):
    """A display at which someone ends the process, once, while the run of a note is under way."""

    def __init__(self, during=""):
        super().__init__()
        self.during, self.done = during, False

    def show(self, row):
        if not self.done and self.during in self.notes[-1]:
            self.done = True
            signal.raise_signal(signal.SIGTERM)
