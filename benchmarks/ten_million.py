"""Ten million words: the runs, scores, options and tables that `lineage.py` and others share.

The text is that of `ten_million_text.py`. A folder keeps the corpus, the minimal pairs and the runs. A run is a fresh
process, and its scores come from another. benchmarks/README.md says what is counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tasks_data
import ten_million_text
from bench import common
from bench.common import Result, Settings
from bench.table import markdown
from unmask.errors import UnmaskError

TOKENS = 128  # of the rows on which masked words are guessed
ROWS = {"sst2": 10_000}  # training rows that are used, the first ones; of the other tasks all
METRICS = {"sst2": "accuracy", "cola": "mcc", "mrpc": "f1", "rte": "accuracy"}
FIT = {"lr": 3e-4, "epochs": 3, "batch": 32, "length": TOKENS}
SAME = ("minutes", "pairs", "seed", "seeds", "full", "quick", "threads", "device")


@dataclass(frozen=True)
class Size:
    """The sizes of text, vocabulary and data sets.

    words       of text               vocabulary  of the tokenizer          heldout  rows of masked tokens
    rows        training and dev rows of a task, at most; None: `ROWS`, and all dev rows
    paradigms   of minimal pairs; None: all
    """

    words: int = ten_million_text.WORDS
    vocabulary: int = ten_million_text.VOCABULARY
    heldout: int = 512
    rows: tuple[int, int] | None = None
    paradigms: int | None = None


BRIEF = {
    **{"training.steps": 4, "training.evaluate_every": None, "training.save_every": None},
    **{"rows.batch": 8, "rows.heldout": 16},
}
QUICK = Size(words=60_000, vocabulary=1_000, heldout=16, rows=(32, 16), paradigms=3)


# ------------------------------------------------------------------------------------------------ turns


def pretrain(settings: Settings) -> Result:
    """A corpus to a finished folder with `Pretrain`, as `unmask pretrain` does it."""
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain
    from unmask.runs.report import write_report
    from unmask.train import checkpoint
    from unmask.train.metrics import read

    config = recipes.find(settings["recipe"]).override({"steps": None, "minutes": None}).override(settings["fields"])
    folder = Path(settings["folder"])
    resume = settings["resume"] and checkpoint.is_begun(folder)
    run = Pretrain(config, [settings["corpus"]], folder, recipe=settings["recipe"], resume=resume)
    result = run.run()
    if result.stopped is not None:
        raise RuntimeError(f"stopped by {result.stopped}; --resume goes on")
    write_report(folder)
    rows = read(folder / "metrics.jsonl", "train")
    return {
        "recipe": settings["recipe"],
        "fields": settings["fields"],
        "folder": str(folder),
        "parameters": run.model.parameters_total,
        "beside": _beside(run.model),
        "steps": result.step,
        "seconds": result.seconds,
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in rows),
        "heldout": result.heldout,
        "baseline": run.baseline,
        "curve": read(folder / "metrics.jsonl", "heldout"),
        "precision": run.trainer.engine.settled.precision,
        "config": run.config.to_dict(),
    }


def _beside(model: Any) -> int:
    """Parameters that are trained and not used afterwards, such as those that the generator of an ELECTRA has alone."""
    apart = model.auxiliary
    kept = {id(x) for name, part in model.named_children() if name not in apart for x in part.parameters()}
    return sum(x.numel() for x in model.parameters() if id(x) not in kept)


def score(settings: Settings) -> Result:
    """The scores of a finished folder: masked tokens, minimal pairs, and tasks after fine-tuning."""
    from unmask.data.text.corpus import Corpus
    from unmask.runs.minimal_pairs import evaluate_minimal_pairs
    from unmask.runs.speedrun import masked_tokens

    folder = Path(settings["folder"])
    found: Result = {"masked": masked_tokens(folder, Corpus(settings["corpus"]), settings["heldout"])}
    found["blimp"] = evaluate_minimal_pairs(folder, [settings["blimp"]], most=settings["pairs"])
    found["tasks"] = {}
    for name, task in settings["tasks"].items():
        with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as place:
            found["tasks"][name] = _finetuned(folder, name, task, settings, Path(place) / "run")
    return found


def _finetuned(folder: Path, name: str, task: Mapping[str, Any], settings: Settings, out: Path) -> Result:
    """Scores of the dev rows of a task after fine-tuning, for some seeds."""
    from unmask.runs.finetuning import Fit
    from unmask.runs.speedrun import fine_tuned
    from unmask.train.optim import Optimizer

    given = settings["fit"]
    fit = Fit(
        epochs=given["epochs"],
        least_steps=0,
        batch_size=given["batch"],
        optimizer=Optimizer(lr=given["lr"]),
        device=settings["device"],
    )
    rows = _rows(task).replace(length=given["length"])
    seeds = {"seed": settings["seed"], "seeds": settings["seeds"]}
    return fine_tuned(folder, "classification", rows, METRICS[name], out, fit=fit, **seeds)


def _rows(task: Mapping[str, Any]) -> Any:
    from unmask.tasks.classification import ClassificationRows

    return ClassificationRows(
        train=Path(task["train"]),
        dev=Path(task["dev"]),
        text="text",
        pair="pair" if task["paired"] else None,
        label="label",
        allow_overlap=True,  # the notes say how many rows
    )


# ------------------------------------------------------------------------------------------------ one system


class Bench:
    """The corpus, the pairs and the tasks that all systems of a table have in common.

    facts  what the JSON says of the text
    """

    def __init__(self, options: argparse.Namespace, folder: Path, tasks: Sequence[str]) -> None:
        self.options, self.folder = options, folder
        self.size = QUICK if options.quick else Size()
        self.facts = ten_million_text.corpus(options.data, folder, self.size.words, self.size.vocabulary)
        self.blimp = ten_million_text.pairs(options.data, folder, self.size.paradigms)
        self.tasks = {name: self._task(name) for name in tasks}

    def _task(self, name: str) -> Result:
        place = self.folder / "tasks"
        place.mkdir(exist_ok=True)
        limits = self.size.rows or (ROWS.get(name), None)
        try:
            found = tasks_data.prepare(name, self.options.data, place, limits=limits)
        except tasks_data.Missing as problem:
            raise UnmaskError(f"{name}: {problem}; say with --data where the rows are.") from None
        paired = "pair" in tasks_data.records(found.files["dev"])[0]
        return {**found.files, "paired": paired, "rows": found.used, "rows_there": found.there}

    def measure(
        self, name: str, recipe: str, fields: Mapping[str, Any], fit: Mapping[str, Any] | None = None
    ) -> Result:
        """Pre-train one system in a fresh process, score it in another.

        fields  of the recipe, besides the length of the run and its seed
        fit     settings of fine-tuning that differ from `FIT`
        """
        options = self.options
        home = str(self.folder / "runs" / f"{name}-{options.minutes:g}m-s{options.seed}")
        length = BRIEF if options.quick else {"training.minutes": options.minutes}
        chosen = {"training.device": options.device, "training.seed": options.seed, **length, **fields}
        shared = {"folder": home, "corpus": self.facts["folder"]}
        begin = {**shared, "recipe": recipe, "fields": chosen, "resume": options.resume}
        turn = partial(common.trial, threads=options.threads, gpu=options.device != "cpu")
        learned = turn(__file__, "pretrain", begin)
        asked = {
            **shared,
            "heldout": self.size.heldout,
            "blimp": self.blimp,
            "pairs": options.pairs,
            "tasks": self.tasks,
            "fit": {**FIT, **({"epochs": 1} if options.quick else {}), **(fit or {})},
            "seed": options.seed,
            "seeds": options.seeds,
            "device": options.device,
        }
        return {**learned, **turn(__file__, "score", asked), "fit": asked["fit"]}

    def words(self) -> dict[str, dict[str, float]]:
        """The scores of regressions on words: "one-hot" and "tf-idf" -> task -> its metric on the dev rows, as
        `unmask baseline` computes it."""
        from unmask.runs.finetuning.baselines import Baselines, baselines

        found: dict[str, dict[str, float]] = {}
        for name, task in self.tasks.items():
            scores = baselines(Baselines(rows=_rows(task)), lambda _: None)["scores"]
            for way in scores.keys() - {"baseline"}:
                found.setdefault(way, {})[name] = scores[way]["dev"][METRICS[name]]
        return found


# ------------------------------------------------------------------------------------------------ the options


def add_options(parser: argparse.ArgumentParser, minutes: float, folder: str) -> None:
    """The options of both scripts."""
    parser.add_argument("--data", required=True, type=Path, help="folder with books/, imdb/, blimp/, sst2/ and others")
    parser.add_argument("--minutes", type=float, default=minutes, help="of pre-training (default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all minimal pairs, not the first 200 of each paradigm")
    size.add_argument("--quick", action="store_true", help="a few steps, rows and pairs: does everything run?")
    parser.add_argument("--seed", type=int, default=0, help="of the run, and the first of fine-tuning")
    parser.add_argument("--seeds", type=int, help="of fine-tuning (default: 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu", help="of training; masked tokens and pairs are scored on the CPU")
    parser.add_argument("--folder", default=folder, help="keeps the corpus and the runs (default: %(default)s)")
    parser.add_argument("--out", help="write everything as JSON, after every system")
    parser.add_argument(
        "--resume", action="store_true", help="continue with the runs in --folder and the file of --out"
    )


def settle(options: argparse.Namespace) -> argparse.Namespace:
    """The options, with the values that depend on others. Exits with a sentence if there is no data."""
    if not options.data.is_dir():
        sys.exit(f"There is no folder {options.data}; say with --data where the text is.")
    options.pairs = 1 if options.quick else None if options.full else 200
    options.seeds = options.seeds or (1 if options.quick else 3)
    return options


def asked(options: argparse.Namespace) -> Result:
    """The settings that all systems of a table share."""
    return {key: getattr(options, key) for key in SAME}


def place(options: argparse.Namespace) -> AbstractContextManager[str]:
    """The folder to keep, or a temporary one with --quick."""
    if options.quick:
        return tempfile.TemporaryDirectory(prefix="unmask-benchmark-")
    return nullcontext(options.folder)


def parse_steps(text: str, folder: str, systems: Sequence[str]) -> argparse.Namespace:
    """The options of a script that compares systems after the same steps; `text` describes it."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, minutes=0.0, folder=folder)
    parser.add_argument("--steps", type=int, default=2_000, help="of each system (default: %(default)s)")
    parser.add_argument("--systems", nargs="+", choices=systems, default=systems, metavar="SYSTEM")
    return settle(parser.parse_args())


