"""Probes: the predictions of a model for a few held-out texts, written at every evaluation of a run."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.pictures.thumbnails import thumbnail
from unmask.files import write_text
from unmask.objectives import Probe
from unmask.train.events import Evaluated, Event, Listener

__all__ = ["FILE", "Probe", "note", "pictures", "read", "samples", "writing"]

FILE = "samples.jsonl"


def samples(
    given: Sequence[Probe],
    found: Sequence[Sequence[tuple[str, float]]],
    pictures: Sequence[Mapping[str, np.ndarray]] = (),
) -> list[dict[str, Any]]:
    """Probes with their predictions, each a list of (prediction, probability), as rows of samples.jsonl.

    pictures  for each probe its pictures by name, which are written as files of at most 4 KB in Base64
    """
    rows = []
    for number, (probe, guesses) in enumerate(zip(given, found, strict=True)):
        row: dict[str, Any] = {
            "text": probe.text,
            "expected": list(probe.expected),
            "guesses": [[w, round(x, 5)] for w, x in guesses],
        }
        if number < len(pictures) and pictures[number]:
            row["pictures"] = {name: _encoded(pixels_HWC) for name, pixels_HWC in pictures[number].items()}
        rows.append(row)
    return rows


def _encoded(pixels_HWC: np.ndarray) -> str:
    return base64.b64encode(thumbnail(pixels_HWC)).decode()


def pictures(sample: Mapping[str, Any]) -> dict[str, bytes]:
    """The pictures of a sample by name, as files of PNG or JPEG; those that are damaged are left out."""
    given = sample.get("pictures")
    found = {}
    for name, text in given.items() if isinstance(given, Mapping) else ():
        with suppress(ValueError, TypeError):
            found[str(name)] = base64.b64decode(text, validate=True)
    return found


def writing(folder: Path) -> Listener:
    """A listener that writes the samples of each evaluation into a folder."""

    def write(event: Event) -> None:
        if isinstance(event, Evaluated) and event.samples:
            note(folder, event.step, event.samples)

    return write


def note(folder: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the samples of a step. Samples that an earlier run wrote at this step or later are dropped."""
    earlier = [line for line in read(folder) if line["step"] < step]
    lines = [*earlier, {"step": step, "samples": rows}]
    write_text(folder / FILE, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read(folder: Path) -> list[dict[str, Any]]:
    """The samples so far: {"step", "samples": [{"text", "expected", "guesses"}]}, of pictures also
    "pictures" by name, in Base64; incomplete lines are left out."""
    path = folder / FILE
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # texts may hold other line ends
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [value] if isinstance(value, dict) else []
    return found
