"""Answering: the base class of models that answer rows: single inputs, streams of lines and files of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from unmask.data.labelled.rows import Row
from unmask.kernels.processor import Settled
from unmask.serve.pretrained import render_pretrained
from unmask.tasks import Task
from unmask.tasks.forms import Form, Input

AT_ONCE = 64  # texts of a stream that are answered together
ROWS_AT_ONCE = 512  # rows of a file that are answered together

Answer = dict[str, Any]


class Answering(ABC):
    """Answers inputs as rows of a task; `form` lists the accepted inputs.

    kind      the name of the task's head; empty for the heads of pre-training
    of_task   the task; None: a head of pre-training answers a text or a pair
    settled   the number format that the model multiplies in
    defaults  values of fields of inputs that do not have them: the rate of a record
    single    whether the model is known to be trained on single texts; lines of text with pairs are then refused
    """

    of_task: type[Task] | None
    settled: Settled
    defaults: Mapping[str, Any] = MappingProxyType({})
    single: bool = False

    @property
    def kind(self) -> str:
        return "" if self.of_task is None else self.of_task.name

    @property
    def form(self) -> Form:
        found = Form() if self.of_task is None else self.of_task.form
        return found.with_defaults(self.defaults) if self.defaults else found

    def __call__(self, inputs: Iterable[Input]) -> list[Answer]:
        """One answer for each input, in order; messages count the inputs from 1."""
        given: list[Input] = [inputs] if isinstance(inputs, (str, Mapping)) else list(inputs)
        return self.answer(self.rows(given))

    def rows(self, inputs: Iterable[Input]) -> list[Row]:
        """Inputs as rows. Raises UnmaskError for an input of another form; the message counts inputs from 1."""
        return [self.form.as_row(item, number) for number, item in enumerate(inputs, 1)]

    @abstractmethod
    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """One answer for each row of the task, in order. Labels of the rows are ignored."""

    def stream(self, texts: Iterable[str]) -> Iterator[tuple[str, Answer | None]]:
        """Yield (text, answer) for each line; `Form.from_line` reads a line.

        Up to 64 lines are answered together. For a JSON object, the text is its question or text. A blank line has the
        answer None, so that answer n belongs to line n.
        """
        source, first, form = iter(texts), 1, self.form
        while waiting := list(islice(source, AT_ONCE)):
            lines = dict(enumerate(waiting, first))
            given = {number: line for number, line in lines.items() if line.strip()}
            inputs = {number: form.from_line(line, number, single=self.single) for number, line in given.items()}
            answers = iter(self.answer([form.as_row(item, number) for number, item in inputs.items()]))
            for number, line in lines.items():
                yield (form.shown_of(inputs[number], line), next(answers)) if number in inputs else (line, None)
            first += len(waiting)

    def rows_in(self, path: Path | str, encoding: str | None = None) -> Sequence[Row] | None:
        """The rows of a file in a format of the task, such as CoNLL, SQuAD, SWAG, ARC or DREAM; labels are ignored.
        None for a file that is read line by line. For `encoding` see `data.files.lines.lines`."""
        found = None if self.of_task is None else self.of_task.rows_in(Path(path), encoding)
        return None if found is None else [self.form.completed(row) for row in found]

    def answers_to(self, rows: Sequence[Row]) -> Iterator[tuple[str, Answer]]:
        """Yield (question or text, answer) for each row of a file; 512 rows are answered together."""
        query = Task.query if self.of_task is None else self.of_task.query
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            part = list(rows[begin : begin + ROWS_AT_ONCE])
            yield from zip(map(query, part), self.answer(part), strict=True)

    def render(self, text: str, answer: Answer) -> str:
        """An answer as text for a terminal; `text` is the question or text that it answers."""
        shown = text + ("  (the text was cut)" if answer.get("cut") else "")
        return (render_pretrained if self.of_task is None else self.of_task.render)(shown, answer)
