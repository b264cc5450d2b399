"""Answering: what every model that answers rows shares: inputs of many forms, streams of them, files of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
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
    """Answers inputs as rows of a task; `form` lists what may be asked.

    kind     what it answers: the name of the task's head; empty for the heads of pre-training
    of_task  the task; None: a text or a pair is answered by a head of pre-training
    settled  in which numbers the model multiplies
    single   whether the model is known to have learned from single texts; pairs are then refused in lines of text
    """

    of_task: type[Task] | None
    settled: Settled
    single: bool = False

    @property
    def kind(self) -> str:
        return "" if self.of_task is None else self.of_task.name

    @property
    def form(self) -> Form:
        return Form() if self.of_task is None else self.of_task.form

    def __call__(self, inputs: Iterable[Input]) -> list[Answer]:
        """One answer for each input, in order; messages count the inputs from 1."""
        given: list[Input] = [inputs] if isinstance(inputs, (str, Mapping)) else list(inputs)
        return self.answer(self.rows(given))

    def rows(self, inputs: Iterable[Input]) -> list[Row]:
        """Inputs as rows. Raises UnmaskError, which counts them from 1, for one of another form."""
        return [self.form.as_row(item, number) for number, item in enumerate(inputs, 1)]

    @abstractmethod
    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """One answer for each row, in order, as they are read from a file of the task; their labels do not count."""

    def stream(self, texts: Iterable[str]) -> Iterator[tuple[str, Answer | None]]:
        """(text, answer) for lines of text, as they come; `Form.from_line` says how a line is read.

        Lines are gathered, so that short ones are answered together; at most 64 wait. Of a JSON object, the text is
        what it asks. A blank line has the answer None, so that answer n belongs to line n.
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
        """The rows of a file in a format of the task, such as SQuAD, SWAG, ARC or DREAM; labels do not count. None for
        a file that is read line by line. For `encoding` see `data.files.lines.lines`."""
        return None if self.of_task is None else self.of_task.rows_in(Path(path), encoding)

    def answers_to(self, rows: Sequence[Row]) -> Iterator[tuple[str, Answer]]:
        """(question or text, answer) for each row of a file, some hundred at once."""
        query = Task.query if self.of_task is None else self.of_task.query
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            part = list(rows[begin : begin + ROWS_AT_ONCE])
            yield from zip(map(query, part), self.answer(part), strict=True)

    def render(self, text: str, answer: Answer) -> str:
        """An answer as a person reads it on a terminal; `text` is what was asked."""
        shown = text + ("  (the text was cut)" if answer.get("cut") else "")
        return (render_pretrained if self.of_task is None else self.of_task.render)(shown, answer)
