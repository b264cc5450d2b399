"""The run of `make bench`: measures rows one after another, and writes results, a table and a plot."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import common, profiling, table
from bench.common import Result
from bench.row import OURS, Measured, Plan, Row, Turns
from bench.rows import find
from unmask.errors import UnmaskError
from unmask.files import write_text, writing
from unmask.kernels.processor import settle

QUICK = 4  # sides at once with --quick, whose speeds mean nothing
NO_GPU = "Left out: PyTorch sees no GPU here."
PICTURES = (".svg", ".png")


@dataclass(frozen=True)
class Places:
    """The files of a run, written again after every row: all turns as JSON, the table in Markdown, a plot of ratios."""

    out: Path | None = None
    table: Path | None = None
    plot: Path | None = None

    def check(self) -> None:
        """Raises UnmaskError if the plot cannot be drawn or a file cannot be written, before hours are spent."""
        if self.plot is not None:
            if self.plot.suffix not in PICTURES:
                raise UnmaskError(f"Plots are drawn as {' or '.join(PICTURES)}, not as {self.plot.name}.")
            common.need("matplotlib")
        for path in self.given():
            if path.is_dir():
                raise UnmaskError(f"{path} is a folder; name a file in it.")
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=path.parent).close()

    def given(self) -> list[Path]:
        """The files that are written."""
        return [path for path in (self.out, self.table, self.plot) if path is not None]

    def write(self, facts: Result) -> None:
        """Write the files, each whole or not at all."""
        if self.out is not None:
            common.write_json(self.out, facts)
        if self.table is not None:
            write_text(self.table, table.render(facts) + "\n")
        if self.plot is not None:
            table.plot(facts, self.plot)

    def __str__(self) -> str:
        return ", ".join(map(str, self.given()))


def bench(
    names: Sequence[str],
    fields: Mapping[str, str],
    *,
    threads: int,
    pairs: int,
    quick: bool = False,
    profile: bool = False,
    places: Places | None = None,
) -> Result:
    """Measure the rows or families of rows of these names, or all rows without a name.

    fields   settings of the rows, as on the command line; several values, separated by commas, make all combinations
    threads  of every process that is measured
    pairs    turns of each side
    quick    the smallest sizes, one turn: does everything run?
    profile  whether unmask takes one more turn in each row, under the profiler

    Peers that are not installed are named and left out, and a row that fails does not stop the others. Raises
    UnmaskError before the first turn for unknown names and fields, and at the end if a row has no result.
    """
    if threads < 1 or pairs < 1:
        raise UnmaskError("The number of threads and of pairs must be 1 or more.")
    places = places or Places()
    places.check()
    asked = [variant for row in find(names) for variant in variants(row, fields, quick)]
    facts: Result = {"machine": common.machine(threads), "run": {"pairs": pairs, "quick": quick}, "rows": []}
    common.introduce(facts["machine"])
    with tempfile.TemporaryDirectory(prefix="unmask-bench-") as folder:
        turns, at_once = (1, QUICK) if quick else (pairs, 1)
        plan = Plan(threads, turns, Path(folder), at_once=at_once, profile=profile)
        for row in asked:
            facts["rows"].append(measured(row, plan))
            places.write(facts)
    print(f"\n{table.render(facts)}", flush=True)
    if str(places):
        print(f"\nWritten: {places}.")
    if failed := [row["name"] for row in facts["rows"] if "failed" in row]:
        raise UnmaskError(f"Without a result: {', '.join(failed)}.")
    return facts


def variants(row: Row, fields: Mapping[str, str], quick: bool) -> Iterator[Row]:
    """The row with the given fields, once for each combination of their values.

    A changed row names its fields and has no goals, which are for the settings of the table. Raises UnmaskError for a
    field that the row does not have.
    """
    base = row.settings.override(row.quick if quick else {})
    for values in itertools.product(*(value.split(",") for value in fields.values())):
        given = dict(zip(fields, values, strict=True))
        try:
            settings = base.override(given)
        except UnmaskError as error:
            raise UnmaskError(f"{row.name}: {error}") from None
        if settings == row.settings:
            yield row
            continue
        said = ["smallest sizes"] if quick else []
        said += [f"{name.replace('-', '_')} {value}" for name, value in given.items()]
        yield replace(row, settings=settings, work=f"{row.work}; here with {', '.join(said)}", goals={})


def measured(row: Row, plan: Plan) -> Result:
    """The results of a row for the file; `failed` is a sentence if there are none."""
    no_gpu = row.on_gpu and not common.sees_gpu()
    row, of_precision = (row, []) if no_gpu else settled(row)
    print(f"\n{row.name}: {row.says}", flush=True)
    missing = row.missing()
    for side, packages in missing.items():
        print(f"  {side} is left out: {', '.join(packages)} not installed (pip install 'unmask[bench]').", flush=True)
    facts: Result = {"name": row.name, "work": row.says, "unit": row.unit.name, "settings": row.settings.to_dict()}
    facts["missing"] = {side: list(packages) for side, packages in missing.items()}
    if no_gpu:
        print(f"  {NO_GPU}", flush=True)
        return {**facts, "lines": [], "notes": [NO_GPU]}
    try:
        found = row.measure(row.settings, [side for side in row.sides if side not in missing], plan)
    except UnmaskError as error:
        print(f"  {row.name} has no result: {error}", flush=True)
        return {**facts, "lines": [], "failed": str(error)}
    goes = [profiling.sentence(turn["where"]) for turn in found.turns.get(OURS, []) if turn.get("where")]
    notes = [*of_precision, *found.notes, *disturbed(found.turns), *goes]
    return {**facts, "lines": lines(row, found), "turns": found.turns, "facts": found.facts, "notes": notes}


def settled(row: Row) -> tuple[Row, list[str]]:
    """The row in the precision that its device computes in, and a note on a precision that was given by name."""
    asked = getattr(row.settings, "precision", None)
    if asked is None:
        return row, []
    chosen = settle(asked, getattr(row.settings, "device", "cpu"))
    notes = [chosen.note] if chosen.note and asked != "auto" else []
    return replace(row, settings=row.settings.replace(precision=chosen.precision)), notes


def disturbed(turns: Turns) -> list[str]:
    """A note if other programs used the machine during a turn; none if it was quiet or does not report this."""
    shares = [turn.get("others") or 0.0 for done in turns.values() for turn in done]
    if (most := max(shares, default=0.0)) <= common.DISTURBED:
        return []
    return [f"Others had up to {most:.0%} of the machine during a turn: the speeds say little about a quiet one."]


def lines(row: Row, found: Measured) -> list[Result]:
    """A line of the table for each peer that took part, or one without a peer: medians, ratio turn by turn, goal."""
    figures = {side: [turn["figure"] for turn in done] for side, done in found.turns.items()}
    ours, *peers = figures
    return [_line(row, figures[ours], peer, figures.get(peer), alone=i == 0) for i, peer in enumerate(peers or [""])]


def _line(row: Row, ours: Sequence[float], peer: str, theirs: Sequence[float] | None, *, alone: bool) -> Result:
    """`alone`: whether the line shows the goal that has no peer."""
    line: dict[str, Any] = {"peer": peer, "ours": _shown(row, ours)}
    if theirs is not None:
        ratios = [row.unit.times(mine, other) for mine, other in zip(ours, theirs, strict=True)]
        line |= {"theirs": _shown(row, theirs), "ratio": common.spread(ratios)}
    goal = row.goals.get(peer) or (row.goals.get("") if alone else None)
    if goal is not None:
        line |= {"goal": goal.says, "reached": goal.is_reached(row.unit, ours, theirs or ours)}
    return line


def _shown(row: Row, figures: Sequence[float]) -> Result:
    found = common.spread(figures)
    return {**found, "shown": row.unit.show(found["median"])}
