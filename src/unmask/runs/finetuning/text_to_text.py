"""Fine-tuning of a T5, which generates the labels of rows: a translation run from rows to their labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unmask import huggingface
from unmask.data.bitext.pairs import Bitext
from unmask.data.labelled import glue
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import listed
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import Stopped, UnmaskError, unknown
from unmask.generate import Limits, Search
from unmask.runs.finetuning.config import IN_MINUTES, FineTuning, Fit
from unmask.runs.finetuning.prepared import Notes, Prepared, Seed
from unmask.runs.finetuning.report import shown
from unmask.runs.run import LOWER_IS_BETTER
from unmask.runs.translation import origin
from unmask.runs.translation.config import Learning, Translation
from unmask.runs.translation.pairs import Pairs
from unmask.runs.translation.run import Scores, TrainTranslation
from unmask.runs.translation.texts import Texts, unwritable
from unmask.serve.translator import Translator
from unmask.tasks import dev_rows
from unmask.tasks.reading import read_sets
from unmask.tasks.text_to_text import REMEMBERED, check_written, writing
from unmask.tasks.written import Written
from unmask.train import checkpoint, distributed
from unmask.train.display import Display
from unmask.train.optim import ADAFACTOR, Optimizer
from unmask.train.trainer import Training

OF_ENCODERS = (
    "options",
    "transfer",
    "distillation",
    "from_scratch",
    "language_model",
    "fit.sampling",
    "fit.patience",
    "fit.workers",
)
"""Settings of fine-tuning that have no effect on a T5."""


class Learned(NamedTuple):
    """The training pairs.

    pairs    pairs of texts, for every part of every training row that fits or may be cut
    read     ids of the source of each pair, cut if it is too long
    longest  most tokens of a source or a target, end token included
    """

    pairs: Bitext
    read: list[np.ndarray]
    longest: int


@dataclass(frozen=True)
class PreparedText(Prepared):
    """A prepared run with rows as pairs of texts, and the task that turns rows into texts.

    sets    split -> its rows
    train   the training pairs
    metric  metric that decides which weights are kept
    """

    config: FineTuning
    begun: FineTuning
    task: Written
    sets: Mapping[str, Dataset]
    train: Learned
    baseline: Mapping[str, dict[str, float]]
    metric: str

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.labels

    @property
    def pairs(self) -> bool:
        return any(row.pair is not None for row in self.sets["train"])

    @property
    def counts(self) -> Mapping[str, int]:
        return {split: len(rows) for split, rows in self.sets.items()}

    @property
    def pipeline(self) -> str:
        """None: the model writes the labels as text."""
        return ""

    def train_seed(
        self, seed: int, folder: Path, display: Display | None, say: Notes, *, resume: bool | None = None
    ) -> Seed:
        dev = self.sets["dev"]
        tokenizer = origin.vocabulary(str(self.config.model))
        pairs, train = self.train.pairs, self.train
        run = TrainTranslation(
            _translation(self, seed),
            folder,
            recipe="text-to-text",
            resume=bool(resume) and checkpoint.is_begun(folder),
            display=display,
            pairs=Pairs(tokenizer, train.read, tokenizer.target.ids(pairs.targets), self.task.pairs(dev)),
            scores=Scores(self.metric, lambda outputs: self.task.scores(outputs, list(dev))),
        )
        ended = run.run()
        del run.trainer  # breaks a reference cycle, which would keep model and optimizer state during the next seed
        if ended.stopped is not None:
            raise Stopped(f"Stopped by {ended.stopped} in seed {seed}")
        distributed.barrier()  # wait until the main process has written the folder
        return self._scored(run, seed, ended.total)

    def _scored(self, run: TrainTranslation, seed: int, total: int) -> Seed:
        """The scores of a seed on the dev and test rows, from the outputs of its finished folder."""
        # The final scores use full precision, as those of other runs, so that every machine computes the same.
        translator = Translator(run.out, device=run.model.device, precision="fp32")
        rows = {part: list(self.sets[part]) for part in self.baseline}
        answers = {part: translator(self.task.pairs(self.sets[part]).sources) for part in rows}
        best = run.best
        assert best is not None
        scored = [found[best.metric] for step, found in best.history if step]
        row = {"seed": seed, "metric": best.metric, "step": best.step, "evaluations": len(scored), "last": scored[-1]}
        row |= {"total": total, "stopped": None}
        row |= {part: self.task.scores(answers[part], rows[part]) for part in rows}
        folder = run.out

        def write(out: Path) -> None:
            loaded = huggingface.load(folder, huggingface.ENCODER_DECODER)
            settings = {**loaded.settings, REMEMBERED: self.task.settings()}
            huggingface.save(out, loaded.model, loaded.tokenizer, settings=settings)
            dev_rows.write(out, self.task, self.task.by_row(answers["dev"], rows["dev"]), rows["dev"])

        return Seed(row, self.task.report(answers["dev"], rows["dev"]), write)


def prepare(config: FineTuning, say: Notes, *, resume: bool = False) -> PreparedText:
    """Read the rows, and check them and the settings. Raises UnmaskError for what is wrong with them."""
    given, usual = config.places(), FineTuning(task=config.task).places()
    for name in given:
        if name.startswith(OF_ENCODERS) and given[name] != usual[name]:
            raise UnmaskError(f"{name} has no effect on a T5: leave it out, or fine-tune an encoder.")
    assert config.model is not None
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
    say(f"Baseline from the training rows, {plain.reference}: {shown(baseline['dev'])}.")
    benchmark = None if config.rows.benchmark is None else glue.find(config.rows.benchmark).metrics[0]
    metric = config.fit.metric or benchmark or task.metric
    known = baseline["dev"].keys() - LOWER_IS_BETTER
    if metric not in known:
        raise unknown("metric for a T5", metric, sorted(known))
    config = config.replace(seeds=config.number_of_seeds(len(sets["train"])))
    config = config.replace(fit={"optimizer": _optimizer(config.fit.optimizer, resume)})
    if config.fit.optimizer.algorithm == "adafactor":
        rate = f"{config.fit.optimizer.rate:g}"
        say(f"A T5 is fine-tuned by Adafactor, with a learning rate relative to the weights: {rate}.", note=False)
    return PreparedText(config, config, task, sets, train, baseline, metric)


def _learned(config: FineTuning, task: Written, rows: Dataset, tokenizer: Tokenizer, say: Notes) -> Learned:
    """The training pairs of the training rows. Raises UnmaskError if all are too long."""
    assert config.model is not None
    pairs = task.pairs(rows)
    read, written = tokenizer.ids(pairs.sources), tokenizer.target.ids(pairs.targets)
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
        raise UnmaskError(f"No row of {rows.path} fits into {longest} tokens with its question: raise --length.")
    for numbers, done in ((cut - lost, "cut"), (lost, "left out, as a cut would remove the question")):
        if numbers:
            share = f"{len(numbers):,} of {len(rows):,} rows ({len(numbers) / len(rows):.1%})"
            places = listed([rows[number].place for number in sorted(numbers)])
            say(f"train: {share} are longer than {longest} tokens and were {done} ({places}).")
    return Learned(pairs.take(kept), list(kept.values()), longest)


def _optimizer(asked: Optimizer, resume: bool) -> Optimizer:
    """Adafactor, unless another optimizer is given, with the published value of every setting that is not given."""
    if asked.algorithm in ("adamw", "muon"):
        return asked
    if resume and asked.algorithm == "auto":
        return asked.replace(algorithm="adamw")  # a run of an older version, which had only AdamW
    usual = Fit().optimizer.places() | {"algorithm": asked.algorithm}
    return ADAFACTOR.replace(**{name: value for name, value in asked.places().items() if value != usual[name]})


def _translation(prepared: PreparedText, seed: int) -> Translation:
    """The translation run with the rows a step, and the steps, of the fine-tuning config."""
    config, pairs = prepared.config, prepared.train.pairs
    assert config.model is not None
    fit, tokenizer = config.fit, origin.vocabulary(str(config.model))
    sizes = [len(ids) + 1 for ids in tokenizer.ids(pairs.targets)]
    steps = max(math.ceil(fit.passes * len(sizes) / fit.batch_size), fit.least)
    per_epoch = max(1, round(len(sizes) / fit.batch_size))
    tokens = max(round(fit.batch_size * sum(sizes) / len(sizes)), max(sizes))
    most, factor = prepared.task.longest(sizes, tokenizer)
    timed = fit.minutes is not None
    by_share, by_steps = 1 / (fit.evaluations or IN_MINUTES), round(per_epoch / (fit.evaluations or 1.0))
    evaluate_every = by_share if timed else max(1, min(by_steps, steps))
    run = Translation(
        texts=Texts(
            tokens=tokens, longest=prepared.train.longest, scored=len(prepared.task.pairs(prepared.sets["dev"]))
        ),
        learning=Learning(label_smoothing=0.0),
        training=Training(
            steps=None if timed else steps,
            minutes=fit.minutes,
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
