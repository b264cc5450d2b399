"""Question answering: the span of a context that answers a question, or no answer.

Shapes: N windows, T tokens of a window, C pieces of its context; M tokens of a batch; L pieces of the longest answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from unmask import metrics
from unmask.data.files.tables import format_by_name
from unmask.data.labelled import squad
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Question, Row
from unmask.data.text.sentences import sentences
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives.cross_entropy import log_softmax_within
from unmask.tasks.batching import sequence_of
from unmask.tasks.contexts import Context, Window, contexts_of, windows
from unmask.tasks.found_spans import (
    EncodedQuestions,
    Found,
    QuestionForm,
    Span,
    answer_tokens,
    as_answer,
    is_torn,
    nearest_sentence,
    places_in,
    render_spans,
)
from unmask.tasks.lexical.references import VECTORS, Vectors, cosines
from unmask.tasks.lexical.vectors import Vocabulary
from unmask.tasks.rows import Rows, TaskOptions
from unmask.tasks.task import Encoded, Say, Score, Task
from unmask.tasks.written import WrittenAnswers
from unmask.types import Batch, Example, Head, Loss

BEGIN, END = 0, 1


@dataclass(frozen=True, kw_only=True)
class QuestionScoring(TaskOptions):
    """Options for the scoring of answers.

    characters  score answers by characters, as KorQuAD does
    """

    characters: bool = False


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(QuestionScoring):
    """Options for the training of question answering.

    stride          tokens that neighbouring windows of a context share
    longest_answer  longest answer, in tokens
    """

    stride: int = 128
    longest_answer: int = 30


class QuestionAnswering(Task):
    """Predict where in a context the answer begins and ends (Devlin et al. 2018, sections 4.2 and 4.3).

    A context that does not fit is read in windows; the target of a window without the answer is its [CLS].

    stride            tokens that neighbouring windows share; at most half of those that fit
    longest_question  most tokens of a question, which is cut after them
    longest_answer    most tokens of an answer
    best              number of spans to return for each question
    unanswerable      whether a context may have no answer (SQuAD 2.0)
    threshold         no answer is given where `Found.doubt` is above it; `fitted` chooses it on the dev rows
    characters        F1 over characters, as KorQuAD counts it
    """

    task_name, name = "question-answering", "span"
    also_called = ("qa", "squad", "reading-comprehension")
    options_class = QuestionOptions
    scoring_class = QuestionScoring
    usual_length = 384
    panel, gives, pipeline = "question", "questions", "question-answering"
    rows_are = "questions on contexts, as SQuAD has"
    references_are = "the sentence whose words are nearest to those of the question, by cosine"
    form = QuestionForm()
    written = WrittenAnswers
    reference = "no answer, or the sentence that shares the most words with the question"
    heads: Mapping[str, Head] = {"span": Head("span", 2)}

    def __init__(
        self,
        *,
        stride: int = 128,
        longest_question: int = 64,
        longest_answer: int = 30,
        best: int = 20,
        unanswerable: bool = False,
        threshold: float = 0.0,
        characters: bool = False,
    ) -> None:
        if stride < 0:
            raise UnmaskError(f"The stride of windows must be 0 or more, not {stride}.")
        if min(longest_question, longest_answer, best) < 1:
            raise UnmaskError("The longest question and answer, and the number of best spans, must be 1 or more.")
        self.stride, self.longest_question, self.longest_answer = stride, longest_question, longest_answer
        self.best, self.unanswerable, self.threshold, self.characters = best, unanswerable, threshold, characters
        self.metric = "best_f1" if unanswerable else "f1"
        self.undecided = False  # whether some rows have no answer, but no threshold was given

    @classmethod
    def read_rows(cls, path: Path, rows: Rows, *, scoring: bool = False) -> Dataset:
        return squad.read(path, scoring=scoring, encoding=rows.encoding)

    @classmethod
    def owns(cls, path: Path) -> bool:
        return squad.nested(path)

    @classmethod
    def learned(cls, sets: Mapping[str, Dataset], options: Any, say: Say, *, held_out: bool = False) -> Task:
        train = sets["train"]
        impossible = _impossible(train)
        if impossible:
            say(f"{impossible:,} of the {len(train):,} training questions have no answer in their context.")
        for rows in (rows for name, rows in sets.items() if name != "train"):
            if _impossible(rows) and not impossible:
                say(
                    f"{_impossible(rows):,} of the {len(rows):,} questions of {rows.path} have no answer in their "
                    "context, but every training question has one: the model will answer these questions wrongly."
                )
        return cls(
            stride=options.stride,
            longest_answer=options.longest_answer,
            unanswerable=impossible > 0,
            characters=options.characters,
        )

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> EncodedQuestions:
        """Windows of each row. Raises UnmaskError for an empty context, and for a length without room for a context."""
        examples: list[Example] = []
        owners: list[int] = []
        found: list[Window] = []
        split = 0
        questions = tokenizer.ids([row.text for row in rows])
        contexts = contexts_of(rows, tokenizer)
        for number, (row, question, context) in enumerate(zip(rows, questions, contexts, strict=True)):
            question = question[: self.longest_question]
            frame, _ = tokenizer.join(question, np.array([-1]))
            lead, room = int(np.flatnonzero(frame == -1)[0]), length - len(frame) + 1
            if room < 1:
                raise UnmaskError(
                    f"A length of {length} leaves no room for a context beside a question of {len(question)} tokens; "
                    f"set --length {max(128, 2 * self.longest_question)} or more."
                )
            own = windows(len(context.ids), room, self.stride, lead=lead, longest=self.longest_answer)
            split += len(own) > 1
            answer = answer_tokens(row, context)
            for window in own:
                tokens, segments = tokenizer.join(question, context.ids[window.begin : window.begin + window.count])
                target = (places_in(answer, window), np.array([BEGIN, END]))
                examples.append(Example(tokens, segments, {self.name: target}))
            found += own
            owners += [number] * len(own)
        return EncodedQuestions(
            examples,
            np.array(owners, np.int64),
            rows,
            length,
            split=split,
            cut=tuple(i for i, question in enumerate(questions) if len(question) > self.longest_question),
            torn=sum(is_torn(row, context) for row, context in zip(rows, contexts, strict=True)),
            windows=tuple(found),
            contexts=contexts,
        )

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy over the tokens of each window, once for the begin and once for the end: 2N targets."""
        target = batch.targets[self.name]
        places_M = self.places(batch)
        logits_M2 = model.answer(self.name, hidden_BTD, places_M, batch).float()
        assert batch.starts is not None
        owner_M, windows_N = sequence_of(batch, places_M), len(batch.starts)
        inside_M = places_M - batch.starts[owner_M]
        width = int(inside_M.max()) + 1
        logits_N2T = logits_M2.new_full((windows_N, 2, width), -torch.inf)
        logits_N2T[owner_M, :, inside_M] = logits_M2
        owner = sequence_of(batch, target.places)
        chosen = logits_N2T[owner, target.values]
        true = target.places - batch.starts[owner]
        total = F.cross_entropy(chosen, true, reduction="sum")
        correct = (chosen.detach().argmax(-1) == true).sum()
        return Loss(total, len(true), {"correct": correct})

    def places(self, batch: Batch) -> Tensor:
        """The flat places [M] of all tokens that are not padding."""
        if batch.documents is None:
            return torch.arange(batch.tokens.numel(), device=batch.tokens.device)
        return batch.documents.flatten().nonzero().squeeze(-1)

    def squash(self, logits: Tensor) -> Tensor:
        return logits

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Found:
        """The best spans over the windows of a row, from their begin and end logits [T, 2]."""
        assert isinstance(encoded, EncodedQuestions)
        context, text = encoded.contexts[row], encoded.rows[row].pair or ""
        logits = [part.astype(np.float64) for part in parts]
        candidates = [
            candidate
            for logits_T2, window in zip(logits, encoded.windows[encoded.of_rows[row]], strict=True)
            for candidate in self._candidates(logits_T2, window, context)
        ]
        best = sorted(candidates, key=lambda span: -span[2])[: self.best]  # of two equal scores, the earlier span
        nothing = float(min(logits_T2[0].sum() for logits_T2 in logits))
        scores = np.array([score for *_, score in best] + ([nothing] if self.unanswerable or not best else []))
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        spans = tuple(
            Span(text[begin:end], begin, end, score, float(p))
            for (begin, end, score), p in zip(best, shares, strict=False)
        )
        probability = float(shares[-1]) if len(scores) > len(best) else 0.0
        return Found(spans, nothing, probability, self._losses(logits, encoded, row))

    def _losses(self, logits: list[np.ndarray], encoded: Encoded, row: int) -> tuple[float, ...]:
        """-log of the probability of the true begin and end in each window, as in `score`."""
        question = encoded.rows[row]
        if not isinstance(question, Question) or (question.possible and not question.answers):
            return ()
        found: list[float] = []
        for logits_T2, example in zip(logits, encoded.examples[encoded.of_rows[row]], strict=True):
            places, kinds = example.targets[self.name]
            highest = logits_T2.max(0)
            logs_T2 = logits_T2 - highest - np.log(np.exp(logits_T2 - highest).sum(0))
            found += (-logs_T2[places, kinds]).tolist()
        return tuple(found)

    def _candidates(self, logits_T2: np.ndarray, window: Window, context: Context) -> list[tuple[int, int, float]]:
        """(begin, end in characters, score) of the best spans of a window, and of all that tie with the last."""
        if not window.count:
            return []
        own = slice(window.begin, window.begin + window.count)
        inside = logits_T2[window.lead : window.lead + window.count]
        number = np.arange(own.start, own.stop)
        may_begin = context.begins[own] & (number >= window.low) & (number < window.high)
        begins = np.where(may_begin, inside[:, BEGIN], -np.inf)
        ends = np.where(context.ends[own], inside[:, END], -np.inf)
        longest = min(self.longest_answer, window.count)
        ends_CL = sliding_window_view(np.append(ends, np.full(longest - 1, -np.inf)), longest)
        scores_CL = begins[:, None] + ends_CL  # of the answer from piece c to piece c + l
        least = np.partition(scores_CL, -self.best, axis=None)[-self.best] if scores_CL.size > self.best else -np.inf
        first, further = np.nonzero((scores_CL >= least) & np.isfinite(scores_CL))
        last = first + further
        places = context.places[own]
        columns = places[first, 0], places[last, 1], scores_CL[first, further]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def doubting(self, threshold: float) -> QuestionAnswering:
        """This task with no answer above the threshold, also where the folder does not allow it."""
        if math.isnan(threshold):
            raise UnmaskError("The threshold above which no answer is given must be a number, not nan.")
        return QuestionAnswering(**{**self.settings(), "unanswerable": True, "threshold": threshold})

    def for_rows(self, rows: Dataset, folder: Path, model: Model | None = None) -> QuestionAnswering:
        """This task; but if some questions have no answer and the folder has no threshold, a task that answers every
        question, and is also scored with the best threshold."""
        if self.unanswerable or not _impossible(rows):
            return self
        task = self.doubting(math.inf)
        task.undecided = True
        return task

    @property
    def notice(self) -> str:
        if not self.undecided:
            return ""
        return (
            "Some of these questions have no answer, and the folder has no threshold for giving none: exact_match and "
            "f1 are the scores of an answer to every question."
        )

    def advice(self, scores: Mapping[str, float]) -> str:
        """How to use the threshold that is best on these rows, on which its score is optimistic."""
        if not self.undecided:
            return ""
        # A lower threshold would drop the last answer that it should keep.
        threshold = math.ceil(scores["best_f1_threshold"] * 1e6) / 1e6
        return (
            f"The best threshold on these rows gives F1 {scores['best_f1']:.4f}, a little more than on other rows; "
            f"use it with: unmask predict --no-answer {threshold:.6f} (also of unmask evaluate)."
        )

    def choose(self, found: Found) -> str:
        """The text of the answer; empty where no answer scores higher by more than the threshold."""
        if not found.spans or (self.unanswerable and found.doubt > self.threshold):
            return ""
        return found.spans[0].text

    def metrics(self, answers: Sequence[Found], rows: Sequence[Row]) -> dict[str, float]:
        """exact_match and f1; with `unanswerable` also those with the best threshold; and `loss`, the mean over the
        begins and ends of all windows, as in training, without answers that are not in their context."""
        questions = _questions(rows)
        chosen = {row.id: self.choose(found) for row, found in zip(questions, answers, strict=True)}
        scores = self._scores(chosen, questions)
        best = self._best(answers, questions) if self.unanswerable else {}
        losses = [loss for found in answers for loss in found.losses]
        return {**scores, **best, **({"loss": float(np.mean(losses))} if losses else {})}

    def fitted(self, answers: Sequence[Found], rows: Sequence[Row]) -> None:
        """Set the threshold that gives the best F1."""
        if self.unanswerable:
            self.threshold = self._best(answers, _questions(rows))["best_f1_threshold"]

    def _best(self, answers: Sequence[Found], questions: Sequence[Question]) -> dict[str, float]:
        pairs = list(zip(questions, answers, strict=True))
        texts = {row.id: found.spans[0].text if found.spans else "" for row, found in pairs}
        doubts = {row.id: found.doubt for row, found in pairs}
        return metrics.best_threshold(texts, doubts, questions, characters=self.characters)

    def _scores(self, texts: Mapping[str, str], questions: Sequence[Question]) -> dict[str, float]:
        return metrics.of_answers(texts, questions, unanswerable=self.unanswerable or None, characters=self.characters)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """The metrics of no answer to all questions if `unanswerable`; else those of the sentence that shares the most
        words with each question."""
        questions = _questions(rows)
        texts = {row.id: "" if self.unanswerable else nearest_sentence(row) for row in questions}
        return self._scores(texts, questions)

    def settings(self) -> dict[str, Any]:
        names = ("stride", "longest_question", "longest_answer", "best", "unanswerable", "threshold", "characters")
        return {name: getattr(self, name) for name in names}

    def references(self, train: Dataset) -> Mapping[str, Callable[[], Score]]:
        return {name: partial(self._reference, train, vectors) for name, vectors in VECTORS.items()}

    def _reference(self, train: Sequence[Row], vectors: Vectors) -> Score:
        contexts = {row.pair or "" for row in train}
        vocabulary = Vocabulary.of([text for context in contexts for text in sentences(context)])

        def score(rows: Sequence[Row]) -> Mapping[str, float]:
            questions = [row for row in rows if isinstance(row, Question)]
            cut = [sentences(row.pair or "") for row in questions]
            near = cosines(vectors, vocabulary, [row.text for row in questions], cut)
            pairs = zip(questions, cut, near, strict=True)
            return self._scores({row.id: own[i.argmax()] if own else "" for row, own, i in pairs}, questions)

        return score

    def log_probabilities(self, logits_MC: Tensor, batch: Batch) -> Tensor:
        """The log-softmax over the tokens of each window, for the begin and for the end."""
        return log_softmax_within(logits_MC, sequence_of(batch, self.places(batch)))

    def answer(self, row: Row, found: Found) -> dict[str, Any]:
        return as_answer(found, self)

    def compared(self, row: Row, found: Found) -> tuple[str, str, float]:  # the error is 1 - F1
        questions, chosen = _questions([row]), self.choose(found)
        return next(iter(questions[0].golds), ""), chosen, 1 - self._scores({row.id: chosen}, questions)["f1"]

    @staticmethod
    def render(text: str, answer: Mapping[str, Any]) -> str:
        return f"{text}\n  {render_spans(answer)}"

    @classmethod
    def query(cls, row: Row) -> str:
        return row.text

    @classmethod
    def rows_in(cls, path: Path, encoding: str | None = None) -> Sequence[Row] | None:
        if format_by_name(path) not in ("json", "parquet"):
            return None
        return squad.read(path, labelled=False, encoding=encoding)


def _impossible(rows: Dataset) -> int:
    return sum(isinstance(row, Question) and not row.possible for row in rows)


def _questions(rows: Sequence[Row]) -> list[Question]:
    """The rows as questions. Raises UnmaskError for a row that is not a question, which cannot be scored."""
    questions = [row for row in rows if isinstance(row, Question)]
    if len(questions) < len(rows):
        row = next(row for row in rows if not isinstance(row, Question))
        raise UnmaskError(f"{row.place or 'A row'} is not a question with answers in its context; it cannot be scored.")
    return questions
