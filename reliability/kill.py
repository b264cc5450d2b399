"""SIGKILL at any moment: runs of every kind are killed, restarted, and compared with uninterrupted runs.

Every trial is one folder: start, kill at a random moment, restart, until a start finishes. Half of the kills are aimed:
they wait until a file is being written, and kill some milliseconds later. Of the runs with settings, every second one
is first killed before its first checkpoint, soon after its settings were written. Conditions:

- the last start succeeds, by the same command or by the one that continues, without manual repair
- losses, metrics, weights, tokens: every file equals that of the uninterrupted run, bit for bit
- no temporary file and no process is left

    python reliability/kill.py --kills 20
    python reliability/kill.py --jobs pretrain-workers pretrain-ranks --kills 5 --out killed.json

`pretrain-workers` changes the number of data workers between 0 and 2 at every start, `pretrain-ranks` the number of
processes between 1, 2 and 4: their losses agree to 1e-6. In `pretrain-elastic`, one of two processes under torchrun is
killed: torchrun restarts both, the run continues by itself, and its losses agree to 1e-6 with those of one process.
Ends with status 1 if a condition failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread: what forks must not hold any

import numpy as np
from jobs import Job, Process, Torchrun, differences, far, leftovers, prepare, trace, warm

MOST_KILLS = 12  # of one trial, after which it is let go on
RANKS = (1, 2, 4, 1, 4, 2)  # processes of one start after the other: every change there is between them
LONG = ("pretrain", "finetune", "translation", "corpus", "tokenizer")  # jobs that a kill finds at work
VARIANTS = ("pretrain-workers", "pretrain-ranks", "pretrain-elastic")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=20, help="of each job (default: %(default)s)")
    arguments.add_argument("--jobs", nargs="+", default=[], help="default: all")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", help="file for the results, as JSON")
    options = arguments.parse_args()
    warm()
    with tempfile.TemporaryDirectory(prefix="unmask-kill-") as temporary:
        jobs = prepare(Path(temporary))
        names = options.jobs or [*LONG, *VARIANTS]
        kinds = {name: Elastic if name.endswith("-elastic") else Trials for name in names}
        found = [kind(jobs, name, Path(temporary), options.seed).run(options.kills) for name, kind in kinds.items()]
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(one["failures"] for one in found))


class Trials:
    """Trials of one job, until it has been killed often enough."""

    def __init__(self, jobs: dict[str, Job], name: str, folder: Path, seed: int) -> None:
        self.name, self.folder = name, folder
        self.job = jobs[name.partition("-")[0]]
        self.variant = name.partition("-")[2]
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.kills = self.aimed = self.early = self.trials = 0
        self.failures: list[str] = []
        self.expected: dict[str, Any] = {}
        self.length = 0.0

    def run(self, kills: int) -> dict[str, Any]:
        began = time.monotonic()
        out = self.folder / f"{self.name}-whole"
        status = self._complete(out)
        self.length = time.monotonic() - began
        if status != 0:
            self.failures.append(f"the run that was left alone ended with {status}: {_tail(out)}")
            return self._result(began)
        self.expected = trace(out)
        while self.kills < kills and len(self.failures) < 3:
            self._trial(kills)
        return self._result(began)

    def _result(self, began: float) -> dict[str, Any]:
        facts = {"job": self.name, "kills": self.kills, "aimed": self.aimed, "early": self.early, "trials": self.trials}
        facts |= {"minutes": round((time.monotonic() - began) / 60, 2), "failures": self.failures}
        print(
            f"{self.name:18} {self.kills:4} kills ({self.aimed} aimed, {self.early} early) in {self.trials} trials: ",
            end="",
        )
        print("; ".join(self.failures) or "all as if nothing had happened", flush=True)
        return facts

    def _complete(self, out: Path) -> int:
        """Start it until it finishes, as a user would who finds it stopped."""
        return max((process.wait() for process in self._start(out, 0)), default=0)

    def _trial(self, kills: int) -> None:
        out = self.folder / f"{self.name}-{self.trials}"
        self.trials += 1
        for attempt in range(MOST_KILLS + 1):
            group = self._start(out, attempt)
            if self.kills < kills and attempt < MOST_KILLS and self._killed(group, out):
                continue
            status = max(process.wait() for process in group)
            if status == 2 and "already holds a corpus" in _tail(out):  # killed when all was done
                break
            if status != 0:
                self.failures.append(f"start {attempt + 1} ended with {status}: {_tail(out)}")
                return
            break
        self._compare(out)

    def _start(self, out: Path, attempt: int) -> list[Process]:
        """The processes of one start; for an existing run, of the command that continues it."""
        there = self.job.again is not None and _begun(out)
        command = self.job.again(out) if there and self.job.again else self.job.begin(out)
        log = out.with_suffix(".log")
        if self.variant == "workers":
            return [Process([*command, "--workers", str(2 * (attempt % 2))], log)]
        if self.variant == "ranks":
            ranks = RANKS[attempt % len(RANKS)]
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = str(free.getsockname()[1])
            shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            return [Process(command, log, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(ranks)]
        return [Process(command, log)]

    def _killed(self, group: Sequence[Process], out: Path) -> bool:
        """Kill the processes at a random moment; False if they finished before it."""
        aimed = bool(self.rng.random() < 0.5)
        early = self.job.again is not None and not _begun(out) and self.trials % 2 == 1
        if early:
            while not _begun(out) and not group[0].ended():
                time.sleep(0.001)
            time.sleep(float(self.rng.exponential(0.02)))
            early = not [*out.rglob("step-*")]
        elif aimed:
            self._await_writing(group, out, int(self.rng.integers(1, 5)))
            time.sleep(float(self.rng.exponential(0.004)))
        else:
            until = time.monotonic() + float(self.rng.uniform(0, self.length))
            while time.monotonic() < until and not group[0].ended():
                time.sleep(0.001)
        if group[0].ended():
            return False
        for process in group:
            process.kill()
        for process in group:
            process.wait()
            if process.orphans():
                self.failures.append(f"processes of {self.name} outlived the one that was killed")
        self.kills += 1
        self.early += early
        self.aimed += aimed and not early
        return True

    def _await_writing(self, group: Sequence[Process], out: Path, times: int) -> None:
        """Wait until something is being written for the `times`-th time."""
        pattern, seen = self.job.waits.format(name=out.name), False
        place = out
        if pattern.startswith("../"):
            place, pattern = out.parent, pattern.removeprefix("../")
        while times and not group[0].ended():
            try:
                there = any(True for _ in place.glob(pattern))
            except FileNotFoundError:  # it was put in its place meanwhile
                there = False
            times -= there and not seen
            seen = there

    def _compare(self, out: Path) -> None:
        found, left = trace(out), leftovers(out, self.job)
        if left:
            self.failures.append(f"left behind: {', '.join(left)}")
        if self.variant in ("ranks", "elastic"):
            other = far(self.expected["metrics.jsonl"], found["metrics.jsonl"])
        else:
            other = differences(self.expected, found)
            if self.variant == "workers":  # run.json keeps the number
                other = [name for name in other if not name.endswith(("run.json", "manifest.json", "state.json"))]
        if other:
            self.failures.append(f"differs from the run that was left alone: {', '.join(other)}")


class Elastic(Trials):
    """Trials of two processes under torchrun: one of them is killed, and only torchrun restarts them."""

    def _trial(self, kills: int) -> None:
        out = self.folder / f"{self.name}-{self.trials}"
        self.trials += 1
        torchrun = Torchrun([*self.job.begin(out), "--resume"], out.with_suffix(".log"))
        for _ in range(MOST_KILLS):
            if self.kills == kills or not self._struck(torchrun, out):
                break
        if torchrun.wait() != 0:
            self.failures.append(f"torchrun gave up after {self.kills} kills: {_tail(out)}")
        elif torchrun.orphans():
            self.failures.append("processes outlived torchrun")
        else:
            self._compare(out)

    def _struck(self, torchrun: Torchrun, out: Path) -> bool:
        """Kill one of the two processes while they train or write, and wait until it is gone."""
        metrics = out / "metrics.jsonl"
        before = _changed(metrics)
        while _changed(metrics) == before and not torchrun.ended():
            time.sleep(0.002)
        aimed = bool(self.rng.random() < 0.5)
        if aimed:
            self._await_writing([torchrun], out, int(self.rng.integers(1, 4)))
        else:
            time.sleep(float(self.rng.uniform(0, self.length)))
        members = [] if torchrun.ended() else torchrun.members()
        if len(members) < 2:  # they have come to their end
            return False
        struck = members[int(self.rng.integers(2))]
        with contextlib.suppress(ProcessLookupError):
            os.kill(struck, signal.SIGKILL)
        while struck in torchrun.members() and not torchrun.ended():
            time.sleep(0.002)
        self.kills += 1
        self.aimed += aimed
        return True


def _changed(path: Path) -> int:
    """The modification time of a file, in nanoseconds; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _begun(out: Path) -> bool:
    """Whether a run left anything to continue from."""
    runs = [*out.glob("run.json"), *out.glob("checkpoints/step-*")]
    return bool(runs)


def _tail(out: Path) -> str:
    log = out.with_suffix(".log")
    return log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2] if log.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
