"""Answers to the rows of a file, or of a part of it, in blocks that a killed process continues after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.files.parts import Share
from unmask.errors import UnmaskError
from unmask.files import check_place
from unmask.serve.many import store
from unmask.serve.many.asked import Asked, Found
from unmask.serve.many.source import BLOCK, Block, Source


class Part(Share):
    """Part `number` of `count`, from 1: successive blocks, so that the parts, one after another, are the whole."""

    def blocks(self, rows: int) -> tuple[int, int]:
        """(first block, block after the last) of a file with so many rows."""
        count = -(-rows // BLOCK)
        return count * (self.number - 1) // self.count, count * self.number // self.count

    def named(self, out: Path) -> Path:
        """The file of the part: `answers-00002-of-00008.parquet`."""
        return out.with_stem(f"{out.stem}-{self.suffix}")


@dataclass(frozen=True)
class Answered:
    """What a command has done.

    out        the file of answers
    tally      what it holds
    continued  the number of rows that an earlier process had answered
    """

    out: Path
    tally: store.Tally
    continued: int


def answer_file(
    asked: Asked,
    source: Source,
    out: Path | str,
    *,
    model: Path | str,
    options: Mapping[str, Any],
    part: Part | None = None,
    skip: bool = False,
) -> Answered:
    """Answer the rows of a file, or of a part of it, and write them to a file in their order, whole or not at all.

    A process that is killed loses the block that it was computing; the same call continues after the others, and the
    file is the same, bit for bit, as without the interruption. So are the rows of any number of parts.

    out      .parquet, with the columns of a Parquet source, or .jsonl
    model    the folder of the model; an interrupted call is not continued with changed files
    options  what else the answers depend on, as JSON
    skip     as for `Asked.found`

    Raises UnmaskError if the file cannot be written, for a damaged file, and without `skip` for a row that cannot be
    answered: the blocks before it are kept.
    """
    out = Path(out)
    store.check_form(out)
    asked.check(source.names, source.path)
    out = out if part is None else part.named(out)
    check_place(out)
    begin, end = (0, None) if part is None else part.blocks(source.rows)
    plan = {
        "model": {str(path): _state(path) for path in _files(Path(model))},
        "rows": {str(source.path.resolve()): _state(source.path)},
        "options": dict(options),
        "blocks": [BLOCK, begin, end],
    }
    with store.opened(out, plan) as kept:
        continued = kept.done
        if end is None or not continued or begin + continued < end:
            for block in source.blocks(begin + continued, end):
                kept.add(asked, _found(asked, block, source.path, skip))
        tally = kept.join(out)
    return Answered(out, tally, min(continued * BLOCK, tally.rows))


def _found(asked: Asked, block: Block, path: Path, skip: bool) -> Found:
    try:
        return asked.found(block, skip=skip)
    except UnmaskError as error:
        said = str(error).rstrip(".")
        place = "" if str(path) in said else f" ({path})"
        raise UnmaskError(f"{said}{place}; with --on-error skip, such rows keep their places.") from None


def _files(model: Path) -> list[Path]:
    return sorted(path.resolve() for path in model.iterdir() if path.is_file()) if model.is_dir() else []


def _state(path: Path) -> list[int]:
    """The size of a file, and when it was changed."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
