"""Fine-tuning of a T5, which writes the labels of rows: once for each seed, beside a baseline; the best one stays."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unmask import huggingface
from unmask.data import glue
from unmask.data.bitext import Bitext
from unmask.data.dataset import Dataset
from unmask.data.rows import listed
from unmask.data.subwords import Subwords
from unmask.errors import Stopped, UnmaskError, unknown
from unmask.files import sweep, write_text
from unmask.generate import Limits, Search
from unmask.models.model import Model
from unmask.runs.finetune import FineTuning, Result, Speaker, write_config
from unmask.runs.finetune_report import render_result, shown, summary
from unmask.runs.fit import LOWER_IS_BETTER, RESULTS, Fit, refuse_taken
from unmask.runs.report import write_report
from unmask.runs.translation import ending, origin
from unmask.runs.translation.run import Learning, TrainTranslation, Translation
from unmask.runs.translation.texts import Texts, unwritable
from unmask.serve.translator import Translator
from unmask.tasks.reading import read_sets
from unmask.tasks.text_to_text import REMEMBERED, check_written, writing
from unmask.tasks.written import Written
from unmask.train import checkpoint, distributed
from unmask.train.display import Display
from unmask.train.optim import ADAFACTOR, Optimizer
from unmask.train.trainer import Training

OF_ENCODERS = ("options", "transfer", "distillation", "from_scratch", "language_model", "fit.sampling", "fit.patience")
"""Settings of fine-tuning that mean nothing to a T5."""


class FinetuneText(TrainTranslation):
    """A translation run from rows to their labels, scored by the metrics of the task: one seed of a fine-tuning run."""

    def __init__(
        self,
        config: Translation,
        prepared: Prepared,
        out: Path,
        *,
        resume: bool = False,
        display: Display | None = None,
    ) -> None:
        self.prepared = prepared
        super().__init__(config, out, recipe="text-to-text", resume=resume, display=display)

    @property
    def metric(self) -> str:
        return self.prepared.metric

    def chosen(self) -> dict[str, Any]:
        """The step whose weights are kept, of how many evaluations that was best, and what the last one gave."""
        rows = [row for row in self._evaluations() if self.metric in row]
        best = ending.kept(rows, self.metric)
        assert best is not None
        return {"step": int(best["step"]), "evaluations": len(rows), "last": rows[-1][self.metric]}

    def _read(self, texts: Texts, seed: int) -> tuple[Bitext, Bitext]:
        return self.prepared.train.pairs, self.prepared.task.pairs(self.prepared.sets["dev"])

    def _fitting(
        self, train: Bitext, longest: int, ratio: float | None
    ) -> tuple[Bitext, tuple[list[np.ndarray], list[np.ndarray]]]:
        return train, (self.prepared.train.read, self.tokenizer.target.encode_all(train.targets))

    def _unwritable(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> list[str]:
        """Nothing: it was said before the first seed."""
        return []

    def translations(self, model: Model, count: int, search: Search | None = None) -> list[str]:
        """As the folder will give them, with its limits."""
        return super().translations(model, count, search or self.config.search)

    def _scores(self, translations: Sequence[str]) -> dict[str, float]:
        return self.prepared.task.scores(translations, list(self.prepared.sets["dev"]))


class Learned(NamedTuple):
    """What is learned.

    pairs    of texts, for every part of every training row that fits or may be cut
    read     ids of what is read of each, cut where it was too long
    longest  tokens of a side, with its end
    """

    pairs: Bitext
    read: list[np.ndarray]
    longest: int


@dataclass(frozen=True)
class Prepared:
    """Rows and task of a run that has not begun.

    config    with what depends on the rows filled in
    sets      split -> its rows
    train     what of the training rows is learned
    baseline  split -> metrics of one answer to all rows
    metric    what decides which weights are kept
    """

    config: FineTuning
    task: Written
    sets: Mapping[str, Dataset]
    train: Learned
    baseline: dict[str, dict[str, float]]
    metric: str


def prepare(config: FineTuning, say: Speaker, *, resume: bool = False) -> Prepared:
    """Read the rows, and find them and the settings good. Raises UnmaskError where they are not."""
    given, usual = config.places(), FineTuning(task=config.task).places()
    for name in given:
        if name.startswith(OF_ENCODERS) and given[name] != usual[name]:
            raise UnmaskError(f"A T5 has no use for other values of {name}: leave them out, or take an encoder.")
    if config.rows.train is None:
        raise UnmaskError("Say on which rows: --train FILE.")
    if config.model is None:
        raise UnmaskError("Say which model: --model FOLDER.")
    written = writing(config.task)
    config.fit.check()
    tokenizer = origin.vocabulary(str(config.model))
    written.check_vocabulary(tokenizer, config.model)
    sets = read_sets(config.task, config.rows, say, np.random.default_rng(config.seed))
    held_out = config.rows.dev is None and config.rows.benchmark is None
    options = config.options.replace(**written.scoring)
    plain = config.kind.learned(sets, options, say, held_out=held_out)
    name = config.task if config.rows.benchmark is None else glue.find(config.rows.benchmark).name
    name = "".join(c for c in name.lower() if c.isalnum())
    task = written.learned(name, list(sets["train"]), plain.labels)
    check_written(task.fixed(list(sets["train"])), tokenizer, config.model)
    train = _learned(config, task, sets["train"], tokenizer, say)
    baseline = {part: plain.baseline(rows, sets["train"].rows) for part, rows in sets.items() if part != "train"}
    say(f"Baseline, {plain.reference}: {shown(baseline['dev'])}.")
    benchmark = None if config.rows.benchmark is None else glue.find(config.rows.benchmark).metrics[0]
    metric = config.fit.metric or benchmark or task.metric
    known = baseline["dev"].keys() - LOWER_IS_BETTER
    if metric not in known:
        raise unknown("metric by which a T5 is judged", metric, sorted(known))
    config = config.replace(seeds=config.number_of_seeds(len(sets["train"])))
    config = config.replace(fit={"optimizer": _optimizer(config.fit.optimizer, resume)})
    if config.fit.optimizer.algorithm == "adafactor":
        rate = f"{config.fit.optimizer.lr:g}"
        say(f"A T5 is fine-tuned by Adafactor, whose learning rate is a share of the weights: {rate}.", note=False)
    return Prepared(config, task, sets, train, baseline, metric)


def _learned(config: FineTuning, task: Written, rows: Dataset, tokenizer: Subwords, say: Speaker) -> Learned:
    """What is learned of the training rows. Raises UnmaskError where they are all too long."""
    assert config.model is not None
    pairs = task.pairs(rows)
    read, written = tokenizer.encode_all(pairs.sources), tokenizer.target.encode_all(pairs.targets)
    for note in unwritable(tokenizer, Training=(read, written)):
        say(note)
    usual = task.length or config.kind.usual_length
    longest = max(usual if config.rows.length is None else config.rows.length, *(len(ids) + 1 for ids in written))
    longest = min(longest, huggingface.load(config.model, huggingface.ENCODER_DECODER).model.positions or longest)
    kept: dict[int, np.ndarray] = {}
    cut: set[int] = set()
    lost: set[int] = set()
    for i, number in enumerate(pairs.lines):
        ids: np.ndarray | None = read[i] if len(written[i]) < longest else None
        if ids is not None and len(ids) >= longest:
            ids = task.shortened(rows[number], ids, longest - 1, tokenizer)
            cut.add(number)
        if ids is None:
            lost.add(number)
        else:
            kept[i] = ids
    if not kept:
        raise UnmaskError(f"No row of {rows.path} fits in {longest} tokens with what is asked for: raise --length.")
    for numbers, done in ((cut - lost, "cut"), (lost, "left out, as a cut would take away what is asked for")):
        if numbers:
            share = f"{len(numbers):,} of {len(rows):,} rows ({len(numbers) / len(rows):.1%})"
            places = listed([rows[number].place for number in sorted(numbers)])
            say(f"train: {share} are longer than {longest} tokens and were {done} ({places}).")
    return Learned(pairs.take(kept), list(kept.values()), longest)


def finetune_text(
    config: FineTuning, out: Path | str, display: Display | None = None, *, resume: bool = False
) -> Result:
    """Fine-tune the T5 of a folder on labelled rows, once for each seed, and keep the model that is best on the dev
    rows.

    `out` becomes a folder that `transformers` opens, with the files of `finetune` beside the model; its scores are of
    what each seed's folder writes. `resume` goes on with a run that was cut short.

    Raises UnmaskError for a folder that is in use already, a task that a T5 does not answer, and options that only
    encoders have; Stopped where a signal ends the run. Nothing is written before the rows and the model are found good.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    if not resume:
        refuse_taken(out)
    distributed.barrier()  # every process has looked before the first one writes
    say = Speaker(display)
    prepared = prepare(config, say, resume=resume)
    with checkpoint.going_on("finetune", out), checkpoint.Lock(out) if distributed.is_main() else nullcontext():
        if distributed.is_main():
            sweep(out)
            write_config(out, prepared.config)
        scored = _run_seeds(prepared, out, display, say, resume)
        best = max(scored, key=lambda one: one.row["dev"][prepared.metric])
        rows = [one.row for one in scored]
        result = Result(
            task=config.task,
            labels=prepared.task.labels,
            metric=prepared.metric,
            seeds=rows,
            baseline=prepared.baseline,
            summary={split: summary([row[split] for row in rows]) for split in prepared.baseline},
            kept=best.row["seed"],
            notes=say.notes,
            classes=best.classes,
            pairs=any(row.pair is not None for row in prepared.sets["train"]),
        )
        if distributed.is_main():
            _write(out, result, prepared.task)
    say(render_result(result.to_dict()), note=False)
    return result


