"""Search: tries a grid of settings with the first seed; the best on the dev rows is then run with all seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import Config, read_json
from unmask.errors import Stopped, UnmaskError, plural
from unmask.files import sweep, write_text
from unmask.runs.finetuning.config import LEAST_STEPS, FineTuning
from unmask.runs.finetuning.encoder import INTERRUPTIONS, PreparedEncoder, prepare, run_seed
from unmask.runs.finetuning.prepared import Notes, clear
from unmask.runs.finetuning.report import RESULTS
from unmask.runs.finetuning.run import Result, train_seeds
from unmask.runs.run import sign_of
from unmask.runs.transfer import Transfer
from unmask.tasks.config import without_usual
from unmask.train import checkpoint, distributed, report
from unmask.train.display import Display

NAME = "search.json"
TRIAL = "search"  # folder of the current point
BOLDER = 10  # factor on the published learning rates if the trunk is frozen

Point = dict[str, Any]
"""batch_size, lr and epochs; after its trial also metric, value, dev (metrics), step and total."""


@dataclass(frozen=True, kw_only=True)
class Grid(Config):
    """The settings to try, in every combination. The defaults are the 18 of Devlin et al. 2018, appendix A.3.

    batch_size  rows of a step
    lr          peak learning rates
    epochs      passes over the training rows
    """

    batch_size: tuple[int, ...] = (16, 32)
    lr: tuple[float, ...] = (5e-5, 3e-5, 2e-5)
    epochs: tuple[float, ...] = (2.0, 3.0, 4.0)

    @classmethod
    def of(cls, transfer: Transfer) -> Grid:
        """The published grid, with ten times its learning rates for strategies that train few weights ("frozen",
        "lora")."""
        if transfer.strategy in ("frozen", "lora"):
            return cls(lr=(5e-4, 3e-4, 2e-4))
        return cls()

    @property
    def points(self) -> list[Point]:
        """All combinations, in order. Raises UnmaskError for an empty grid, and for values that are not above 0."""
        for name, values in vars(self).items():
            if not values or min(values) <= 0:
                raise UnmaskError(f"The grid needs at least one {name}, and each must be above 0.")
        names = ("batch_size", "lr", "epochs")
        rows = product(*(dict.fromkeys(getattr(self, name)) for name in names))
        return [dict(zip(names, values, strict=True)) for values in rows]

    def drawn(self, limit: int | None, seed: int) -> list[Point]:
        """`limit` points, drawn by the seed; a larger limit only adds points. None: all."""
        points = self.points
        if limit is None:
            return points
        if not 1 <= limit <= len(points):
            known = plural(len(points), "point")
            raise UnmaskError(f"The grid has {known}; a search can try 1 to {len(points)}, not {limit}.")
        return [points[i] for i in np.random.default_rng(seed).permutation(len(points))[:limit]]


def search(
    config: FineTuning,
    out: Path | str,
    *,
    grid: Grid | None = None,
    limit: int | None = None,
    display: Display | None = None,
) -> Result:
    """Fine-tune once for each point of a grid, with the first seed, then with all seeds at the best point.

    grid   None: `Grid.of` the strategy
    limit  number of points to try, drawn by the seed; None: all

    The points are compared on the dev rows, which makes the dev score of the best one optimistic; only test rows, by
    which nothing is chosen, give an unbiased score. `out` becomes the folder that `finetune` writes, with search.json.
    An interrupted search (`begun(out)`) continues from the points in search.json; if it was interrupted in the runs of
    the best point, these start again.

    Raises UnmaskError as `finetune` does, for a folder with another search, and for one that another process uses;
    Stopped if a signal ends it.
    """
    out = Path(out)
    distributed.init(config.fit.device)
    grid = grid or Grid.of(config.transfer)
    asked = {"config": config.to_dict(), "grid": grid.to_dict(), "limit": limit}
    if config.fit.least_steps is None:  # the published epochs are a default, which small sets may exceed
        config = config.replace(fit={"least_steps": LEAST_STEPS if grid.epochs == Grid().epochs else 1})
    _begun(out, config)  # before anything takes long
    points = grid.drawn(limit, config.seed)
    distributed.barrier()  # all processes check the folder before the first one writes
    if config.model is None or config.rows.train is None:
        raise UnmaskError("Give a model and rows: --model FOLDER --train FILE.")
    say = Notes(display)
    say(_replaced(config, grid))
    prepared = prepare(_at(config, points[0]), say)
    with checkpoint.going_on("finetune", out), checkpoint.alone(out) if distributed.is_main() else nullcontext():
        return _searched(config, asked, prepared, points, out, display, say)


def begun(out: Path) -> tuple[FineTuning, Grid, int | None]:
    """The settings, the grid and the limit that the search in a folder was started with. Raises UnmaskError if it has
    ended, or search.json does not have them."""
    facts = read_json(out / NAME)
    if (out / RESULTS).exists() and not _is_cut_short(out):
        raise UnmaskError(f"The search in {out} has ended; its scores are in {out / RESULTS}.")
    asked = facts.get("asked")
    if not isinstance(asked, dict) or asked.keys() != {"config", "grid", "limit"}:
        raise UnmaskError(f"{out / NAME} does not have the settings of the run; continue with the original command.")
    return FineTuning.of_run(asked["config"]), Grid.from_dict(asked["grid"]), asked["limit"]


def _searched(
    config: FineTuning,
    asked: Mapping[str, Any],
    prepared: PreparedEncoder,
    points: Sequence[Point],
    out: Path,
    display: Display | None,
    say: Notes,
) -> Result:
    """Carry out the search while this process has the lock of the folder.

    asked  the settings that `begun` reads
    """
    tried = _begun(out, config)  # read again: another process may have continued the search meanwhile
    clear(out / "seeds")  # left by an interrupted run of the best point
    known = {_key(point): point for point in tried}
    if known.keys() & {_key(point) for point in points}:
        say("The search continues from the points that were tried before.")
    if distributed.is_main():
        _write(out, asked, config, list(known.values()))  # from here on, a killed search can be resumed
    for number, point in enumerate(points, 1):
        if _key(point) not in known:
            say(f"Point {number} of {len(points)}: {shown(point)}.", note=False)
            known[_key(point)] = _try(prepared, point, out, display)
            if distributed.is_main():
                _write(out, asked, config, list(known.values()))
    found = [known[_key(point)] for point in points]
    best = best_of(found)
    for sentence in verdict(found, best, tested="test" in prepared.encoded):
        say(sentence)
    return train_seeds(replace(prepared, config=_at(prepared.config, best)), out, display, say)


def _replaced(config: FineTuning, grid: Grid) -> str:
    """A sentence on given settings that the grid replaces; empty if there are none."""
    usual, given = FineTuning().places(), config.places()
    names = {"batch_size": "fit.batch_size", "lr": "fit.optimizer.lr", "epochs": "fit.epochs"}
    differ = [name for name, place in names.items() if given[place] != usual[place]]
    replaced = [name for name in differ if getattr(grid, name) != (given[names[name]],)]
    if not replaced:
        return ""
    options = " and ".join(f"--{name.replace('_', '-')}" for name in replaced)
    return f"The grid of the search replaces {options}; --grid.lr and the like set other points."


def best_of(points: Sequence[Point]) -> Point:
    """The point that is best on the dev rows, the first one of equals."""
    return max(points, key=lambda point: sign_of(point["metric"]) * point["value"])


def verdict(points: Sequence[Point], best: Point, *, tested: bool) -> list[str]:
    """Sentences on the result of the search, and on the bias of its dev score."""
    values = [point["value"] for point in points]
    unbiased = "the test rows give an unbiased score" if tested else "a --test file would give an unbiased score"
    sentences = [
        f"Search: {shown(best)} was best of {plural(len(points), 'point')} on the dev rows ({best['metric']} "
        f"{best['value']:.4f}; all lie between {min(values):.4f} and {max(values):.4f}).",
        f"The settings were chosen by the dev rows, so the dev score is optimistic; {unbiased}.",
    ]
    shortest = [point for point in points if point["total"] == point["least_steps"]]
    if len({point["epochs"] for point in shortest}) > 1:
        sentences.append(
            f"{len(shortest)} points took the least number of steps, {best['least_steps']}, whatever their epochs; "
            "--least-steps 1 lets the epochs decide."
        )
    return sentences


def shown(point: Mapping[str, Any]) -> str:
    """The settings of a point as part of a sentence."""
    return f"batch size {point['batch_size']}, learning rate {point['lr']:g}, {plural(point['epochs'], 'epoch')}"


def section(folder: Path) -> report.Table:
    """The points of a folder's search.json, the best first, for the report of the run."""
    points = read_json(folder / NAME)["points"]
    points = sorted(points, key=lambda point: sign_of(point["metric"]) * point["value"], reverse=True)
    rows = [[p["batch_size"], f"{p['lr']:g}", f"{p['epochs']:g}", p["total"], p["value"]] for p in points]
    note = "One seed each. The settings were chosen by these scores, which makes the best of them optimistic."
    columns = ["batch size", "learning rate", "epochs", "steps", f"{points[0]['metric']} on the dev rows"]
    return report.Table("The search for settings", columns, rows, note=note)


