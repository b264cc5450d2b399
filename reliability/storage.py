"""Storage that fails: every write of a run in turn, folders that cannot be written, checkpoints with flipped bytes.

For each write, flush, rename and new folder of a run (or for `--sample` of them, drawn with a seed), the run is
repeated with a failure of that call: a full disk (ENOSPC, from this call on), a device error (EIO, once), a lost
permission (EACCES, once), or a file system that becomes read-only (EROFS, from this call on). The first call is always
among them: a folder that cannot be written at all. Conditions:

- the run ends with one sentence and status 2, or continues as if nothing had happened; there is never a traceback
- the last checkpoint is valid, and the run continues from it to the same end, bit for bit
- commands that write single files (a corpus, answers, an export) leave each file whole or not at all

Then sampled bytes of each file of the newest checkpoint are flipped: every flip must be noticed, and the run must
continue from the previous checkpoint, report it, and reach the same end.

    python reliability/storage.py --sample 40
    python reliability/storage.py --brief --sample 0        # every call, of runs of a few steps
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from faults import Faults
from jobs import Job, Process, differences, leftovers, prepare, trace, warm

CODES = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES, "EROFS": errno.EROFS}

DEFAULT = ["pretrain", "finetune", "translation", "corpus", "predict", "export"]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sample", type=int, default=24, help="calls of each job and error; 0: all")
    arguments.add_argument("--bytes", type=int, default=40, help="bytes that are flipped (default: %(default)s)")
    arguments.add_argument("--jobs", nargs="+", default=DEFAULT)
    arguments.add_argument("--errors", nargs="+", choices=CODES, default=[*CODES])
    arguments.add_argument("--brief", action="store_true", help="runs of a few steps, so that every call can be tried")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--out", help="file for the results, as JSON")
    options = arguments.parse_args()
    warm()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="unmask-storage-") as temporary:
        folder = Path(temporary)
        jobs = prepare(folder, brief=options.brief)
        for name in options.jobs:
            found += refused(
                jobs[name],
                folder,
                options.sample,
                options.errors,
                np.random.default_rng([options.seed, *name.encode()]),
            )
        if "pretrain" in options.jobs:
            found.append(flipped(jobs["pretrain"], folder, options.bytes, np.random.default_rng(options.seed)))
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(one["failures"] for one in found))


class Faulty(Process):
    """A command whose writes under a folder fail; it writes the number of calls to the file `count`."""

    def __init__(self, command: list[str], log: Path, faults: Faults, count: Path | None = None) -> None:
        self.faults, self.count = faults, count
        super().__init__(command, log)

    def prepare(self) -> None:
        self.faults.install()

    def conclude(self) -> None:
        if self.count is not None:
            self.count.write_text(str(self.faults.calls))


def refused(job: Job, folder: Path, sample: int, errors: list[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Results of a job, by error."""
    whole, log, count = folder / f"{job.name}-sound", folder / f"{job.name}.log", folder / f"{job.name}.count"
    assert Faulty(job.begin(whole), log, Faults(whole)).wait() == 0
    counted = folder / f"{job.name}-counted"
    assert Faulty(job.begin(counted), log, Faults(folder / counted.name), count).wait() == 0
    calls, expected = int(count.read_text()), trace(whole)
    results = []
    for name in errors:
        code = CODES[name]
        began = time.monotonic()
        places = range(1, calls + 1)
        drawn = places if not sample or sample >= calls else sorted({1, *rng.choice(places, sample, replace=False)})
        failures = []
        for at in drawn:
            out = folder / f"{job.name}-{name}-{at}"
            failures += [f"call {at}: {what}" for what in one(job, out, Faults(folder / out.name, at, code), expected)]
            shutil.rmtree(out, ignore_errors=True)
        results.append(_said(f"{job.name} {name}", f"{len(drawn)} of {calls} calls", failures, began))
    return results


def one(job: Job, out: Path, faults: Faults, expected: dict[str, Any]) -> list[str]:
    """The conditions that failed after one failed call."""
    log = out.with_suffix(".log")
    status = Faulty(job.begin(out), log, faults).wait()
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if status not in (0, 2) or "Traceback" in said:
        return [f"status {status}: {said.strip()[-300:]}"]
    if status == 2 and not said.strip().splitlines()[-1].startswith("unmask: "):
        return [f"no sentence: {said.strip()[-300:]}"]
    torn = differences({}, {n: x for n, x in trace(out).items() if expected.get(n) != x}) if job.whole else []
    if status == 2 and torn:
        return [f"half written: {torn}"]
    log.unlink(missing_ok=True)
    status = resumed(job, out, log)
    if status != 0:
        return [f"it does not go on: {log.read_text()[-300:]}"]
    left = leftovers(out, job)
    other = differences(expected, trace(out))
    return [f"left behind: {left}"] * bool(left) + [f"another end: {other}"] * bool(other)


def resumed(job: Job, out: Path, log: Path) -> int:
    """Continue without faults; returns the status, which is 0 also if the run was finished."""
    there = job.again is not None and any([*out.glob("run.json"), *out.glob("checkpoints/step-*")])
    status = Process(job.again(out) if there and job.again else job.begin(out), log).wait()
    said = log.read_text() if log.exists() else ""
    return 0 if status == 2 and ("already holds a corpus" in said or "has ended" in said) else status


def flipped(job: Job, folder: Path, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Flip a byte of the newest checkpoint, continue from the previous one, and compare the end."""
    began, failures = time.monotonic(), []
    assert job.again is not None
    whole = folder / f"{job.name}-sound"
    expected = trace(whole)
    newest = sorted(whole.glob("checkpoints/step-*"))[-1].name
    files = sorted(p.name for p in (whole / "checkpoints" / newest).iterdir())
    for number in range(count):
        out, log = folder / "flipped", folder / "flipped.log"
        shutil.rmtree(out, ignore_errors=True)
        log.unlink(missing_ok=True)
        shutil.copytree(whole, out)
        (out / "run.json").unlink()
        path = out / "checkpoints" / newest / files[number % len(files)]
        content = bytearray(path.read_bytes())
        place = int(rng.integers(len(content)))
        content[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        where = f"byte {place} of {path.name}"
        status = Process(job.again(out), log).wait()
        said = log.read_text() if log.exists() else ""
        if status != 0:
            failures.append(f"{where}: {said[-300:]}")
        elif "Falling back to the checkpoint before" not in said:
            failures.append(f"{where}: nothing was said")
        else:
            aside = next(out.glob("checkpoints/damaged-*"), None)
            if aside is not None:
                shutil.rmtree(aside)
            other = differences(expected, trace(out))
            failures += [f"{where}: another end: {other}"] * bool(other)
    return _said("flipped bytes", f"{count} bytes of {len(files)} files", failures, began)


def _said(what: str, how_many: str, failures: list[str], began: float) -> dict[str, Any]:
    minutes = round((time.monotonic() - began) / 60, 2)
    print(f"{what:20} {how_many}: {'; '.join(failures[:5]) or 'as promised'}", flush=True)
    return {"what": what, "how_many": how_many, "minutes": minutes, "failures": failures}


if __name__ == "__main__":
    sys.exit(main())
