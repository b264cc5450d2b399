"""Fine-tuning: trains a model folder on labelled rows with several seeds; writes the best model and its scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.config import flatten, read_json
from unmask.errors import UnmaskError
from unmask.files import sweep, write_text
from unmask.kernels.processor import settle
from unmask.runs import cards
from unmask.runs.finetuning import encoder, text_to_text
from unmask.runs.finetuning.card import card_of
from unmask.runs.finetuning.config import FineTuning
from unmask.runs.finetuning.prepared import Notes, Prepared, Seed
from unmask.runs.finetuning.report import FOLDS, RESULTS, chosen_sentences, render_result, summary
from unmask.runs.report import write_report
from unmask.train import checkpoint, distributed
from unmask.train.calibrate import too_few
from unmask.train.checkpoint import LOCK, RUN
from unmask.train.display import Audience, Display
from unmask.train.trackers import About, Tracking

KIND, RECIPE = "finetuning", "finetune"  # in run.json; a model that is trained from scratch has its own recipe
VALIDATION = "cross-validation"  # the kind of a run of several folds


@dataclass(frozen=True)
class Result:
    """The results of all seeds, as in results.json.

    seeds     for each seed: seed, step, total, stopped, dev metrics and, if there are test rows, test metrics; the
              number of evaluations (the best was at `step`); the metric at the last one; and the precision of the
              training and its evaluations
    baseline  split -> metrics of the most frequent label, or the mean score, of the training rows
    summary   split -> metric -> mean, standard deviation (of the sample) and worst over the seeds
    kept      the seed whose model is in the folder, the best on the dev rows
    rows      split -> number of its rows
    pairs     whether training rows are pairs of texts
    curves    title -> curve of the kept seed's answers to the dev rows, for the report
    confusion label -> prediction -> number of dev rows, of the kept model; empty unless each row has one label
    tables    title -> table of the kept seed's answers to the dev rows, for the report
    """

    task: str
    labels: tuple[str, ...]
    metric: str
    seeds: list[dict[str, Any]]
    baseline: dict[str, dict[str, float]]
    summary: dict[str, dict[str, dict[str, float]]]
    kept: int
    notes: list[str]
    classes: dict[str, dict[str, float]]
    pairs: bool
    curves: dict[str, Any] = field(default_factory=dict)
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "labels": list(self.labels)}


def finetune(
    config: FineTuning,
    out: Path | str,
    *,
    recipe: str = RECIPE,
    display: Display | None = None,
    resume: bool = False,
) -> Result:
    """Fine-tune a model folder on labelled rows, once for each seed, and keep the model that is best on the dev rows.

    An encoder or a language model gets a head for the task; a T5 learns to generate the labels. `out` becomes a folder
    that `transformers` opens, with run.json (the resolved config), results.json, metrics.jsonl and report.html beside
    the model. Nothing is written before the rows and the model have been checked.

    recipe  name of the recipe of a model that is trained from scratch; a resumed run keeps its own
    resume  continue the interrupted run in `out`, `begun(out)`, from its last evaluation, bit for bit

    Raises UnmaskError for a folder that is in use, and for errors in the model, the rows or the settings; Stopped if a
    signal ends the run, which is then saved, so that it can be resumed, without a further evaluation.
    """
    with checkpoint.going_on(verb_of(config), Path(out)):
        return finetuned(config, Path(out), recipe, display, resume=resume)


def finetuned(
    config: FineTuning, out: Path, recipe: str = RECIPE, display: Display | None = None, *, resume: bool = False
) -> Result:
    """As `finetune`, but a `Stopped` does not name the command to continue."""
    distributed.init(config.fit.device)
    if resume:
        recipe = read_json(out / RUN).get("recipe", recipe)
    else:
        refuse_taken(out)
    distributed.barrier()  # all processes check the folder before the first one writes
    say = Notes(display)
    prepared = prepare(config, say, resume=resume)
    with checkpoint.Lock(out) if distributed.is_main() else nullcontext():
        if distributed.is_main():
            sweep(out)
            write_config(out, prepared.begun, recipe)
        result = train_seeds(prepared, out, display, say, recipe=recipe, resume=resume)
        if distributed.is_main():
            (out / LOCK).unlink(missing_ok=True)  # first: the run has ended, even if the clean-up is interrupted
            for row in result.seeds:
                _clear(_folder(out, row["seed"]))
    return result


def plan(config: FineTuning, display: Display | None = None) -> dict[str, Any]:
    """The size, time and memory of an encoder's training with one seed, measured on a few steps; nothing is written.

    Raises UnmaskError as `finetune` does, for errors in the model, the rows or the settings.
    """
    distributed.init(config.fit.device)
    return encoder.cost(encoder.prepare(config, Notes(display)))


def verb_of(config: FineTuning) -> str:
    """The verb of the command line that begins, and continues, such a run."""
    return RECIPE if config.page is None else "train"


def prepare(config: FineTuning, say: Notes, *, resume: bool = False) -> Prepared:
    """Read the rows, and check them, the model and the settings. Raises UnmaskError for what is wrong with them."""
    if config.rows.train is None:
        raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
    if config.model is not None and huggingface.holds_encoder_decoder(config.model):
        if config.second.second_train is not None:
            raise UnmaskError("A second task is for encoders and recurrent networks: leave --second-train out.")
        return text_to_text.prepare(config, say, resume=resume)
    return encoder.prepare(config, say)


def train_seeds(
    prepared: Prepared,
    out: Path,
    display: Display | None,
    say: Notes,
    *,
    recipe: str = RECIPE,
    resume: bool | None = None,
) -> Result:
    """Fine-tune once for each seed, and write the folder of the best one; for `resume` see `Prepared.train_seed`."""
    config, rows = prepared.config, list[dict[str, Any]]()
    assert config.seeds is not None
    precision = settle(config.fit.precision, distributed.init(config.fit.device)).precision
    best: Seed | None = None
    for seed in range(config.seed, config.seed + config.seeds):
        if config.seeds > 1:
            say(f"Seed {seed}:", note=False)
        about = About(out, f"seed {seed}", lambda: flatten(config.to_dict()))
        with Tracking(config.fit.track if distributed.is_main() else (), about, say) as tracking:
            watched = Audience(display, [tracking])
            found = prepared.train_seed(seed, _folder(out, seed), watched, say, resume=resume)
            tracking.scores = {f"{part}/{name}": x for part in prepared.baseline for name, x in found.row[part].items()}
        rows.append({**found.row, "precision": precision})
        if best is None or found.value > best.value:
            best = found
    assert best is not None
    say(too_few(min(row["total"] for row in rows), config.fit.minutes) or "")
    result = Result(
        task=config.task,
        labels=prepared.labels,
        metric=rows[0]["metric"],
        seeds=rows,
        baseline=dict(prepared.baseline),
        summary={split: summary([row[split] for row in rows]) for split in prepared.baseline},
        kept=best.row["seed"],
        notes=say.notes,
        classes=best.classes,
        pairs=prepared.pairs,
        curves=best.curves,
        confusion=best.confusion,
        tables=best.tables,
        rows=dict(prepared.counts),
    )
    if distributed.is_main():
        best.write(out)
        write_config(out, config, recipe)
        write_text(out / RESULTS, json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
        metrics = _folder(out, result.kept) / "metrics.jsonl"
        write_text(out / "metrics.jsonl", metrics.read_text(encoding="utf-8"))
        write_report(out)
        cards.write(out, card_of(prepared, result.to_dict(), chosen_sentences(result.to_dict()), recipe))
    say(render_result(result.to_dict()), note=False)
    return result


# ------------------------------------------------------------------------------------------------ the folder


def begun(out: Path | str) -> FineTuning:
    """The settings of the interrupted run in a folder. Raises UnmaskError if there is none, or it has ended."""
    return FineTuning.of_run(run_settings(Path(out)))


def run_settings(out: Path) -> dict[str, Any]:
    """The config in run.json of the interrupted fine-tuning run in a folder. Raises UnmaskError if there is none, or it
    has ended."""
    checkpoint.require_begun(out)
    values = read_json(out / RUN) if (out / RUN).exists() else {}
    if not _is_finetuning(values) or not isinstance(values.get("config"), dict):
        raise UnmaskError(f"{out} holds a run that is not fine-tuning; continue it with the verb that began it.")
    scores = next((out / name for name in (RESULTS, FOLDS) if (out / name).exists()), None)
    if scores is not None and not (out / LOCK).exists():
        raise UnmaskError(f"The run in {out} has ended; its scores are in {scores}.")
    return values["config"]


def refuse_taken(out: Path) -> None:
    """Raises UnmaskError if a folder holds more than the lock of a run that was killed before it began."""
    if out.is_dir():
        sweep(out)
        if (out / LOCK).exists() and (out / RUN).exists() and _is_finetuning(read_json(out / RUN)):
            raise UnmaskError(f"{out} holds an interrupted run; continue it with --resume, or choose another folder.")
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - {LOCK}):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")


def _is_finetuning(facts: Mapping[str, Any]) -> bool:
    """Whether run.json is that of a fine-tuning run; in version 0.1 only the recipe said so."""
    return facts.get("kind") in (KIND, VALIDATION) or facts.get("recipe") == RECIPE


def write_config(out: Path, config: FineTuning, recipe: str = RECIPE, kind: str = KIND) -> None:
    """Write run.json, which `begun` reads."""
    facts = {"kind": kind, "recipe": recipe, "config": config.to_dict()}
    write_text(out / RUN, json.dumps(facts, indent=2) + "\n")


def _folder(out: Path, seed: int) -> Path:
    return out / "seeds" / str(seed)


def _clear(folder: Path) -> None:
    """Remove the checkpoints and the model of a seed; its metrics stay."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".jsonl":
            path.unlink(missing_ok=True)
