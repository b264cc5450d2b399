"""Runs of ELMo that have a name; `recipes.py` knows them."""

from __future__ import annotations

from unmask.models.elmo import SIZES, Elmo
from unmask.pretraining import Objectives, Pretraining, Rows
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def elmo_tiny() -> Pretraining:
    """ELMo (Peters et al. 2018): words, spelled, guessed from both sides by LSTMs of 256 cells: minutes on a laptop."""
    return Pretraining(
        model=Elmo(dropout=0.0).replace(**SIZES["tiny"]),
        objectives=Objectives(written="both", sentences="none"),
        rows=Rows(tokens=256, batch=32),
        training=Training(
            minutes=30.0,
            precision="fp32",
            optimizer=Optimizer(lr=2e-3),
            schedule=Schedule(warmup=0.02),
        ),
    )


def elmo() -> Pretraining:
    """ELMo with LSTMs of 4,096 cells projected to 512 (94 M parameters and the softmax): the published sizes, on a GPU.

    What was published of the training belongs to another optimizer; the rate is half that of the small run.
    """
    return Pretraining(
        model=Elmo(),
        objectives=Objectives(written="both", sentences="none", words=100_000),
        rows=Rows(tokens=512, batch=128, micro_batch=32, workers=4),
        training=Training(
            steps=500_000,
            optimizer=Optimizer(lr=1e-3),
            schedule=Schedule(warmup=0.02),
            log_every=100,
            evaluate_every=10_000,
            save_every=10_000,
        ),
    )
