"""Question answering: the span of a context that answers a question, or that none does.

Shapes: N windows, T tokens of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask import metrics
from unmask.data.rows import Question, Row
from unmask.data.sentences import sentences
from unmask.data.tokenizer import Encoding, Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.tasks.task import Encoded, Task, sequence_of
from unmask.types import Batch, Example, Loss

BEGIN, END = 0, 1


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a context: its text, begin and end in characters, and how likely it is the answer.

    score  the sum of its begin and end logits
    """

    text: str
    begin: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a model finds in a context.

    spans        the best ones, best first; their probabilities, and that of no answer where there may be none, add to 1
    no_answer    score of there being no answer: that of [CLS], the lowest over the windows
    probability  of there being no answer
    """

    spans: tuple[Span, ...]
    no_answer: float
    probability: float

    @property
    def doubt(self) -> float:
        """How much more speaks for no answer than for the best span."""
        return self.no_answer - self.spans[0].score if self.spans else np.inf


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a context as the model reads it.

    lead       tokens before the context: [CLS] question [SEP]
    begin      number of its first context token
    count      number of its context tokens
    low, high  the context tokens that stand furthest from an edge here: an answer begins among them
    """

    lead: int
    begin: int
    count: int
    low: int
    high: int


@dataclass(frozen=True)
class EncodedQuestions(Encoded):
    """Questions with the windows of their contexts.

    windows   [N] of each example
    contexts  of each row
    """

    windows: tuple[Window, ...] = ()
    contexts: tuple[Encoding, ...] = ()


