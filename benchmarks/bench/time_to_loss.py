"""Time to loss: how long transformers takes to the held-out loss that a recipe of unmask reaches in some minutes.

The loss is that of masked tokens in held-out rows, which are the same for all sides; clocks stop while it is computed.
A side of transformers has `patience` times the time of unmask. Its learning rate decays over that time, and it stops
when it reaches the loss. A longer run would not reach the loss sooner, because its rate would fall later.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bench import common, trainer
from bench.common import Result, Settings
from bench.preparation import LENGTH, huggingface_rows
from bench.row import OURS, Measured, Plan, Unit
from unmask.config import Config
from unmask.kernels.processor import Precision

if TYPE_CHECKING:
    import torch

SECONDS = Unit("s", time=True)
PUBLISHED, RATED = "transformers", "transformers, best rate found"
PACKAGES = ("transformers", "accelerate")
SIDES: dict[str, tuple[str, ...]] = {OURS: (), PUBLISHED: PACKAGES, RATED: PACKAGES}
HELDOUT = 128  # rows
LOOKS = 40  # evaluations in the time that a side has
TIMED = 8  # steps that estimate how many fit into that time
RATES = {"tiny": 3e-3, "mini": 1e-3, "small": 7e-4}  # of AdamW in the recipes; 2e-3 is too high for mini (docs/log.md)


@dataclass(frozen=True, kw_only=True)
class TimeToLoss(Config):
    """The settings of the row.

    size      published sizes of Turc et al. 2019
    minutes   of `unmask pretrain`
    patience  time of the other sides, as a multiple of that
    corpus    a folder that `unmask corpus build` wrote; None: the documentation installed with Python and with
              packages
    packages  "all" of that documentation, or of "python" alone
    """

    size: Literal["tiny", "mini", "small"] = "mini"
    precision: Precision = "auto"
    minutes: float = 2.0
    patience: float = 3.3
    vocabulary: int = 8_192
    rows: int = 32
    seed: int = 0
    corpus: Path | None = None
    packages: Literal["all", "python"] = "all"


# ------------------------------------------------------------------------------------------------ the sides


def run_unmask(settings: Settings) -> Result:
    """`unmask pretrain RECIPE --sentences none --minutes …`; its final loss is the target of the other sides."""
    from unmask import huggingface
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretrain

    training = {"minutes": settings["minutes"], "precision": settings["precision"], "seed": settings["seed"]}
    config = recipes.find(f"bert-{settings['size']}").replace(
        rows={"batch": settings["rows"]},
        training={**training, "device": "cpu", "evaluate_every": None, "save_every": None},
    )
    config = config.override({"sentences": "none"})
    with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
        result = Pretrain(config, [settings["corpus"]], out).run()
        model = huggingface.load(out).model.eval()
    tokens, places, values = heldout(settings)
    return {
        "figure": result.seconds,
        "steps": result.step,
        "loss": heldout_loss(partial(_ours, model), tokens, places, values),
    }


def run_transformers(settings: Settings, *, rated: bool) -> Result:
    """`Trainer` on full rows of the same text, from a model of the same size.

    rated  whether it has the learning rate of `RATES`, the warm-up of unmask and no dropout; else the rate of
           `run_mlm.py` (5e-5, no warm-up) and the dropout of `BertConfig`
    """
    import copy

    import transformers

    from unmask.data.text.corpus import Corpus
    from unmask.models.bert import SIZES

    transformers.logging.set_verbosity_error()
    transformers.set_seed(settings["seed"])
    tokenizer = Corpus(settings["corpus"]).tokenizer
    size = SIZES[settings["size"]]
    dropout: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if rated else {}
    config = transformers.BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=size["dim"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        intermediate_size=size["hidden"],
        max_position_embeddings=LENGTH,
        pad_token_id=tokenizer.pad,
        **dropout,
    )
    model: Any = transformers.BertForMaskedLM(config)
    model.accepts_loss_kwargs = False
    with tempfile.TemporaryDirectory(prefix="unmask-tokenizer-") as folder:
        tokenizer.save(folder)
        reader = transformers.AutoTokenizer.from_pretrained(folder)
    collator = transformers.DataCollatorForLanguageModeling(reader, mlm_probability=0.15)
    rows, _ = huggingface_rows({**settings, "text": "grouped"})
    own = {**settings, "lr": RATES[settings["size"]] if rated else 5e-5}
    alike = {"rows_at_once": settings["rows"], "remove_unused_columns": False}
    watch, _ = trainer.train(copy.deepcopy(model), rows, collator, own, steps=TIMED, warmup=0, **alike)
    pace = (watch.steps[TIMED].began - watch.steps[2].began) / (TIMED - 2)
    steps = max(LOOKS, round(settings["budget"] / pace))
    clock = _clock(model, settings, steps)
    warmup = round(0.06 * steps) if rated else 0
    trainer.train(model, rows, collator, own, steps=steps, warmup=warmup, callbacks=(clock,), **alike)
    seconds, loss = clock.curve[-1]
    reached = loss <= settings["target"]
    return {"figure": seconds, "steps": clock.steps, "loss": loss, "reached": reached, "curve": clock.curve}


def _clock(model: Any, settings: Settings, steps: int) -> Any:
    """A callback that evaluates the held-out rows while its clock stands still, and ends the run at the target loss."""
    import transformers

    tokens, places, values = heldout(settings)

    class Clock(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.curve: list[tuple[float, float]] = []
            self.seconds, self.steps, self.began = 0.0, 0, 0.0

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps = state.global_step
            if self.steps % max(1, steps // LOOKS) and self.steps < steps:
                return
            self.seconds += time.perf_counter() - self.began
            model.eval()
            loss = heldout_loss(partial(_theirs, model), tokens, places, values)
            model.train()
            self.curve.append((self.seconds, loss))
            control.should_training_stop |= loss <= settings["target"]
            self.began = time.perf_counter()

    return Clock()


# ------------------------------------------------------------------------------------------------ what is reached


def heldout(settings: Settings) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows [R, T] of held-out text as transformers cuts it, with 15 % of the tokens masked by the 80/10/10 rule; the
    positions [M] of these in the flattened rows, and their true ids [M]. The same for every side and turn."""
    import numpy as np
    import torch

    from unmask.data.text.corpus import Corpus

    corpus = Corpus(settings["corpus"])
    tokenizer, rng = corpus.tokenizer, np.random.default_rng(0)
    joined = np.concatenate([tokenizer.join(np.concatenate(d.sentences))[0] for d in corpus.split("heldout")])
    flat = joined[: min(HELDOUT, len(joined) // LENGTH) * LENGTH].astype(np.int64)
    usual = np.flatnonzero(~np.isin(flat, list(tokenizer.specials)))
    places = np.sort(rng.choice(usual, round(0.15 * len(usual)), replace=False))
    values, how = flat[places], rng.random(len(places))
    words = np.setdiff1d(np.arange(tokenizer.size), list(tokenizer.specials))
    flat[places] = np.where(how < 0.8, tokenizer.mask, np.where(how < 0.9, rng.choice(words, len(places)), values))
    return torch.from_numpy(flat.reshape(-1, LENGTH)), torch.from_numpy(places), torch.from_numpy(values)


def heldout_loss(logits: Any, tokens_RT: torch.Tensor, places_M: torch.Tensor, values_M: torch.Tensor) -> float:
    """Mean loss in nats, 16 rows at a time. `logits` maps rows and positions [M] to logits [M, V]."""
    import torch

    total, width = 0.0, tokens_RT.shape[1]
    with torch.inference_mode():
        for first in range(0, len(tokens_RT), 16):
            own = (places_M >= first * width) & (places_M < (first + 16) * width)
            found = logits(tokens_RT[first : first + 16], places_M[own] - first * width)
            total += float(torch.nn.functional.cross_entropy(found.float(), values_M[own], reduction="sum"))
    return total / len(places_M)


def _ours(model: Any, tokens_RT: torch.Tensor, places_M: torch.Tensor) -> Any:
    from unmask.types import Batch

    return model.answer("mlm", model(Batch(tokens_RT)), places_M)


def _theirs(model: Any, tokens_RT: torch.Tensor, places_M: torch.Tensor) -> Any:
    import torch

    return model(input_ids=tokens_RT, attention_mask=torch.ones_like(tokens_RT)).logits.flatten(0, 1)[places_M]


# ------------------------------------------------------------------------------------------------ the comparison


def measure(asked: TimeToLoss, sides: Sequence[str], plan: Plan) -> Measured:
    """Let every side train until it reaches the loss of unmask, or its time is over."""
    given = {"folder": str(plan.folder), **asked.to_dict()}
    corpus = common.trial("pretraining", "corpus", given, threads=plan.threads, ours=True)
    settings = {**given, "corpus": corpus["corpus"]}

    def turn(side: str, number: int) -> Result:
        seeded = {**settings, "seed": asked.seed + number}
        first = plan.once(
            (asked, number), lambda: common.trial("time_to_loss", OURS, seeded, threads=plan.threads, ours=True)
        )
        if side == OURS:
            return dict(first)
        given = {"target": first["loss"], "budget": asked.patience * first["figure"]}
        return common.trial("time_to_loss", side, {**seeded, **given}, threads=plan.threads)

    turns = plan.alternate(sides, SECONDS, turn)
    return Measured(turns, {"corpus": {"tokens": corpus["tokens"]}}, tuple(_notes(turns)))


def _notes(turns: dict[str, list[Result]]) -> list[str]:
    losses = ", ".join(f"{turn['loss']:.3f}" for turn in turns[OURS])
    notes = [f"Held-out loss to be reached, in nats: {losses}."]
    for side, done in turns.items():
        if missed := [turn for turn in done if not turn.get("reached", True)]:
            shown = ", ".join(f"{turn['loss']:.3f} after {turn['figure']:.0f} s" for turn in missed)
            notes.append(f"{side} did not reach it ({shown}): its time is a lower bound, and so is the ratio.")
    return notes


TRIALS = {
    OURS: run_unmask,
    PUBLISHED: partial(run_transformers, rated=False),
    RATED: partial(run_transformers, rated=True),
}
