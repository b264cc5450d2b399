"""Transcripts: the vocabulary of a head that writes characters, in the files of `Wav2Vec2CTCTokenizer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.recordings.characters import Characters
from unmask.errors import UnmaskError
from unmask.huggingface.table import Part

MARKERS = ("blank", "space", "unknown", "lower")
"""The settings of a folder that writes transcripts: the fields of `Characters` besides its pieces."""


class Transcripts(Part):
    """Writes vocab.json and the files beside it, from the labels and settings of a folder, and reads those of other
    programs."""

    def files(self, config: Any, settings: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, str]:
        found = _characters(settings, labels)
        return {} if found is None else found.files()

    def described(self, settings: Mapping[str, Any], labels: Sequence[str]) -> Mapping[str, Any]:
        found = _characters(settings, labels)
        return {} if found is None else {"vocab_size": len(labels), "pad_token_id": found.blank_label}

    def labels(self, values: Mapping[str, Any], folder: Path) -> Sequence[str]:
        found = _stored(values, folder)
        return () if found is None else found.pieces

    def settings(self, config: Any, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        found = _stored(values, folder)
        return {} if found is None else {name: getattr(found, name) for name in MARKERS}


def _characters(settings: Mapping[str, Any], labels: Sequence[str]) -> Characters | None:
    """The vocabulary of the settings and labels of a folder; None if it writes no transcripts."""
    if not labels or not set(MARKERS) <= settings.keys():
        return None
    return Characters(tuple(labels), **{name: settings[name] for name in MARKERS})


def _stored(values: Mapping[str, Any], folder: Path) -> Characters | None:
    """The vocabulary in the files of a folder; None for a model that writes no transcripts.

    Raises UnmaskError for a blank that config.json contradicts.
    """
    if not any(str(name).endswith("ForCTC") for name in values.get("architectures") or ()):
        return None
    outputs = values.get("vocab_size")
    found = Characters.load(folder, outputs if type(outputs) is int else None)
    blank = values.get("pad_token_id")
    if found is not None and blank not in (None, found.blank_label):
        raise UnmaskError(
            f"{folder / 'config.json'}: pad_token_id = {blank!r} is not {found.blank!r}, the blank of vocab.json."
        )
    return found
