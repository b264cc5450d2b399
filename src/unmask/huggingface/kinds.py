"""Kinds of models that a caller can request: a single stack of blocks, or an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from unmask.config import read_json
from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.model import Model

SETTINGS = "unmask_task"
"""Field of config.json that holds `Loaded.settings`."""

M = TypeVar("M")


class OtherKind(UnmaskError):
    """A model is of another kind than the one that is required."""


@dataclass(frozen=True, eq=False)
class Kind(Generic[M]):
    """A kind of models M with the same interface.

    heads    name -> outputs, of the heads that every model of this kind has, and that a folder does not list
    instead  (folder, its config.json) -> an error sentence for a caller who expects another kind: how to use this one
    call     a line of code that calls its class in `transformers`, in an example
    """

    heads: Mapping[str, int]
    instead: Callable[[Path | str, Mapping[str, Any]], str]
    call: str


def _single_stack(folder: Path | str, values: Mapping[str, Any]) -> str:
    return f"{folder} holds a model of type {values['model_type']}, but an encoder–decoder is required."


def _encoder_decoder(folder: Path | str, values: Mapping[str, Any]) -> str:
    settings = values.get(SETTINGS)
    if isinstance(settings, Mapping) and "written" in settings:
        return (
            f"{folder} holds a model that generates the answers of a task: `unmask predict` returns labels, or other "
            "answers of the task, and `unmask translate` returns the text."
        )
    return (
        f"{folder} holds an encoder–decoder: use `unmask translate`, `unmask evaluate --pairs` or "
        "`unmask train --from`."
    )


SINGLE_STACK: Kind[Model] = Kind({}, _single_stack, "print(model(**inputs))")
"""Encoders and causal models: one stack, with the heads that the folder lists."""

ENCODER_DECODER: Kind[EncoderDecoder] = Kind(
    {"next": 0},
    _encoder_decoder,
    "print(AutoTokenizer.from_pretrained(name).batch_decode(model.generate(**inputs), skip_special_tokens=True))",
)
"""Models that encode one sequence and generate another."""


def holds_setting(folder: Path | str, name: str) -> bool:
    """Whether the settings in the config.json of a folder (`Loaded.settings`) have a name. Raises UnmaskError if
    config.json is damaged."""
    place = Path(folder) / "config.json"
    settings = read_json(place).get(SETTINGS) if place.is_file() else None
    return isinstance(settings, Mapping) and name in settings
