"""Coverage-guided fuzzing by atheris: each file of a subject in turn, mutated by atheris and by `bending.py`."""

from __future__ import annotations

import gc
import gzip
import json
import mmap
import os
import resource
import shutil
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from bending import bend, bytes_bent

LONGEST = 1 << 16  # bytes of an input; a sound file that has more may stay as long as it is
PATIENCE = 20  # seconds for one input
MEGABYTES = 6_000  # of memory


@dataclass(frozen=True)
class Found:
    """A failure in reading a file, and the folder that holds the file."""

    what: str
    folder: Path


def guided(place: Any, name: str, seconds: float) -> tuple[int, list[Found]]:
    """The number of inputs that were read in place of the file `name`, and the failures: one for each origin.

    The inputs are read in one process. It may end early, because of an error that Python cannot catch, too much memory,
    or an input that takes too long; its last input is then a failure.
    """
    kept = Path(tempfile.mkdtemp(prefix="unmask-input-"))
    count = mmap.mmap(-1, 8)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            _fuzz(place, name, seconds, kept, write, count)
        except BaseException:
            traceback.print_exc()
        os._exit(70)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = [Found(what, Path(folder)) for what, folder in map(json.loads, pipe)]
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        last = _keep(place, kept / "last")
        why = (kept / "said").read_text(errors="replace").strip().splitlines()[-3:]
        found.append(Found(f"the process ends with {status}: {' '.join(why)[-300:]!r}", last))
    elif not found:
        shutil.rmtree(kept)
    return struct.unpack("<q", count[:])[0], found


def _fuzz(place: Any, name: str, seconds: float, kept: Path, pipe: int, count: mmap.mmap) -> None:
    """Run the process that reads; it does not return."""
    os.dup2(os.open(kept / "said", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(2, 1)
    import atheris

    seeds, origins = kept / "seeds", set[str]()
    seeds.mkdir()
    (seeds / "sound").write_bytes(place.sound[name])
    _instrument(atheris.instrument_func)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def one(content: bytes) -> None:
        place.replace(name, content)
        failure = place.attempt()
        count[:] = struct.pack("<q", struct.unpack("<q", count[:])[0] + 1)
        origin = failure.rpartition(" ")[2]
        if failure and origin not in origins:
            origins.add(origin)
            folder = _keep(place, kept / str(len(origins)))
            os.write(pipe, (json.dumps([failure, str(folder)]) + "\n").encode())
        if time.monotonic() > until:
            os._exit(0)

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        rng = np.random.default_rng(seed)
        return bytes(bent(name, content, place.donors, rng)[:most] if rng.random() < 0.5 else _theirs(content, most))

    def _theirs(content: bytes, most: int) -> bytes:
        return atheris.Mutate(content, most)

    longest = max(LONGEST, len(place.sound[name]))
    options = [f"-timeout={PATIENCE}", f"-rss_limit_mb={MEGABYTES}", f"-max_len={longest}", "-verbosity=0"]
    options += [f"-artifact_prefix={kept}/", "-seed=1", str(seeds)]
    until = time.monotonic() + seconds
    atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutate)
    atheris.Fuzz()


def bent(name: str, content: bytes, donors: list[bytes], rng: np.random.Generator) -> bytes:
    """The content, mutated by the kind that its name suggests, if it still is of that kind."""
    try:
        return bend(name, content, donors, rng)
    except (struct.error, gzip.BadGzipFile, EOFError, zlib.error, RecursionError):
        return bytes_bent(content, donors, rng)


def _keep(place: Any, folder: Path) -> Path:
    shutil.copytree(place.folder, folder)
    return folder


def _instrument(instrument: Callable[[Any], Any]) -> None:
    """Instrument every imported function of the package, so that atheris sees its branches."""
    for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
        if (function.__module__ or "").partition(".")[0] == "unmask":
            with suppress(Exception):  # what cannot be rewritten is run as it is
                instrument(function)
