"""A long run: memory and open files do not grow over 10^5 steps, and a metrics line cut by a crash does no harm.

A model of one layer and width 8 is pre-trained by the command, with a hundred checkpoints and evaluations, while the
resident memory and the open files of the process are measured from outside. After the first fifth (caches fill, the
allocator settles), memory may grow by at most --megabytes until the end, and the number of open files not at all. In
the middle, the run is killed, half a line is added to its metrics, as a crash would leave it, and the run is resumed.
At the end, every step must have been logged exactly once.

    python reliability/long.py                        # 10^5 steps
    python reliability/long.py --steps 10000

Ends with status 1 if a condition failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from jobs import Process, prepare

EVERY = 0.25  # seconds between two looks
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=100_000)
    arguments.add_argument(
        "--megabytes", type=float, default=8.0, help="that memory may grow by (default: %(default)s)"
    )
    arguments.add_argument("--out", help="file for the results, as JSON")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="unmask-long-") as temporary:
        found = long_run(Path(temporary), options.steps, options.megabytes)
    print(json.dumps({name: value for name, value in found.items() if name != "looks"}, indent=2))
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(bool(found["failures"]))


def long_run(folder: Path, steps: int, megabytes: float) -> dict[str, Any]:
    """Run, kill and resume; returns the measurements and the failures."""
    prepare(folder)
    out, log = folder / "run", folder / "log"
    logged = max(1, steps // 1_000)
    command = ["pretrain", "bert-tiny", "--layers", "1", "--dim", "8", "--heads", "1", "--hidden", "16", "--device"]
    command += ["cpu", "--precision", "fp32", "--corpus", str(folder / "corpus"), "--rows.batch", "2", "--tokens", "32"]
    command += ["--rows.heldout", "2", "--steps", str(steps), "--log_every", str(logged), "--out", str(out)]
    command += ["--save_every", str(max(1, steps // 100)), "--evaluate_every", str(max(1, steps // 100))]
    began = time.monotonic()
    first = watched(Process(command, log), out, until=steps // 2)
    with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 99999999, "seconds": 12.')
    second = watched(Process(["pretrain", "--out", str(out), "--resume"], log), out)
    failures = [f"part {i}: {what}" for i, part in ((1, first), (2, second)) for what in uneven(part, megabytes)]
    if second["status"] != 0:
        failures.append(f"it did not go on: {log.read_text(errors='replace')[-300:]}")
    failures += unlogged(out / "metrics.jsonl", range(logged, steps + 1, logged))
    minutes = round((time.monotonic() - began) / 60, 2)
    facts = {f"part {i}": summary(part) for i, part in ((1, first), (2, second))}
    return {
        "steps": steps,
        "minutes": minutes,
        **facts,
        "failures": failures,
        "looks": first["looks"] + second["looks"],
    }


def watched(process: Process, out: Path, until: int | None = None) -> dict[str, Any]:
    """Measure a run until it ends, or kill it at the step `until`: its status, and (step, bytes of memory, open files)
    of each measurement."""
    looks: list[tuple[int, int, int]] = []
    while not process.ended():
        step = newest(out / "metrics.jsonl")
        if until is not None and step >= until:
            process.kill()
            break
        look = seen(process.pid)
        if step and look is not None:
            looks.append((step, *look))
        time.sleep(EVERY)
    return {"status": process.wait(), "looks": looks}


def seen(pid: int) -> tuple[int, int] | None:
    """Bytes of memory and open files of a process; None if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return (pages * PAGE, len(os.listdir(f"/proc/{pid}/fd"))) if pages else None
    except (OSError, IndexError):
        return None


def newest(path: Path) -> int:
    """The step of the last complete line of the metrics; 0 if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4_096))
            lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"{") and line.endswith(b"}")]
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError):
        return 0


def settled(part: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The measurements after the first fifth of a part."""
    return part["looks"][len(part["looks"]) // 5 :]


def uneven(part: dict[str, Any], megabytes: float) -> list[str]:
    """The growth of memory and open files in a part of the run, by the medians of its first and last fifth after
    `settled`."""
    looks = settled(part)
    if len(looks) < 10:
        return [f"only {len(looks)} looks, which tell nothing; take more steps"]
    fifth = len(looks) // 5
    grown = (median(m for _, m, _ in looks[-fifth:]) - median(m for _, m, _ in looks[:fifth])) / 1e6
    files = [median(f for *_, f in some) for some in (looks[:fifth], looks[-fifth:])]
    found = [f"memory grew by {grown:.1f} MB"] if grown > megabytes else []
    return found + [f"open files grew from {files[0]:g} to {files[1]:g}"] * (files[1] > files[0])


def unlogged(path: Path, steps: range) -> list[str]:
    """Steps that are missing in the metrics, or logged twice; incomplete lines."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        return [f"a torn line is left: {error}"]
    trained = [row["step"] for row in rows if row["split"] == "train"]
    return [] if trained == list(steps) else [f"{len(trained)} steps are logged, where {len(steps)} should be"]


def summary(part: dict[str, Any]) -> dict[str, Any]:
    """Memory in MB and open files of a part: minimum and maximum after its first fifth, and at its end."""
    looks = settled(part)
    memory, files = [m / 1e6 for _, m, _ in looks], [f for *_, f in looks]
    if not looks:
        return {"looks": 0}
    return {
        "looks": len(looks),
        "steps": [looks[0][0], looks[-1][0]],
        "MB": {"least": round(min(memory), 1), "most": round(max(memory), 1), "end": round(memory[-1], 1)},
        "open files": {"least": min(files), "most": max(files), "end": files[-1]},
    }


if __name__ == "__main__":
    sys.exit(main())