def _optimizer(asked: Optimizer, resume: bool) -> Optimizer:
    """Adafactor, unless another is named, with the published value of everything that was not asked for otherwise."""
    if asked.algorithm in ("adamw", "muon"):
        return asked
    if resume and asked.algorithm == "auto":
        return asked.replace(algorithm="adamw")  # a run from when there was nothing else
    usual = Fit().optimizer.places() | {"algorithm": asked.algorithm}
    return ADAFACTOR.replace(**{name: value for name, value in asked.places().items() if value != usual[name]})


class _Scored(NamedTuple):
    """What a seed reached: its row of results, and label -> precision, recall, f1 and support on the dev rows."""

    row: dict[str, Any]
    classes: dict[str, dict[str, float]]


def _run_seeds(prepared: Prepared, out: Path, display: Display | None, say: Speaker, resume: bool) -> list[_Scored]:
    """Train once for each seed. Raises Stopped where a signal ends one."""
    config, found = prepared.config, []
    assert config.seeds is not None
    for seed in range(config.seed, config.seed + config.seeds):
        if config.seeds > 1:
            say(f"Seed {seed}:", note=False)
        found.append(_run_seed(prepared, seed, out, display, resume))
    return found


def _run_seed(prepared: Prepared, seed: int, out: Path, display: Display | None, resume: bool) -> _Scored:
    folder = _folder(out, seed)
    resume = resume and checkpoint.is_begun(folder)
    run = FinetuneText(_translation(prepared, seed), prepared, folder, resume=resume, display=display)
    ended = run.run()
    del run.trainer  # the two hold each other: model and moments would outlive the run, beside those of the next seed
    if ended.stopped is not None:
        raise Stopped(f"Stopped by {ended.stopped} in seed {seed}")
    distributed.barrier()  # the folder is there
    return _scored(prepared, run, seed, ended.total)


