"""Rows and TaskOptions: the fields that every task has, for files of labelled rows and for training.

A task extends both with its own fields. Their docstrings are the help of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from unmask.config import Config
from unmask.data.files.tables import format_by_name
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset

_COLUMN = "column"


def column() -> Any:
    """A field that names a column of a table; None: one of the usual names."""
    return field(default=None, metadata={_COLUMN: True})


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """The files of labelled rows.

    train          file of the training rows; with a benchmark its folder
    dev            file of the rows that choose the best model; without it, a tenth of the training rows is held out
    test           file of the rows that are scored at the end
    benchmark      name of a public data set (`unmask.data.labelled.glue`): `train` is then its folder, as it is
                   distributed, with its dev rows and, where they have labels, its test rows
    encoding       of files without a byte order mark that are not UTF-8, such as cp1252 or euc-kr
    most           number of training rows to use, from the first; None: all
    folds          number of folds of the training rows, for cross-validation: each in turn is the test rows of a model
                   that is trained on the others. Groups stay together, and each class is spread over the folds
    fold           the only one of the folds to test, from 1; None: each in turn
    length         longest sequence, in tokens; None: the usual length of the task, or the longest of the model
    allow_overlap  continue even if many rows of `dev` are also in `train`
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    benchmark: str | None = None
    encoding: str | None = None
    most: int | None = None
    folds: int | None = None
    fold: int | None = None
    length: int | None = None
    allow_overlap: bool = False

    LEARNING: ClassVar[tuple[str, ...]] = ("train", "dev", "test", "most", "folds", "fold", "allow_overlap")
    """Fields that have no effect where the rows of one file are scored."""
    BEFORE: ClassVar[dict[str, Any]] = {}
    """Field -> the value that runs from before the field had in effect."""

    @property
    def files(self) -> dict[str, Path | None]:
        """Split -> its file; None where there is none."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    @property
    def fewest(self) -> int:
        """The least training rows of which some can be held out."""
        return 10

    @property
    def in_turn(self) -> bool:
        """Whether each fold is tested in turn, by a model of its own."""
        return self.folds is not None and self.fold is None

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        """About `count` rows for evaluation, the rows that remain for training, and how they were chosen: with the same
        share of each class, if the rows have that option."""
        stratified = bool(getattr(self, "stratify", False))
        how = "the same share of each class" if stratified else "at random"
        return *dataset.hold_out(whole, count, rng, stratified=stratified), how

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Fields that name columns."""
        return tuple(f.name for f in fields(cls) if f.metadata.get(_COLUMN))

    def kept(self, data: Path) -> list[str]:
        """Fields whose values come from the run of a folder where rows of the file `data` are scored: those that are
        not given. Columns are among them only if none is given, the format only if the file's name does not show it."""
        kept = [f.name for f in fields(self) if f.name not in (*self.LEARNING, *self.columns(), "encoding", "format")]
        if not any(getattr(self, name) for name in self.columns()):
            kept += self.columns()
        if format_by_name(data) is None and hasattr(self, "format"):
            kept.append("format")
        usual = type(self)()
        return [name for name in kept if getattr(self, name) == getattr(usual, name)]


@dataclass(frozen=True, kw_only=True)
class TableRows(Rows):
    """Rows of tables.

    format  tsv, csv, jsonl, json, parquet or conll, if the name of the file does not show it
    skip    leave damaged rows out; they are counted, and the first are named
    """

    format: str | None = None
    skip: bool = False


@dataclass(frozen=True, kw_only=True)
class TextRows(TableRows):
    """Texts, or pairs of them, with a label.

    text   column of the text, if it does not have the usual name
    pair   column of the second text of a pair
    label  column of the label
    """

    text: str | None = column()
    pair: str | None = column()
    label: str | None = column()


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Config):
    """The options of a task besides its rows."""

    BEFORE: ClassVar[dict[str, Any]] = {}
    """Field -> its default in version 0.1, which the runs of all tasks kept."""

    def check(self) -> None:
        """Raises UnmaskError for a field that is set but has no effect with the values of the others."""

    def continuing(self, folder: Path | None) -> Self:
        """The options, with the open ones as in the model folder that the run starts from; None: new weights."""
        return self
