"""Pre-training: real tokens a second of `Pretrain`, compared with `Trainer` of transformers.

Both sides train a masked-language model from the same weights on the same token ids, with the same optimiser, schedule,
precision, dropout and number of threads. The first steps of a turn do not count, and neither does padding.
benchmarks/README.md says what is equal, what differs, and why.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bench import common, trainer
from bench.common import Result, Settings
from bench.preparation import LENGTH, huggingface_rows, prepare_corpus, prepare_model
from bench.row import OURS, Measured, Plan, Turns, Unit
from bench.stopwatch import Stopwatch, attended
from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.kernels.processor import Precision

SPEED = Unit("tokens/s")
SIDES: dict[str, tuple[str, ...]] = {OURS: (), "transformers": ("transformers", "accelerate")}
STEPS = {"tiny": 100, "mini": 50, "small": 20, "medium": 12, "base": 6}  # timed in each turn, by default
SORTED_STEPS = 50  # group_by_length sorts the rows of 50 steps: fewer steps would see only the longest
TOLERANCE = 1e-4  # nats by which the losses of both sides may differ for the same weights and batch


@dataclass(frozen=True, kw_only=True)
class Comparison(Config):
    """The settings of a pre-training row.

    size        published sizes of Devlin et al. 2018 (base) and Turc et al. 2019
    text        "grouped": full rows of consecutive text; "lines": one sentence a sequence, padded by transformers and
                packed by unmask; "sorted": as lines, and transformers groups them by length
    vocabulary  of the model; that of the text is the same, but at most 8,192, which the embedded corpus fills
    rows        of 128 tokens in a step
    steps       timed in each turn; None: fewer for larger sizes
    warmup      steps before the timed ones, in which the learning rate rises
    workers     processes that prepare data, on both sides
    corpus      a folder that `unmask corpus build` wrote; None: the documentation installed with Python and with
                packages
    packages    "all" of that documentation, or of "python" alone
    device      "cuda": one GPU, for all sides
    compile     whether unmask runs compiled (`--training.compile`)
    square      rows and columns of the product that measures the ceiling (ceiling.py)
    seconds     for which this product is repeated, before each pair of turns
    """

    size: Literal["tiny", "mini", "small", "medium", "base"] = "mini"
    text: Literal["grouped", "lines", "sorted"] = "grouped"
    precision: Precision = "auto"
    dropout: float = 0.1
    vocabulary: int = 8_192
    rows: int = 32
    steps: int | None = None
    warmup: int = 5
    workers: int = 0
    lr: float = 1e-4
    seed: int = 0
    corpus: Path | None = None
    packages: Literal["all", "python"] = "all"
    device: Literal["cpu", "cuda"] = "cpu"
    compile: bool = False
    square: int = 4_096
    seconds: float = 2.0

    def counted(self) -> int:
        """Steps that are timed."""
        steps = self.steps or STEPS[self.size]
        return -(-steps // SORTED_STEPS) * SORTED_STEPS if self.text == "sorted" else steps


# ------------------------------------------------------------------------------------------------ unmask


def run_unmask(settings: Settings) -> Result:
    """A turn of `unmask.runs.pretraining.run`, as `unmask pretrain` runs it."""
    from unmask.objectives import Joint, Objective, ObjectiveConfig
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain, Pretraining, Rows
    from unmask.train.metrics import read
    from unmask.train.optim import Optimizer, Schedule
    from unmask.train.trainer import Training
    from unmask.types import Batch, Document

    class OneSentence(Joint):
        """Every sentence is a sequence of its own; packing fills the rows with them."""

        def sample(self, documents: Sequence[Document], length: int, rng: Any) -> list:
            alone = [Document([sentence], d.index) for d in documents for sentence in d.sentences]
            return super().sample(alone, length, rng)

    class Lines(ObjectiveConfig):
        kind = "lines"
        requires = frozenset({"bidirectional"})

        def build(self, tokenizer: Any, splits: Any = (), words: Any = ()) -> Objective:
            return OneSentence(recipes.roberta_tiny().objective.build(tokenizer))

    grouped = recipes.bert_tiny().override({"sentences": "none"}).objective
    watch = Stopwatch()

    def timed(steps: Iterator[tuple[list[Batch], dict[str, Any]]]) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        while True:
            watch.next_step()  # the trainer requests a batch when the step before has ended
            batches, after = next(steps)
            for batch in batches:
                watch.count(batch.real_tokens, batch.tokens.numel(), attended(batch))
            yield batches, after

    config = Pretraining(
        objective=grouped if settings["text"] == "grouped" else Lines(),
        rows=Rows(tokens=LENGTH, batch=settings["rows"], heldout=1, workers=settings["workers"]),
        training=Training(
            steps=total_steps(settings),
            optimizer=Optimizer(lr=settings["lr"], weight_decay=0.01, eps=1e-8, clip=1.0),
            schedule=Schedule(warmup=settings["warmup"], shape="linear"),
            precision=settings["precision"],
            device=settings["device"],
            compile=settings["compile"],
            seed=settings["seed"],
            log_every=trainer.LOG_EVERY,
            evaluate_every=None,
            save_every=None,
        ),
    ).starting_from(settings["model"])
    with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
        run = Pretrain(config, [settings["corpus"]], out)
        batches = run.data.batches
        run.data.batches = lambda position: timed(batches(position))  # type: ignore[method-assign]
        run.run()
        rows = read(Path(out) / "metrics.jsonl", "train")
        losses = [row["loss/mlm"] for row in rows if row["step"] % trainer.LOG_EVERY == 0]  # without the last steps
    return {**watch.result(settings["warmup"], settings["steps"]), "losses": losses}


# ------------------------------------------------------------------------------------------------ transformers


def run_transformers(settings: Settings) -> Result:
    """A turn of `transformers.Trainer` with `DataCollatorForLanguageModeling`, as in `run_mlm.py`."""
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    model: Any = transformers.BertForMaskedLM.from_pretrained(settings["model"])
    model.accepts_loss_kwargs = False  # else the Trainer sums the mean losses of several passes
    rows, passes = huggingface_rows(settings)
    watch, losses = trainer.train(
        model,
        rows,
        transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        settings,
        steps=total_steps(settings),
        warmup=settings["warmup"],
        rows_at_once=settings["rows"],
        gradient_accumulation_steps=passes,
        dataloader_num_workers=settings["workers"],
        # The rows mark the special tokens, so that the collator does not search them in a Python loop.
        remove_unused_columns=False,
        **(trainer.BY_LENGTH if settings["text"] == "sorted" else {}),
    )
    return {**watch.result(settings["warmup"], settings["steps"]), "losses": losses, "passes": passes}


def total_steps(settings: Settings) -> int:
    """One more than is timed, because saving follows the last step."""
    return settings["warmup"] + settings["steps"] + 1


# ------------------------------------------------------------------------------------------------ the comparison


def measure(asked: Comparison, sides: Sequence[str], plan: Plan) -> Measured:
    """Check that the sides compute the same loss, then let them take turns."""
    turns, facts = compared(asked, sides, plan)
    shown = ", ".join(f"{side} {done[-1]['filled']:.1%}" for side, done in turns.items())
    return Measured(turns, facts, notes=(f"Rows filled with text: {shown}.",))


def compared(asked: Comparison, sides: Sequence[str], plan: Plan) -> tuple[Turns, Result]:
    """The turns of all sides, with a seed and a measured ceiling for each pair, and the facts that were checked.

    Rows of the same settings share them.
    """

    def compare() -> tuple[Turns, Result]:
        settings, facts = prepared(asked, plan)
        trial = partial(common.trial, threads=plan.threads, gpu=asked.device != "cpu")

        def product() -> Result:
            return trial("ceiling", "product", settings)

        def turn(side: str, number: int) -> Result:
            made = plan.once((asked, number), product)
            seeded = {**settings, "seed": settings["seed"] + number}
            done = trial("pretraining", side, seeded, ours=side == OURS)
            ceiling = {"ceiling": made["flops_per_second"], "peak": made.get("peak"), "device": made.get("device")}
            return {**done, "figure": done["tokens_per_second"], **ceiling}

        return plan.alternate(sides, SPEED, turn), facts

    if (asked, *sides) in plan.made:
        print("  The turns of the same settings, above, count here too.", flush=True)
    return plan.once((asked, *sides), compare)


def prepared(asked: Comparison, plan: Plan) -> tuple[Settings, Result]:
    """Prepare corpus and model: the settings of the turns, and the facts about them.

    Raises UnmaskError if the two sides do not compute the same loss.
    """
    given = {"folder": str(plan.folder), **asked.to_dict(), "steps": asked.counted()}
    corpus = common.trial("pretraining", "corpus", given, threads=plan.threads, ours=True)
    settings = {**given, "corpus": corpus["corpus"], "model": tempfile.mkdtemp(prefix="model-", dir=plan.folder)}
    facts = common.trial("pretraining", "model", settings, threads=plan.threads)
    facts["corpus"] = {name: corpus[name] for name in ("vocabulary", "tokens", "sentences")}
    print(f"  {facts['parameters'] / 1e6:.1f} M parameters, {corpus['tokens']:,} tokens of text", flush=True)
    if losses := facts.get("losses"):
        difference = max(losses.values()) - min(losses.values())
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.6f}" for name, value in losses.items())
        print(f"  same weights, same batch: {shown} (differ by {difference:.1e})", flush=True)
        if difference > TOLERANCE:
            raise UnmaskError(f"The sides do not compute the same loss: they differ by {difference:.1e}.")
    return settings, facts


TRIALS = {"corpus": prepare_corpus, "model": prepare_model, OURS: run_unmask, "transformers": run_transformers}
