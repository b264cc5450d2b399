"""Folders for pictures of another size: the model and its processor change together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from unmask.data.processor import Processor
from unmask.huggingface.config import table_of
from unmask.huggingface.folder import Loaded
from unmask.models.model import Model, ModelConfig
from unmask.models.rebuilding import resized as resized_model

P = TypeVar("P", bound=Processor[Any])


def resized(loaded: Loaded[Model], size: int) -> Loaded[Model]:
    """A loaded folder for pictures of `size` pixels of a side (`models.resized`).

    Raises UnmaskError for a size that the model cannot read, and for a model that reads no pictures.
    """
    model = resized_model(loaded.model, size)
    processor = None if loaded.processor is None else fitted(loaded.processor, model.config)
    return replace(loaded, model=model, processor=processor)


def fitted(processor: P, config: ModelConfig) -> P:
    """The processor with the settings that the config of a model decides, such as the size of pictures."""
    found: P = table_of(config).processor.fitted(processor, config)
    return found
