"""Models with another config and the same weights: for pictures of another size, and for folders."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from unmask.models.heads import asked_of
from unmask.models.model import Model
from unmask.models.model_config import ModelConfig
from unmask.nn import LearnedGrid
from unmask.types import Head


def resized(model: Model, size: int) -> Model:
    """A copy of a model for pictures of `size` pixels of a side, with the same heads.

    Learned position vectors are interpolated (`nn.LearnedGrid.fitted`), fixed ones are computed for the new grid, and
    the position biases of windows stay, since a window keeps its size. All other weights are equal.

    Raises UnmaskError for a size that the model cannot read, and for a model that reads no pictures.
    """
    other = rebuilt(model, model.config.at_size(size), _heads(model), pooler=model.pooler is not None)
    return other.to(model.device).train(model.training)


def rebuilt(model: Model, config: ModelConfig, heads: Mapping[str, Head], *, pooler: bool = False) -> Model:
    """The model of another config with the weights of `model`; position vectors of a grid are fitted to the new grid.

    heads   the heads of `model`, all of them
    pooler  whether `model` has a pooler that no head needs
    """
    other = config.build(heads, seed=None, **({"pooler": True} if pooler else {}))
    tensors = model.state_dict()
    for name, part in other.named_modules():
        if isinstance(part, LearnedGrid):
            tensors[f"{name}.table.weight"] = part.fitted(tensors[f"{name}.table.weight"])
    other.load_state_dict(tensors)
    return other


def in_folder(model: Model) -> Model:
    """The model that a folder stores for this one (`ModelConfig.in_folder`); they share all parameters."""
    other = copy.copy(model)
    other.config = model.config.in_folder(_heads(model))
    return other


def _heads(model: Model) -> dict[str, Head]:
    return {name: head for name, layer in model.heads.items() if (head := asked_of(layer))}
