"""A fuzzer of every reader of files: on mutated files, a reader may raise only an UnmaskError of one sentence.

Valid files of each kind (`subjects.py`, `folders.py`) are mutated (`bending.py`): bytes are flipped, cut, doubled or
replaced by tokens that break readers; values of JSON are replaced; lines are moved; headers of weights are rewritten;
checksums are made to fit again. All kinds get the same time. Inputs are read in processes of some seconds each, so that
an input that crashes, hangs or takes all memory is known by its number, and can be made again.

    python reliability/fuzz.py --minutes 15                              # about a million inputs on one core
    python reliability/fuzz.py --minutes 1 --subjects csv SQuAD
    python reliability/fuzz.py --subjects csv --input 1234567            # one input again, kept, with its traceback

If `atheris` is installed, it can choose the bytes instead, guided by coverage (`guided.py`):

    python reliability/fuzz.py --atheris --minutes 10 --subjects csv SQuAD
    python reliability/fuzz.py --subjects csv --folder FOLDER            # what it found, once more

Ends with status 1 if an input failed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bending import bend
from folders import SUBJECTS
from guided import guided
from subjects import Subject

SLICE = 4.0  # seconds of one process
PATIENCE = 20  # seconds of the processor for one input, which a busy machine does not take away
ADDRESSES = 12 << 30  # bytes of addresses that a process may map
ENOUGH = 40  # different failures after which there is no need to go on
MEMORY = Path("/dev/shm")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=1.0)
    arguments.add_argument("--subjects", nargs="+", metavar="NAME", default=[*SUBJECTS], help=", ".join(SUBJECTS))
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--input", type=int, help="number of the input that is read again")
    arguments.add_argument("--folder", type=Path, help="files that were kept, which are read again")
    arguments.add_argument("--atheris", action="store_true", help="let atheris choose the bytes of each file")
    arguments.add_argument("--out", help="file for the results, as JSON")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="unmask-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as temporary:
        places = {name: Place(SUBJECTS[name], Path(temporary) / str(i)) for i, name in enumerate(options.subjects)}
        if options.atheris:
            return chosen(places, 60 * options.minutes)
        if options.folder is not None:
            place = next(iter(places.values()))
            place.folder = options.folder
            return seen(place)
        if options.input is not None:
            return again(next(iter(places.items())), options.seed, options.input)
        return report(run(places, 60 * options.minutes, options.seed), options.minutes, options.out)


class Place:
    """A folder with the valid files of a subject, in which a file at a time is mutated."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        folder.mkdir()
        self.subject, self.folder = subject, folder
        subject.write(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        self.sound = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
        self.names, self.donors = [*self.sound], [*self.sound.values()]
        self.changed: set[str] = set()
        subject.read(folder)  # what is sound is read; and all that a reader imports is there before processes part

    def restore(self) -> None:
        """Restore the changed files."""
        for name in self.changed:
            (self.folder / name).write_bytes(self.sound[name])
        self.changed = set(self.names) if self.subject.seal is not None else set()

    def replace(self, name: str, content: bytes) -> None:
        """Write this content into one file, and make the checksums fit."""
        self.restore()
        self.changed.add(name)
        (self.folder / name).write_bytes(content)
        if self.subject.seal is not None:
            self.subject.seal(self.folder)

    def bent(self, rng: np.random.Generator) -> None:
        """Restore the folder, then mutate one file, or sometimes two."""
        self.restore()
        for _ in range(1 + (rng.random() < 0.1)):
            name = self.names[int(rng.integers(len(self.names)))]
            self.changed.add(name)
            (self.folder / name).write_bytes(bend(name, self.sound[name], self.donors, rng))
        if self.subject.seal is not None and rng.random() < 0.7:
            self.subject.seal(self.folder)

    def attempt(self) -> str:
        """The failure of the reader on the present files; "" if there is none."""
        from unmask.errors import UnmaskError

        try:
            self.subject.read(self.folder)
        except UnmaskError as error:
            said = str(error)
            wrong = "several lines" if "\n" in said else "too long" if len(said) > 2_000 else ""
            return f"{wrong}: {said[:200]!r} {_origin(error)}" if wrong else ""
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:160]!r} {_origin(error)}"
        return ""


