"""Signals with few labels: does pre-training on masked segments pay?

    python benchmarks/signal_transfer.py --data ecg/ --out signal_transfer.json

DATA holds train.tsv and test.tsv, tables of records with labels whose patients differ, such as the folder of synthetic
electrocardiograms that `unmask train mina` writes. A model is pre-trained on the records of train.tsv, without their
labels, or taken from `--trunk`. Then the same model is fine-tuned from it and from new weights, for the same number of
steps, on a share of the labels: the same rows for all, at least one of each class, drawn anew by each seed. The
references are a logistic regression and a random forest on the features of beats. The scores are those of test.tsv
after the last step, which select nothing.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import common
from bench.table import markdown
from unmask.kernels.processor import settle

RECIPE, TASK = "masked-signal", "signal-classification"
EXACTLY: dict[str, Any] = {
    "minutes": None,
    "epochs": 1e-6,
    "evaluations": 1e-6,
    "batch_size": 16,
}  # only `least_steps` counts
METRICS = ("macro_f1", "accuracy", "roc_auc")
Row = Mapping[str, str]


def rows_of(table: Path) -> list[dict[str, str]]:
    """The rows of a table; the paths of the records do not depend on where the table is."""
    with table.open(encoding="utf-8", newline="") as file:
        return [
            {**row, "path": str((table.parent / row["path"]).resolve())}
            for row in csv.DictReader(file, dialect="excel-tab")
        ]


def drawn(rows: Sequence[Row], share: float, seed: int) -> list[Row]:
    """A share of the rows of each class, at least one, in the order of the seed."""
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows)).tolist()
    found = list[Row]()
    for label in sorted({row["label"] for row in rows}):
        own = [rows[i] for i in order if rows[i]["label"] == label]
        found += own[: max(1, round(share * len(own)))]
    return found


def write(rows: Sequence[Row], table: Path) -> Path:
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), dialect="excel-tab")
        writer.writeheader()
        writer.writerows(rows)
    return table


def pretrained(train: Path, work: Path, options: argparse.Namespace) -> Path:
    """The folder of a model that was pre-trained on the records of a table."""
    from unmask.data.signals.building import build
    from unmask.data.signals.items import items_of
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain

    build(items_of(train), work / "corpus")
    asked = {"steps": options.steps, "minutes": None, "device": "cpu", "precision": options.precision}
    Pretrain(recipes.find(RECIPE).override(asked), [work / "corpus"], work / "trunk").run()
    return work / "trunk"


def untrained(trunk: Path, out: Path, seed: int) -> Path:
    """The same model with new weights, in a folder."""
    from unmask import huggingface

    loaded = huggingface.load(trunk)
    huggingface.save(out, loaded.model.config.build({}, seed=seed), loaded.processor)
    return out


def tuned(trunk: Path, train: Path, test: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """The scores after exactly `--tuned` steps."""
    from unmask.runs.finetuning import FineTuning, finetune

    where = {"train": train, "dev": test, "least_steps": options.tuned, "seed": seed, "seeds": 1, "device": "cpu"}
    given = {**EXACTLY, **where, "lr": options.lr, "precision": options.precision}
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as out:
        result = finetune(FineTuning(model=trunk, task=TASK).override(given), Path(out) / "run")
    return dict(result.seeds[0]["dev"])


def experts(train: Path, test: Path, seed: int) -> dict[str, dict[str, float]]:
    """The scores of each reference."""
    from unmask.runs.finetuning.baselines import Baselines, baselines

    config = Baselines(task=TASK).override({"train": train, "dev": test, "seed": seed})
    return {name: row["dev"] for name, row in baselines(config, lambda _: None)["scores"].items()}


def measure(work: Path, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Measure every cell, and write the results after each."""
    rows = rows_of(options.data / "train.tsv")
    whole, test = write(rows, work / "train.tsv"), write(rows_of(options.data / "test.tsv"), work / "test.tsv")
    trunk = options.trunk or pretrained(whole, work, options)
    for share in options.shares:
        for seed in range(options.seeds):
            if any((cell["share"], cell["seed"]) == (share, seed) for cell in facts["cells"]):
                continue
            some = drawn(rows, share, seed)
            train = write(some, work / "some.tsv")
            fresh = untrained(trunk, work / f"fresh-{seed}", seed)
            scores = {
                "pre-trained": tuned(trunk, train, test, seed, options),
                "new weights": tuned(fresh, train, test, seed, options),
                **experts(train, test, seed),
            }
            kept = {name: {metric: found[metric] for metric in METRICS} for name, found in scores.items()}
            facts["cells"].append({"share": share, "labels": len(some), "seed": seed, "scores": kept})
            print(share, seed, {name: round(found["macro_f1"], 3) for name, found in kept.items()}, flush=True)
            common.write(options.out, facts)


def table_of(cells: Sequence[Mapping[str, Any]], metric: str = "macro_f1") -> str:
    """Percent: mean and deviation over the seeds."""
    names = list(cells[0]["scores"])
    shown = [["share of labels", "records", *names]]
    for share in dict.fromkeys(cell["share"] for cell in cells):
        own = [cell for cell in cells if cell["share"] == share]
        means = [common.mean_and_deviation([cell["scores"][name][metric] for cell in own]) for name in names]
        shown.append([f"{share:.0%}", f"{own[0]['labels']:,}", *(f"{100 * m:.1f} ± {100 * d:.1f}" for m, d in means)])
    return markdown(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--trunk", type=Path, help="a folder that was pre-trained on the records of train.tsv")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01, 0.1, 1.0], help="of the labels")
    parser.add_argument("--steps", type=int, default=600, help="steps of the pre-training")
    parser.add_argument("--tuned", type=int, default=100, help="steps of each fine-tuning")
    parser.add_argument("--lr", type=float, default=1e-3, help="rate of fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", help="write everything as JSON, after every cell")
    parser.add_argument("--resume", action="store_true", help="skip the cells that the file of --out holds")
    options = parser.parse_args()
    options.precision = settle(options.precision).precision
    import torch

    torch.set_num_threads(options.threads)
    fixed = ("shares", "steps", "tuned", "lr", "seeds", "precision")
    facts = common.begin(options, {name: vars(options)[name] for name in fixed}, cells=[])
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        measure(Path(folder), facts, options)
    print(f"\nMacro F1 by record, percent\n\n{table_of(facts['cells'])}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
