"""Answering: what every model that answers rows shares: inputs of many forms, and streams of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from unmask.data.rows import Row
from unmask.kernels.processor import Settled
from unmask.serve.answers import Answer
from unmask.serve.inputs import Input, as_row, asked_in, from_line

AT_ONCE = 64  # texts of a stream that are answered together


class Answering(ABC):
    """Answers inputs as rows of its `kind` (`inputs.as_row` lists the forms).

    settled  in which numbers the model multiplies
    single   whether the model is known to have learned from single texts; pairs are then refused in lines of text
    """

    kind: str
    settled: Settled
    single: bool = False

    def __call__(self, inputs: Iterable[Input]) -> list[Answer]:
        """One answer for each input, in order; messages count the inputs from 1."""
        given: list[Input] = [inputs] if isinstance(inputs, (str, Mapping)) else list(inputs)
        return self.answer([as_row(item, number, self.kind) for number, item in enumerate(given, 1)])

    @abstractmethod
    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        """One answer for each row, in order, as they are read from a file of the task; their labels do not count."""

    def stream(self, texts: Iterable[str]) -> Iterator[tuple[str, Answer | None]]:
        """(text, answer) for lines of text, as they come; `inputs.from_line` says how a line is read.

        Lines are gathered, so that short ones are answered together; at most 64 wait. Of a JSON object, the text is
        what it asks. A blank line has the answer None, so that answer n belongs to line n.
        """
        source, first = iter(texts), 1
        while waiting := list(islice(source, AT_ONCE)):
            lines = dict(enumerate(waiting, first))
            given = {number: line for number, line in lines.items() if line.strip()}
            inputs = {number: from_line(line, number, self.kind, single=self.single) for number, line in given.items()}
            answers = iter(self.answer([as_row(item, number, self.kind) for number, item in inputs.items()]))
            for number, line in lines.items():
                yield (asked_in(inputs[number], line), next(answers)) if number in inputs else (line, None)
            first += len(waiting)
