"""Fine-tuning: rows a second of text classification, compared with transformers, on texts of natural length.

A whole epoch is timed, so that every side sees the same rows, however it groups them. A few steps before do not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import common, encoder, trainer
from bench.common import Result, Settings
from bench.row import OURS, Measured, Plan, Unit
from bench.stopwatch import Stopwatch, attended
from unmask.config import Config
from unmask.kernels.processor import Precision

SPEED = Unit("rows/s")
RISING = 0.1  # share of the steps for warm-up
PADDED, BY_LENGTH = "transformers, padded", "transformers, by length"
PACKAGES = ("transformers", "accelerate")
SIDES: dict[str, tuple[str, ...]] = {OURS: (), PADDED: PACKAGES, BY_LENGTH: PACKAGES}


@dataclass(frozen=True, kw_only=True)
class Tuned(Config):
    """The settings of a fine-tuning row.

    model   folder of an encoder; None: all-MiniLM-L6-v2 as packaged, or a random one of its shape
    rows    paragraphs of the documentation installed with Python; their label is the module that they document
    batch   rows of a step
    length  tokens of a text, at most; longer ones are cut
    warmup  steps before the timed epoch
    """

    model: Path | None = None
    rows: int = 1_600
    batch: int = 32
    length: int = 128
    precision: Precision = "auto"
    lr: float = 1e-4
    warmup: int = 5
    seed: int = 0


def run_unmask(settings: Settings) -> Result:
    """An epoch of the training behind `unmask finetune`, on rows packed without padding."""
    from unmask import huggingface
    from unmask.data.examples import Groups, labelled
    from unmask.data.labelled.rows import Row
    from unmask.tasks import Classification
    from unmask.train.optim import Optimizer, Schedule
    from unmask.train.trainer import Trainer, Training
    from unmask.types import Batch

    rows = [Row(text=text, label=label) for text, label in settings["examples"]]
    task = Classification(sorted({row.label for row in rows}))
    loaded = huggingface.load(settings["model"], heads=task.heads, seed=settings["seed"])
    tokenizer = loaded.require_tokenizer(settings["model"])
    encoded = task.encode(rows, tokenizer, settings["length"])

    def train(steps: int) -> Stopwatch:
        watch = Stopwatch()

        data = labelled(Groups(encoded.examples), settings["batch"], pad=tokenizer.pad, seed=settings["seed"])

        class Timed:
            def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
                found = data.batches(position)
                while True:
                    watch.next_step()  # the trainer requests a batch when the step before has ended
                    batches, after = next(found)
                    for batch in batches:
                        watch.count(batch.real_tokens, batch.tokens.numel(), attended(batch))
                    yield batches, after

        training = Training(
            steps=steps + 1,  # its start is the end of the last timed step
            optimizer=Optimizer(lr=settings["lr"], weight_decay=0.01, eps=1e-8, clip=1.0),
            schedule=Schedule(warmup=round(RISING * steps), shape="linear"),
            precision=settings["precision"],
            device="cpu",
            seed=settings["seed"],
            evaluate_every=None,
            save_every=None,
        )
        with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
            Trainer(loaded.model, task, Timed(), training, out).train()
        return watch

    return counted(settings, train)


def run_transformers(settings: Settings, *, grouping: Mapping[str, str]) -> Result:
    """An epoch of `transformers.Trainer`, each batch padded to its longest row; `grouping` are arguments of it."""
    import transformers

    transformers.logging.set_verbosity_error()
    texts, names = zip(*settings["examples"], strict=True)
    labels = {label: i for i, label in enumerate(sorted(set(names)))}
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    found = tokenizer(list(texts), truncation=True, max_length=settings["length"])
    rows = [{**{key: found[key][i] for key in found}, "labels": labels[name]} for i, name in enumerate(names)]
    model = transformers.BertForSequenceClassification.from_pretrained(settings["model"], num_labels=len(labels))
    collator = transformers.DataCollatorWithPadding(tokenizer)

    def train(steps: int) -> Stopwatch:
        at_once, rising = settings["batch"], round(RISING * steps)
        return trainer.train(
            model, rows, collator, settings, steps=steps, warmup=rising, rows_at_once=at_once, **grouping
        )[0]

    return counted(settings, train)


def counted(settings: Settings, train: Callable[[int], Stopwatch]) -> Result:
    """The result of an epoch, after a few steps that do not count."""
    steps = -(-len(settings["examples"]) // settings["batch"])
    if settings["warmup"]:
        train(settings["warmup"])
    found = train(steps).result(0, steps)
    return {**found, "figure": len(settings["examples"]) / found["seconds"]}


def measure(asked: Tuned, sides: Sequence[str], plan: Plan) -> Measured:
    """Let all sides train on the same rows, which are drawn once."""
    import numpy as np

    every = encoder.passages()
    order = np.random.default_rng(asked.seed).permutation(len(every))[: asked.rows]
    settings = {**asked.to_dict(), "model": str(asked.model or encoder.minilm(plan))}
    settings["examples"] = [every[i] for i in order]

    def turn(side: str, number: int) -> Result:
        seeded = {**settings, "seed": asked.seed + number}
        return common.trial("finetuning", side, seeded, threads=plan.threads, ours=side == OURS)

    turns = plan.alternate(sides, SPEED, turn)
    filled = ", ".join(f"{side} {done[-1]['filled']:.1%}" for side, done in turns.items())
    tokens = {side: round(done[-1]["tokens_per_step"]) for side, done in turns.items()}
    mean = tokens[OURS] / asked.batch
    return Measured(
        turns,
        {"model": settings["model"], "tokens_per_step": tokens},
        (f"{len(order):,} rows of {mean:.0f} tokens on average; rows filled with text: {filled}.",),
    )


TRIALS = {
    OURS: run_unmask,
    PADDED: partial(run_transformers, grouping={}),
    BY_LENGTH: partial(run_transformers, grouping=trainer.BY_LENGTH),
}
