"""Text-to-text: labelled rows as pairs of texts, and a T5 that writes the label (Raffel et al. 2020, section 2.4)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unmask import families, metrics
from unmask.data.bitext import Bitext, Report
from unmask.data.dataset import Dataset
from unmask.data.rows import Row
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.finetune import FineTuning
from unmask.generate import Limits, Search
from unmask.serve.translator import Translator
from unmask.train.trainer import Display, Training
from unmask.translation import origin
from unmask.translation.run import Learning, Texts, TrainTranslation, Translation

FAMILIES = ("classification", "regression")
STEP = 0.2  # what scores are rounded to, so that they are words (section 2.4, on STS-B)
FIELDS = {"qqp": ("question1", "question2"), "qnli": ("question", "sentence")}
WORDS = {
    "sst2": {"0": "negative", "1": "positive"},
    "cola": {"0": "unacceptable", "1": "acceptable"},
    "mrpc": {"0": "not_equivalent", "1": "equivalent"},
    "qqp": {"0": "not_duplicate", "1": "duplicate"},
}
"""Labels that are numbers in the files, as words (appendix D)."""


def check_family(family: str) -> None:
    """Raises UnmaskError for a task that is not answered in words here."""
    if family not in FAMILIES:
        raise UnmaskError(f"A T5 answers --task {' or '.join(FAMILIES)} in words; {family} is for encoders.")


class TextTask:
    """A task whose rows are read as text, and whose answers are written.

    family  "classification" or "regression"
    name    what stands before each text, such as "sst2"
    train   rows that say which labels there are; a score that cannot be read counts as their mean
    """

    def __init__(self, family: str, name: str, train: Sequence[Row]) -> None:
        check_family(family)
        self.family, self.name = family, name
        self.labels = () if family == "regression" else tuple(dict.fromkeys(sorted(self.target(row) for row in train)))
        self.mean = float(np.mean([float(row.label) for row in train])) if family == "regression" else 0.0

    @property
    def metric(self) -> str:
        """What decides which weights are kept."""
        return "pearson" if self.family == "regression" else "accuracy"

    def source(self, row: Row) -> str:
        """sst2 sentence: … or mrpc sentence1: … sentence2: …"""
        if row.pair is None:
            return f"{self.name} sentence: {row.text}"
        first, second = FIELDS.get(self.name, ("sentence1", "sentence2"))
        return f"{self.name} {first}: {row.text} {second}: {row.pair}"

    def target(self, row: Row) -> str:
        """The label as text; a score to the nearest fifth."""
        if self.family == "regression":
            return f"{round(float(row.label) / STEP) * STEP:.1f}"
        return WORDS.get(self.name, {}).get(row.label, row.label)

    def pairs(self, rows: Dataset) -> Bitext:
        """What is read and what is to be written, for every row."""
        report = Report(str(rows.path), len(rows))
        kept = list(rows)
        return Bitext([self.source(r) for r in kept], [self.target(r) for r in kept], report, list(range(len(kept))))

    def scores(self, answers: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
        """The metrics of the task; `answered` is the share of answers that are one of the labels, or a number."""
        if self.family == "regression":
            numbers = [_number(answer) for answer in answers]
            said = np.array([self.mean if number is None else number for number in numbers])
            found = metrics.of_scores(said, np.array([float(row.label) for row in rows]))
            return {**found, "answered": float(np.mean([number is not None for number in numbers]))}
        ids = {label.casefold(): i for i, label in enumerate(self.labels)}
        said = np.array([ids.get(answer.casefold(), len(ids)) for answer in answers])
        true = np.array([ids[self.target(row).casefold()] for row in rows])
        found = metrics.of_classes(said, true, self.labels)
        return {**found, "answered": float((said < len(ids)).mean())}


class FinetuneText(TrainTranslation):
    """A translation run from rows to their labels, scored by the metrics of the task."""

    def __init__(
        self, config: Translation, task: TextTask, sets: dict[str, Dataset], out: Path, display: Display | None = None
    ) -> None:
        self.task, self.sets = task, sets
        super().__init__(config, out, recipe="finetune", display=display)

    @property
    def metric(self) -> str:
        return self.task.metric

    def _read(self, texts: Texts, seed: int) -> tuple[Bitext, Bitext]:
        return self.task.pairs(self.sets["train"]), self.task.pairs(self.sets["dev"])

    def _scores(self, translations: Sequence[str]) -> dict[str, float]:
        return self.task.scores(translations, list(self.sets["dev"])[: len(translations)])


def finetune_text(config: FineTuning, out: Path, display: Display | None = None) -> dict[str, dict[str, float]]:
    """Fine-tune the encoder–decoder of a folder on labelled rows; returns, and writes into results.json, the scores of
    the dev rows and of test rows, as the folder answers them.

    Raises UnmaskError for a task that it cannot answer, and for options that only encoders have.
    """
    usual = FineTuning()
    for name in ("options", "transfer", "distillation", "from_scratch", "language_model"):
        if getattr(config, name) != getattr(usual, name):
            raise UnmaskError(f"A T5 has no use for other values of {name}: leave them out, or take an encoder.")
    if config.rows.train is None:
        raise UnmaskError("Say on which rows: --train FILE.")
    check_family(config.task)
    said: list[str] = []
    sets = families.read_sets(config.task, config.rows, said.append, np.random.default_rng(config.seed))
    name = "".join(c for c in (config.rows.benchmark or config.task).lower() if c.isalnum())
    task = TextTask(config.task, name, list(sets["train"]))
    run = FinetuneText(_translation(config, task.pairs(sets["train"]), len(sets["dev"])), task, sets, out, display)
    for note in said:
        run.trainer.display.note(note)
    result = run.run()
    run.trainer.display.note(run.summary(result))
    translator = Translator(out)
    found: dict[str, dict[str, float]] = {
        part: task.scores(translator([task.source(row) for row in sets[part]]), list(sets[part]))
        for part in [name for name in sets if name != "train"]
    }
    write_text(out / "results.json", json.dumps({"task": config.task, "metric": task.metric, **found}, indent=2) + "\n")
    return found


def _translation(config: FineTuning, pairs: Bitext, dev: int) -> Translation:
    """The run that takes as many rows a step, and as many steps, as the config of the fine-tuning says."""
    assert config.model is not None
    fit, tokenizer = config.fit, origin.vocabulary(str(config.model))
    sizes = [len(ids) + 1 for ids in tokenizer.encode_all(pairs.targets)]
    steps = max(math.ceil(fit.epochs * len(sizes) / fit.batch_size), fit.least_steps)
    per_epoch = max(1, round(len(sizes) / fit.batch_size))
    longest = max(config.rows.length or families.LENGTHS.get(config.task, 128), *sizes)
    tokens = max(round(fit.batch_size * sum(sizes) / len(sizes)), max(sizes))
    run = Translation(
        texts=Texts(tokens=tokens, longest=longest, scored=dev),
        learning=Learning(label_smoothing=0.0),
        training=Training(
            steps=steps,
            optimizer=fit.optimizer,
            schedule=fit.schedule,
            precision=fit.precision,
            device=fit.device,
            seed=config.seed,
            evaluate_every=max(1, min(round(per_epoch / fit.evaluations), steps)),
            save_every=None,
            keep=1,
        ),
        search=Search(limits=Limits(max_length=max(sizes) + 1)),
    )
    return origin.starting_from(run, config.model)


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(" ", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
