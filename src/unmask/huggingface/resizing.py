"""Folders for pictures of another size: the model and its processor change together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unmask.data.processor import Processor
from unmask.huggingface.config import table_of
from unmask.huggingface.folder import Loaded
from unmask.models.model import Model, ModelConfig
from unmask.models.rebuilding import resized as resized_model


def resized(loaded: Loaded[Model], size: int) -> Loaded[Model]:
    """A loaded folder for pictures of `size` pixels of a side (`models.resized`).

    Raises UnmaskError for a size that the model cannot read, and for a model that reads no pictures.
    """
    model = resized_model(loaded.model, size)
    return replace(loaded, model=model, processor=fitted(loaded.processor, model.config))


def fitted(processor: Processor[Any] | None, config: ModelConfig) -> Processor[Any] | None:
    """The processor of a folder, for its model with the changed settings of `config`."""
    found: Processor[Any] | None = None if processor is None else table_of(config).processor.fitted(processor, config)
    return found
