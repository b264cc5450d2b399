"""Multiple choice: which of several texts fits a context.

Shapes: N sequences, one for each choice; Q rows, C the most choices of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.data.files.tables import format_by_name
from unmask.data.labelled import choices
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Choices, Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.cross_entropy import log_softmax_within
from unmask.tasks.batching import sequence_of
from unmask.tasks.forms import Form, Input, Object, are_texts
from unmask.tasks.labels import mean_cross_entropy
from unmask.tasks.lexical.references import VECTORS, Vectors, cosines
from unmask.tasks.lexical.vectors import Vocabulary
from unmask.tasks.prompting import ChoicePrompting
from unmask.tasks.rows import TableRows
from unmask.tasks.task import Encoded, Say, Score, Task
from unmask.tasks.written import WrittenChoices
from unmask.types import Batch, Example, Head, Loss


@dataclass(frozen=True, kw_only=True)
class ChoiceRows(TableRows):
    """Contexts with choices, one of them correct."""


class ChoiceForm(Form):
    """{"context" or "text", "question", "choices": […]}; one of context and question may be absent."""

    known = frozenset({"context", "text", "question", "choices"})
    wanted = object = lacking = "an object with context (or text), maybe question, and choices"
    example = """'{"context": "It rains.", "question": "What falls?", "choices": ["Water.", "Sand."]}'"""

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        raise UnmaskError(f"Text {number} must be {self.wanted}.")

    def item(self, row: Row) -> Input:
        assert isinstance(row, Choices)
        question = {} if row.pair is None else {"question": row.pair}
        return {"context": row.text, **question, "choices": list(row.choices)}

    def row(self, values: Object, place: str) -> Row:
        names = [name for name in ("context", "text", "question") if name in values]
        if not names:
            raise UnmaskError(f"{place} has neither 'context' nor 'question'; it must be {self.wanted}.")
        texts = [self.text(values, name, place) for name in names]
        found = values.get("choices", ())
        if not are_texts(found) or len(found) < 2 or not all(choice.strip() for choice in found):
            raise UnmaskError(f"{place}: 'choices' must be a list of two or more texts that are not empty.")
        return Choices(texts[0], texts[-1] if len(texts) > 1 else None, choices=tuple(found))

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        if line.strip():
            raise UnmaskError(f"Text {number} is not JSON: {self.wanted}.")
        return line


class MultipleChoice(Task):
    """One score for each choice, read with its context; softmax over the choices of a row. Rows may have
    different numbers of choices (Devlin et al. 2018, section 4.4).

    The context is the first segment; the second is the choice, after the question or the start of the sentence. The
    target of a row is at its first choice, and its value is the number of the correct choice.
    """

    task_name, name = "multiple-choice", "choice"
    rows_class = ChoiceRows
    panel, gives = "choose", "choices"
    pipeline = "multiple-choice"
    rows_are = "contexts with choices"
    references_are = "the choice whose words are nearest to those before it, by cosine"
    form = ChoiceForm()
    written = WrittenChoices
    prompting = ChoicePrompting
    reference = "the place where the correct choice is most often"
    heads: Mapping[str, Head] = {"choice": Head("choice", 1)}
    metric = "accuracy"

    @classmethod
    def read_rows(cls, path: Path, rows: TableRows, *, scoring: bool = False) -> Dataset:
        return choices.read(path, rows.format, skip=rows.skip, encoding=rows.encoding)

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        numbers = {len(row.choices) for row in sets["train"] if isinstance(row, Choices)}
        low, high = min(numbers), max(numbers)
        say(f"Choices: {low if low == high else f'{low} to {high}'} a row.")
        return cls()

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> Encoded:
        """A sequence for each choice. Raises UnmaskError for a row without choices, or with an invalid label."""
        examples: list[Example] = []
        owners: list[int] = []
        cut: list[int] = []
        contexts = tokenizer.ids([row.text for row in rows])
        for number, (row, context) in enumerate(zip(rows, contexts, strict=True)):
            if not isinstance(row, Choices) or len(row.choices) < 2:
                raise UnmaskError(f"{row.place or f'Row {number + 1}'} has no choices: two or more are needed.")
            correct = _correct(row) if row.label else 0
            texts = [f"{row.pair} {choice}" if row.pair else choice for choice in row.choices]
            for i, second in enumerate(tokenizer.ids(texts)):
                tokens, segments = tokenizer.join(context, second, length)
                if len(tokens) == length < len(tokenizer.join(context, second)[0]):
                    cut.append(number)
                targets = {self.name: (np.zeros(1, np.int64), np.array([correct]))} if i == 0 else {}
                examples.append(Example(tokens, segments, targets))
                owners.append(number)
        return Encoded(examples, np.array(owners, np.int64), rows, length, cut=tuple(dict.fromkeys(cut)), together=True)

    def places(self, batch: Batch) -> Tensor:
        """The [CLS] of every choice."""
        assert batch.starts is not None
        return batch.starts

    def squash(self, logits: Tensor) -> Tensor:
        return logits

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy over the choices of each row; the sequences of a row follow each other in the batch."""
        target = batch.targets[self.name]
        logits_N = model.answer(self.name, hidden_BTD, self.places(batch), batch).float().squeeze(-1)
        first_Q, order = sequence_of(batch, target.places).sort()
        if len(first_Q) == 0 or first_Q[0] != 0:
            raise UnmaskError("The batch begins within the choices of a row: all of them must be in one batch.")
        begins = torch.zeros(len(logits_N), dtype=torch.int64, device=logits_N.device)
        begins[first_Q] = 1
        row_N = begins.cumsum(0) - 1
        choice_N = torch.arange(len(logits_N), device=logits_N.device) - first_Q[row_N]
        logits_QC = logits_N.new_full((len(first_Q), int(choice_N.max()) + 1), -torch.inf)
        logits_QC[row_N, choice_N] = logits_N
        true_Q = target.values[order]
        total = F.cross_entropy(logits_QC, true_Q, reduction="sum")
        return Loss(total, len(true_Q), {"correct": (logits_QC.detach().argmax(-1) == true_Q).sum()})

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> np.ndarray:
        """Probabilities [1, C] of the choices of a row."""
        logits = np.concatenate(parts).astype(np.float64).T
        shares = np.exp(logits - logits.max())
        return np.asarray(shares / shares.sum())

    def metrics(self, answers: Sequence[np.ndarray], rows: Sequence[Row]) -> dict[str, float]:
        true = [_correct(row) for row in rows]
        found = [answer.argmax() == i for answer, i in zip(answers, true, strict=True)]
        losses = [mean_cross_entropy(answer, np.array([i])) for answer, i in zip(answers, true, strict=True)]
        return {"accuracy": float(np.mean(found)), "loss": float(np.mean(losses))}

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The accuracy of one answer: the number of the choice that is most often correct in the training rows."""
        commonest = np.bincount([_correct(row) for row in train]).argmax()
        return {"accuracy": float(np.mean([_correct(row) == commonest for row in rows]))}

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        """The choice that is nearest to the context and the question."""

        def questions(rows: Sequence[Row]) -> list[str]:
            return [f"{row.text} {row.pair or ''}" for row in rows]

        def offered(rows: Sequence[Row]) -> list[tuple[str, ...]]:
            return [row.choices if isinstance(row, Choices) else () for row in rows]

        vocabulary = Vocabulary.of([*questions(train), *(text for texts in offered(train) for text in texts)])
        near = partial(cosines, vectors, vocabulary)
        return lambda rows: self.metrics([found[None] for found in near(questions(rows), offered(rows))], rows)

    def log_probabilities(self, logits_MC: Tensor, batch: Batch) -> Tensor:
        """The log-softmax over the choices of each row; the first choice has the target."""
        firsts_Q = sequence_of(batch, batch.targets[self.name].places).sort().values
        places_N = self.places(batch)
        row_N = torch.searchsorted(firsts_Q, torch.arange(len(places_N), device=places_N.device), right=True) - 1
        return log_softmax_within(logits_MC, row_N)

    def answer(self, row: Row, found: np.ndarray) -> dict[str, Any]:
        """{"choice": its number from 0, "text", "probability", "scores": [probability of each]}"""
        assert isinstance(row, Choices)
        best, scores = int(found[0].argmax()), [float(p) for p in found[0]]
        return {"choice": best, "text": row.choices[best], "probability": scores[best], "scores": scores}

    def compared(self, row: Row, found: np.ndarray) -> tuple[str, str, float]:
        """The error is the probability of the wrong choice."""
        assert isinstance(row, Choices)
        best = int(found[0].argmax())
        error = 0.0 if str(best) == row.label else float(found[0].max())
        return row.choices[int(row.label)], row.choices[best], error

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{answer['text']}  {answer['probability']:.3f}  {text}"

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if format_by_name(path) not in ("json", "csv", "tsv", "parquet"):
            return None
        return choices.read(path, labelled=False, encoding=encoding)


def _correct(row: Row) -> int:
    """The number of the correct choice. Raises UnmaskError, which names the row, for a label that is not a number of a
    choice."""
    choices = row.choices if isinstance(row, Choices) else ()
    numbers = [str(i) for i in range(len(choices))]
    if row.label not in numbers:
        last = f"from 0 to {len(numbers) - 1}" if numbers else "of a choice"
        raise UnmaskError(f"{row.place or 'A row'} has the label '{row.label}', which is not a number {last}.")
    return int(row.label)
