"""Written answers: what a T5 that was fine-tuned on a task of the toolkit says of rows, in the form of `Predictor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from unmask import huggingface
from unmask.config import read_json
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.huggingface import SETTINGS
from unmask.kernels.processor import Precision
from unmask.serve import translator
from unmask.serve.answering import Answer, Answering
from unmask.serve.predictor import Predictor, learned_single_texts
from unmask.serve.translator import Translator
from unmask.tasks.text_to_text import remembered
from unmask.tasks.written import Written, Wrote

NO_THRESHOLD = "A T5 writes that there is no answer, or one: leave --no-answer out."


class WrittenPredictor(Answering):
    """A T5 that `unmask finetune` wrote, as a function from texts, pairs, words, questions and choices to answers.

    They have the form of those of `Predictor`, of what the model wrote alone: the probability is that of all its
    tokens, and there is none of what it did not write. A text that is no answer to what was asked has "answered":
    False, and stands where the answer would: as the label, as "text" beside the mean score or the choice None. A word
    that got no tag is outside of all spans, or has an empty one, with the probability 0.

    model      a folder, or a translator that has opened one
    device     where the model of a folder runs
    precision  as a `Translator` has it

    Raises UnmaskError for a folder whose model writes, but for no task of the toolkit.
    """

    def __init__(
        self, model: Path | str | Translator, *, device: torch.device | str = "cpu", precision: Precision = "auto"
    ) -> None:
        folder = model.folder if isinstance(model, Translator) else model
        task = task_of_writer(folder)
        if task is None:
            raise UnmaskError(
                f"{folder} holds a model that writes a text for a text: use `unmask translate`, `unmask evaluate "
                "--pairs` or `unmask train --from`, or fine-tune it with `unmask finetune`."
            )
        self.task: Written = task
        self.of_task = task.task
        self.single = learned_single_texts(Path(folder))
        if not isinstance(model, Translator):
            model = Translator(model, device=device, precision=precision)
        self.translator, self.settled = model, model.settled

    def answer(self, rows: Sequence[Row]) -> list[Answer]:
        found = zip(rows, self.written(rows), strict=True)
        return [self._answered(row, written) for row, written in found]

    def lengths(self, rows: Sequence[Row]) -> tuple[int, int]:
        """How many tokens are read of some rows, and how many may be written."""
        sources = [source for row in rows for source in self.task.sources(row)]
        sizes = torch.tensor([len(ids) + 1 for ids in self.translator.tokenizer.ids(sources)])
        _, most = self.translator.search.limits.of(sizes)
        return int(sizes.sum()), int(most.sum())

    def written(self, rows: Sequence[Row]) -> list[list[translator.Answer]]:
        """What the model wrote for each part of each row."""
        blank = [replace(row, label="", labels=(), tags=()) for row in rows]
        sources = [self.task.sources(row) for row in blank]
        said = self.translator.stream(source for parts in sources for source in parts)
        return [[next(said) for _ in parts] for parts in sources]

    def _answered(self, row: Row, parts: Sequence[translator.Answer]) -> Answer:
        answer = self.task.answer(row, [_wrote(part) for part in parts])
        cut = {"cut": True} if any(part.cut for part in parts) else {}
        return ({"id": row.id} if row.id else {}) | answer | cut


def task_of_writer(folder: Path | str) -> Written | None:
    """The task that the model of a folder writes the answers to, by its config.json alone; None: none."""
    settings = read_json(Path(folder) / "config.json").get(SETTINGS)
    return remembered(settings) if isinstance(settings, Mapping) else None


def features_of(folder: Path | str) -> int:
    """How many numbers there are in a vector that the model of a folder writes from; 0: it reads texts."""
    numbers = read_json(Path(folder) / "config.json").get("features", 0)
    return numbers if isinstance(numbers, int) else 0


def predictor_of(
    folder: Path | str,
    *,
    top: int = 5,
    no_answer: float | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
) -> Answering:
    """What answers for a folder: a Predictor, or where its model writes, a WrittenPredictor.

    Raises UnmaskError as they do, and for a threshold of a model that writes.
    """
    if not huggingface.holds_encoder_decoder(folder):
        return Predictor(folder, top=top, no_answer=no_answer, device=device, precision=precision)
    if no_answer is not None:
        raise UnmaskError(NO_THRESHOLD)
    return WrittenPredictor(folder, device=device, precision=precision)


def _wrote(answer: translator.Answer) -> Wrote:
    if not answer.translations:
        return Wrote("", (), ())
    best = answer.translations[0]
    return Wrote(best.text, best.pieces, best.probabilities)
