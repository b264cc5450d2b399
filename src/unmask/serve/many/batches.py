"""Functions from batches to batches, for `ray.data.Dataset.map_batches`, and Spark's `mapInPandas` and `mapInArrow`.

They are pickled with the name of the model and the options alone; a worker opens the model at its first batch, and
keeps it until the process ends. They take and return `pyarrow` tables: rows in their order, with their columns, and one
column of answers and one of errors more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar

from unmask.errors import UnmaskError
from unmask.serve.many.asked import ERROR, Asked, Predictions, Vectors
from unmask.serve.many.source import Block


class Batches(ABC):
    """A function from batches to batches. A row without an answer has an error in its place.

    model  a folder that every worker can read
    how    options of the predictor, such as device, precision or length

    `columns` names the added columns with their types as SQL has them, for the schema that Spark wants.
    """

    columns: ClassVar[str]

    def __init__(self, model: str, **how: Any) -> None:
        self.model, self.how = str(model), tuple(sorted(how.items()))

    def __call__(self, batch: Any) -> Any:
        """A table, as Ray passes it with `batch_format="pyarrow"`, with the columns of answers. Raises UnmaskError for
        a batch of another kind, and for a table that has one of their names already."""
        if not hasattr(batch, "column_names"):
            raise UnmaskError("A batch must be a table of pyarrow: give map_batches batch_format='pyarrow'.")
        asked = self._asked(self.model, self.how)
        asked.check(batch.column_names, "The table")
        return asked.table(asked.found(Block(1, batch.to_pylist(), batch), skip=True))

    def arrow(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches, for `DataFrame.mapInArrow` of Spark."""
        import pyarrow

        for batch in batches:
            yield from self(pyarrow.Table.from_batches([batch])).to_batches()

    def pandas(self, frames: Iterable[Any]) -> Iterator[Any]:
        """Frames of pandas, for `DataFrame.mapInPandas` of Spark."""
        import pyarrow

        for frame in frames:
            found = self(pyarrow.Table.from_pandas(frame, preserve_index=False))
            added = found.column_names[-2:]
            yield frame.assign(**{name: found[name].to_numpy() for name in added})

    @staticmethod
    @abstractmethod
    def _asked(model: str, how: tuple[tuple[str, Any], ...]) -> Asked:
        """What is asked of the model; opened once in a process."""


class BatchPredictor(Batches):
    """Adds `prediction`, the answer of `unmask predict --json` as JSON, and `error`.

    how  options of the predictor, and `column`, the name of the column of texts (default: the usual names, which are
         text or those of the task)
    """

    columns = f"{Predictions.name} string, {ERROR} string"

    @staticmethod
    @cache
    def _asked(model: str, how: tuple[tuple[str, Any], ...]) -> Asked:
        from unmask.serve.written import predictor_of

        given = dict(how)
        column = given.pop("column", None)
        return Predictions(predictor_of(model, **given), column)


class BatchEmbedder(Batches):
    """Adds `embedding`, the vector of a text, and `error`.

    how  options of the predictor (precision is fp32 by default, so that vectors are equal on all workers), and
         `column`, the name of the column of texts (default: text), and `pooling`, as for `serve.vectors.encoder_of`
    """

    columns = f"{Vectors.name} array<float>, {ERROR} string"

    @staticmethod
    @cache
    def _asked(model: str, how: tuple[tuple[str, Any], ...]) -> Asked:
        from unmask.serve.predictor import Predictor
        from unmask.serve.vectors import encoder_of

        given = {"precision": "fp32", **dict(how)}
        column, pooling = given.pop("column", "text"), given.pop("pooling", None)
        encoder, _ = encoder_of(model, pooling)
        return Vectors(Predictor(encoder, **given), column)