# ------------------------------------------------------------------------------------------------ one point


def _at(config: FineTuning, point: Mapping[str, Any]) -> FineTuning:
    changes = {"batch_size": point["batch_size"], "epochs": point["epochs"], "optimizer": {"lr": point["lr"]}}
    return config.replace(fit=changes)


def _try(prepared: PreparedEncoder, point: Point, out: Path, display: Display | None) -> Point:
    """Try a point; returns it with its scores. Its model is not kept."""
    config = _at(prepared.config, point)
    clear(out / TRIAL)
    try:
        _, row, _ = run_seed(replace(prepared, config=config), config.seed, out / TRIAL, display, Notes(display))
    except Stopped:
        clear(out / TRIAL)
        raise
    clear(out / TRIAL)
    facts = {name: row[name] for name in ("metric", "dev", "step", "total", "restarted")}
    return {**point, **facts, "value": row["dev"][row["metric"]], "least_steps": config.fit.least}


def _key(point: Mapping[str, Any]) -> tuple[float, ...]:
    return point["batch_size"], point["lr"], point["epochs"]


# ------------------------------------------------------------------------------------------------ search.json


def _begun(out: Path, config: FineTuning) -> list[Point]:
    """The points that an earlier search with the same settings tried; empty for a new folder. Raises UnmaskError for a
    folder that holds anything else."""
    sweep(out)
    there = {path.name for path in out.iterdir()} if out.is_dir() else {out.name} if out.exists() else set()
    there -= {checkpoint.LOCK}
    if there and (NAME not in there or (RESULTS in there and not _is_cut_short(out))):
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    if not there:
        return []
    found = read_json(out / NAME)
    other = differing(found.get("config"), _fixed(config), config)
    if other:
        raise UnmaskError(f"{out} holds a search with another {other}; choose another folder, or delete it.")
    points = found.get("points")
    if not isinstance(points, list) or not all(isinstance(p, dict) and p.keys() >= _PARTS for p in points):
        raise UnmaskError(f"{out / NAME} is damaged: it lists no points; delete the folder.")
    return points


