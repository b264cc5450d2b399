"""Recipes that learn from recordings."""

from __future__ import annotations

from typing import Any

from unmask.models.cpc import Cpc
from unmask.models.hubert import Hubert
from unmask.models.wav2vec2 import SIZES, Wav2Vec2
from unmask.models.wavenet import WaveNet
from unmask.objectives.contrastive_prediction import ContrastivePredictionConfig
from unmask.objectives.masked_clusters import MaskedClustersConfig
from unmask.objectives.masked_contrastive import MaskedContrastiveConfig
from unmask.objectives.next_samples import NextSamplesConfig
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training

TINY: dict[str, Any] = {
    "channels": (32, 32, 64, 64, 64, 64), "kernels": (10, 3, 3, 3, 3, 2), "strides": (5, 2, 2, 2, 2, 2),
    "conv_norm": "layer", "conv_bias": True, "pre_norm": True,
    "dim": 128, "layers": 4, "heads": 4, "hidden": 512, "position_kernel": 32, "position_groups": 8,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
}  # fmt: skip
"""Sizes of a Transformer over frames at 8 kHz, one for every 20 ms, for short runs on a CPU."""


def wav2vec2_tiny() -> Pretraining:
    """Masked frames of recordings at 8 kHz, by a wav2vec 2.0 of 4 layers of 128 (0.9 M parameters): minutes on a
    laptop."""
    model = Wav2Vec2(**TINY, entries=64, codes=64)
    # The published penalty of 10 presses the features of so small a model to zero (docs/log.md).
    objective = MaskedContrastiveConfig(rate=8_000, projection=64, penalty=1.0, noise_decay=0.999)
    rows = Rows(tokens=200, batch=8, first=None, heldout=64)
    return Pretraining(model=model, objective=objective, rows=rows, training=short(2e-3))


def wav2vec2_base() -> Pretraining:
    """The same at 16 kHz by wav2vec 2.0 base (95 M parameters): crops of 250,000 samples, 1.6 hours a step, 400,000
    steps, as published (Baevski et al. 2020, section 4.2, and the authors' configuration)."""
    model = Wav2Vec2(feature_dropout=0.1, quantiser_dropout=0.1, feature_gradient=0.1, layer_drop=0.05)
    schedule = Schedule(warmup=32_000)
    training = Training(steps=400_000, optimizer=_published(5e-4), schedule=schedule, log_every=100)
    rows = Rows(tokens=781, batch=360, first=None, micro_batch=5, workers=4)
    return Pretraining(model=model, objective=MaskedContrastiveConfig(), rows=rows, training=training)


def xls_r() -> Pretraining:
    """XLS-R 0.3B on many languages: crops of 320,000 samples, 4.3 hours a step, one million steps, sharded over
    processes (Babu et al. 2021, section 3); the rate is that of the authors' large wav2vec 2.0.

    The labels of a corpus, which are its languages, are mixed by n^0.5 of their n samples, and then so are the corpora.
    The other sizes: --model.layers 48 and so on, as `models/wav2vec2.py` has them; docs/scaling.md has the cost.
    """
    model = (
        Wav2Vec2().replace(**SIZES["xls-r-0.3b"]).replace(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    )
    objective = MaskedContrastiveConfig(penalty=0.0, projection=768, least_noise=0.1, label_alpha=0.5)
    training = Training(
        steps=1_000_000,
        optimizer=_published(5e-3),
        schedule=Schedule(warmup=32_000),
        log_every=100,
        recompute=True,
        sharding="full",
    )
    rows = Rows(tokens=999, batch=768, first=None, micro_batch=4, workers=4)
    return Pretraining(model=model, objective=objective, rows=rows, training=training)


def _published(lr: float) -> Optimizer:
    """Adam with the numbers of the authors' configurations, which do not clip."""
    return Optimizer(algorithm="adamw", lr=lr, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, clip=None)


def hubert_tiny() -> Pretraining:
    """Clusters of masked frames of recordings at 8 kHz, by a HuBERT of 4 layers of 128 (0.9 M parameters): minutes on a
    laptop."""
    model = Hubert(**TINY, compared=64)
    rows = Rows(tokens=200, batch=16, first=None, heldout=64)
    training = short(2e-3).replace(optimizer={"algorithm": "muon"})  # AdamW learns more slowly (docs/log.md)
    return Pretraining(model=model, objective=MaskedClustersConfig(rate=8_000), rows=rows, training=training)


def hubert_base() -> Pretraining:
    """The same at 16 kHz by HuBERT base (95 M parameters): 2,800 seconds a step, 250,000 steps of the first iteration,
    as published (Hsu et al. 2021, section IV.C). Then labels of layer 6, and 400,000 steps: see unmask cluster."""
    optimizer = Optimizer(lr=5e-4, betas=(0.9, 0.98), weight_decay=0.01, clip=10.0)
    schedule = Schedule(warmup=0.08, shape="linear")
    training = Training(steps=250_000, optimizer=optimizer, schedule=schedule, log_every=100)
    rows = Rows(tokens=781, batch=180, first=None, micro_batch=6, workers=4)  # 250 k samples a row
    return Pretraining(
        model=Hubert(feature_gradient=0.1, layer_drop=0.05),
        objective=MaskedClustersConfig(),
        rows=rows,
        training=training,
    )


def cpc_tiny() -> Pretraining:
    """The next frames of recordings at 8 kHz, by a CPC with a GRU of 128 (0.3 M parameters): minutes on a laptop."""
    model = Cpc(channels=(64,) * 4, kernels=(10, 8, 4, 4), strides=(5, 4, 2, 2), dim=128)
    rows = Rows(tokens=128, batch=16, first=None, heldout=64)
    return Pretraining(model=model, objective=ContrastivePredictionConfig(rate=8_000), rows=rows, training=short(1e-3))


def wavenet_tiny() -> Pretraining:
    """The next samples of recordings at 8 kHz, by a WaveNet of 16 layers of 32 (0.2 M parameters), which hears the last
    64 ms: minutes on a laptop."""
    model = WaveNet(dim=32, skip=64, dilations=tuple(2**i for i in range(8)) * 2)
    rows = Rows(tokens=2_048, batch=4, first=None, heldout=64)
    return Pretraining(model=model, objective=NextSamplesConfig(rate=8_000), rows=rows, training=short(8e-3))
