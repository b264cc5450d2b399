"""Tokens per second of pre-training: unmask against the Trainer of Hugging Face transformers, side by side.

Both sides train the same model from the same weights on the same token ids, with the same optimiser, schedule,
precision, dropout and number of threads, as masked-language models. They take turns, A B A B ..., each turn in a
fresh process; the first steps of a turn are not counted. What counts are real tokens: padding is worth nothing.

    python benchmarks/pretrain.py --size tiny mini --precision fp32 bf16 --text grouped lines --out results.json

Every option that takes several values runs all their combinations. benchmarks/README.md says what is equal,
what differs, and why.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from common import Result, Settings
from preparation import LENGTH, huggingface_rows, prepare_corpus, prepare_model

STEPS = {"tiny": 100, "mini": 50, "small": 20, "medium": 12, "base": 6}  # counted in each turn, by default
SORTED_STEPS = 50  # group_by_length sorts the rows of so many steps: fewer would see the longest alone
SIDES = ("unmask", "transformers")
TEXTS = {
    "grouped": "full rows of consecutive text",
    "lines": "one sentence a sequence: padded by transformers, packed by unmask",
    "sorted": "as lines, and transformers groups by length",
}
GROUP_BY_LENGTH = {"train_sampling_strategy": "group_by_length"}
LOG_EVERY = 10  # steps
TOLERANCE = 1e-4  # of the losses of the two sides, in nats, for the same weights and batch


# ------------------------------------------------------------------------------------------------ measuring


@dataclass
class Step:
    """When a step began, and the tokens that it computed: those of the text, and all with padding."""

    began: float
    real: int = 0
    computed: int = 0


class Stopwatch:
    """The steps of a turn: `next_step` where one ends and the next begins, `count` for each forward pass."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def next_step(self) -> None:
        self.steps.append(Step(time.perf_counter()))

    def count(self, real: int, computed: int) -> None:
        self.steps[-1].real += real
        self.steps[-1].computed += computed

    def result(self, settings: Settings) -> Result:
        """The counted steps: everything from the end of the warm-up to the end of the last of them."""
        import torch

        first, end = settings["warmup"], settings["warmup"] + settings["steps"]
        counted = self.steps[first:end]
        seconds, real = self.steps[end].began - counted[0].began, sum(step.real for step in counted)
        return {
            "tokens_per_second": real / seconds,
            "seconds_per_step": seconds / len(counted),
            "tokens_per_step": real / len(counted),
            "filled": real / sum(step.computed for step in counted),
            "peak_memory_mb": common.peak_memory(),
            "threads": torch.get_num_threads(),
        }


def total_steps(settings: Settings) -> int:
    """One more than is counted: the last step is followed by saving and the like."""
    return settings["warmup"] + settings["steps"] + 1


# ------------------------------------------------------------------------------------------------ unmask


def run_unmask(settings: Settings) -> Result:
    """A turn of `unmask.pretrain`, as `unmask pretrain` runs it."""
    from unmask.data.tokenizer import Tokenizer
    from unmask.objectives import MaskedLM, Objective
    from unmask.pretrain import Objectives, Pretrain, Pretraining, Rows
    from unmask.train.metrics import read
    from unmask.train.optim import Optimizer, Schedule
    from unmask.train.trainer import Training
    from unmask.types import Batch, Document

    class OneSentence(MaskedLM):
        """Every sentence is a sequence of its own; packing fills the rows with them."""

        def sample(self, documents: Sequence[Document], length: int, rng: Any) -> list:
            alone = [Document([sentence], d.index) for d in documents for sentence in d.sentences]
            return super().sample(alone, length, rng)

    class Lines(Objectives):
        def build(self, tokenizer: Tokenizer) -> Objective:
            ids = {"mask": tokenizer.mask, "specials": tokenizer.specials, "vocabulary": tokenizer.size}
            return OneSentence(**ids, rate=self.rate, join=tokenizer.join)

    watch = Stopwatch()

    class Timed(Pretrain):
        def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
            steps = super().batches(position)
            while True:
                watch.next_step()  # the trainer asks for the next batch: the step before has ended
                batches, after = next(steps)
                watch.count(sum(b.real_tokens for b in batches), sum(b.tokens.numel() for b in batches))
                yield batches, after

    config = Pretraining(
        start=settings["model"],
        objectives=(Objectives if settings["text"] == "grouped" else Lines)(sentences="none"),
        rows=Rows(tokens=LENGTH, batch=settings["rows"], heldout=1, workers=settings["workers"]),
        training=Training(
            steps=total_steps(settings),
            optimizer=Optimizer(lr=settings["lr"], weight_decay=0.01, eps=1e-8, clip=1.0),
            schedule=Schedule(warmup=settings["warmup"], shape="linear"),
            precision=settings["precision"],
            device="cpu",
            seed=settings["seed"],
            log_every=LOG_EVERY,
            evaluate_every=None,
            save_every=None,
        ),
    )
    with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
        Timed(config, [settings["corpus"]], out).run()
        rows = read(Path(out) / "metrics.jsonl", "train")
        losses = [row["loss/mlm"] for row in rows if row["step"] % LOG_EVERY == 0]  # not of the steps at the very end
    return {**watch.result(settings), "losses": losses}


