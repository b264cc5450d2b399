"""Settings of the process before PyTorch is loaded: how threads wait, and how memory is allocated."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ANSWERING = ("embed", "evaluate", "generate", "predict", "serve", "translate")
"""Commands that read the same weights again and again."""

TUNING = ("finetune",)
"""Commands whose steps are short compared to allocating the gradient of a large token table, once a step."""

AHEAD = 64 << 20
"""Least number of bytes to request from the system at a time."""

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # numbers of the parameters of mallopt in malloc.h
SET_BY = {
    "GLIBC_TUNABLES",
    *(f"MALLOC_{name}_" for name in ("TRIM_THRESHOLD", "TOP_PAD", "MMAP_MAX", "MMAP_THRESHOLD")),
}

PAGES = "glibc.malloc.hugetlb=1"
ON_REQUEST = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start(arguments: Sequence[str]) -> None:
    """Make all settings for a process that runs `unmask` with these arguments; call it before torch is imported."""
    share_the_machine()
    if answers(arguments):
        take_large_pages()
    if tunes(arguments):
        keep_memory()


def share_the_machine() -> None:
    """Let the threads of PyTorch sleep soon while they wait for one another; call it before torch is imported.

    By default they spin. If another program is busy, a run with one thread a core then takes many times as long: all
    threads spin at full speed while they wait for one that has lost its core. Spinning for a tenth of a millisecond has
    no measurable cost on a quiet machine (docs/log.md). OMP_WAIT_POLICY and GOMP_SPINCOUNT keep a value that is set.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def answers(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `unmask` name a command that answers."""
    return any(verb in ANSWERING for verb in arguments[:1])


def tunes(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `unmask` name a command that fine-tunes."""
    return any(verb in TUNING for verb in arguments[:1])


def keep_memory() -> bool:
    """Let glibc return no memory to the system until the process ends. True if glibc accepts the settings.

    A training step frees memory that the next step needs again. By default glibc returns large blocks at once, and the
    system provides them again page by page, filled with zeros; for a large token table this takes longer than the
    update (docs/log.md). The peak memory of the process does not change. If the environment sets one of these
    parameters (SET_BY), nothing is changed.
    """
    if not _glibc() or SET_BY & os.environ.keys():
        return False
    import ctypes

    settings = ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, AHEAD))
    library = ctypes.CDLL(None)
    return all(library.mallopt(name, value) for name, value in settings)


def take_large_pages() -> None:
    """Restart this command in the same process with memory in pages of 2 MB, if Linux provides them on request.

    Every decode step reads all weights of a decoder. With pages of 4 KB, the processor spends much of that time on
    address translation (docs/log.md). glibc requests large pages only if GLIBC_TUNABLES says so when the process
    starts. Command line, streams and process number stay the same. If GLIBC_TUNABLES is set, it keeps its value.
    """
    if "GLIBC_TUNABLES" in os.environ or not sys.executable or not _on_request():
        return
    os.environ["GLIBC_TUNABLES"] = PAGES
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _on_request() -> bool:
    """Whether Linux provides large pages on request, and the C library can request them (glibc 2.35 or newer)."""
    try:
        return _glibc() >= (2, 35) and "[madvise]" in ON_REQUEST.read_text("ascii")
    except (OSError, ValueError):
        return False


def _glibc() -> tuple[int, ...]:
    """The version of glibc; empty for another C library."""
    try:
        library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(map(int, version.split("."))) if library == "glibc" else ()
    except (AttributeError, OSError, ValueError):  # another system
        return ()
