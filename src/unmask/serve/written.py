"""WrittenPredictor: answers rows with a T5 that was fine-tuned on a task of the toolkit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask import huggingface
from unmask.config import read_json
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.huggingface import SETTINGS
from unmask.kernels.processor import Precision
from unmask.serve import translator
from unmask.serve.anomalies import SETTING, AnomalyPredictor
from unmask.serve.answering import Answer, Answering
from unmask.serve.backends import Backend, require_torch
from unmask.serve.predictor import Predictor, learned_single_texts
from unmask.serve.translator import Translator
from unmask.tasks.text_to_text import remembered
from unmask.tasks.transcripts import Searching, searched
from unmask.tasks.written import Written, Wrote

NO_THRESHOLD = "A T5 has no threshold for no answer, which it writes itself: leave --no-answer out."


class WrittenPredictor(Answering):
    """Answers texts, pairs, words, questions and choices with a T5 that `unmask finetune` made.

    Answers have the form of those of `Predictor`, but hold only what the model wrote: the probability is that of all
    its tokens, and labels that it did not write have none. If the model wrote a text that is not a possible answer,
    the answer has "answered": False and holds that text: as the label, or as "text" with the mean score or the choice
    None. A word without a tag is outside all spans, or has an empty tag, with the probability 0.

    model      a folder, or a translator that has opened one
    device     where the model of a folder runs
    precision  see `Translator`

    Raises UnmaskError for a folder whose model was not fine-tuned on a task of the toolkit.
    """

    def __init__(
        self, model: Path | str | Translator, *, device: torch.device | str = "cpu", precision: Precision = "auto"
    ) -> None:
        folder = model.folder if isinstance(model, Translator) else model
        task = task_of_writer(folder)
        if task is None:
            raise UnmaskError(
                f"{folder} holds an encoder–decoder without a task: use `unmask translate`, `unmask evaluate "
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
        """(number of tokens that the model reads for some rows, the most that it may write)."""
        sources = [source for row in rows for source in self.task.sources(row)]
        sizes = torch.tensor([len(ids) + 1 for ids in self.translator.tokenizer.ids(sources)])
        _, most = self.translator.search.limits.of(sizes)
        return int(sizes.sum()), int(most.sum())

    def written(self, rows: Sequence[Row]) -> list[list[translator.Answer]]:
        """The model's output for each part of each row."""
        blank = [replace(row, label="", labels=(), tags=()) for row in rows]
        sources = [self.task.sources(row) for row in blank]
        said = self.translator.stream(source for parts in sources for source in parts)
        return [[next(said) for _ in parts] for parts in sources]

    def _answered(self, row: Row, parts: Sequence[translator.Answer]) -> Answer:
        answer = self.task.answer(row, [_wrote(part) for part in parts])
        cut = {"cut": True} if any(part.cut for part in parts) else {}
        return ({"id": row.id} if row.id else {}) | answer | cut


def task_of_writer(folder: Path | str) -> Written | None:
    """The task that the encoder–decoder of a folder was fine-tuned on, by config.json alone; None if there is none."""
    settings = read_json(Path(folder) / "config.json").get(SETTINGS)
    return remembered(settings) if isinstance(settings, Mapping) else None


def features_of(folder: Path | str) -> int:
    """The width of the vectors that the encoder–decoder of a folder reads; 0 if it reads texts."""
    numbers = read_json(Path(folder) / "config.json").get("features", 0)
    return numbers if isinstance(numbers, int) else 0


def predictor_of(
    folder: Path | str,
    *,
    top: int = 5,
    no_answer: float | None = None,
    search: Searching | None = None,
    explain: bool = False,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    backend: Backend | Path = "torch",
) -> Answering:
    """A WrittenPredictor for a folder with an encoder–decoder, an AnomalyPredictor for one that was pre-trained on
    masked segments, a Predictor for any other; the arguments are those of the latter.

    Raises UnmaskError as their constructors do, and for `no_answer`, `search` or the backend "onnx" with another model
    than an encoder.
    """
    if huggingface.holds_setting(folder, SETTING) and no_answer is None and search is None:
        require_torch(backend, folder)
        return AnomalyPredictor(folder, top=top, device=device, precision=precision)
    if not huggingface.holds_encoder_decoder(folder):
        how: dict[str, Any] = {"no_answer": no_answer, "search": search, "explain": explain, "backend": backend}
        return Predictor(folder, top=top, **how, device=device, precision=precision)
    if no_answer is not None:
        raise UnmaskError(NO_THRESHOLD)
    if search is not None:
        searched(None, search)
    require_torch(backend, folder)
    return WrittenPredictor(folder, device=device, precision=precision)


def _wrote(answer: translator.Answer) -> Wrote:
    if not answer.translations:
        return Wrote("", (), ())
    best = answer.translations[0]
    return Wrote(best.text, best.pieces, best.probabilities)
