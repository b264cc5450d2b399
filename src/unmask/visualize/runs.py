"""Runs: curves of running and finished runs, differences of their configurations, and predictions for probes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.config import flatten, read_json
from unmask.errors import UnmaskError
from unmask.train.metrics import read as read_lines
from unmask.train.metrics import require_run, thin
from unmask.visualize.numbers import Data

LIVELY = 300.0  # seconds without a new line, after which an unfinished run counts as stopped
SIGNALS = ("SIG", "a signal")  # how `stopped` of a seed begins if a signal stopped it
MOST = 400  # most points of a curve
NOT_CURVES = {"step", "seconds", "split", "skipped"}


def find(folder: Path | str, depth: int = 3) -> list[Path]:
    """Folders of runs below a folder, newest first, without folders inside a run, such as those of its seeds. Raises
    UnmaskError if the folder does not exist."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder {folder}.")
    found: list[Path] = []

    def walk(place: Path, left: int) -> None:
        if (place / "metrics.jsonl").is_file():
            found.append(place)
        elif left:
            for below in sorted(p for p in place.iterdir() if p.is_dir() and not p.is_symlink()):
                if not below.name.startswith("."):
                    walk(below, left - 1)

    walk(folder, depth)
    return sorted(found, key=lambda place: -(place / "metrics.jsonl").stat().st_mtime)


def run(folder: Path | str, now: float | None = None) -> Data:
    """One run: {"name", "recipe", "state": "running", "finished" or "stopped", "step", "seconds", "curves": {metric:
    {split: [[step, value], …]}}, "config": {dotted name: value}, "samples": [{"step", "samples"}]}.

    Curves of more than MOST points are thinned; the last point is kept. Raises UnmaskError for a folder without a run.
    """
    folder = Path(folder)
    path = folder / "metrics.jsonl"
    require_run(folder)
    rows = read_lines(path)
    facts = _facts(folder)
    config = facts.get("config")
    last = rows[-1] if rows else {}
    return {
        "name": folder.name,
        "folder": str(folder),
        "recipe": str(facts.get("recipe") or ""),
        "state": _state(folder, last.get("step", 0), time.time() if now is None else now),
        "step": last.get("step", 0),
        "seconds": last.get("seconds", 0.0),
        "curves": curves(rows),
        "config": flatten(config) if isinstance(config, Mapping) else {},
        "samples": thin(read_lines(folder / "samples.jsonl"), 8),
    }


def compare(folders: Sequence[Path | str]) -> Data:
    """Several runs, and the fields in which their configurations differ. Raises UnmaskError if there is no run."""
    if not folders:
        raise UnmaskError("There is no run to show: name one or more.")
    found = [run(folder) for folder in folders]
    return {"view": "runs", "runs": found, "differences": differences([one["config"] for one in found])}


def differences(configs: Sequence[Mapping[str, Any]]) -> list[Data]:
    """The fields that differ between configs: {"field", "values": one for each config, None if it lacks the field}."""
    fields = dict.fromkeys(name for config in configs for name in config)
    rows = [{"field": name, "values": [config.get(name) for config in configs]} for name in fields]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"][1:])]


def curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[list[float]]]]:
    """metric -> split -> [[step, value], …] in the order of the file, without values that are not numbers."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for row in rows:
        for name, value in row.items():
            if name not in NOT_CURVES and isinstance(value, int | float) and not isinstance(value, bool):
                split = str(row.get("split", "train"))
                found.setdefault(name, {}).setdefault(split, []).append([row.get("step", 0), value])
    return {name: {split: thin(points, MOST) for split, points in lines.items()} for name, lines in found.items()}


def _state(folder: Path, step: int, now: float) -> str:
    """The state of a run whose last measurement is at `step`. A run writes its folder when it finishes, and also when a
    signal stops it, after which it may continue."""
    results, facts = folder / "results.json", folder / "run.json"
    ended = facts.exists() and (folder / "config.json").exists()  # run.json alone exists from the start
    written = results if results.exists() else facts if ended else None
    if written is not None and not _has_more_to_do(folder, step):
        return "finished"
    lines = [*folder.glob("seeds/*/metrics.jsonl")] or [folder / "metrics.jsonl"]
    measured = max(path.stat().st_mtime for path in lines)
    left = written is not None and written.stat().st_mtime >= measured
    return "running" if not left and abs(now - measured) < LIVELY else "stopped"  # the clock may have been set back


def _has_more_to_do(folder: Path, step: int) -> bool:
    """Whether a run with a written folder has not reached its last step: by the results of its seeds, else by its
    newest checkpoint, which is older than the last measurement if a run continues beyond its former end."""
    if (folder / "results.json").exists():
        seeds = read_json(folder / "results.json").get("seeds")
        last = seeds[-1] if isinstance(seeds, list) and seeds else None
        return isinstance(last, dict) and str(last.get("stopped")).startswith(SIGNALS)
    newest = max((folder / "checkpoints").glob("step-*/state.json"), default=None)
    if newest is None:
        return False
    state = read_json(newest)
    return not step <= state.get("step", 0) == state.get("total", 0)


def _facts(folder: Path) -> dict[str, Any]:
    """run.json of a run; of its newest checkpoint if the run has not finished."""
    places = [folder / "run.json", *sorted((folder / "checkpoints").glob("step-*/run.json"), reverse=True)]
    found = next((place for place in places if place.exists()), None)
    return read_json(found) if found else {}
