"""What a command settles for its own process before PyTorch is loaded: how threads wait, how large its pages are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ANSWERING = ("embed", "evaluate", "generate", "predict", "serve", "translate")
"""Commands that read the same weights again and again."""

MEASURED = ("decoding", "inference")
"""What `unmask bench` measures of them."""

PAGES = "glibc.malloc.hugetlb=1"
ON_REQUEST = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def share_the_machine() -> None:
    """Let the threads of PyTorch sleep soon while they wait for one another; call it before torch is imported.

    By default they spin: beside one other busy program a run with a thread for each core then takes many times as long,
    for a thread that has lost its core is waited for by all others at full speed. A tenth of a millisecond of spinning
    costs a quiet machine nothing that can be measured (docs/log.md). Who sets one of the two variables keeps it.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def answers(arguments: Sequence[str]) -> bool:
    """Whether these arguments of `unmask` are of a command that answers, or of a turn that measures one."""
    verb, *rest = arguments or [""]
    return verb in ANSWERING or (verb == "bench-turn" and rest[:1] in [[name] for name in MEASURED])


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
        library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        new_enough = tuple(map(int, version.split("."))) >= (2, 35)
        return library == "glibc" and new_enough and "[madvise]" in ON_REQUEST.read_text("ascii")
    except (AttributeError, OSError, ValueError):  # another system
        return False
