"""SignalTask: what tasks on labelled records of sensors share: how rows and requests are read, and the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.labelled.dataset import Dataset, hold_out_groups
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.data.signals.decoding import ARRAYS, SURE
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow, Wanted, are_signals, is_record, labelled, of_numbers
from unmask.errors import UnmaskError, kind_of
from unmask.huggingface import Loaded
from unmask.models.model import ModelConfig
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form, Object
from unmask.tasks.rows import Rows, column
from unmask.tasks.task import Task

REST = "rest"
"""The label of all classes but one (`SignalRows.positive`)."""


@dataclass(frozen=True, kw_only=True)
class SignalRows(Rows):
    """Records with a label: a folder with a REFERENCE.csv or with a subfolder for each class, or a table of files.

    record    column of a table that holds the names of files, or lists of numbers
    label     column of a table that holds the label; for a folder without subfolders, a regular expression for the
              names of files with one group in brackets, such as '^([a-z]+)_'
    group     column, or regular expression for the names of files, of what must not be in training and evaluation at
              once, such as the patient: without dev rows, whole groups are held out
    rate      samples a second of files that do not say them
    positive  the class that is told from all others, which become 'rest': A in the challenge of 2017
    stratify  hold out the same share of each class, instead of random rows
    """

    record: str | None = column()
    label: str | None = column()
    group: str | None = column()
    rate: float | None = None
    positive: str | None = None
    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*Rows.LEARNING, "stratify")

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        if not any(isinstance(row, SignalRow) and row.group for row in whole):
            return super().hold_out(whole, count, rng)
        return *hold_out_groups(whole, count, rng), "whole groups"


class SignalForm(FileForm):
    """A record: on the command line the name of its file; in a request {"signal": its bytes in Base64}, maybe with its
    "rate", or {"samples": [[...], ...], "rate": 300}, a list of numbers for each sample."""

    def __init__(self) -> None:
        super().__init__("signal", SignalRow)
        self.known = frozenset({"signal", "samples"})
        self.wanted = self.object = self.lacking = (
            'an object such as {"signal": "<the bytes of a file in Base64>"} or {"samples": [0.1, 0.2], "rate": 300}'
        )

    def row(self, values: Object, place: str) -> Row:
        rate = values.get("rate")
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1e9):
            raise UnmaskError(f"{place}: 'rate' must be samples a second, a number above 0, not {kind_of(rate)}.")
        own_rate = None if rate is None else float(rate)
        if "samples" not in values:
            made = super().row(values, place)
            assert isinstance(made, SignalRow)
            return replace(made, own_rate=own_rate)
        if own_rate is None:
            raise UnmaskError(f"{place} has 'samples', but no 'rate', the samples a second.")
        return SignalRow(place=place, source=of_numbers(values["samples"], own_rate, place))


class SignalTask(Task):
    """A task whose rows are records of sensors, such as electrocardiograms."""

    row_class: ClassVar[type[Row]] = SignalRow
    rows_class: ClassVar[type[Rows]] = SignalRows
    folders = True
    items: ClassVar[str] = "signals"
    rate_shares: ClassVar[tuple[float, float] | None] = (0.1, 0.1)
    rows_are = "records of sensors with a label"
    form: ClassVar[Form] = SignalForm()
    usual_length: ClassVar[int] = 1 << 16  # segments: the seconds of a window are the limit
    tokens_at_once: ClassVar[int | None] = 1_024

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        wanted = Wanted(record=rows.record, label=rows.label, group=rows.group, rate=rows.rate)
        found = labelled(path, wanted, encoding=rows.encoding)
        if rows.positive is None:
            return found
        if rows.positive not in found.labels and not scoring:
            raise UnmaskError(f"{path} has no label '{rows.positive}', but {', '.join(found.labels)}: see --positive.")
        named = (row if row.label == rows.positive else replace(row, label=REST) for row in found)
        return replace(found, rows=tuple(named))

    @classmethod
    def owns(cls, path: Path) -> bool:
        return path.suffix.lower() in SURE - ARRAYS

    @classmethod
    def holds(cls, path: Path) -> bool:
        return are_signals(path)

    @classmethod
    def processor_of(cls, loaded: Loaded[Any], owner: object) -> Processor[Any]:
        return loaded.require_processor(owner)

    @classmethod
    def new_processor(cls, config: Any) -> SignalProcessor:
        return SignalProcessor().for_model(config)

    @classmethod
    def check_model(cls, config: ModelConfig, owner: object) -> None:
        """Raises UnmaskError for a model that does not read signals."""
        if cls.items not in config.offers:
            raise UnmaskError(
                f"{owner} is a model that reads no signals; take a MINA, or train one: unmask train mina."
            )

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        return [SignalRow(place=str(path), source=path)] if is_record(path) else None

    @classmethod
    def query(cls, row: Row) -> str:
        return row.place
