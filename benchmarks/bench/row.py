"""A row of the table: what is measured, compared with which peers, and the goals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench import common
from bench.common import Result
from unmask.config import Config

T = TypeVar("T")
OURS = "unmask"
Turns = dict[str, list[Result]]
"""Side -> the result of each of its turns; the table shows `figure`."""


@dataclass(frozen=True)
class Unit:
    """The unit of a figure.

    digits  decimals that are shown
    time    whether smaller is better
    """

    name: str
    digits: int = 0
    time: bool = False

    def times(self, ours: float, theirs: float) -> float:
        """How many times as fast `ours` is."""
        return theirs / ours if self.time else ours / theirs

    def show(self, figure: float) -> str:
        return f"{figure:,.{self.digits}f} {self.name}"


@dataclass(frozen=True)
class Goal:
    """A goal: the median of `number` over the turns must be at least `least`.

    says    the goal in words
    number  (unit, our figure, theirs) of a turn -> the number that is judged; without a peer, theirs is ours
    """

    says: str
    number: Callable[[Unit, float, float], float]
    least: float

    def is_reached(self, unit: Unit, ours: Sequence[float], theirs: Sequence[float]) -> bool:
        found = [self.number(unit, mine, other) for mine, other in zip(ours, theirs, strict=True)]
        return common.spread(found)["median"] >= self.least


def times(least: float) -> Goal:
    """At least this many times as fast as the peer."""
    says = "no slower" if least == 1 else f"≥ {least:g} times"
    return Goal(says, lambda unit, mine, other: unit.times(mine, other), least)


def at_least(figure: float) -> Goal:
    """At least this figure, without a peer."""
    return Goal(f"≥ {figure:g}", lambda unit, mine, other: mine, figure)


def at_most(seconds: float) -> Goal:
    """At most this time, without a peer."""
    return Goal(f"≤ {seconds:g} s", lambda unit, mine, other: -mine, -seconds)


def within(seconds: float) -> Goal:
    """At most so many seconds longer than the peer."""
    return Goal(f"≤ peer + {seconds:g} s", lambda unit, mine, other: other - mine, -seconds)


@dataclass(frozen=True)
class Plan:
    """How rows are measured.

    threads  of every process        pairs  turns of every side
    folder   that all rows share     made   results that rows share, by key
    at_once  sides that run at the same time, more than one only where speed does not matter
    profile  whether unmask takes one more turn, under the profiler
    making   a lock for each key of `made`
    """

    threads: int
    pairs: int
    folder: Path
    made: dict[Hashable, Any] = field(default_factory=dict)
    at_once: int = 1
    profile: bool = False
    making: dict[Hashable, threading.Lock] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make`, which is called once for each key. Other threads wait for it."""
        with self.making.setdefault(key, threading.Lock()):
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]

    def alternate(self, sides: Sequence[str], unit: Unit, turn: Callable[[str, int], Result]) -> Turns:
        """Let the sides take turns, A B A B …; `turn`(side, number from 0) returns a result."""

        def shown(side: str, number: int) -> Result:
            done = turn(side, number)
            if self.at_once > 1:
                done.pop("others", None)  # the other programs are the other sides
            print(f"  turn {number + 1}  {side:28} {unit.show(done['figure'])}", flush=True)
            return done

        turns: Turns = {side: [] for side in sides}
        with ThreadPoolExecutor(self.at_once) as pool:
            for number in range(self.pairs):
                for side, done in zip(sides, pool.map(lambda side, n=number: shown(side, n), sides), strict=True):
                    turns[side].append(done)
        if self.profile:
            asked = common.PROFILED.set(True)
            try:
                turns[sides[0]][-1]["where"] = turn(sides[0], 0).get("where", {})
            finally:
                common.PROFILED.reset(asked)
        return turns


@dataclass(frozen=True)
class Measured:
    """The results of a row.

    turns  of every side that took part, ours first
    facts  other results, for the file
    notes  sentences below the table
    """

    turns: Turns
    facts: Result = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row, which has a line in the table for each peer.

    work      what is measured, in words; {precision} stands for that of the settings
    unit      of the figures
    sides     name -> packages that it needs; the first is ours
    settings  of the measurement; the command line overrides its fields
    measure   (settings, sides that are installed, plan) -> results
    goals     peer -> goal; "" for a goal without a peer
    quick     fields of the smallest measurement that runs everything
    """

    name: str
    work: str
    unit: Unit
    sides: Mapping[str, tuple[str, ...]]
    settings: Config
    measure: Callable[[Any, Sequence[str], Plan], Measured]
    goals: Mapping[str, Goal] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.name.split("-")[0]

    @property
    def says(self) -> str:
        """What is measured, in words, with the precision."""
        precision = getattr(self.settings, "precision", "")
        return self.work.replace("{precision}", "the fastest precision" if precision == "auto" else precision)

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return getattr(self.settings, "device", "cpu") != "cpu"

    def missing(self) -> dict[str, tuple[str, ...]]:
        """Sides that cannot take part -> the packages that are not installed."""
        found = {side: common.absent(packages) for side, packages in self.sides.items()}
        return {side: packages for side, packages in found.items() if packages}
