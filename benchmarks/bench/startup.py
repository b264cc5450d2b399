"""Start-up: seconds of fresh processes that import a package or print the help of the command."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import common
from bench.common import Result
from bench.row import Measured, Plan, Unit
from unmask.config import Config
from unmask.errors import UnmaskError

SECONDS = Unit("s", digits=3, time=True)
COMMANDS: Mapping[str, Sequence[str]] = {
    "python": ["-c", "pass"],
    "unmask --help": ["-m", "unmask", "--help"],
    "import unmask": ["-c", "import unmask"],
    "unmask.runs.pretraining.run": ["-c", "from unmask.runs.pretraining.run import Pretrain"],
    "import torch": ["-c", "import torch"],
    "import transformers": ["-c", "import transformers"],
    "transformers.Trainer": ["-c", "from transformers import Trainer"],
}
"""Side -> arguments of Python."""


@dataclass(frozen=True, kw_only=True)
class Startup(Config):
    """The settings of a start-up row.

    repeats  processes in a turn, one after another; the median counts
    """

    repeats: int = 3


def measure(asked: Startup, sides: Sequence[str], plan: Plan) -> Measured:
    """Let the sides take turns, after each has run once to fill the cache of files."""
    for side in sides:
        seconds(side)

    def turn(side: str, number: int) -> Result:
        found = [seconds(side) for _ in range(asked.repeats)]
        return {"seconds": found, "figure": common.spread(found)["median"]}

    return Measured(plan.alternate(sides, SECONDS, turn))


def seconds(side: str) -> float:
    """The duration of one process. Raises UnmaskError if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *COMMANDS[side]],
        env=common.environment(1),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    taken = time.perf_counter() - began
    if done.returncode:
        raise UnmaskError(f"'{side}' ended with status {done.returncode}.")
    return taken
