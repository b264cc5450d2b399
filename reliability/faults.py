"""Writes that fail: every call that changes a folder is counted, and one call, or all calls from one on, fails."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITES = "wax+"
LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Faults:
    """Makes calls fail that change the folder `root`, or hidden folders beside it with its name.

    at     number of the call that fails, from 1; 0: none fails, all are counted
    code   errno of the failure: ENOSPC, EDQUOT and EROFS fail from call `at` on, as with a full or a read-only disk;
           other codes fail once
    """

    def __init__(self, root: Path, at: int = 0, code: int = errno.ENOSPC) -> None:
        self.root, self.at, self.code, self.calls = root.name, at, code, 0

    def check(self, path: Any) -> None:
        """Count a call on a path, and raise OSError if it is to fail."""
        if self.root not in str(path):
            return
        self.calls += 1
        lasting = self.code in LASTING
        if self.at and (self.calls >= self.at if lasting else self.calls == self.at):
            raise OSError(self.code, os.strerror(self.code), str(path))

    def install(self) -> None:
        """Replace the calls in this process, permanently."""
        import safetensors.torch

        faults, plain = self, builtins.open

        class Raw(io.FileIO):
            """A file whose writes count as calls."""

            def write(self, content: Any, /) -> int:
                faults.check(self.name)
                return super().write(content)

        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **more: Any) -> Any:
            if not set(mode) & set(WRITES) or faults.root not in str(file):
                return plain(file, mode, buffering, *args, **more)
            faults.check(file)
            raw = Raw(file, mode.replace("b", "").replace("t", ""))
            size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
            buffer = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
            return buffer if "b" in mode else io.TextIOWrapper(buffer, *args, **more)

        def serialised(tensors: Any, path: Any, **more: Any) -> None:
            try:
                faults.check(path)
            except OSError as error:  # in the words of the library, with half of a file
                Path(path).touch()
                os.truncate(path, 100)
                raise safetensors.SafetensorError(f"Error while serializing: I/O error: {error}") from None
            written(tensors, path, **more)

        library: Any = safetensors.torch
        written = library.serialize_file
        library.serialize_file = serialised
        builtins.open = opened
        io.open = opened
        os.open = self._opening(os.open)
        for name in ("replace", "rename", "mkdir", "rmdir", "truncate", "chmod"):
            setattr(os, name, self._guarded(getattr(os, name)))
        os.fsync = self._guarded(os.fsync, lambda handle: os.readlink(f"/proc/self/fd/{handle}"))

    def _opening(self, call: Callable[..., int]) -> Callable[..., int]:
        def opening(path: Any, flags: int, *args: Any, **more: Any) -> int:
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                self.check(path)
            return call(path, flags, *args, **more)

        return opening

    def _guarded(self, call: Callable[..., Any], path_of: Callable[[Any], str] = str) -> Callable[..., Any]:
        def guarded(first: Any, *args: Any, **more: Any) -> Any:
            self.check(path_of(first))
            return call(first, *args, **more)

        return guarded
