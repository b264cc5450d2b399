"""Does pre-training pay? One model fine-tuned on few labels from pre-trained and from random weights, and a plain
reference."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface, metrics
from unmask.data.examples import Groups, labelled
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import ModelConfig
from unmask.runs.finetuning.config import Fit
from unmask.runs.finetuning.supervised import fit
from unmask.tasks import Encoded, Task, lexical, task_fitting
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Trainer, Training

OUTSIDE, CODE = "O", "CODE"
LABELS = (OUTSIDE, CODE)
COUNTS = (32, 100, 300, 1_000)
SEEDS = 3
BATCH = 16
EPOCHS, LEAST_STEPS = 4, 80
LENGTH = 128
SAMPLE = 300  # sentences on which `pace` measures times
PRETRAINED, RANDOM, LEXICAL = "pre-trained", "random start", "lexical regression"


@dataclass(frozen=True)
class Pace:
    """Seconds that the parts of a comparison take.

    step     one step of fine-tuning
    answer   the prediction of a test sentence by a fine-tuned model
    lexical  the reference: one training, and the predictions of all test sentences
    """

    step: float
    answer: float
    lexical: float


def steps(rows: int) -> int:
    """Steps of fine-tuning on `rows` labelled sentences: 4 epochs, but at least 80 steps."""
    return max(LEAST_STEPS, EPOCHS * -(-rows // BATCH))


def settings(rows: int, lr: float = 1e-3) -> Fit:
    """The settings for both starts, which keep the last weights. Small models need a learning rate of 1e-3."""
    epochs = steps(rows) / -(-rows // BATCH)
    return Fit(
        epochs=epochs,
        batch_size=BATCH,
        evaluations=1 / (2 * epochs),  # only one, at the end: there are no spare labels to choose weights by
        optimizer=Optimizer(lr=lr),
        schedule=Schedule(warmup=0.1),
    )


def pace(config: ModelConfig, tokenizer: Tokenizer, pool: Sequence[Row], test: Sequence[Row]) -> Pace:
    """Measure the times, on new weights, which take as long as trained ones; trains the reference twice."""
    task = _task(pool)
    model = config.build(task.heads, seed=0)
    examples = task.encode(pool[:SAMPLE], tokenizer, LENGTH).examples
    data = labelled(Groups(examples), BATCH, pad=tokenizer.pad)
    with tempfile.TemporaryDirectory(prefix="unmask-") as folder:
        step = Trainer(model, task, data, Training(steps=1), folder).plan()["seconds_per_step"]
    sample = test[:SAMPLE]
    begun = time.perf_counter()
    task.answer_all(model, task.encode(sample, tokenizer, LENGTH), tokenizer.pad)
    answer = (time.perf_counter() - begun) / max(1, len(sample))
    lexical.tag(pool[:8], test[:8])  # imports libraries before the time is measured
    begun = time.perf_counter()
    lexical.tag(pool[:SAMPLE], test)
    return Pace(step, answer, time.perf_counter() - begun)


def compare(
    folder: Path,
    pool: Sequence[Row],
    test: Sequence[Row],
    *,
    counts: Sequence[int] = COUNTS,
    seeds: int = SEEDS,
    lr: float = 1e-3,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Word-level F1 on `test` of each method, for each number of labelled sentences and seed.

    folder      folder of the pre-trained model; the random start is the same architecture with new weights
    pool, test  sentences with the tags O and CODE; each seed draws its own labelled sentences from the pool

    Returns {"labels", "seed", "way", "f1", "precision", "recall"} for each run; "way" is the name of the method.
    """
    found: list[dict[str, Any]] = []
    tokenizer = huggingface.load(folder, huggingface.SINGLE_STACK).require_tokenizer(folder)
    encoded = _task(test).encode(test, tokenizer, LENGTH)
    for count in (c for c in counts if c <= len(pool)):
        for seed in range(seeds):
            chosen = [pool[i] for i in np.random.default_rng([seed, count]).permutation(len(pool))[:count]]
            methods: dict[str, Mapping[str, float]] = {
                PRETRAINED: _finetuned(folder, chosen, encoded, fresh=False, seed=seed, lr=lr),
                RANDOM: _finetuned(folder, chosen, encoded, fresh=True, seed=seed, lr=lr),
                LEXICAL: metrics.of_tags(lexical.tag(chosen, test, seed), [row.tags for row in test], LABELS),
            }
            for method, scores in methods.items():
                kept = {name: scores[name] for name in ("f1", "precision", "recall")}
                found.append({"labels": count, "seed": seed, "way": method, **kept})
        means = summary(found)[count]
        say(f"  {count:>5} labelled sentences: " + ", ".join(f"{w} {m:.2f}" for w, (m, _) in means.items()))
    return found


def summary(found: Sequence[Mapping[str, Any]], metric: str = "f1") -> dict[int, dict[str, tuple[float, float]]]:
    """Number of labels -> method -> (mean, standard deviation) over the seeds."""
    table: dict[int, dict[str, tuple[float, float]]] = {}
    for count in sorted({row["labels"] for row in found}):
        for method in dict.fromkeys(row["way"] for row in found):
            values = [row[metric] for row in found if row["labels"] == count and row["way"] == method]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            table.setdefault(count, {})[method] = (statistics.fmean(values), spread)
    return table


def _task(rows: Sequence[Row]) -> Task:
    """The task of tagging words, with the labels O and CODE."""
    return task_fitting(Dataset(Path(), tuple(rows), {"words": "words", "tags": "tags"})).of_labels(LABELS)


def _finetuned(
    folder: Path, train: Sequence[Row], test: Encoded, *, fresh: bool, seed: int, lr: float
) -> dict[str, float]:
    """The metrics on `test` of a model fine-tuned on `train`. Raises UnmaskError if a signal stops the training."""
    task = _task(train)
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK, heads=task.heads, seed=seed)
    model, tokenizer = loaded.model, loaded.require_tokenizer(folder)
    if fresh:
        model = model.config.build(task.heads, seed=seed)
        model.heads.load_state_dict(loaded.model.heads.state_dict())  # both trunks start with the same new head
    encoded = task.encode(train, tokenizer, LENGTH)
    # Training rows stand in for dev rows, because no weights are chosen by their scores.
    dev = task.encode(train[:8], tokenizer, LENGTH)
    fitted = fit(model, task, encoded, dev, settings(len(train), lr), pad=tokenizer.pad, seed=seed)
    if fitted.stopped:
        raise UnmaskError(f"Stopped by {fitted.stopped}; the pre-trained model is in {folder}.")
    return task.evaluate(model, test, tokenizer.pad)
