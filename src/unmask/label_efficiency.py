"""Does pre-training pay? The same model on few labels from a pre-trained and a random start, and a plain reference."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface, lexical, metrics
from unmask.data.rows import Row
from unmask.errors import UnmaskError
from unmask.fit import LEAST_STEPS, Fit, fit
from unmask.models.bert import Bert
from unmask.tasks import Tagging
from unmask.train.optim import Optimizer, Schedule

OUTSIDE, CODE = "O", "CODE"
LABELS = (OUTSIDE, CODE)
COUNTS = (32, 100, 300, 1_000)
SEEDS = 3
BATCH = 16
LENGTH = 128
PRETRAINED, RANDOM, LEXICAL = "pre-trained", "random start", "lexical regression"


def settings(rows: int, lr: float = 1e-3) -> Fit:
    """The same for both starts: as many steps as the fewest rows need and the most can bear, the last weights kept.

    Small models want a rate of 1e-3; 10 epochs of the larger sets, at least 100 steps of the smaller ones.
    """
    steps_per_epoch = -(-rows // BATCH)
    epochs = max(10.0, 100 / steps_per_epoch)
    return Fit(
        epochs=epochs,
        least_steps=LEAST_STEPS,
        batch_size=BATCH,
        evaluations=1 / (2 * epochs),  # only the last one: there are no labels to spare for choosing among weights
        optimizer=Optimizer(lr=lr),
        schedule=Schedule(warmup=0.1),
    )


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
    """Word-level F1 on `test` of each way to tag, for each number of labelled sentences and seed.

    folder      of the pre-trained model; the random start is the same architecture with fresh weights
    pool, test  sentences with the tags O and CODE; each seed draws its own labelled sentences from the pool

    Returns {"labels", "seed", "way", "f1", "precision", "recall"} for each run.
    """
    found: list[dict[str, Any]] = []
    for count in (c for c in counts if c <= len(pool)):
        for seed in range(seeds):
            chosen = [pool[i] for i in np.random.default_rng([seed, count]).permutation(len(pool))[:count]]
            ways: dict[str, list[list[str]]] = {
                PRETRAINED: _finetuned(folder, chosen, test, fresh=False, seed=seed, lr=lr),
                RANDOM: _finetuned(folder, chosen, test, fresh=True, seed=seed, lr=lr),
                LEXICAL: lexical.tag(chosen, test, seed),
            }
            for way, tags in ways.items():
                scores = metrics.of_tags(tags, [row.tags for row in test], LABELS)
                kept = {name: scores[name] for name in ("f1", "precision", "recall")}
                found.append({"labels": count, "seed": seed, "way": way, **kept})
        means = summary(found)[count]
        say(f"  {count:>5} labelled sentences: " + ", ".join(f"{w} {m:.2f}" for w, (m, _) in means.items()))
    return found


def summary(found: Sequence[Mapping[str, Any]], metric: str = "f1") -> dict[int, dict[str, tuple[float, float]]]:
    """Number of labels -> way -> (mean, standard deviation) over the seeds."""
    table: dict[int, dict[str, tuple[float, float]]] = {}
    for count in sorted({row["labels"] for row in found}):
        for way in dict.fromkeys(row["way"] for row in found):
            values = [row[metric] for row in found if row["labels"] == count and row["way"] == way]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            table.setdefault(count, {})[way] = (statistics.fmean(values), spread)
    return table


def _finetuned(
    folder: Path, train: Sequence[Row], test: Sequence[Row], *, fresh: bool, seed: int, lr: float
) -> list[list[str]]:
    """Tags of the words of `test`, by a model fine-tuned on `train`. Raises UnmaskError where a signal stops that."""
    task = Tagging(LABELS)
    loaded = huggingface.load(folder, heads=task.heads, seed=seed)
    assert loaded.tokenizer is not None
    model, tokenizer = loaded.model, loaded.tokenizer
    if fresh:
        assert isinstance(model.config, Bert)
        model = model.config.build(task.heads, seed=seed)
        model.heads.load_state_dict(loaded.model.heads.state_dict())  # both trunks begin with the same new head
    encoded = task.encode(train, tokenizer, LENGTH)
    # The rows in the place of the dev rows are training rows: nothing is chosen by them.
    fitted = fit(
        model,
        task,
        encoded,
        task.encode(train[:8], tokenizer, LENGTH),
        settings(len(train), lr),
        pad=tokenizer.pad,
        seed=seed,
    )
    if fitted.stopped:
        raise UnmaskError(f"Stopped by {fitted.stopped}; the pre-trained model is in {folder}.")
    return task.decode(task.answer_all(model, task.encode(test, tokenizer, LENGTH), tokenizer.pad))
