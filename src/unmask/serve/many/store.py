"""Store: finished blocks of answers in a folder beside the file that they become; a killed process continues."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.files.tables import parquet_file
from unmask.errors import UnmaskError
from unmask.files import atomic, locked, write_text, writing
from unmask.serve.many.asked import ERROR, Asked, Found, as_json

OF_A_ROW_GROUP = 64  # blocks
WITHOUT_ERROR = f'"{ERROR}": null}}\n'.encode()  # end of a line: the error is the last field


@dataclass(frozen=True)
class Tally:
    """What a file of answers holds.

    rows    the number of rows
    errors  the number of rows that have no answer because of an error
    """

    rows: int
    errors: int


class Store:
    """The blocks in a folder; `done` counts them, and they are numbered from 0."""

    def __init__(self, folder: Path, form: Form) -> None:
        self.folder, self._form, self.done = folder, form, 0
        while self._place(self.done).exists():
            self.done += 1

    def add(self, asked: Asked, found: Found) -> None:
        """Keep the next block."""
        with atomic(self._place(self.done)) as temporary:
            self._form.write(asked, found, temporary)
        self.done += 1

    def join(self, out: Path) -> Tally:
        """Join the blocks to a file, which is written whole or not at all."""
        with atomic(out) as temporary:
            return self._form.join([self._place(i) for i in range(self.done)], temporary)

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:08d}"


@contextmanager
def opened(out: Path, plan: Mapping[str, Any]) -> Iterator[Store]:
    """The store of the blocks that become `out`, in the folder OUT.blocks. The folder is removed when the block ends
    without an error, or without a finished block.

    plan  what the answers depend on: the model, the rows, the options

    Raises UnmaskError for a file of another format, if the folder holds the blocks of another plan, and if another
    process is writing them.
    """
    check_form(out)
    folder = out.with_name(f"{out.name}.blocks")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        if not locked(descriptor):
            raise UnmaskError(f"Another process is writing {out}: wait for it, or name another --out.")
        _check_plan(folder, plan)
        store = Store(folder, _FORMS[out.suffix])
        try:
            yield store
        except BaseException:
            if not store.done:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def check_form(out: Path) -> None:
    """Raises UnmaskError if answers to many rows cannot be written to a file, by its suffix."""
    if out.suffix not in _FORMS:
        raise UnmaskError(f"Answers to many rows cannot be written to {out.name}: name a {' or '.join(_FORMS)} file.")


def _check_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    place = folder / "plan.json"
    if not place.exists():
        write_text(place, json.dumps(plan, indent=2) + "\n")
    elif read_json(place) != json.loads(json.dumps(plan)):
        raise UnmaskError(
            f"{folder} holds answers of another command, with another model, other rows or other options: remove the "
            "folder, or name another --out."
        )


def _write_lines(_: Asked, found: Found, out: Path) -> None:
    out.write_text("".join(f"{as_json(one)}\n" for one in found.objects()), encoding="utf-8")


def _join_lines(blocks: Sequence[Path], out: Path) -> Tally:
    rows = errors = 0
    with out.open("wb") as file:
        for block in blocks:
            with block.open("rb") as source:
                for line in source:
                    rows += 1
                    errors += not line.endswith(WITHOUT_ERROR)
                    file.write(line)
    return Tally(rows, errors)


def _write_table(asked: Asked, found: Found, out: Path) -> None:
    import pyarrow.parquet as parquet

    parquet.write_table(asked.table(found), out)


def _join_tables(blocks: Sequence[Path], out: Path) -> Tally:
    import pyarrow
    import pyarrow.parquet as parquet

    rows = errors = 0
    with parquet.ParquetWriter(out, _read(blocks[0]).schema) as writer:
        for i in range(0, len(blocks), OF_A_ROW_GROUP):
            table = pyarrow.concat_tables(map(_read, blocks[i : i + OF_A_ROW_GROUP]))
            writer.write_table(table)
            rows += len(table)
            errors += len(table) - table[ERROR].null_count
    return Tally(rows, errors)


def _read(block: Path) -> Any:
    with parquet_file(block) as file:
        return file.read()


@dataclass(frozen=True)
class Form:
    """A format of files: how a block is written, and how blocks become one file."""

    write: Callable[[Asked, Found, Path], None]
    join: Callable[[Sequence[Path], Path], Tally]


_FORMS = {".parquet": Form(_write_table, _join_tables), ".jsonl": Form(_write_lines, _join_lines)}
FORMS = tuple(_FORMS)
