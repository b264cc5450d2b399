"""Strategies of transfer: which weights of a pre-trained model a task trains, how fast, and when."""

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
from unmask.models.model import Model, ModelConfig
from unmask.nn import lora

STREAMS = {"reinitialise": 1, "lora": 2}
"""Random streams besides that of the head, which uses the seed itself: no two parts start from the same numbers."""

OF_STRATEGY = {"layers": "top", **dict.fromkeys(("rank", "alpha", "lora_dropout", "target"), "lora")}
"""Field of `Transfer` -> the only strategy that uses it; fields of several strategies are absent."""

CRF = 50.0
"""Factor on the learning rate of a CRF's transitions. They start from 0, and Adam moves a weight by about the learning
rate at each step: at a rate that suits pre-trained weights, they would hardly move."""


@dataclass(frozen=True, kw_only=True)
class Transfer(Config):
    """How a pre-trained model is adapted to a task. Every strategy trains the heads and the pooler.

    strategy      "auto": as the page of a pre-trained model recommends (`ModelConfig.adapted`); "full" for new weights
                  "full": all weights (Devlin et al. 2018, section 3.2)
                  "frozen": no weights of the trunk, as a probe of what it has learned
                  "top": the last `layers` blocks
                  "upper": all but the layers that turn samples into features (Baevski et al. 2020, section 4.3)
                  "gradual": from the top down, one more block in each equal share of the run, the embeddings last
                  (Howard & Ruder 2018, section 3.3)
                  "lora": a low-rank addition to some matrices of every block (Hu et al. 2021)
    layers        for "top": number of blocks to train
    layer_decay   factor on the learning rate from each block to the one below it (Sun et al. 2019 use 0.95; 1: no
                  decay); the heads and the last block have the full rate, the embeddings the lowest
    reinitialise  number of last blocks that start from new weights; above 0, the pooler does too (Zhang et al. 2021,
                  section 5: their pre-trained weights can hinder small tasks)
    rank, alpha, lora_dropout, target
                  for "lora": settings of `unmask.nn.LoRALinear`, and the names of the linear maps to adapt: query, key,
                  value, output, up, down. The defaults are those of Hu et al. 2021 for models of BERT's size

    The fewer weights are trained, the larger the learning rate should be: about 1e-3 for "frozen", 4e-4 for "lora" on a
    model of BERT's size and 1e-3 to 2e-3 on one of twenty million weights, with more epochs than for "full".
    """

    strategy: Literal["auto", "full", "frozen", "top", "upper", "gradual", "lora"] = "auto"
    layers: int = 2
    layer_decay: float = 1.0
    reinitialise: int = 0
    rank: int = 8
    alpha: float = 8.0
    lora_dropout: float = 0.0
    target: tuple[str, ...] = ("query", "value")

    def settled(self, pretrained: ModelConfig | None) -> Transfer:
        """The same with a strategy in place of "auto": that of the page of a pre-trained model; None: new weights."""
        if self.strategy != "auto":
            return self
        return self.replace(strategy="full" if pretrained is None else pretrained.adapted)

    def check(self) -> None:
        """Raises UnmaskError for a field that is set but that the strategy does not use."""
        for name, strategy in OF_STRATEGY.items():
            if getattr(self, name) != getattr(Transfer(), name) and self.strategy != strategy:
                raise UnmaskError(
                    f"--{name.replace('_', '-')} is for --strategy {strategy}; '{self.strategy}' has no use for it: "
                    "choose that strategy, or leave it out."
                )


