"""Strategies of transfer: what of a pre-trained model a task may change, how fast, and when."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from unmask.config import Config
from unmask.errors import UnmaskError, plural
from unmask.models.model import Model
from unmask.nn import lora

STREAMS = {"reinitialise": 1, "lora": 2}
"""What is drawn apart from the head, which takes the seed itself, so that no two parts start from the same numbers."""

OF_STRATEGY = {"layers": "top", **dict.fromkeys(("rank", "alpha", "lora_dropout", "target"), "lora")}
"""Field of `Transfer` -> the strategy that it means something to; fields that several know are absent."""

CRF = 50.0
"""Factor on the learning rate of a CRF's transitions. They start from 0 and Adam moves a weight by about the rate at
each step: at a rate that suits pre-trained weights they would end where they started."""


@dataclass(frozen=True, kw_only=True)
class Transfer(Config):
    """How a pre-trained model is adapted to a task. Heads, and the pooler before them, are trained by every strategy.

    strategy      "full": all weights (Devlin et al. 2018, section 3.2)
                  "frozen": none of the trunk, a probe of what it knows already
                  "top": the last `layers` blocks
                  "gradual": from the top down, one block more in each equal share of the run, the embeddings last
                  (Howard & Ruder 2018, section 3.3)
                  "lora": a low-rank addition to some matrices of every block (Hu et al. 2021)
    layers        of "top": how many blocks are trained
    layer_decay   factor on the learning rate from each block to the one below it (Sun et al. 2019 had 0.95; 1 is
                  none); the heads and the last block have the full rate, the embeddings the lowest
    reinitialise  how many of the last blocks start from new weights, the pooler with them where it is above 0
                  (Zhang et al. 2021, section 5: what they learned in pre-training can hinder small tasks)
    rank, alpha, lora_dropout, target
                  of "lora": `unmask.nn.LoRALinear`, and the names of the linear maps that get one: query, key, value,
                  output, up, down. The defaults are those of Hu et al. 2021 for models of BERT's size

    Where less is trained the steps may be larger, and should be: a learning rate of about 1e-3 for "frozen", 4e-4 for
    "lora" on a model of BERT's size and 1e-3 to 2e-3 on one of twenty million weights, and more epochs than for "full".
    """

    strategy: Literal["full", "frozen", "top", "gradual", "lora"] = "full"
    layers: int = 2
    layer_decay: float = 1.0
    reinitialise: int = 0
    rank: int = 8
    alpha: float = 8.0
    lora_dropout: float = 0.0
    target: tuple[str, ...] = ("query", "value")

    def check(self) -> None:
        """Raises UnmaskError for a field that is set but means nothing to the strategy, rather than ignore it."""
        for name, strategy in OF_STRATEGY.items():
            if getattr(self, name) != getattr(Transfer(), name) and self.strategy != strategy:
                raise UnmaskError(
                    f"--{name.replace('_', '-')} is for --strategy {strategy}; '{self.strategy}' has no use for it: "
                    "choose that strategy, or leave it out."
                )


class Tuning:
    """A strategy applied to a model: what `unmask.train.trainer.Trainer` asks of it.

    What is frozen runs in evaluation mode, so without dropout, and as nothing below the lowest trained block needs a
    gradient, none of it is kept for a backward pass. Under "lora" the trunk takes part in learning: it keeps dropout.
    """

    def __init__(self, model: Model, transfer: Transfer) -> None:
        self.model, self.transfer = model, transfer
        self.depth = {name: depth(model, name) for name, _ in model.named_parameters()}
        self.layers = len(model.blocks)

    def scale(self, name: str) -> float:
        """Factor on the learning rate of a parameter: 1 for heads and the last block, less for what is below, and `CRF`
        for the transitions between tags."""
        if name.startswith("heads.crf."):
            return CRF
        return self.transfer.layer_decay ** max(0, self.depth[name] - 1)

    def on_step(self, step: int, total: int) -> None:
        """Freeze and thaw what the update number `step` (from 0) of `total` is to train; it depends on them alone."""
        if self.transfer.strategy in ("full", "lora"):
            return
        reach = self.reach(step, total)
        if self.transfer.strategy == "gradual":
            for name, p in self.model.named_parameters():
                p.requires_grad_(self.depth[name] <= reach)
        for level, part in self._parts():
            trained = level <= reach and self.model.training
            if part.training != trained:  # an evaluation in between sets the mode of all parts
                part.train(trained)

    def reach(self, step: int = 0, total: int = 1) -> int:
        """The deepest level that is trained at a step: 0 is the heads alone, `layers` + 1 the embeddings too."""
        everything = self.layers + 1
        if self.transfer.strategy == "gradual":
            return min(everything, step * (everything + 1) // total)
        return {"frozen": 0, "lora": 0, "top": self.transfer.layers}.get(self.transfer.strategy, everything)

    def _parts(self) -> Iterator[tuple[int, nn.Module]]:
        for i, block in enumerate(self.model.blocks):
            yield self.layers - i, block
        if self.model.input_embedding is not None:
            yield self.layers + 1, self.model.input_embedding


def prepare(model: Model, transfer: Transfer, seed: int = 0) -> Tuning:
    """Apply a strategy to a model in place: new weights, adapters, and what requires a gradient.

    seed  of re-initialised blocks and of adapters

    Hand the result to the trainer. Under "gradual" everything requires a gradient until the first step, for the
    optimizer takes what does. Raises UnmaskError for numbers that do not fit the model.
    """
    _check(model, transfer)
    if transfer.reinitialise:
        _reinitialise(model, transfer.reinitialise, seed)
    if transfer.strategy == "lora":
        lora.adapt(
            nn.ModuleList(model.blocks),
            transfer.target,
            rank=transfer.rank,
            alpha=transfer.alpha,
            dropout=transfer.lora_dropout,
            generator=torch.Generator().manual_seed(_derived(seed, "lora")),
        )
    return freeze(model, transfer)


def freeze(model: Model, transfer: Transfer) -> Tuning:
    """Set what requires a gradient: all that the strategy trains at some time, and the adapters that are there."""
    tuning = Tuning(model, transfer)
    reach = tuning.layers + 1 if transfer.strategy == "gradual" else tuning.reach()
    added = {id(p) for part in lora.adapters(model).values() for p in (part.A, part.B)}
    for name, p in model.named_parameters():
        p.requires_grad_(tuning.depth[name] <= reach or id(p) in added)
    return tuning


def scale(model: Model, transfer: Transfer) -> dict[str, float]:
    """Name of each parameter -> the factor on its learning rate."""
    tuning = Tuning(model, transfer)
    return {name: tuning.scale(name) for name in tuning.depth}


def depth(model: Model, name: str) -> int:
    """Level of a parameter, counted from the top: 0 the heads and the pooler, 1 the last block, 2 the one below it …,
    then the embeddings, with whatever all blocks share."""
    first, *rest = name.split(".")
    blocks = len(model.blocks)
    if first == "stack" and rest[0] == "blocks":
        return blocks - int(rest[1])
    if first == "stack" and rest[0] == "norm":
        return 1
    return blocks + 1 if first in ("embedding", "stack") else 0


def merged(model: Model) -> Model:
    """The model with its adapters folded into plain weights, as it is to be saved; a copy, in which everything
    requires a gradient again. A model without adapters is given back as it is."""
    if not lora.adapters(model):
        return model
    plain = copy.deepcopy(model)
    lora.merge(plain)
    return plain.requires_grad_(True)


def trainable(model: nn.Module) -> int:
    """Number of parameters that require a gradient."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _check(model: Model, transfer: Transfer) -> None:
    blocks = len(model.blocks)
    depth = plural(blocks, "layer")
    if transfer.strategy == "top" and not 1 <= transfer.layers <= blocks:
        raise UnmaskError(f"The model has {depth}: train 1 to {blocks} of them, not {transfer.layers}.")
    if not 0 < transfer.layer_decay <= 1:
        raise UnmaskError(f"The layer decay must be above 0 and at most 1, not {transfer.layer_decay}.")
    if not 0 <= transfer.reinitialise <= blocks:
        raise UnmaskError(f"The model has {depth}: {transfer.reinitialise} of them cannot start anew.")
    trained = {"frozen": 0, "lora": 0, "top": transfer.layers}.get(transfer.strategy, blocks)
    if transfer.reinitialise > trained:
        raise UnmaskError(
            f"{plural(transfer.reinitialise, 'layer')} would start from random weights and '{transfer.strategy}' would "
            f"never train them; re-initialise at most {trained}, or choose another strategy."
        )
    if transfer.strategy == "lora" and not transfer.target:
        raise UnmaskError("LoRA needs the name of at least one linear layer to adapt, such as query.")
    if transfer.strategy == "lora" and not (transfer.alpha > 0 and 0 <= transfer.lora_dropout < 1):
        raise UnmaskError("The alpha of LoRA must be above 0, and its dropout at least 0 and below 1.")


def _reinitialise(model: Model, layers: int, seed: int) -> None:
    """New weights, from the model's own initialiser, for the last blocks and the pooler."""
    parts = [*list(model.blocks)[-layers:], *([model.pooler] if model.pooler is not None else [])]
    model.config.initialise(nn.ModuleList(parts), _derived(seed, "reinitialise"))


def _derived(seed: int, purpose: str) -> int:
    return int(np.random.default_rng([seed, STREAMS[purpose]]).integers(2**62))
