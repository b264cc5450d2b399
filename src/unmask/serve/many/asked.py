"""What is asked of a model for each row: its answer, or a vector. Rows without an answer keep their places."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, kind_of, unknown
from unmask.serve.answering import Answering
from unmask.serve.many.source import Block, Value
from unmask.serve.predictor import Predictor
from unmask.serve.vectors import vectors

ERROR = "error"


@dataclass(frozen=True)
class Found:
    """What was found for each row of a block.

    block    the rows
    name     the name of the column of answers
    answers  one for each row; None for a row without an answer
    errors   why a row has no answer; None for the others, and for a blank line
    """

    block: Block
    name: str
    answers: Sequence[Any]
    errors: Sequence[str | None]

    def objects(self) -> list[dict[str, Any]]:
        """Each row with its answer and its error, by name."""
        own = (one if isinstance(one, Mapping) else {self.block.name: one} for one in self.block.values)
        rows = zip(own, self.answers, self.errors, strict=True)
        return [{**value, self.name: answer, ERROR: error} for value, answer, error in rows]


class Asked(ABC):
    """What is asked of a model for each row of a file or table.

    name    the name of the column of answers
    column  the name of the text in an object; None: the usual names
    """

    name: ClassVar[str]
    column: str | None = None

    @abstractmethod
    def row(self, value: Value, number: int) -> Row | None:
        """A value as a row; None: a blank line, which has no answer. Raises UnmaskError, which counts by `number`."""

    @abstractmethod
    def answer(self, rows: Sequence[Row]) -> Sequence[Any]:
        """One answer for each row. Raises UnmaskError for a row that the model cannot read."""

    @abstractmethod
    def array(self, answers: Sequence[Any]) -> Any:
        """Answers, or None, as a `pyarrow.Array`."""

    def check(self, names: Collection[str], place: object) -> None:
        """Raises UnmaskError for a table whose columns do not fit: the column of the text is not among them, or one has
        the name of a column that is added."""
        taken = next((name for name in (self.name, ERROR) if name in names), None)
        if taken is not None:
            raise UnmaskError(f"{place} has '{taken}', as the answers have: rename it.")
        if names and self.column is not None and self.column not in names:
            raise unknown("column", self.column, names, place)

    def found(self, block: Block, *, skip: bool) -> Found:
        """The answers to the rows of a block.

        skip  whether a row that cannot be read or answered has an error in place of an answer; else its error is raised
        """
        answers: list[Any] = [None] * len(block.values)
        errors: list[str | None] = [None] * len(block.values)
        rows = dict[int, Row]()
        for i, value in enumerate(block.values):
            try:
                if i in block.damaged:
                    raise block.damaged[i]
                if isinstance(value, Mapping):
                    self.check(value, f"Text {block.first + i}")
                row = self.row(value, block.first + i)
                if row is not None:
                    rows[i] = row
            except UnmaskError as error:
                if not skip:
                    raise
                errors[i] = str(error)
        for i, (answer, why) in zip(rows, self._answers(list(rows.values()), skip), strict=True):
            answers[i], errors[i] = answer, why
        return Found(block, self.name, answers, errors)

    def table(self, found: Found) -> Any:
        """[n] a `pyarrow.Table`: the columns that are kept, those of the answers and of the errors."""
        import pyarrow

        kept, errors = found.block.kept, pyarrow.array(found.errors, pyarrow.string())
        table = pyarrow.table(kept) if isinstance(kept, Mapping) else kept
        return table.append_column(self.name, self.array(found.answers)).append_column(ERROR, errors)

    def _answers(self, rows: list[Row], skip: bool) -> list[tuple[Any, str | None]]:
        """The answer or the error of each row. If some rows cannot be answered together, each half is tried."""
        if not rows:
            return []
        try:
            return [(answer, None) for answer in self.answer(rows)]
        except UnmaskError as error:
            if not skip:
                raise
            if len(rows) == 1:
                return [(None, str(error))]
        half = len(rows) // 2
        return [*self._answers(rows[:half], skip), *self._answers(rows[half:], skip)]


class Predictions(Asked):
    """The answers of a predictor: objects as of `unmask predict --json`, in a table as JSON.

    column  name of the text in an object, whose other fields are then not read; None: the usual names, which are text
            or those of the task
    """

    name = "prediction"

    def __init__(self, predictor: Answering, column: str | None = None) -> None:
        self.predictor, self.column, self._form = predictor, column, predictor.form

    def row(self, value: Value, number: int) -> Row | None:
        if isinstance(value, Mapping):
            named = value if self.column is None else {"text": _text(value, self.column, number)}
            return self._form.as_row(named, number)
        if not value.strip():
            return None
        return self._form.as_row(self._form.from_line(value, number, single=self.predictor.single), number)

    def answer(self, rows: Sequence[Row]) -> Sequence[Any]:
        return self.predictor.answer(rows)

    def array(self, answers: Sequence[Any]) -> Any:
        import pyarrow

        return pyarrow.array([None if one is None else as_json(one) for one in answers], pyarrow.string())


class Vectors(Asked):
    """The vectors of texts.

    column  name of the texts in an object
    """

    name = "embedding"

    column: str

    def __init__(self, predictor: Predictor, column: str = "text") -> None:
        next(vectors(predictor, ["text"]))  # raises for a model without vectors
        self.predictor, self.column = predictor, column

    def row(self, value: Value, number: int) -> Row:
        text = _text(value, self.column, number) if isinstance(value, Mapping) else value
        if not text.strip():
            raise UnmaskError(f"Text {number} is empty.")
        return Row(text=text, place=f"Text {number}")

    def answer(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [vector_1D[0] for vector_1D in self.predictor.found(rows)]

    def array(self, answers: Sequence[Any]) -> Any:
        import pyarrow

        return pyarrow.array(answers, pyarrow.list_(pyarrow.float32()))


def as_json(value: Any) -> str:
    """JSON on one line. Characters are escaped only in a text that could not be written otherwise: one with unpaired
    surrogates."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isascii() or _is_valid(text) else json.dumps(value, default=str)


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Mapping[str, Any], column: str, number: int) -> str:
    """The text of an object. Raises UnmaskError if it has none, or something else there."""
    text = value.get(column)
    if not isinstance(text, str):
        raise UnmaskError(f"Text {number}: '{column}' must be a string, not {kind_of(text)}.")
    return text