def _is_cut_short(out: Path) -> bool:
    """Whether a signal ended the runs of the best point, so that results.json does not have all seeds."""
    seeds = read_json(out / RESULTS).get("seeds")
    last = seeds[-1] if isinstance(seeds, list) and seeds else None
    return isinstance(last, dict) and last.get("stopped") in INTERRUPTIONS


_PARTS = {"batch_size", "lr", "epochs", "metric", "value", "dev", "step", "total", "least_steps"}


def _fixed(config: FineTuning) -> dict[str, Any]:
    """The settings that all points share: all but the settings of the grid, the test rows and the seeds."""
    places = config.places()
    free = {"fit.batch_size", "fit.epochs", "fit.optimizer.lr", "rows.test", "seeds"}
    return {name: value for name, value in json.loads(json.dumps(places, default=str)).items() if name not in free}


def differing(found: Any, wanted: Mapping[str, Any], config: FineTuning) -> str:
    """The name of a field that differs; empty if none does."""
    if not isinstance(found, dict):
        return "config"
    found = without_usual(found, config)
    return next((name for name in wanted.keys() | found.keys() if found.get(name) != wanted.get(name)), "")


def _write(out: Path, asked: Mapping[str, Any], config: FineTuning, points: Sequence[Point]) -> None:
    facts = {"asked": asked, "config": _fixed(config), "points": points}
    write_text(out / NAME, json.dumps(facts, indent=2) + "\n")
