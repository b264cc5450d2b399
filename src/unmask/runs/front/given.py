"""Given: data as Python has them (rows, tables, texts, pairs), written to files that runs read and can read again."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from unmask.data.files.tables import HUB
from unmask.errors import UnmaskError
from unmask.files import writing
from unmask.huggingface.hub import model_folder
from unmask.train import distributed

T = TypeVar("T")
Paths = str | os.PathLike[str]
Rows = Paths | Iterable[Mapping[str, Any]] | Iterable[tuple[Any, ...]] | Mapping[str, Iterable[Any]] | Any
"""A file, or rows: dictionaries, tuples, columns by name, or a table of pandas, Arrow, polars or `datasets`."""

TEXT, LABELLED, TAGGED, PAIR = ("text",), ("text", "label"), ("words", "tags"), ("source", "target")
"""The columns of rows without names: of texts, labelled texts, tagged words, pairs."""


def beside(out: Path | str) -> Path:
    """The folder of a run's data that were given as Python objects: `runs/mine-data` for `runs/mine`."""
    return Path(out).with_name(f"{Path(out).name}-data")


def is_path(data: object) -> TypeGuard[Paths]:
    """Whether data are the path of a file or folder, or a name such as `hub:owner/name`."""
    return isinstance(data, str | os.PathLike)


def exists(data: object) -> bool:
    """Whether data are the path of a file or folder that exists."""
    if not is_path(data) or os.fspath(data) in ("", ".") or "\n" in os.fspath(data):
        return False
    try:
        return Path(data).exists()
    except (OSError, ValueError):  # too long for a file name, or a character that no name has
        return False


def folder_of(model: object) -> Path:
    """The folder of a model, or of its name on the Hub. Raises UnmaskError for a value of another kind."""
    if not is_path(model):
        raise UnmaskError(
            f"A model is given by its folder or its name on the Hub, not by a value of the type {type(model).__name__}."
        )
    return model_folder(os.fspath(model))


def check_name(name: object, function: str, what: str) -> None:
    """Raises UnmaskError for a recipe or system that is no name, such as the data."""
    if name is not None and not isinstance(name, str):
        raise UnmaskError(
            f"The first value of unmask.{function} is the name of a {what}, not a value of the type "
            f"{type(name).__name__}; the data come after it."
        )


def as_given(said: str, path: Path) -> str:
    """A text about rows in a temporary file, without the name of the file."""
    said = re.sub(rf"{re.escape(str(path))}:(\d+)", r"row \1", said).replace(str(path), "the table given")
    return said[:1].upper() + said[1:]


def paths_in(data: object) -> list[Path] | None:
    """The paths, if data are one or several: of several strings, each must exist. None for other data."""
    if is_path(data):
        return [Path(data)]
    if not isinstance(data, list | tuple) or not data or not all(map(is_path, data)):
        return None
    exist = [exists(one) for one in data]
    if any(exist) and not all(exist):
        raise UnmaskError(f"There is no file {data[exist.index(False)]}.")
    return [Path(one) for one in data] if all(exist) else None


def corpus_place(out: Path | str, sources: Iterable[Paths], *settings: Any) -> Path:
    """The folder beside a run for the corpus of some files: another one after any change of a file or a setting.

    Raises UnmaskError if there is no such file or folder.
    """
    found: list[Any] = [str(setting) for setting in settings]
    for source in sources:
        path = Path(source)
        if not path.exists() and not str(source).startswith(HUB):
            raise UnmaskError(f"There is no file or folder {path}.")
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        facts = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.is_file()]
        found.append((str(source), facts))
    return beside(out) / f"corpus-{hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]}"


def file_of(data: Rows, folder: Path, name: str, columns: tuple[str, ...] | None = None) -> Path:
    """The path of a file, or the JSON Lines file in `folder` that rows are written to. Its name has their checksum, so
    that equal rows have one file, which no other rows replace.

    columns  of rows without names; None: those of labelled rows

    Raises UnmaskError if there are no rows, for a row that is neither a dictionary nor a tuple, and for a value that
    JSON cannot hold, or text that UTF-8 cannot.
    """
    if is_path(data):
        return Path(data)
    digest, count = hashlib.sha256(), 0
    with writing(folder / name):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as place:
            whole = Path(place) / name
            with whole.open("wb") as file:
                for count, row in enumerate(records(data, columns), 1):
                    line = _line(row, f"Row {count} of {name}")
                    digest.update(line)
                    file.write(line)
            if not count:
                raise UnmaskError(f"There are no rows in {name}.")
            target = folder / f"{name}-{digest.hexdigest()[:8]}.jsonl"
            if not target.exists():  # an equal file keeps its time, and so its corpus
                whole.replace(target)
    return target


def main_first(write: Callable[[], T]) -> T:
    """What `write` returns, on every process; the main process calls it first, and the others find its files."""
    if not distributed.is_main():
        distributed.barrier()
    found = write()
    if distributed.is_main():
        distributed.barrier()
    return found


def records(data: Any, columns: tuple[str, ...] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a table or of an iterable, as dictionaries."""
    for names in ("to_pylist", "to_dicts"):  # Arrow, polars
        if hasattr(data, names):
            yield from getattr(data, names)()
            return
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        yield from data.to_dict(orient="records")
        return
    if isinstance(data, Mapping):
        by_name = {name: list(values) for name, values in data.items()}
        if len(set(map(len, by_name.values()))) > 1:
            lengths = ", ".join(f"{name} {len(values):,}" for name, values in by_name.items())
            raise UnmaskError(f"The columns have different numbers of rows: {lengths}.")
        for values in zip(*by_name.values(), strict=True):
            yield dict(zip(by_name, values, strict=True))
        return
    if not isinstance(data, Iterable):
        raise UnmaskError(f"Data must be a path or rows, not a value of the type {type(data).__name__}.")
    for number, row in enumerate(data, 1):
        yield _named(row, number, columns)


def _named(row: Any, number: int, columns: tuple[str, ...] | None) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    values = (row,) if isinstance(row, str) else tuple(row) if isinstance(row, list | tuple) else ()
    names = columns or (TEXT if len(values) == 1 else TAGGED if values and isinstance(values[0], list) else LABELLED)
    if len(values) != len(names):
        raise UnmaskError(
            f"Row {number} must be a dictionary with the names of its columns, or the {len(names)} values "
            f"({', '.join(names)}), not {row!r}."
        )
    return dict(zip(names, values, strict=True))


def _line(row: Mapping[str, Any], where: str) -> bytes:
    """A row as a line of JSON. Raises UnmaskError for text that UTF-8 cannot hold."""
    try:
        return (json.dumps(_plain(row, where), ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start]
        raise UnmaskError(f"{where} has the unpaired surrogate {found!a}, which is no character: remove it.") from None


def _plain(value: Any, where: str) -> Any:
    """A value that JSON can hold: numbers and arrays of NumPy are converted, and NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one, where) for name, one in value.items()}
    if hasattr(value, "tolist"):  # NumPy, also its numbers
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one, where) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if is_path(value):
        return os.fspath(value)
    raise UnmaskError(f"{where} has a value of the type {type(value).__name__}, which a file of rows cannot hold.")