class Tuning:
    """A strategy applied to a model, for `unmask.train.trainer.Trainer`.

    Frozen parts run in evaluation mode, without dropout. Nothing below the lowest trained block needs a gradient, so no
    activations are kept there for the backward pass. With "lora", the trunk takes part in training and keeps dropout.
    """

    def __init__(self, model: Model, transfer: Transfer) -> None:
        self.model, self.transfer = model, transfer
        self.depth = depths(model)
        self.layers = len(model.blocks)
        self.deepest = self.layers + 1 + (model.front is not None)

    def scale(self, name: str) -> float:
        """Factor on the learning rate of a parameter: 1 for the heads and the last block, less for the blocks below,
        and `CRF` for the transitions between tags."""
        if name.startswith("heads.crf."):
            return CRF
        return self.transfer.layer_decay ** max(0, self.depth[name] - 1)

    def on_step(self, step: int, total: int) -> None:
        """Freeze and unfreeze the weights for update number `step` (from 0) of `total`. The result depends on nothing
        else."""
        if self.transfer.strategy in ("auto", "full", "lora"):
            return
        reach = self.reach(step, total)
        if self.transfer.strategy == "gradual":
            for name, p in self.model.named_parameters():
                p.requires_grad_(self.depth[name] <= reach)
        for level, part in self._parts():
            trained = level <= reach and self.model.training
            if part.training != trained:  # an evaluation may have set the mode of all parts
                part.train(trained)

    def reach(self, step: int = 0, total: int = 1) -> int:
        """The deepest level that is trained at a step: 0 is the heads only, `layers` + 1 includes the embeddings, and
        `layers` + 2 the layers that read samples."""
        everything = self.deepest
        if self.transfer.strategy == "gradual":
            return min(everything, step * (everything + 1) // total)
        reached = {"frozen": 0, "lora": 0, "top": self.transfer.layers, "upper": self.layers + 1}
        return reached.get(self.transfer.strategy, everything)

    def _parts(self) -> Iterator[tuple[int, nn.Module]]:
        for i, block in enumerate(self.model.blocks):
            yield self.layers - i, block
        if self.model.input_embedding is not None:
            yield self.layers + 1, self.model.input_embedding
        if self.model.front is not None:  # a part of the embedding
            yield self.deepest, self.model.front


def prepare(model: Model, transfer: Transfer, seed: int = 0) -> Tuning:
    """Apply a strategy to a model in place: new weights, adapters, and which parameters require a gradient.

    seed  seed of re-initialised blocks and of adapters

    Pass the result to the trainer. With "gradual", all parameters require a gradient until the first step, because the
    optimizer takes only those that do. Raises UnmaskError for numbers that do not fit the model.
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
    """Set which parameters require a gradient: those that the strategy trains at some step, and existing adapters."""
    tuning = Tuning(model, transfer)
    reach = tuning.deepest if transfer.strategy == "gradual" else tuning.reach()
    added = {id(p) for part in lora.adapters(model).values() for p in (part.A, part.B)}
    for name, p in model.named_parameters():
        p.requires_grad_(tuning.depth[name] <= reach or id(p) in added)
    return tuning


def scale(model: Model, transfer: Transfer) -> dict[str, float]:
    """Name of each parameter -> the factor on its learning rate."""
    tuning = Tuning(model, transfer)
    return {name: tuning.scale(name) for name in tuning.depth}


def depths(model: Model) -> dict[str, int]:
    """Level of each parameter, counted from the top: 0 for the heads and the pooler, 1 for the last block, 2 for the
    one below it, …, then the embeddings and the weights that all blocks share, then the layers that read samples. What
    follows the blocks of a stage, such as the merging of patches, has the level of the last of them."""
    names = {id(part): name + "." for name, part in model.named_modules()}
    blocks = [names[id(block)] for block in model.blocks]
    front = None if model.front is None else names[id(model.front)]

    def depth(name: str) -> int:
        parts = name.split(".")
        if parts[0] not in ("embedding", "stack"):
            return 0
        if parts[:2] == ["stack", "norm"]:
            return 1
        if front is not None and name.startswith(front):
            return len(blocks) + 2
        for end in range(len(parts) - 1, 1, -1):  # the innermost part of the stack that is or has a block
            inside = ".".join(parts[:end]) + "."
            found = [i for i, block in enumerate(blocks) if inside.startswith(block) or block.startswith(inside)]
            if found:
                return len(blocks) - found[-1]
        return len(blocks) + 1

    return {name: depth(name) for name, _ in model.named_parameters()}


def merged(model: Model) -> Model:
    """The model with its adapters merged into plain weights, for saving: a copy in which all parameters require a
    gradient. A model without adapters is returned itself."""
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
    if transfer.strategy == "upper" and model.front is None:
        raise UnmaskError("--strategy upper is for models of recordings: this one has no layers that read samples.")
    if not 0 < transfer.layer_decay <= 1:
        raise UnmaskError(f"The layer decay must be above 0 and at most 1, not {transfer.layer_decay}.")
    if not 0 <= transfer.reinitialise <= blocks:
        raise UnmaskError(f"The model has {depth}: {transfer.reinitialise} of them cannot be re-initialised.")
    trained = {"frozen": 0, "lora": 0, "top": transfer.layers}.get(transfer.strategy, blocks)
    if transfer.reinitialise > trained:
        raise UnmaskError(
            f"{plural(transfer.reinitialise, 'layer')} would start from random weights, which '{transfer.strategy}' "
            f"never trains: re-initialise at most {trained}, or choose another strategy."
        )
    if transfer.strategy == "lora" and not transfer.target:
        raise UnmaskError("LoRA needs the name of at least one linear layer to adapt, such as query.")
    if transfer.strategy == "lora" and not (transfer.alpha > 0 and 0 <= transfer.lora_dropout < 1):
        raise UnmaskError("The alpha of LoRA must be above 0, and its dropout at least 0 and below 1.")


def _reinitialise(model: Model, layers: int, seed: int) -> None:
    """Give the last blocks and the pooler new weights, by the initialiser of the model."""
    parts = [*list(model.blocks)[-layers:], *([model.pooler] if model.pooler is not None else [])]
    model.config.initialise(nn.ModuleList(parts), _derived(seed, "reinitialise"))


def _derived(seed: int, purpose: str) -> int:
    return int(np.random.default_rng([seed, STREAMS[purpose]]).integers(2**62))
