"""Probes: the predictions of a model for a few held-out texts, written at every evaluation of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files import write_text
from unmask.objectives import Probe
from unmask.train.events import Evaluated, Event, Listener

__all__ = ["FILE", "Probe", "note", "read", "samples", "writing"]

FILE = "samples.jsonl"


def samples(given: Sequence[Probe], found: Sequence[Sequence[tuple[str, float]]]) -> list[dict[str, Any]]:
    """Probes with their predictions, each a list of (prediction, probability), as rows of samples.jsonl."""
    return [
        {"text": p.text, "expected": list(p.expected), "guesses": [[w, round(x, 5)] for w, x in g]}
        for p, g in zip(given, found, strict=True)
    ]


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
    """The samples so far: {"step", "samples": [{"text", "expected", "guesses"}]}; incomplete lines are left out."""
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
