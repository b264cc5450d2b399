"""SignalTask: what tasks on labelled records of sensors share: how rows and requests are read, and the processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.labelled.dataset import Dataset, hold_out_groups
from unmask.data.labelled.rows import Row
from unmask.data.processor import Processor
from unmask.data.signals import synthetic
from unmask.data.signals.checks import examine
from unmask.data.signals.decoding import ARRAYS, SURE
from unmask.data.signals.examples import SignalExamples
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import (
    SignalRow,
    Wanted,
    are_signals,
    check_records_apart,
    is_record,
    labelled,
    of_numbers,
)
from unmask.errors import UnmaskError, kind_of
from unmask.huggingface import Loaded
from unmask.models.model import ModelConfig
from unmask.tasks.encoded import Encoded
from unmask.tasks.file_forms import FileForm
from unmask.tasks.forms import Form, Input, Object
from unmask.tasks.reading import labels_of
from unmask.tasks.rows import Rows, column
from unmask.tasks.stand_in import StandIn
from unmask.tasks.task import Say, Task

REST = "rest"
"""The label of all classes but one (`SignalRows.positive`)."""


@dataclass(frozen=True, kw_only=True)
class RecordRows(Rows):
    """Records, in a folder or in a table of files.

    record    column of a table that holds the names of files, or lists of numbers
    label     column of a table that holds the label; for a folder without subfolders, a regular expression for the
              names of files with one group in brackets, such as '^([a-z]+)_'
    group     column, or regular expression for the names of files, of what must not be in training and evaluation at
              once, such as the patient: without dev rows, whole groups are held out
    rate      samples a second of files that do not say them
    lead      name of the lead that is read of records with several, or names with commas between them; None: all
    positive  the class that is told from all others, which become 'rest': A in the challenge of 2017
    """

    record: str | None = column()
    label: str | None = column()
    group: str | None = column()
    rate: float | None = None
    lead: str | None = None
    positive: str | None = None

    def hold_out(self, whole: Dataset, count: int, rng: np.random.Generator) -> tuple[Dataset, Dataset, str]:
        if not any(isinstance(row, SignalRow) and row.group for row in whole):
            return super().hold_out(whole, count, rng)
        return *hold_out_groups(whole, count, rng), "whole groups"


@dataclass(frozen=True, kw_only=True)
class SignalRows(RecordRows):
    """Records with a label: a folder with a REFERENCE.csv or with a subfolder for each class, or a table of files.

    stratify  hold out the same share of each class, instead of random rows
    """

    stratify: bool = True

    LEARNING: ClassVar[tuple[str, ...]] = (*RecordRows.LEARNING, "stratify")


class SignalForm(FileForm):
    """A record: on the command line the name of its file; in a request {"signal": its bytes in Base64}, maybe with its
    "rate", or {"samples": [[...], ...], "rate": 300}, a list of numbers for each sample. A "lead" chooses leads.

    rate, lead  of items that do not have their own
    """

    def __init__(self, rate: float | None = None, lead: str | None = None) -> None:
        super().__init__("signal", SignalRow, ending=".hea")
        self.rate, self.lead = rate, lead
        self.known = frozenset({"signal", "samples"})
        self.wanted = self.object = self.lacking = (
            'an object such as {"signal": "<the bytes of a file in Base64>"} or {"samples": [0.1, 0.2], "rate": 300}'
        )

    def with_defaults(self, values: Object) -> Form:
        return SignalForm(**values)

    def completed(self, row: Row) -> Row:
        return replace(row, own_rate=self.rate, leads=names_of(self.lead)) if isinstance(row, SignalRow) else row

    def item(self, row: Any) -> Input | None:
        given = super().item(row)
        return given if not isinstance(given, dict) or row.own_rate is None else {**given, "rate": row.own_rate}

    def row(self, values: Object, place: str) -> Row:
        rate, lead = values.get("rate", self.rate), values.get("lead", self.lead)
        if lead is not None and not isinstance(lead, str):
            raise UnmaskError(f"{place}: 'lead' must be the name of a lead, not {kind_of(lead)}.")
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1e9):
            raise UnmaskError(f"{place}: 'rate' must be samples a second, a number above 0, not {rate!r}.")
        own_rate = None if rate is None else float(rate)
        if "samples" not in values:
            made = super().row(values, place)
            assert isinstance(made, SignalRow)
            return replace(made, own_rate=own_rate, leads=names_of(lead))
        if own_rate is None:
            raise UnmaskError(f"{place} has 'samples', but no 'rate', the samples a second.")
        return SignalRow(place=place, source=of_numbers(values["samples"], own_rate, place))


class SignalTask(Task):
    """A task whose rows are records of sensors, such as electrocardiograms.

    series  whether they are series of numbers without a rate instead
    """

    row_class: ClassVar[type[Row]] = SignalRow
    rows_class: ClassVar[type[Rows]] = RecordRows
    folders = True
    series: ClassVar[bool] = False
    items: ClassVar[str] = "signals"
    rate_shares: ClassVar[tuple[float, float] | None] = (0.1, 0.1)
    rows_are = "records of sensors with a label"
    form: ClassVar[Form] = SignalForm()
    usual_length: ClassVar[int] = 1 << 16  # segments: the seconds of a window are the limit
    tokens_at_once: ClassVar[int | None] = 1_024

    @classmethod
    def records(cls, path: Path, wanted: Wanted, encoding: str | None) -> Dataset:
        """The records of a file or folder."""
        return labelled(path, wanted, encoding=encoding)

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        wanted = Wanted(record=rows.record, label=rows.label, group=rows.group, rate=rows.rate)
        found = cls.records(path, wanted, rows.encoding)
        if rows.lead is not None:
            chosen: Any = {"leads": names_of(rows.lead)}
            found = replace(found, rows=tuple(replace(row, **chosen) for row in found))
        if rows.positive is None:
            return found
        if rows.positive not in found.labels and not scoring:
            raise UnmaskError(f"{path} has no label '{rows.positive}', but {', '.join(found.labels)}: see --positive.")
        return replace(found, rows=tuple(_against_rest(row, rows.positive) for row in found))

    @classmethod
    def labels_in(cls, sets: Mapping[str, Dataset], say: Say, *, held_out: bool) -> tuple[str, ...]:
        """The labels of the training rows; `say` gets what is unusual about the records. Raises UnmaskError as
        `labels_of`, for records that cannot be read, and for one that is in two sets."""
        labels = labels_of(sets, say, held_out=held_out)
        cls.check_sets(sets, say, held_out=held_out)
        return tuple(sorted(labels, key=lambda label: label != REST))  # f1 of two classes is that of the second

    @classmethod
    def check_sets(cls, sets: Mapping[str, Dataset], say: Say, *, held_out: bool) -> None:
        """Say what is unusual about the records. Raises UnmaskError for a record, or a patient, that is in two sets,
        and for records that cannot be read."""
        for name in sets.keys() - {"train", *(["dev"] if held_out else [])}:
            check_records_apart(sets["train"], sets[name])
        for name, rows in sets.items():
            for sentence in examine(rows):
                say(f"{name}: {sentence}")

    @classmethod
    def stand_in(cls, config: Any) -> StandIn:
        rows = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
        write = partial(synthetic.write, rate=config.rate)
        return StandIn("electrocardiograms that are synthesised", f"synthetic-ecg-{config.rate:g}", write, rows)

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

    def check_encoded(self, encoded: Encoded) -> None:
        """Raises UnmaskError for records that cannot be decoded, or that are too short."""
        assert isinstance(encoded.examples, SignalExamples)
        encoded.examples.check()

    def along(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """What a view shows of the answer to a record: "lead", a sentence; and maybe "answers", to parts with a
        "begin" and an "end", or "beats" with a "time", each with a "label" and a "probability"."""
        raise NotImplementedError

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        return [SignalRow(place=str(path), source=path)] if is_record(path) else None

    @classmethod
    def query(cls, row: Row) -> str:
        return row.place


def names_of(lead: str | None) -> tuple[str, ...]:
    """The names of leads with commas between them."""
    return () if lead is None else tuple(name.strip() for name in lead.split(","))


def _against_rest(row: Row, positive: str) -> Row:
    label, *tags = (one if one in ("", positive) else REST for one in (row.label, *row.tags))
    return replace(row, label=label, tags=tuple(tags))
