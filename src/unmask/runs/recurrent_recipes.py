"""Recipes of recurrent networks: language models, ELMo; `recipes.py` lists them."""

from __future__ import annotations

from typing import Any

from unmask.models import recurrent
from unmask.models.elmo import SIZES, Elmo
from unmask.models.recurrent import RecurrentNetwork
from unmask.objectives import (
    AutoencoderConfig,
    BidirectionalLMConfig,
    CausalLMConfig,
    MaskedLMConfig,
    ObjectiveConfig,
)
from unmask.runs.pretraining.config import Pretraining, Rows
from unmask.runs.writing_recipes import short
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Training


def rnn_lm() -> Pretraining:
    """A language model, each token from those before it: a vanilla RNN, for comparison."""
    return _recurrent("tiny", lr=1e-3, cell="rnn")


def gru_lm() -> Pretraining:
    """The same with a GRU (Cho et al. 2014)."""
    return _recurrent("tiny", lr=2e-3, cell="gru")


def lstm_lm() -> Pretraining:
    """The same with an LSTM of 256 (Hochreiter & Schmidhuber 1997): minutes on a laptop."""
    return _recurrent("tiny", lr=2e-3)


def lstm_lm_small() -> Pretraining:
    """2 layers of 512 (Dai & Le 2015 had one of 512 to 1,024): minutes to hours on a CPU."""
    return _recurrent("small", lr=1e-3)


def lstm_autoencoder() -> Pretraining:
    """Read a sequence, write it again (Dai & Le 2015): weights from which a classifier starts."""
    return _recurrent("tiny", lr=2e-3, objective=AutoencoderConfig())


def bilstm() -> Pretraining:
    """Masked tokens from a bidirectional LSTM: weights from which a tagger starts."""
    return _recurrent("tiny", lr=2e-3, objective=MaskedLMConfig(), bidirectional=True)


def elmo_tiny() -> Pretraining:
    """ELMo (Peters et al. 2018): words predicted from both sides by LSTMs of 256 cells: minutes on a laptop."""
    return Pretraining(
        model=Elmo(dropout=0.0).replace(**SIZES["tiny"]),
        objective=BidirectionalLMConfig(),
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

    The published training settings are for another optimizer; the learning rate here is half that of `elmo_tiny`.
    """
    return Pretraining(
        model=Elmo(),
        objective=BidirectionalLMConfig(words=100_000),
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


_NEXT = CausalLMConfig()


def _recurrent(size: str, lr: float, *, objective: ObjectiveConfig = _NEXT, **fields: Any) -> Pretraining:
    """Short runs on little text. A row of 128 tokens takes 128 sequential steps, so rows are short."""
    return Pretraining(
        model=RecurrentNetwork(dropout=0.0).replace(**recurrent.SIZES[size], **fields),
        objective=objective,
        rows=Rows(tokens=128, batch=32),
        training=short(lr, warmup=0.02),
    )