def _origin(error: BaseException) -> str:
    """The place in the package where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}unmask{os.sep}" in frame.filename] or frames
    return f"({Path(own[-1].filename).name}:{own[-1].lineno})"


@dataclass
class Tally:
    """The results of a subject: inputs read, seconds spent, failure -> (number of its first input, count)."""

    inputs: int = 0
    seconds: float = 0.0
    first: dict[str, tuple[int, str]] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)

    def fail(self, number: int, what: str) -> None:
        origin = re.sub(r"'.*' ", "", what) if "(" in what else what
        self.first.setdefault(origin, (number, what))
        self.times[origin] += 1


def run(places: dict[str, Place], seconds: float, seed: int) -> dict[str, Tally]:
    """Mutate and read until the time is over; the next subject is the one that has had the least time."""
    tallies = {name: Tally() for name in places}
    until = time.monotonic() + seconds
    while time.monotonic() < until and sum(len(tally.first) for tally in tallies.values()) < ENOUGH:
        name = min(tallies, key=lambda name: tallies[name].seconds)
        began = time.monotonic()
        sliced(places[name], tallies[name], seed, min(SLICE, until - began))
        tallies[name].seconds += time.monotonic() - began
    return tallies


def sliced(place: Place, tally: Tally, seed: int, seconds: float) -> None:
    """Some seconds of inputs, in a separate process."""
    at = mmap.mmap(-1, 8)  # number of the input that is being read; the process may not live to tell
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with suppress(BaseException), os.fdopen(write, "w") as pipe:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries in Rust print where they panic
            for number, failure in inputs(place, seed, tally.inputs, seconds, at):
                pipe.write(json.dumps([number, failure]) + "\n")
                pipe.flush()
            os._exit(0)
        os._exit(70)
    os.close(write)
    with os.fdopen(read) as pipe:
        for number, failure in map(json.loads, pipe):
            tally.fail(number, failure)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    (last,) = struct.unpack("<q", at[:])
    tally.inputs = last + 1
    if status:
        tally.fail(last, "it hangs" if status == -signal.SIGPROF else f"the process ends with {status}")


def inputs(place: Place, seed: int, first: int, seconds: float, at: mmap.mmap) -> Iterator[tuple[int, str]]:
    """(number, failure) of inputs that fail, from the number `first` on."""
    until, number = time.monotonic() + seconds, first
    while time.monotonic() < until:
        at[:] = struct.pack("<q", number)
        place.bent(np.random.default_rng([seed, number]))
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        failure = place.attempt()
        signal.setitimer(signal.ITIMER_PROF, 0)
        if failure:
            yield number, failure
        number += 1


def report(tallies: dict[str, Tally], minutes: float, out: str | None) -> int:
    """Print the failures by subject, and how to reproduce them."""
    for name, tally in tallies.items():
        print(f"{name:28} {tally.inputs:9,} inputs {60 * tally.inputs / max(tally.seconds, 1e-9):9,.0f} a minute")
        for origin, (number, what) in tally.first.items():
            print(f"    {tally.times[origin]:,} times, first --subjects '{name}' --input {number}: {what}")
    total, failures = sum(t.inputs for t in tallies.values()), sum(len(t.first) for t in tallies.values())
    found = f"{failures} defects" if failures else "nothing but UnmaskError"
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (children.ru_utime + children.ru_stime) / 60
    print(f"{total:,} inputs to {len(tallies)} readers in {minutes:g} minutes ({busy:.1f} of the processor): {found}.")
    if out:
        facts = {
            name: {
                "inputs": t.inputs,
                "seconds": round(t.seconds, 1),
                "failures": [what for _, what in t.first.values()],
            }
            for name, t in tallies.items()
        }
        Path(out).write_text(json.dumps({"minutes": minutes, "inputs": total, "subjects": facts}, indent=2) + "\n")
    return int(failures > 0)


def again(named: tuple[str, Place], seed: int, number: int) -> int:
    """Read one input again, keep its files, and show its error in full."""
    name, place = named
    place.bent(np.random.default_rng([seed, number]))
    kept = Path(tempfile.mkdtemp(prefix="unmask-input-")) / "files"
    shutil.copytree(place.folder, kept)
    print(f"{name}, input {number}: its files are in {kept}")
    return seen(place)


def seen(place: Place) -> int:
    """Read the files of a place, and show the error in full."""
    failure = place.attempt()
    if failure:
        place.subject.read(place.folder)
    print(failure or "nothing is wrong with how it is read")
    return int(bool(failure))


def chosen(places: dict[str, Place], seconds: float) -> int:
    """Let atheris mutate each file of the subjects for its share of the time."""
    files = [(named, place, name) for named, place in places.items() for name in place.names]
    total = failures = 0
    for named, place, name in files:
        count, found = guided(place, name, seconds / len(files))
        print(f"{f'{named}: {name}':60} {count:9,} inputs")
        for one in found:
            print(f"    --subjects '{named}' --folder {one.folder}: {one.what}")
        total, failures = total + count, failures + len(found)
        place.restore()
    said = f"{failures} defects" if failures else "nothing but UnmaskError"
    print(f"{total:,} inputs that atheris chose, to {len(files)} files in {seconds / 60:g} minutes: {said}.")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
