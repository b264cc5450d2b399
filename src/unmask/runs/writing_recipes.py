"""Recipes of models that generate text: GPT, Transformer-XL, T5; `recipes.py` lists them."""

from __future__ import annotations

from collections.abc import Mapping

from unmask.models import t5, transformer_xl
from unmask.models.gpt import SIZES as GPT_SIZES
from unmask.models.gpt import Gpt, Gpt2
from unmask.models.t5 import T5
from unmask.models.transformer_xl import TransformerXl
from unmask.objectives import CausalLMConfig, SegmentLMConfig, SpanCorruptionConfig
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def gpt_tiny() -> Pretraining:
    """A language model as GPT (Radford et al. 2018): 2 layers of 128 (6 M parameters), minutes on a laptop."""
    return _causal(Gpt().replace(**GPT_SIZES["tiny"]), lr=3e-3)


def gpt_mini() -> Pretraining:
    """GPT of 4 layers of 256 (14 M parameters): minutes to hours on a CPU."""
    return _causal(Gpt().replace(**GPT_SIZES["mini"]), lr=1e-3)


def gpt() -> Pretraining:
    """12 layers of 768 (117 M parameters), batch 64, rows of 512 tokens, learning rate 2.5e-4: as published.

    Radford et al. 2018, section 4.1, train for 100 epochs: about three million steps on the 800 million words that
    Devlin et al. 2018 count in the same books.
    """
    return _published(Gpt(), batch=64, steps=3_000_000)


def gpt2_tiny() -> Pretraining:
    """GPT-2 (Radford et al. 2019), with norms before the sub-layers: 2 layers of 128 (7 M parameters), minutes on a
    laptop."""
    return _causal(Gpt2().replace(**GPT_SIZES["tiny"]), lr=3e-3)


def gpt2_mini() -> Pretraining:
    """GPT-2 of 4 layers of 256 (16 M parameters): minutes to hours on a CPU."""
    return _causal(Gpt2().replace(**GPT_SIZES["mini"]), lr=1e-3)


def gpt2() -> Pretraining:
    """12 layers of 768 (124 M parameters), batch 512, rows of 1,024 tokens: as published, at the rate of GPT.

    Radford et al. 2019, section 2.3, publish neither a rate nor a number of steps: the rate, its warm-up and its cosine
    are those of Radford et al. 2018, section 4.1.
    """
    return _published(Gpt2(), batch=512, steps=500_000)


def transformer_xl_tiny() -> Pretraining:
    """Transformer-XL, with a memory of earlier segments: 2 layers of 128 (5 M parameters), minutes on a laptop."""
    return _with_memory("tiny", lr=3e-3)


def transformer_xl_small() -> Pretraining:
    """Transformer-XL of 4 layers of 512 (30 M parameters): hours on a CPU, minutes on a GPU."""
    return _with_memory("small", lr=7e-4)


def transformer_xl_base() -> Pretraining:
    """16 layers of 410, segments of 150 tokens and a memory of as many, batch 60: as released for WikiText-103."""
    return Pretraining(
        model=TransformerXl().replace(**transformer_xl.SIZES["base"]),
        objective=SegmentLMConfig(),
        rows=Rows(tokens=150, batch=60),
        training=Training(
            steps=200_000,
            optimizer=Optimizer(lr=2.5e-4, weight_decay=0.0, clip=0.25),
            schedule=Schedule(warmup=0, shape="cosine"),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )


def t5_tiny() -> Pretraining:
    """T5 (Raffel et al. 2020): 2 + 2 layers of 128 (5 M parameters), which predict spans cut out of a text: minutes
    on a laptop."""
    return _spans("tiny", lr=5e-2)


def t5_mini() -> Pretraining:
    """T5 of 4 + 4 layers of 256 (16 M parameters): minutes to hours on a CPU."""
    return _spans("mini", lr=3e-2)


def t5_small() -> Pretraining:
    """T5 of 6 + 6 layers of 512 (60 M parameters): batch 128 of 512 tokens, 524,288 steps, as published.

    Raffel et al. 2020, section 3.1.2: Adafactor's rate is 0.01, and after 10,000 steps 1 / sqrt(step).
    """
    return _long(_spans("small", lr=1e-2)).replace(model={"dropout": 0.1})


def t5_v11_tiny() -> Pretraining:
    """T5 1.1, with gated feed-forwards and an untied output: 2 + 2 layers of 128, minutes on a laptop."""
    return _spans("tiny", lr=5e-2, sizes=t5.SIZES_V11)


def t5_v11_small() -> Pretraining:
    """T5 1.1 of 8 + 8 layers of 512 (77 M parameters), without dropout: the published size, trained as t5-small.

    The release (released_checkpoints.md of google-research's T5) gives neither steps nor a learning rate.
    """
    return _long(_spans("small", lr=1e-2, sizes=t5.SIZES_V11))


def _causal(model: Gpt, lr: float) -> Pretraining:
    """Short runs on little text, with the same initial scale of activations as the small BERTs, without dropout."""
    std = round(0.02 * (768 / model.dim) ** 0.5, 3)
    rates = {"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}
    return Pretraining(
        model=model.replace(length=128, std=std, **rates),
        objective=CausalLMConfig(),
        rows=Rows(batch=32),
        training=short(lr),
    )


def _published(model: Gpt, batch: int, steps: int) -> Pretraining:
    return Pretraining(
        model=model,
        objective=CausalLMConfig(),
        rows=Rows(batch=batch, micro_batch=8, workers=4),
        training=Training(
            steps=steps,
            optimizer=Optimizer(lr=2.5e-4),
            schedule=Schedule(warmup=2_000, shape="cosine"),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )


def _with_memory(size: str, lr: float) -> Pretraining:
    """Short runs on little text; a segment is as long as the memory."""
    model = TransformerXl().replace(**transformer_xl.SIZES[size])
    return Pretraining(
        model=model.replace(dropout=0.0, std=round(0.02 * (768 / model.dim) ** 0.5, 3)),
        objective=SegmentLMConfig(),
        rows=Rows(tokens=model.memory, batch=32),
        training=short(lr),
    )


def _spans(
    size: str,
    lr: float,
    sizes: Mapping[str, Mapping[str, object]] = t5.SIZES,
) -> Pretraining:
    """Short runs on little text, without dropout. The published initialisation suits any width. Its weights differ so
    much in scale that they need Adafactor: AdamW does not reach the same loss in ten times as many steps."""
    return Pretraining(
        model=T5(dropout=0.0).replace(**sizes[size]),
        objective=SpanCorruptionConfig(short=0.0),
        rows=Rows(tokens=128, batch=32),
        training=short(lr).replace(optimizer=Optimizer(algorithm="adafactor", lr=lr, weight_decay=0.0, clip=None)),
    )


def _long(config: Pretraining) -> Pretraining:
    """T5's published steps, of 128 rows of 512 tokens."""
    return config.replace(
        rows={"tokens": 512, "batch": 128, "micro_batch": 16, "workers": 4},
        training={
            "minutes": None,
            "steps": 524_288,
            "schedule": {"warmup": 0, "shape": "constant"},  # Adafactor itself lowers the learning rate
            "log_every": 100,
            "evaluate_every": 10_000,
            "save_every": 10_000,
        },
    )


def short(lr: float, warmup: float = 0.06) -> Training:
    """Half an hour at a peak rate."""
    return Training(minutes=30.0, optimizer=Optimizer(lr=lr), schedule=Schedule(warmup=warmup))