def compare(
    options: argparse.Namespace,
    tasks: Sequence[str],
    header: Sequence[str],
    cells: Callable[[Result], list[str]],
    measure: Callable[[Bench, str], Result],
) -> None:
    """Measure the systems of `parse_steps`, and print their table.

    measure  (the text and tasks in common, name of a system) -> its results      cells  results -> a row of the table
    """

    def line(system: Result) -> str:
        return ", ".join(f"{head} {cell}" for head, cell in zip(header, cells(system), strict=True))

    common.need("torch", "sklearn", "scipy")
    facts = common.begin(options, {**asked(options), "steps": options.steps}, systems={})
    with place(options) as folder:
        bench = Bench(options, Path(folder), tasks)
        facts["text"] = bench.facts
        titles = {name: name for name in options.systems}
        failed = common.measure_systems(titles, facts, options.out, partial(measure, bench), line)
    if facts["systems"]:
        shown = markdown([header, *map(cells, facts["systems"].values())])
        print("\n" + "\n\n".join([shown, *sentences(facts["text"], facts["run"])]))
    common.leave_without(failed)


# ------------------------------------------------------------------------------------------------ tables


def percent(task: Result) -> str:
    """Mean and deviation of a task's score, x 100."""
    return f"{100 * task['mean']:.1f} ± {100 * task['deviation']:.1f}"


def sentences(text: Result, options: Result) -> list[str]:
    """The conditions of the numbers of a table, in a few lines."""
    train, held = text["train"], text["heldout"]
    most = "all pairs" if options["pairs"] is None else f"the first {options['pairs']} pairs"
    return [
        f"{train['words']:,} words ({train['tokens']:,} tokens, {train['documents']:,} documents) to learn from, "
        f"{held['words']:,} held out; {text['vocabulary']:,} word pieces. BLiMP: {most} of each paradigm. "
        f"Tasks: dev rows, x 100, mean ± standard deviation over {options['seeds']} "
        f"{'seed' if options['seeds'] == 1 else 'seeds'}.",
    ]


if __name__ == "__main__":
    from unmask.cli.process import share_the_machine

    share_the_machine()
    common.serve({"pretrain": pretrain, "score": score}, sys.argv[2:])