def _scored(prepared: Prepared, run: FinetuneText, seed: int, total: int) -> _Scored:
    """What the folder of a seed writes for the dev and test rows, judged."""
    # As those of other runs, the scores that it ends with are of full precision, which every machine computes alike.
    task, translator = prepared.task, Translator(run.out, device=run.model.device, precision="fp32")
    rows = {part: list(prepared.sets[part]) for part in prepared.baseline}
    answers = {part: translator(task.pairs(prepared.sets[part]).sources) for part in rows}
    row = {"seed": seed, "metric": run.metric, **run.chosen(), "total": total, "stopped": None}
    row |= {part: task.scores(answers[part], rows[part]) for part in rows}
    return _Scored(row, task.report(answers["dev"], rows["dev"]))


def _folder(out: Path, seed: int) -> Path:
    return out / "seeds" / str(seed)


def _write(out: Path, result: Result, task: Written) -> None:
    """The model of the best seed with the results; of the others what was measured stays."""
    best = _folder(out, result.kept)
    loaded = huggingface.load(best, huggingface.ENCODER_DECODER)
    huggingface.save(out, loaded.model, loaded.tokenizer, settings={**loaded.settings, REMEMBERED: task.settings()})
    write_text(out / "metrics.jsonl", (best / "metrics.jsonl").read_text(encoding="utf-8"))
    write_text(out / RESULTS, json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    write_report(out)
    (out / checkpoint.LOCK).unlink(missing_ok=True)  # first: what follows may be cut short, and the run has ended
    for row in result.seeds:
        for path in _folder(out, row["seed"]).iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.suffix != ".jsonl":
                path.unlink()


def _translation(prepared: Prepared, seed: int) -> Translation:
    """The run that takes as many rows a step, and as many steps, as the config of the fine-tuning says."""
    config, pairs = prepared.config, prepared.train.pairs
    assert config.model is not None
    fit, tokenizer = config.fit, origin.vocabulary(str(config.model))
    sizes = [len(ids) + 1 for ids in tokenizer.encode_all(pairs.targets)]
    steps = max(math.ceil(fit.passes * len(sizes) / fit.batch_size), fit.least)
    per_epoch = max(1, round(len(sizes) / fit.batch_size))
    tokens = max(round(fit.batch_size * sum(sizes) / len(sizes)), max(sizes))
    most, factor = prepared.task.longest(sizes, tokenizer)
    evaluate_every = max(1, min(round(per_epoch / fit.evaluations), steps))
    run = Translation(
        texts=Texts(
            tokens=tokens, longest=prepared.train.longest, scored=len(prepared.task.pairs(prepared.sets["dev"]))
        ),
        learning=Learning(label_smoothing=0.0),
        training=Training(
            steps=steps,
            optimizer=fit.optimizer,
            schedule=fit.schedule,
            precision=fit.precision,
            device=fit.device,
            seed=seed,
            evaluate_every=evaluate_every,
            save_every=evaluate_every,
            keep=2,
        ),
        search=Search(limits=Limits(max_length=most, max_factor=factor)),
    )
    return origin.starting_from(run, config.model)
