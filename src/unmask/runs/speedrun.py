"""The speed run: the scores that one recipe reaches on one corpus in a fixed number of minutes.

A run is scored on masked tokens of the held-out text, on minimal pairs, and on tasks of GLUE after fine-tuning. It
becomes one line of a record, which has everything that is needed to repeat it. docs/speedrun.md has the rules.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import huggingface
from unmask.config import Config
from unmask.data.labelled import glue
from unmask.data.text.corpus import Corpus
from unmask.data.text.stream import fixed
from unmask.errors import UnmaskError, plural
from unmask.files import write_text
from unmask.kernels import processor
from unmask.runs import minimal_pairs, recipes
from unmask.runs.finetuning import FineTuning, Fit, finetune
from unmask.runs.pretraining import Pretrain, Pretraining, evaluation
from unmask.runs.report import write_report
from unmask.tasks import TASKS
from unmask.tasks.rows import Rows
from unmask.train.display import Display
from unmask.train.metrics import read
from unmask.train.optim import Optimizer

MINUTES = 30.0
TOKENS = 128  # of the rows on which masked tokens are predicted
TUNING = "tuning."  # prefix of the fields of fine-tuning
FREE = 0.1  # share by which a run may exceed its minutes: steps are planned beforehand, and machines vary
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Race(Config):
    """What a speed run learns from, and what it is scored on. Runs with the same values are compared.

    minutes  of pre-training
    seed     of the run, and the first of fine-tuning
    heldout  rows of held-out text on which masked tokens are predicted
    pairs    files or folders of minimal pairs, in the format of BLiMP; without any they are not scored
    most     pairs of each kind, the first ones; None: all
    glue     folder with a folder for each task of GLUE; None: no task is scored
    tasks    their names
    rows     training rows of a task, at most, the first ones; None: all. All dev rows are scored
    seeds    of fine-tuning
    tuning   how the model is fine-tuned
    """

    minutes: float = MINUTES
    seed: int = 0
    heldout: int = 512
    pairs: tuple[Path, ...] = ()
    most: int | None = 200
    glue: Path | None = None
    tasks: tuple[str, ...] = ("SST-2", "CoLA", "MRPC", "RTE")
    rows: int | None = 10_000
    seeds: int = 3
    tuning: Fit = field(default_factory=lambda: Fit(epochs=3, optimizer=Optimizer(lr=3e-4)))


class SpeedRun:
    """A recipe in a race: `run` trains it, scores it, and returns its line of the record.

    given  fields of the recipe and, with the prefix `tuning.`, of fine-tuning, as on the command line
    out    folder of the run

    Raises UnmaskError at construction for fields that do not exist or that the race fixes, and for missing data.
    """

    def __init__(
        self,
        race: Race,
        recipe: str,
        given: Mapping[str, str],
        corpus: Path | str,
        out: Path | str,
        *,
        resume: bool = False,
        display: Display | None = None,
    ) -> None:
        tuning = {name.removeprefix(TUNING): value for name, value in given.items() if name.startswith(TUNING)}
        fields = {name: value for name, value in given.items() if not name.startswith(TUNING)}
        self.race = race.replace(tuning=race.tuning.override(tuning).to_dict())
        self.race.tuning.check()
        self.recipe, self.given, self.out = recipe, dict(given), Path(out)
        self.corpus = Corpus(corpus)
        self.rows = {name: self._rows(name) for name in race.tasks} if race.glue is not None else {}
        if race.pairs:
            minimal_pairs.read(race.pairs, most=1)  # whether they can be read is known before the training
        config = _config(race, recipe, fields)
        self.pretraining = Pretrain(config, [corpus], out, recipe=recipe, resume=resume, display=display)

    def _rows(self, name: str) -> tuple[str, Rows]:
        """A task of `unmask finetune`, and the rows of a benchmark."""
        assert self.race.glue is not None
        benchmark = glue.find(name)
        for part in ("train", "dev"):
            glue.split(name, self.race.glue, part)
        task = next(task for task, kind in TASKS.items() if kind.learns(benchmark))
        rows = TASKS[task].rows_class(
            train=self.race.glue, benchmark=name, most=self.race.rows, length=TOKENS, allow_overlap=True
        )
        return task, rows

    def run(self, *, note: str = "", say: Say = print) -> dict[str, Any] | None:
        """Train and score; None if a signal stopped the run.

        note  what the line of the record says about the run
        """
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        result = self.pretraining.run()
        if result.stopped is not None:
            return None
        write_report(self.out)
        say(self.pretraining.summary(result))
        model, trainer = self.pretraining.model, self.pretraining.trainer
        speeds = [row["tokens_per_second"] for row in read(self.out / "metrics.jsonl", "train")]
        line: dict[str, Any] = {
            "note": note,
            "recorded": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": importlib.metadata.version("unmask"),
            "commit": commit_of(Path(__file__).parents[3]),
            "machine": {
                "processor": processor.identity(),
                "cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "load": load,
            },
            "corpus": {
                "checksum": self.corpus.checksum,
                "vocabulary": self.corpus.tokenizer.size,
                **{name: self.corpus.split(name).tokens for name in ("train", "heldout")},
            },
            "race": self.race.replace(pairs=(), glue=None).to_dict(),  # paths are those of a machine
            "recipe": self.recipe,
            "given": self.given,
            "config": self.pretraining.config.to_dict(),
            "parameters": model.parameters_total,
            "precision": trainer.engine.settled.precision,
            "steps": result.step,
            "seconds": result.seconds,
            "tokens_per_second": statistics.median(speeds) if speeds else math.nan,
            "masked": masked_tokens(self.out, self.corpus, self.race.heldout),
        }
        if self.race.pairs:
            found = minimal_pairs.evaluate_minimal_pairs(self.out, self.race.pairs, most=self.race.most)
            line["pairs"] = {"accuracy": found["accuracy"], "pairs": found["pairs"], "kinds": len(found["kinds"])}
            say(f"Minimal pairs: {found['accuracy']:.1%} of {found['pairs']:,}.")
        line["tasks"] = {}
        for name in self.rows:
            line["tasks"][name] = scores = self._tuned(name)
            say(f"{name}: {metric_of(name)} {percent(scores)}; one answer to all: {100 * scores['baseline']:.1f}.")
        return line

    def _tuned(self, name: str) -> dict[str, Any]:
        task, rows = self.rows[name]
        with tempfile.TemporaryDirectory(prefix="unmask-speedrun-") as place:
            found = fine_tuned(
                self.out,
                task,
                rows,
                metric_of(name),
                Path(place) / "run",
                fit=self.race.tuning,
                seed=self.race.seed,
                seeds=self.race.seeds,
            )
        del found["notes"]  # they name files of this machine
        return found


def _config(race: Race, recipe: str, given: Mapping[str, str]) -> Pretraining:
    """The recipe with its fields, for the minutes of the race."""
    config = recipes.find(recipe)
    changed = recipes.overridden(config, given)
    if (changed.training.steps, changed.training.minutes) != (config.training.steps, config.training.minutes):
        raise UnmaskError("The length of a speed run is its rule: say --minutes, and leave --steps out.")
    if changed.start is not None or changed.distillation != config.distillation:
        raise UnmaskError("A speed run begins with new weights and without a teacher: leave --start and --teacher out.")
    return changed.replace(training={"steps": None, "minutes": race.minutes, "seed": race.seed})


# ------------------------------------------------------------------------------------------------ scores


def masked_tokens(folder: Path | str, corpus: Corpus, rows: int) -> dict[str, Any] | None:
    """Loss in nats and accuracy on masked tokens of the held-out text, which are the same for every masked language
    model: 15 % of the tokens of rows of 128, 80/10/10, whatever the model learned from. None for other models."""
    if huggingface.holds_encoder_decoder(folder) or "mlm" not in (loaded := huggingface.load(folder)).model.heads:
        return None
    learned, batches = hidden_tokens(corpus, rows)
    model = loaded.model.eval()
    with torch.inference_mode():
        losses = [learned.loss(model, batch)["mlm"] for batch in batches]
    count = sum(loss.count for loss in losses)
    counts = corpus.split("train").unigrams() + 1.0
    return {
        "loss": sum(float(loss.sum) for loss in losses) / count,
        "correct": sum(float(loss.metrics["correct"]) for loss in losses) / count,
        "targets": count,
        "frequencies": evaluation.baseline(batches, np.log(counts / counts.sum()), learned.terms),
    }


def hidden_tokens(corpus: Corpus, rows: int) -> tuple[Any, list[Any]]:
    """The objective that masks 15 % of the tokens, and rows of held-out text that it has masked."""
    learned = recipes.roberta_tiny().objective.build(corpus.tokenizer)
    parts: dict[str, Any] = {"sample": learned.sample, "corrupt": learned.corrupt}
    return learned, fixed([corpus.split("heldout")], **parts, length=TOKENS, rows=32, limit_rows=rows)


def fine_tuned(
    folder: Path | str, task: str, rows: Rows, metric: str, out: Path, *, fit: Fit, seed: int, seeds: int
) -> dict[str, Any]:
    """Scores of the dev rows after fine-tuning with some seeds, as `unmask finetune` does it. They are evaluated once,
    at the end: nothing is chosen by the dev rows."""
    once = fit.replace(evaluations=1 / fit.passes)
    result = finetune(FineTuning(task=task, model=Path(folder), rows=rows, fit=once, seed=seed, seeds=seeds), out)
    scores = [row["dev"][metric] for row in result.seeds]
    return {
        "metric": metric,
        "mean": statistics.fmean(scores),
        "deviation": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "baseline": result.baseline["dev"][metric],
        "seeds": [{"seed": row["seed"], "dev": row["dev"]} for row in result.seeds],
        "notes": result.notes,
    }


def metric_of(name: str) -> str:
    """The metric of a task in the record: the last official one (F1 for MRPC)."""
    return glue.find(name).metrics[-1]


# ------------------------------------------------------------------------------------------------ the record


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout of git; None for another folder."""
    git = checkout / ".git"
    if git.is_file():  # of a worktree
        git = checkout / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
    if not (git / "HEAD").is_file():
        return None
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref: "):
        return head[:12]
    common = git / (git / "commondir").read_text(encoding="utf-8").strip() if (git / "commondir").is_file() else git
    branch, packed = common / head[5:], common / "packed-refs"
    if branch.is_file():
        return branch.read_text(encoding="utf-8").strip()[:12]
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line[:12] for line in lines if line.endswith(f" {head[5:]}")), None)


