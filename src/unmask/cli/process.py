"""What a command settles for its own process before PyTorch is loaded: how threads wait, what becomes of memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ANSWERING = ("embed", "evaluate", "generate", "predict", "serve", "translate")
"""Commands that read the same weights again and again."""

TUNING = ("finetune",)
"""Commands whose steps are short beside the gradient of a large table of tokens, which each of them makes anew."""

AHEAD = 64 << 20
"""Bytes that are taken from the system at a time, at least."""

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # as malloc.h numbers the parameters of mallopt
SET_BY = {
    "GLIBC_TUNABLES",
    *(f"MALLOC_{name}_" for name in ("TRIM_THRESHOLD", "TOP_PAD", "MMAP_MAX", "MMAP_THRESHOLD")),
}

PAGES = "glibc.malloc.hugetlb=1"
ON_REQUEST = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start(arguments: Sequence[str]) -> None:
    """Settle everything for a process that runs `unmask` with these arguments; call it before torch is imported."""
    share_the_machine()
    if answers(arguments):
        take_large_pages()
    if tunes(arguments):
        keep_memory()


def share_the_machine() -> None:
    """Let the threads of PyTorch sleep soon while they wait for one another; call it before torch is imported.

    By default they spin: beside one other busy program a run with a thread for each core then takes many times as long,
    for a thread that has lost its core is waited for by all others at full speed. A tenth of a millisecond of spinning
    costs a quiet machine nothing that can be measured (docs/log.md). Who sets one of the two variables keeps it.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def answers(arguments: Sequence[str]) -> bool:
    """Whether these arguments of `unmask` are of a command that answers."""
    return any(verb in ANSWERING for verb in arguments[:1])


def tunes(arguments: Sequence[str]) -> bool:
    """The same of a command that fine-tunes."""
    return any(verb in TUNING for verb in arguments[:1])


def keep_memory() -> bool:
    """Give no memory back to the system until this process ends; whether the C library (glibc) was told so.

    A step of training frees what the next one needs again. The C library would return the larger pieces at once, and
    the system would hand them out anew, page by page and filled with zeros, which for a large table of tokens takes
    longer than the update (docs/log.md). The most that the process holds stays what it was. Who sets one of these
    things by a variable of the environment keeps it.
    """
    if not _glibc() or SET_BY & os.environ.keys():
        return False
    import ctypes

    settings = ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, AHEAD))
    library = ctypes.CDLL(None)
    return all(library.mallopt(name, value) for name, value in settings)


def take_large_pages() -> None:
    """Begin this command again, in the same process, with memory in pages of 2 MB, where Linux has them on request.

    Every token that is written reads all weights of a decoder, and with pages of 4 KB the processor spends a good part
    of that on finding where they lie (docs/log.md). The C library asks for large ones where it is told so when a
    process begins. Command line, streams and process number stay the same; who sets GLIBC_TUNABLES keeps it.
    """
    if "GLIBC_TUNABLES" in os.environ or not sys.executable or not _on_request():
        return
    os.environ["GLIBC_TUNABLES"] = PAGES
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _on_request() -> bool:
    """Whether large pages are for those who ask, and the C library can ask: glibc 2.35 or newer on Linux."""
    try:
        return _glibc() >= (2, 35) and "[madvise]" in ON_REQUEST.read_text("ascii")
    except (OSError, ValueError):
        return False


def _glibc() -> tuple[int, ...]:
    """The version of glibc; empty where the C library is another one."""
    try:
        library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(map(int, version.split("."))) if library == "glibc" else ()
    except (AttributeError, OSError, ValueError):  # another system
        return ()
