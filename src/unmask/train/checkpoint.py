"""Checkpoints, written atomically: to a temporary folder, with checksums, then renamed. Read without pickle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask.config import read_json
from unmask.errors import Stopped, UnmaskError
from unmask.files import MANIFEST, check, describe, locked
from unmask.train import distributed

STATE, TENSORS = "state.json", "optimizer.safetensors"
LOCK = ".lock"
RUN = "run.json"
"""The settings of a run, written before its first step, which `--resume` reads."""
BEGUN = frozenset(
    {RUN, "checkpoints", "metrics.jsonl", "samples.jsonl", "tensorboard", "trackers.json", "best", "labels"}
)
"""Files in the folder of a run that ended before its first checkpoint, besides hidden files. `labels` are those that an
objective computed before the run."""
_NAME = re.compile(r"step-(\d{8,})")
_TEMPORARY = ".tmp-"
_REPLACED = f"{_TEMPORARY}replaced-"


class Checkpoint(NamedTuple):
    """A verified checkpoint: its folder, its step, and its training state."""

    folder: Path
    step: int
    state: dict[str, Any]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the training state, by name, on the CPU."""
        return load_file(self.folder / TENSORS)


def write(
    folder: Path,
    step: int,
    *,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    save: Callable[[Path], None] | None = None,
    keep: int = 2,
) -> Path:
    """Write `folder/step-XXXXXXXX` and keep the `keep` newest checkpoints.

    state    JSON values of the training state        tensors  its tensors
    save     writes the model's own files into a given folder

    The files go to a temporary folder, which is renamed when the last byte is on the disk. So a crash leaves the
    previous checkpoints intact. Raises UnmaskError if the disk is full or not writable.
    """
    target = folder_of(folder, step)
    temporary = folder / f"{_TEMPORARY}{target.name}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        if save is not None:
            save(temporary)
        save_file({name: x.contiguous() for name, x in tensors.items()}, temporary / TENSORS)
        (temporary / STATE).write_text(json.dumps({**state, "step": step}, indent=2) + "\n", encoding="utf-8")
        seal(temporary)
        _put_in_place(temporary, target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        kept = steps(folder)
        intact = f"the previous one, step {kept[-1]}, is intact" if kept else "there is no earlier one"
        raise UnmaskError(
            f"The checkpoint of step {step} could not be written to {folder}: {reason}; {intact}."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    prune(folder, keep)
    return target


def seal(folder: Path) -> None:
    """Flush every file of a folder to the disk, then write its manifest, which replaces that of the model."""
    (folder / MANIFEST).unlink(missing_ok=True)
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        files[path.relative_to(folder).as_posix()] = describe(path)
    with (folder / MANIFEST).open("wb") as file:
        file.write(_manifest(files))
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)


def verify(folder: Path) -> None:
    """Check every byte of a checkpoint against its manifest, including the manifest itself.

    Raises UnmaskError with the name of a missing or damaged file.
    """
    path = folder / MANIFEST
    files = read_json(path).get("files")
    if not isinstance(files, dict) or path.read_bytes() != _manifest(files):
        raise UnmaskError(f"{path} is damaged. The checkpoint cannot be used.")
    check(folder, files, "The checkpoint cannot be used.")


def read_one(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a checkpoint. Raises UnmaskError if it is missing or has changed."""
    files = read_json(folder / MANIFEST).get("files")
    check(folder, {name: files.get(name) if isinstance(files, dict) else None}, "The checkpoint cannot be used.")
    return read_json(folder / name)


def folder_of(folder: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a folder, ascending, including damaged ones."""
    if not folder.is_dir():
        return []
    names = (path.name.removeprefix(_REPLACED) for path in folder.iterdir())
    return sorted({int(match[1]) for name in names if (match := _NAME.fullmatch(name))})


def taken(out: Path) -> UnmaskError:
    """The error for the folder of another run."""
    return UnmaskError(f"{out} holds a run already: continue it with --resume, or choose another folder.")


def refuse_taken(out: Path, *, resume: bool = False) -> None:
    """Raises UnmaskError if the folder holds a run and `resume` is False, if it holds other files, and if `resume` is
    True and there is nothing to resume."""
    if steps(out / "checkpoints"):
        if not resume:
            raise taken(out)
        return
    there = {path.name for path in out.iterdir() if path.name[0] != "."} if out.is_dir() else {out.name}
    if out.exists() and there - BEGUN:
        raise UnmaskError(f"{out} holds something already; choose another folder, or delete it.")
    if resume:
        require_begun(out)


def require_begun(out: Path, settings: Collection[str] = (RUN,)) -> None:
    """The rule of `--resume`, for runs of every kind: a run continues from its last checkpoint. Without one, it starts
    from the beginning with the settings in its folder.

    settings  names of the files of settings; one of them must exist

    Raises UnmaskError if the folder has neither, unless torchrun restarts this command when it dies: then the first
    start finds an empty folder.
    """
    if not is_begun(out, settings) and not distributed.restarts():
        raise UnmaskError(f"There is nothing to resume in {out}; omit --resume to start a new run.")


def is_begun(out: Path, settings: Collection[str] = (RUN,)) -> bool:
    """Whether a folder has a checkpoint, or at least the settings of a run."""
    return bool(steps(out / "checkpoints")) or any((out / name).is_file() for name in settings)


def command(verb: str, out: Path | str) -> str:
    """The shell command that resumes the run in a folder."""
    return f"unmask {verb} --out {shlex.quote(str(out))} --resume"


@contextmanager
def going_on(verb: str, out: Path) -> Iterator[None]:
    """A context that adds the command to resume the run to the message of `Stopped`."""
    try:
        yield
    except Stopped as stopped:
        raise Stopped(f"{stopped}; continue with: {command(verb, out)}") from None


def latest(folder: Path, say: Callable[[str], None] | None = None) -> Checkpoint | None:
    """The newest intact checkpoint; None if there are no checkpoints.

    say  receives a sentence for each damaged checkpoint that is skipped

    Raises UnmaskError if all are damaged.
    """
    found = steps(folder)
    for step in reversed(found):
        path = folder_of(folder, step)
        if not path.exists():  # a process died while it replaced this checkpoint; `tidy` restores it
            path = path.with_name(f"{_REPLACED}{path.name}")
        try:
            verify(path)
            return Checkpoint(path, step, read_json(path / STATE))
        except UnmaskError as error:
            if say is not None:
                say(f"{error} Falling back to the checkpoint before step {step}.")
    if found:
        raise UnmaskError(f"All checkpoints in {folder} are damaged; delete the folder to start again.")
    return None


def tidy(folder: Path) -> None:
    """Clean up after a process that died while saving: remove its temporary files, and restore the checkpoint that it
    was replacing. The caller must hold the run's `Lock`."""
    for path in folder.glob(f"{_REPLACED}*"):
        if not (place := path.with_name(path.name.removeprefix(_REPLACED))).exists():
            path.rename(place)
    for path in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def set_aside(folder: Path, after: int) -> None:
    """Rename the checkpoints after the step `after`, from which a run resumes, to damaged-step-XXXXXXXX."""
    for step in steps(folder):
        if step > after:
            path = folder_of(folder, step)
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


class Lock:
    """One process per run folder: an advisory lock, which the system releases when its process ends for any reason.

    `acquire` raises UnmaskError if another process holds the lock, or if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self._descriptor: int | None = None

    def acquire(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnmaskError(f"The folder {self.path.parent} cannot be written: {error.strerror}.") from None
        if not locked(descriptor):
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise UnmaskError(f"Another run (process {holder}) is writing to {self.path.parent}; use another folder.")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        if hasattr(os, "register_at_fork"):  # a forked worker that outlives its parent must not keep the lock
            reference = weakref.WeakMethod(self.release)
            os.register_at_fork(after_in_child=lambda: (release := reference()) and release())

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A context that holds the lock of a folder, and removes the lock file at the end if no error is raised."""
    with Lock(folder):
        yield
        (folder / LOCK).unlink(missing_ok=True)


def _manifest(files: Mapping[str, Any]) -> bytes:
    """The bytes of the manifest, in one canonical form, with a checksum of itself."""
    listing = json.dumps(files, sort_keys=True)
    whole = {"files": files, "sha256": hashlib.sha256(listing.encode()).hexdigest()}
    return (json.dumps(whole, indent=2, sort_keys=True) + "\n").encode()


def _put_in_place(temporary: Path, target: Path) -> None:
    """Rename the temporary folder, after moving an older folder of that name aside. An older one exists if the run
    resumed from an earlier step."""
    old = target.with_name(f"{_REPLACED}{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    _sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints; skip those that the system does not let it rename."""
    for step in steps(folder)[: -max(1, keep)]:
        path = folder_of(folder, step)
        doomed = path.with_name(f"{_TEMPORARY}old-{path.name}")
        try:  # rename first, so that no half-deleted checkpoint has a valid name
            path.rename(doomed)
        except OSError:
            continue
        shutil.rmtree(doomed, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make renames and new files in a folder durable, if the system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
