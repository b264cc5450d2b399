"""Bytes that atheris chooses by what code they reach: each file of a subject in turn, bent in its ways and in ours."""

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
    """What is wrong with how a file is read, and the folder in which it lies."""

    what: str
    folder: Path


def guided(place: Any, name: str, seconds: float) -> tuple[int, list[Found]]:
    """How many inputs were read in place of the file `name`, and what was found: each origin of an error once.

    They are read in one process, which may end before its time: of an error that no Python catches, of too much
    memory, of an input that takes too long. What it read last is found then.
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
    """Be the process that reads; it does not come back."""
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
    """Bent as its name suggests, where the content is still of that kind."""
    try:
        return bend(name, content, donors, rng)
    except (struct.error, gzip.BadGzipFile, EOFError, zlib.error, RecursionError):
        return bytes_bent(content, donors, rng)


def _keep(place: Any, folder: Path) -> Path:
    shutil.copytree(place.folder, folder)
    return folder


def _instrument(instrument: Callable[[Any], Any]) -> None:
    """Let atheris see the branches of every function of the package that is imported."""
    for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
        if (function.__module__ or "").partition(".")[0] == "unmask":
            with suppress(Exception):  # what cannot be rewritten is run as it is
                instrument(function)