class QuestionAnswering(Task):
    """Where in a context the answer begins and ends (Devlin et al. 2018, sections 4.2 and 4.3).

    A context that does not fit is read in windows; one without the answer points at its [CLS].

    stride            tokens that neighbouring windows share
    longest_question  tokens; the rest of a longer one is cut
    longest_answer    tokens
    best              spans to give for each question
    unanswerable      whether a context may hold no answer (SQuAD 2.0)
    threshold         nothing is answered where `Found.doubt` is above it; `fitted` chooses it on the dev rows
    characters        F1 over characters, as KorQuAD counts it
    """

    name = "span"
    heads: Mapping[str, int] = {"span": 2}

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
        if stride < 0 or min(longest_question, longest_answer, best) < 1:
            raise UnmaskError("The longest question and answer, and the number of best spans, must be 1 or more.")
        self.stride, self.longest_question, self.longest_answer = stride, longest_question, longest_answer
        self.best, self.unanswerable, self.threshold, self.characters = best, unanswerable, threshold, characters
        self.metric = "best_f1" if unanswerable else "f1"

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer, length: int) -> EncodedQuestions:
        examples: list[Example] = []
        owners: list[int] = []
        found: list[Window] = []
        contexts: list[Encoding] = []
        cut: list[int] = []
        split = 0
        questions = tokenizer.ids([row.text for row in rows])
        for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
            context = tokenizer.encode(row.pair or "", special=False)
            contexts.append(context)
            if len(question) > self.longest_question:
                cut.append(number)
                question = question[: self.longest_question]
            frame, _ = tokenizer.join(question, np.array([-1]))
            lead, room = int(np.flatnonzero(frame == -1)[0]), length - len(frame) + 1
            if room < 1:
                raise UnmaskError(f"A length of {length} leaves no room for a context; set --length 128 or more.")
            own = list(windows(len(context), room, self.stride, lead))
            split += len(own) > 1
            answer = _answer_tokens(row, context)
            for window in own:
                tokens, segments = tokenizer.join(question, context.ids[window.begin : window.begin + window.count])
                target = (_places(answer, window), np.array([BEGIN, END]))
                examples.append(Example(tokens, segments, {self.name: target}))
            found += own
            owners += [number] * len(own)
        return EncodedQuestions(
            examples,
            np.array(owners, np.int64),
            rows,
            length,
            split=split,
            cut=tuple(cut),
            windows=tuple(found),
            contexts=tuple(contexts),
        )

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy over the tokens of each window, once for the begin and once for the end: 2N targets."""
        target = batch.targets[self.name]
        places_M = self.places(batch)
        logits_M2 = model.answer(self.name, hidden_BTD, places_M).float()
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
        """Every token that is not padding."""
        if batch.documents is None:
            return torch.arange(batch.tokens.numel(), device=batch.tokens.device)
        return batch.documents.flatten().nonzero().squeeze(-1)

    def squash(self, logits: Tensor) -> Tensor:
        return logits

    def merge(self, parts: list[np.ndarray], encoded: Encoded, row: int) -> Found:
        """The best spans over the windows of a row, from their begin and end logits [T, 2]."""
        assert isinstance(encoded, EncodedQuestions)
        own = encoded.of_rows[row]
        context = encoded.contexts[row]
        candidates: dict[tuple[int, int], float] = {}
        for logits, window in zip(parts, encoded.windows[own], strict=True):
            for (begin, end), score in self._candidates(logits.astype(np.float64), window):
                place = int(context.offsets[begin, 0]), int(context.offsets[end, 1])
                candidates[place] = max(score, candidates.get(place, -np.inf))
        nothing = float(min(logits[0].astype(np.float64).sum() for logits in parts))
        best = sorted(candidates.items(), key=lambda item: (-item[1], item[0]))[: self.best]
        scores = np.array([score for _, score in best] + ([nothing] if self.unanswerable or not best else []))
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        text = encoded.rows[row].pair or ""
        spans = tuple(
            Span(text[begin:end], begin, end, score, float(p))
            for ((begin, end), score), p in zip(best, shares, strict=False)
        )
        return Found(spans, nothing, float(shares[-1]) if len(scores) > len(best) else 0.0)

    def _candidates(self, logits: np.ndarray, window: Window) -> list[tuple[tuple[int, int], float]]:
        """((first, last) token of the context, score) of the likeliest spans of a window."""
        inside = logits[window.lead : window.lead + window.count]
        first = window.low - window.begin
        begins = first + _largest(inside[first : window.high - window.begin, BEGIN], self.best)
        ends = _largest(inside[:, END], self.best)
        size = ends[None, :] - begins[:, None] + 1
        fits = (size >= 1) & (size <= self.longest_answer)
        scores = inside[begins, BEGIN][:, None] + inside[ends, END][None, :]
        return [
            ((int(begins[i]) + window.begin, int(ends[j]) + window.begin), float(scores[i, j]))
            for i, j in zip(*np.nonzero(fits), strict=True)
        ]

    def choose(self, found: Found) -> str:
        """The text that is answered; nothing where that is likelier by more than the threshold."""
        if not found.spans or (self.unanswerable and found.doubt > self.threshold):
            return ""
        return found.spans[0].text

    def metrics(self, answers: Sequence[Found], rows: Sequence[Row]) -> dict[str, float]:
        questions = [row for row in rows if isinstance(row, Question)]
        chosen = {row.id: self.choose(found) for row, found in zip(questions, answers, strict=True)}
        scores = metrics.of_answers(
            chosen, questions, unanswerable=self.unanswerable or None, characters=self.characters
        )
        return {**scores, **self._best(answers, questions)} if self.unanswerable else scores

    def fitted(self, answers: Sequence[Found], rows: Sequence[Row]) -> None:
        if self.unanswerable:
            best = self._best(answers, [row for row in rows if isinstance(row, Question)])
            self.threshold = best["best_f1_threshold"]

    def _best(self, answers: Sequence[Found], questions: Sequence[Question]) -> dict[str, float]:
        texts = {
            row.id: found.spans[0].text if found.spans else "" for row, found in zip(questions, answers, strict=True)
        }
        doubts = {row.id: float(min(found.doubt, 1e9)) for row, found in zip(questions, answers, strict=True)}
        return metrics.best_threshold(texts, doubts, questions, characters=self.characters)

    def baseline(self, rows: Sequence[Row], train: Sequence[Row]) -> dict[str, float]:
        """No answer to any question where that may be right; else the sentence that shares most words with it."""
        questions = [row for row in rows if isinstance(row, Question)]
        said = {row.id: "" if self.unanswerable else _nearest_sentence(row) for row in questions}
        return metrics.of_answers(said, questions, unanswerable=self.unanswerable or None, characters=self.characters)

    def settings(self) -> dict[str, Any]:
        names = ("stride", "longest_question", "longest_answer", "best", "unanswerable", "threshold", "characters")
        return {name: getattr(self, name) for name in names}


def windows(tokens: int, room: int, stride: int, lead: int) -> list[Window]:
    """Windows of at most `room` tokens that share `stride` with their neighbours (half the room where it is small) and
    together hold all tokens of a context; `low` to `high - 1` lie end to end and cover them, too."""
    step = room - min(stride, room // 2)
    begins = [0]
    while begins[-1] + room < tokens:
        begins.append(begins[-1] + step)
    ends = [min(begin + room, tokens) for begin in begins]
    borders = [0, *((begin + end) // 2 for begin, end in zip(begins[1:], ends, strict=False)), tokens]
    return [
        Window(lead, begin, end - begin, low, high)
        for begin, end, low, high in zip(begins, ends, borders, borders[1:], strict=False)
    ]


def as_answer(found: Found, task: QuestionAnswering) -> dict[str, Any]:
    """What a person or a program is told: the answer, where it stands, and what else it may be."""
    text = task.choose(found)
    best = found.spans[0] if text else None
    return {
        "answer": text,
        "begin": best.begin if best else None,
        "end": best.end if best else None,
        "probability": best.probability if best else found.probability,
        "spans": [asdict(span) for span in found.spans],
        **({"no_answer": found.probability} if task.unanswerable else {}),
    }


def _answer_tokens(row: Row, context: Encoding) -> tuple[int, int] | None:
    """First and last token of the first annotated answer; None where there is none."""
    if not isinstance(row, Question) or not row.answers:
        return None
    begin, text = row.answers[0]
    inside = np.flatnonzero((context.offsets[:, 1] > begin) & (context.offsets[:, 0] < begin + len(text)))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def _places(answer: tuple[int, int] | None, window: Window) -> np.ndarray:
    """Where in a window the answer begins and ends [2]; at [CLS] where it is not all there."""
    if answer is None or answer[0] < window.begin or answer[1] >= window.begin + window.count:
        return np.zeros(2, np.int64)
    return np.array(answer, np.int64) - window.begin + window.lead


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest values, best first."""
    return np.argsort(-values, kind="stable")[:count]


def _nearest_sentence(row: Question) -> str:
    """The sentence of the context that shares most words with the question."""
    asked = set(metrics.normalise_answer(row.text).split())

    def shared(sentence: str) -> int:
        return len(asked & set(metrics.normalise_answer(sentence).split()))

    return max(sentences(row.pair or ""), key=shared, default="")
