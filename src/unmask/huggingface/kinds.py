"""Kinds of models, as those who open a folder ask for them: a single stack of blocks, or an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.model import Model

SETTINGS = "unmask_task"
"""Field of config.json that holds `Loaded.settings`."""

M = TypeVar("M")


@dataclass(frozen=True, eq=False)
class Kind(Generic[M]):
    """Models M that are used alike.

    heads    name -> outputs: heads that no model of this kind is without, so that a folder does not list them
    instead  (folder, its config.json) -> a sentence for someone who asked for another kind: what to do with this one
    """

    heads: Mapping[str, int]
    instead: Callable[[Path | str, Mapping[str, Any]], str]


def _single_stack(folder: Path | str, values: Mapping[str, Any]) -> str:
    return f"{folder} holds a model of type {values['model_type']}, but an encoder–decoder is wanted."


def _encoder_decoder(folder: Path | str, values: Mapping[str, Any]) -> str:
    settings = values.get(SETTINGS)
    if isinstance(settings, Mapping) and "written" in settings:
        return (
            f"{folder} holds a model that writes the answers to a task: `unmask predict` gives them, in labels or "
            "whatever the task asks for, and `unmask translate` the text alone."
        )
    return (
        f"{folder} holds a model that writes a text for a text: use `unmask translate`, `unmask evaluate --pairs` "
        "or `unmask train --from`."
    )


SINGLE_STACK: Kind[Model] = Kind({}, _single_stack)
"""Encoders and causal models: one stack, and the heads that a folder names."""

ENCODER_DECODER: Kind[EncoderDecoder] = Kind({"next": 0}, _encoder_decoder)
"""Models that write one sequence while they read another."""
