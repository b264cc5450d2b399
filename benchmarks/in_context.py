"""In-context learning: the accuracy of a language model by the number of examples in its prompt, without training.

    python benchmarks/in_context.py --model runs/lm --data DATA --out in_context.json

DATA holds the folders sst2, trec and cola. For each task, number of examples (shots) and seed, the model answers the
same test rows; the seed draws the examples of each row from the training rows. Beside it: chance, the most frequent
class of the test rows, and the same model after fine-tuning on some training rows. Results are kept in the file after
each measurement, and a further call continues.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from bench.table import markdown
from unmask.data.labelled import glue
from unmask.files import write_text
from unmask.runs.finetuning import FineTuning, finetune
from unmask.runs.in_context import InContext, evaluate_in_context
from unmask.tasks.reading import read
from unmask.tasks.rows import Rows

SHOTS = (0, 1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Set:
    """A task: its folder and its benchmark, the part with the test rows, the template, and the names of its labels."""

    folder: str
    benchmark: str
    test: str
    template: str
    names: dict[str, str]


TREC = {"ABBR": "short", "DESC": "description", "ENTY": "thing", "HUM": "person", "LOC": "place", "NUM": "number"}
TASKS = {
    "sst2": Set("sst2", "SST-2", "dev", "review: {text}\nfeeling: {answer}", {"0": "bad", "1": "good"}),
    "trec": Set("trec", "TREC-6", "test", "question: {text}\nabout: {answer}", TREC),
    "cola": Set("cola", "CoLA", "dev", "sentence: {text}\nright: {answer}", {"0": "no", "1": "yes"}),
}


def main() -> None:
    options = parse()
    kept = json.loads(options.out.read_text()) if options.out.is_file() else {}
    with tempfile.TemporaryDirectory() as name:
        for task in options.tasks:
            train, test = written(TASKS[task], options, Path(name) / task)
            for key, measure in measurements(task, options, train, test).items():
                if key not in kept:
                    kept[key] = measure()
                    write_text(options.out, json.dumps(kept, indent=2) + "\n")
                    print(f"{key}: {kept[key]}", flush=True)
    print(table(kept, options.tasks))


def measurements(task: str, options: argparse.Namespace, train: Path, test: Path) -> dict[str, Callable[[], float]]:
    """Name -> a function that measures it: the accuracy, in %."""
    one = TASKS[task]

    def prompted(shots: int, seed: int) -> float:
        names = tuple(f"{label}={said}" for label, said in one.names.items())
        how = InContext(shots=shots, template=one.template, names=names, seed=seed)
        found = evaluate_in_context(options.model, test, how, examples=train)
        return round(100 * found["metrics"]["accuracy"], 1)

    def tuned(seed: int) -> float:
        rows = {"train": str(train), "test": str(test), "fit.epochs": 3}  # dev rows are held out of training
        with tempfile.TemporaryDirectory() as out:
            found = finetune(FineTuning(model=options.model, seed=seed, seeds=1).override(rows), Path(out) / "run")
        return round(100 * found.summary["test"]["accuracy"]["mean"], 1)

    def frequent() -> float:
        labels = [row.label for row in read(test, "classification", Rows(), scoring=True).rows]
        return round(100 * max(map(labels.count, set(labels))) / len(labels), 1)

    found: dict[str, Callable[[], float]] = {f"{task} frequent": frequent}
    for shots in SHOTS:
        for seed in range(options.seeds if shots else 1):
            found[f"{task} {shots} {seed}"] = partial(prompted, shots, seed)
    return found | {f"{task} tuned {seed}": partial(tuned, seed) for seed in range(options.seeds)}


def written(task: Set, options: argparse.Namespace, folder: Path) -> list[Path]:
    """Tables of the first rows of a shuffled training and test set."""
    folder.mkdir()
    found = []
    for name, part, most in (("train", "train", options.train), ("test", task.test, options.rows)):
        rows = glue.split(task.benchmark, options.data / task.folder, part).rows
        chosen = np.random.default_rng(0).permutation(len(rows))[:most]
        found.append(folder / f"{name}.tsv")
        with open(found[-1], "w", encoding="utf-8", newline="") as file_:
            table_ = csv.writer(file_, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, escapechar="\\")
            table_.writerows([("text", "label"), *((rows[i].text.strip(), rows[i].label) for i in chosen)])
    return found


def table(kept: dict[str, float], tasks: list[str]) -> str:
    """A row for each task: the mean of the seeds, and their deviation."""
    header = ["task", "chance", "most frequent", *(f"{n} shots" for n in SHOTS), "fine-tuned"]
    rows = []
    for task in tasks:
        cells = [f"{100 / len(TASKS[task].names):.1f}", f"{kept[f'{task} frequent']:.1f}"]
        for name in (*map(str, SHOTS), "tuned"):
            values = [value for key, value in kept.items() if key.startswith(f"{task} {name} ")]
            cells.append(f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else ""))
        rows.append([task, *cells])
    return markdown([header, *rows])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="a language model")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the folders of the tasks")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="results; a further call continues")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--rows", type=int, default=200, metavar="N", help="test rows of each task")
    parser.add_argument("--train", type=int, default=1_000, metavar="N", help="training rows of each task")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    main()