def add(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line to the record, a file of JSON lines. Raises UnmaskError for a file that holds something else."""
    lines = [*read(path), dict(line)]
    write_text(path, "".join(f"{json.dumps(one)}\n" for one in lines))


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The record as a table in Markdown, in the order of its lines. Loss of masked tokens in nats; scores x 100, of
    tasks with the standard deviation over the seeds."""
    tasks = list(dict.fromkeys(name for line in lines for name in line["tasks"]))
    heads = [
        *("", "what changed", "masked loss", "right", "pairs", *tasks),
        *("parameters", "steps", "tokens/s", "minutes", "recipe and fields"),
    ]
    body = [[str(number), *_cells(line, tasks)] for number, line in enumerate(lines, 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *body))


def _cells(line: Mapping[str, Any], tasks: Sequence[str]) -> list[str]:
    fields = "".join(f" --{name} {value}" for name, value in line["given"].items())
    masked, pairs = line["masked"], line.get("pairs")
    return [
        str(line["note"]).replace("|", "\\|"),
        f"{masked['loss']:.3f}" if masked else "",
        f"{100 * masked['correct']:.1f}" if masked else "",
        f"{100 * pairs['accuracy']:.1f}" if pairs else "",
        *(percent(line["tasks"][name]) if name in line["tasks"] else "" for name in tasks),
        f"{line['parameters'] / 1e6:.1f} M",
        f"{line['steps']:,}",
        f"{line['tokens_per_second']:,.0f}",
        f"{line['seconds'] / 60:.1f}",
        f"`{line['recipe']}{fields}`",
    ]


def percent(scores: Mapping[str, Any]) -> str:
    """Mean and standard deviation of a task's score, x 100."""
    return f"{100 * scores['mean']:.1f} ± {100 * scores['deviation']:.1f}"


def verdict(line: Mapping[str, Any]) -> str:
    """Whether the run kept the rules, in a sentence."""
    over = line["seconds"] - 60 * line["race"]["minutes"]
    if over > FREE * 60 * line["race"]["minutes"]:
        return f"It took {plural(round(over), 'second')} more than it had, so that it does not count."
    machine = line["machine"]
    return f"It counts if nothing else ran: {plural(machine['threads'], 'thread')} of {machine['processor']}."