# ------------------------------------------------------------------------------------------------ transformers


def run_transformers(settings: Settings) -> Result:
    """A turn of `transformers.Trainer` with `DataCollatorForLanguageModeling`, as `run_mlm.py` has it."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    model = transformers.BertForMaskedLM.from_pretrained(settings["model"])
    model.accepts_loss_kwargs = False  # else the Trainer adds the mean losses of several passes up undivided
    data, passes = huggingface_rows(settings)
    watch = Stopwatch()

    def count(module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        mask = kwargs["attention_mask"]
        watch.count(int(mask.sum()), mask.numel())

    class Timed(transformers.TrainerCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            watch.next_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            watch.next_step()

    model.register_forward_pre_hook(count, with_kwargs=True)
    with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
        arguments = transformers.TrainingArguments(
            output_dir=out,
            max_steps=total_steps(settings),
            per_device_train_batch_size=settings["rows"],
            gradient_accumulation_steps=passes,
            learning_rate=settings["lr"],
            lr_scheduler_type="linear",
            warmup_steps=settings["warmup"],
            weight_decay=0.01,
            adam_epsilon=1e-8,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            bf16=settings["precision"] == "bf16",
            use_cpu=True,
            seed=settings["seed"],
            dataloader_num_workers=settings["workers"],
            dataloader_pin_memory=False,
            # With the special tokens already marked, the collator need not look for them in a Python loop.
            remove_unused_columns=False,
            logging_steps=LOG_EVERY,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **(GROUP_BY_LENGTH if settings["text"] == "sorted" else {}),
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=data,
            data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
            callbacks=[Timed()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return {**watch.result(settings), "losses": losses, "passes": passes}


# ------------------------------------------------------------------------------------------------ the comparison


def compare(settings: Settings, pairs: int, threads: int) -> Result:
    """One combination of options: check that the two sides are equal, then let them take turns."""
    facts = common.trial(__file__, "model", settings, threads=threads)
    dropout, rows = settings["dropout"], settings["rows"]
    print(f"\n{settings['size']} ({facts['parameters'] / 1e6:.1f} M parameters), ", end="")
    print(
        f"{settings['precision']}, dropout {dropout:g}, {settings['text']}, {rows} x {LENGTH} tokens, {threads} threads"
    )
    difference = max(facts["losses"].values()) - min(facts["losses"].values())
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.6f}" for name, value in facts["losses"].items())
    print(f"  same weights, same batch: {shown} (differ by {difference:.1e})")
    print("  gradient norm: " + ", ".join(f"{name} {norm:.6f}" for name, norm in facts["gradient_norms"].items()))
    if difference > TOLERANCE:
        sys.exit(f"The two sides do not compute the same loss: they differ by {difference:.1e} > {TOLERANCE:.0e}.")
    turns: dict[str, list[Result]] = {side: [] for side in SIDES}
    ratios = []
    for pair in range(pairs):
        for side in SIDES:
            seeded = {**settings, "seed": settings["seed"] + pair}
            turns[side].append(common.trial(__file__, side, seeded, threads=threads))
        speeds = [turns[side][-1]["tokens_per_second"] for side in SIDES]
        ratios.append(speeds[0] / speeds[1])
        print(f"  pair {pair + 1}: unmask {speeds[0]:9,.0f}   transformers {speeds[1]:9,.0f}   ratio {ratios[-1]:.2f}")
    for side in SIDES:
        print(f"  {side:12} {summary(turns[side])}")
    ratio = common.spread(ratios)
    print(f"  ratio        median {ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['greatest']:.2f})")
    return {"settings": settings, "equality": facts, "turns": turns, "ratios": ratios, "ratio": ratio}


def summary(turns: Sequence[Result]) -> str:
    """One side in one line."""
    speed, last = common.spread(turn["tokens_per_second"] for turn in turns), turns[-1]
    return (
        f"median {speed['median']:,.0f} real tokens/s ({speed['least']:,.0f} to {speed['greatest']:,.0f}); "
        f"{last['tokens_per_step']:,.0f} a step, {last['filled']:.1%} of the rows filled, "
        f"peak memory {last['peak_memory_mb']:,.0f} MB"
        + (f", last loss {last['losses'][-1]:.2f}" if last["losses"] else "")
    )


def main() -> None:
    options = parse()
    common.need("torch", "transformers", "accelerate")
    if options.corpus is not None and not (Path(options.corpus) / "manifest.json").is_file():
        sys.exit(f"{options.corpus} is not a corpus; make one with: unmask corpus build --data ... --out FOLDER.")
    facts: dict[str, Any] = {"machine": common.machine(options.threads), "seed": options.seed}
    common.introduce(facts["machine"])
    if not options.skip_startup:
        facts["startup_seconds"] = common.startup()
        print("start-up, s: " + ", ".join(f"{k} {v:.2f}" for k, v in facts["startup_seconds"].items()))
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        given = {"folder": folder, "corpus": options.corpus}
        facts["corpus"] = common.trial(__file__, "corpus", given, threads=options.threads)
        print(
            "corpus: {tokens:,} tokens in {sentences:,} sentences, vocabulary {vocabulary:,}".format(**facts["corpus"])
        )
        same = {name: getattr(options, name) for name in ("rows", "warmup", "workers", "lr", "seed")}
        same |= {"corpus": facts["corpus"]["corpus"]}
        facts["comparisons"] = []
        for i, combination in enumerate(
            itertools.product(options.size, options.precision, options.dropout, options.text)
        ):
            chosen = dict(zip(("size", "precision", "dropout", "text"), combination, strict=True))
            steps = options.steps or STEPS[chosen["size"]]
            if chosen["text"] == "sorted":
                steps = -(-steps // SORTED_STEPS) * SORTED_STEPS
            settings = {**same, **chosen, "steps": steps, "model": str(Path(folder) / f"model-{i}")}
            facts["comparisons"].append(compare(settings, options.pairs, options.threads))
    common.write(options.out, facts)


def parse() -> argparse.Namespace:
    import os

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", nargs="+", choices=list(STEPS), default=["tiny"], help="published sizes")
    parser.add_argument("--precision", nargs="+", choices=["fp32", "bf16"], default=["fp32"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1], help="published: 0.1; short recipes: 0.0")
    parser.add_argument(
        "--text",
        nargs="+",
        choices=list(TEXTS),
        default=["grouped"],
        help="; ".join(f"{name}: {what}" for name, what in TEXTS.items()),
    )
    parser.add_argument("--rows", type=int, default=32, help=f"rows of {LENGTH} tokens in a step")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pairs", type=int, default=5, help="turns of each side")
    parser.add_argument("--steps", type=int, help="counted steps of a turn (default: fewer for larger sizes)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before counting, and of the rate's warm-up")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare data, on both sides")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", help="a folder that `unmask corpus build` wrote (default: the embedded corpus)")
    parser.add_argument("--skip-startup", action="store_true", help="do not measure the time that imports take")
    parser.add_argument("--out", help="write everything as JSON")
    return parser.parse_args()


TRIALS = {"corpus": prepare_corpus, "model": prepare_model, "unmask": run_unmask, "transformers": run_transformers}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        common.serve(TRIALS, sys.argv[2:])
    else:
        main()
