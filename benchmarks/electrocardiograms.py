"""Electrocardiograms: the six rows of the table of MINA, atrial fibrillation against the rest, by cross-validation.

    python benchmarks/electrocardiograms.py --data DATA/cinc2017 --out electrocardiograms.json --resume

DATA/cinc2017 holds records of the challenge of 2017 in archives, and the files REFERENCE*.csv of their labels. A seed
shares the records of each class between the folds. Each fold is the test set once; an eighth of the other records are
the dev set, which chooses the best of five evaluations, and the rest are for training. All networks read the training
records equally often, by the recipes of `unmask train`. Scores are by record: the mean over its windows.

The published scores (Hong et al. 2019) are of windows of all 8,528 records, with the positives of the test set cut more
densely, so that they cannot be compared number by number.
"""

from __future__ import annotations

import argparse
import csv
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from bench.table import markdown
from unmask.data.labelled.dataset import Dataset
from unmask.data.signals.reading import SignalRow, labelled
from unmask.errors import UnmaskError
from unmask.kernels.processor import settle

POSITIVE = "A"
PUBLISHED = {
    "expert-lr": "ExpertLR", "expert-rf": "ExpertRF", "cnn-signal": "CNN", "crnn": "CRNN", "acrnn": "ACRNN",
    "mina": "MINA",
}  # fmt: skip
METRICS = ("roc_auc", "pr_auc", "f1")
EVALUATIONS = 5
DEV = 8  # one in eight of the records that are not for the test
FAST = {"most": 60, "passes": 1.0, "folds": 3, "measured": 1}


def unpack(data: Path, out: Path) -> None:
    """Unpack the archives, and write REFERENCE.csv with all labels. Raises UnmaskError if there are none."""
    archives, labels = sorted(data.glob("*.tar.gz")), sorted(data.glob("REFERENCE*.csv"))
    if not archives or not labels:
        raise UnmaskError(f"{data} must have archives (.tar.gz) of records, and REFERENCE.csv; say with --data where.")
    for archive in archives:
        with tarfile.open(archive, "r:gz") as file:
            file.extractall(out, filter="data")
    lines = [line.strip() for path in labels for line in path.read_text("utf-8").splitlines() if line.strip()]
    (out / "REFERENCE.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def folds(labels: Sequence[str], count: int, seed: int = 0) -> np.ndarray:
    """[N]: the fold of each record, with the same share of each class in all."""
    rng, found, dealt = np.random.default_rng(seed), np.empty(len(labels), np.int64), 0
    for label in sorted(set(labels)):
        own = rng.permutation(np.flatnonzero(np.array(labels) == label))
        found[own] = (dealt + np.arange(len(own))) % count
        dealt += len(own)
    return found


def split(fold_N: np.ndarray, fold: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The numbers of the records of each set."""
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(fold_N != fold))
    return {"train": rest[len(rest) // DEV :], "dev": rest[: len(rest) // DEV], "test": np.flatnonzero(fold_N == fold)}


def network(name: str, sets: Mapping[str, Dataset], options: argparse.Namespace, fold: int) -> Mapping[str, float]:
    """The test scores of a network that a recipe trains from new weights."""
    from unmask.runs import supervised_recipes
    from unmask.runs.finetuning import finetune

    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        given: dict[str, Any] = {"minutes": None, "epochs": options.passes, "seed": fold, "positive": POSITIVE}
        given |= {"evaluations": EVALUATIONS / options.passes, "device": "cpu", "precision": options.precision}
        for part, rows in sets.items():
            given[part] = Path(folder) / f"{part}.csv"
            with given[part].open("w", encoding="utf-8", newline="") as file:
                named = [(row.name, row.label) for row in rows if isinstance(row, SignalRow)]
                csv.writer(file).writerows([("record", "label"), *named])
        result = finetune(supervised_recipes.find(name).override(given), Path(folder) / "run")
    return dict(result.seeds[0]["test"])


def measure(records: Dataset, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Measure every cell, fold by fold, and write the results after each."""
    from unmask.tasks.signal_classification import SignalClassification
    from unmask.tasks.signal_references import MODELS, Experts

    experts, fold_N = Experts(), folds([row.label for row in records], options.folds)
    task = SignalClassification(("rest", POSITIVE))

    def expert(name: str, sets: Mapping[str, Dataset]) -> Mapping[str, float]:
        train, test = sets["train"], sets["test"]
        true = {part: np.array([row.label == POSITIVE for row in sets[part]], np.int64) for part in ("train", "test")}
        return task.scores(experts.fitted(name, train, true["train"], 2)(test), true["test"])

    for fold in range(options.folds):
        sets = {part: records.take(numbers.tolist()) for part, numbers in split(fold_N, fold).items()}
        for name in options.models:
            known = any((cell["name"], cell["fold"]) == (name, fold) for cell in facts["cells"])
            if known or (name not in MODELS and fold >= options.measured):
                continue
            began = time.process_time()
            found = expert(name, sets) if name in MODELS else network(name, sets, options, fold)
            cell = {"name": name, "fold": fold, "seconds": time.process_time() - began, "scores": found}
            facts["cells"].append(cell)
            print(name, fold, {metric: round(found[metric], 4) for metric in METRICS}, flush=True)
            if options.out is not None:
                common.write_json(Path(options.out), facts)


def table_of(cells: Sequence[Mapping[str, Any]]) -> str:
    """Mean and standard deviation of each score over the folds, and the seconds of processor time of one."""
    shown = [["model", "published as", "folds", "ROC-AUC", "PR-AUC", "F1", "seconds of a fold"]]
    for name, published in PUBLISHED.items():
        own = [cell for cell in cells if cell["name"] == name]
        if not own:
            continue
        pairs = [common.mean_and_deviation([cell["scores"][metric] for cell in own]) for metric in METRICS]
        scores = [f"{mean:.3f} ± {deviation:.3f}" for mean, deviation in pairs]
        seconds = sum(cell["seconds"] for cell in own) / len(own)
        shown.append([name, published, str(len(own)), *scores, f"{seconds:.0f}"])
    return markdown(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--models", nargs="+", choices=tuple(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--folds", type=int, default=5, help="parts of the records; the references are measured on all")
    parser.add_argument("--measured", type=int, default=5, help="folds on which the networks are measured")
    parser.add_argument("--passes", type=float, default=4.0, help="over the training records, of each network")
    parser.add_argument("--most", type=int, default=0, help="records at most (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"check that everything runs: {FAST}")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", help="write everything as JSON, after every cell")
    parser.add_argument("--resume", action="store_true", help="skip the cells that the file of --out holds")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(FAST)
    if not options.folds >= 2 or options.passes <= 0:
        raise UnmaskError("--folds must be at least 2, and --passes above 0.")
    options.precision = settle(options.precision, "cpu").precision
    from unmask.cli import process

    process.start(["finetune"])
    import torch

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        unpack(options.data, Path(folder))
        records = labelled(Path(folder))
        if options.most:
            records = records[: options.most]  # the first of each class, then the second ones
        run = {name: vars(options)[name] for name in ("folds", "passes", "precision")} | {"records": len(records)}
        facts = common.begin(options, run, cells=[])
        print(records.description)
        measure(records, facts, options)
    print(f"\n{table_of(facts['cells'])}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
