"""Recipes that learn from recordings."""

from __future__ import annotations

from unmask.models.cpc import Cpc
from unmask.models.hubert import Hubert
from unmask.objectives.contrastive_prediction import ContrastivePredictionConfig
from unmask.objectives.masked_clusters import MaskedClustersConfig
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def hubert_tiny() -> Pretraining:
    """Clusters of masked frames of recordings at 8 kHz, by a HuBERT of 4 layers of 128 (0.9 M parameters): minutes on a
    laptop."""
    model = Hubert(
        channels=(64,) * 6,
        kernels=(10, 3, 3, 3, 3, 2),
        strides=(5, 2, 2, 2, 2, 2),
        dim=128,
        layers=4,
        heads=4,
        hidden=512,
        position_kernel=32,
        position_groups=8,
        compared=64,
    )
    rows = Rows(tokens=200, batch=16, first=None, heldout=32)
    return Pretraining(model=model, objective=MaskedClustersConfig(rate=8_000), rows=rows, training=short(1e-3))


def hubert_base() -> Pretraining:
    """The same at 16 kHz by HuBERT base (95 M parameters): 1,400 seconds a step, 250,000 steps of the first iteration,
    as published (Hsu et al. 2021, section IV.B). Then labels of layer 6, and 400,000 steps: see unmask cluster."""
    optimizer = Optimizer(lr=5e-4, betas=(0.9, 0.98), weight_decay=0.01, clip=10.0)
    schedule = Schedule(warmup=0.08, shape="linear")
    training = Training(steps=250_000, optimizer=optimizer, schedule=schedule, log_every=100)
    rows = Rows(tokens=781, batch=90, first=None, micro_batch=6, workers=4)  # 250 k samples a row
    return Pretraining(
        model=Hubert(feature_gradient=0.1), objective=MaskedClustersConfig(), rows=rows, training=training
    )


def cpc_tiny() -> Pretraining:
    """The next frames of recordings at 8 kHz, by a CPC with a GRU of 128 (0.3 M parameters): minutes on a laptop."""
    model = Cpc(channels=(64,) * 4, kernels=(10, 8, 4, 4), strides=(5, 4, 2, 2), dim=128)
    rows = Rows(tokens=128, batch=16, first=None, heldout=64)
    return Pretraining(model=model, objective=ContrastivePredictionConfig(rate=8_000), rows=rows, training=short(1e-3))
