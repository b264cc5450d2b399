"""Replacing: overwrite=True, a new run in the place of an older one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.files import check_replaceable, writing
from unmask.runs.front.given import exists
from unmask.train import checkpoint, distributed


@contextmanager
def replacing(folder: Path, inputs: Iterable[object], *, overwrite: bool) -> Iterator[None]:
    """A context for a run in a folder, which first moves the run that the folder holds aside, if `overwrite` says so.
    That one is deleted at the end; if the new run did not begin, because of an error, it is moved back.

    inputs  everything that the run is given; files and folders among it must not be in `folder`

    Raises UnmaskError for a folder that holds something else, that holds one of the inputs, or that another run is
    writing.
    """
    taken = overwrite and folder.is_dir() and any(folder.iterdir())
    if taken:
        _check(folder, inputs)
    distributed.barrier()  # all processes look at the folder before the first one moves it
    if not taken:
        yield
        return
    aside = folder.absolute().with_name(f".{folder.absolute().name}.replaced")
    if distributed.is_main():
        marked = (folder / checkpoint.LOCK).exists()  # the file stays with an interrupted run
        with checkpoint.Lock(folder):
            pass
        with writing(folder):
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        if not marked:
            (aside / checkpoint.LOCK).unlink()
    distributed.barrier()
    try:
        yield
    finally:
        if distributed.is_main():
            if (folder / checkpoint.RUN).is_file():
                shutil.rmtree(aside, ignore_errors=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)
                aside.rename(folder)


def refuse_taken(folder: Path, refuse: Callable[[Path], None]) -> None:
    """Carry out a check that a folder is free; its error for a run in the folder also names overwrite=True."""
    try:
        refuse(folder)
    except UnmaskError as error:
        if not (folder / checkpoint.RUN).is_file():
            raise
        raise UnmaskError(f"{str(error).removesuffix('.')}, or set overwrite=True.") from None


def _check(folder: Path, inputs: Iterable[object]) -> None:
    if not (folder / checkpoint.RUN).is_file():
        raise UnmaskError(f"{folder} holds no run, so it is not deleted; choose another folder.")
    check_replaceable(folder)
    for given in inputs:
        for one in given if isinstance(given, list | tuple) else (given,):
            if exists(one) and Path(one).resolve().is_relative_to(folder.resolve()):
                raise UnmaskError(f"{one} is in {folder}, which overwrite=True would delete; choose another folder.")
