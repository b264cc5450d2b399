"""Found spans: the answers that a model finds in a context; questions as inputs; answers as output.

Shapes: N windows, C pieces of a context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from unmask import metrics
from unmask.data.labelled.rows import Question, Row
from unmask.data.text.sentences import sentences
from unmask.errors import UnmaskError
from unmask.tasks.contexts import Context, Window
from unmask.tasks.encoded import Encoded
from unmask.tasks.forms import Form, Input, Object

SPANS = 3  # answers to a question that are shown


class QuestionForm(Form):
    """(question, context), or {"question", "context"}."""

    known = frozenset({"question", "context"})
    wanted = object = lacking = "a question and a context: a pair, or an object with both"
    example = """'{"question": "Who wrote it?", "context": "Ann wrote it."}'"""
    asks = True

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        if len(parts) == 1:
            raise UnmaskError(f"Text {number} must be {self.wanted}.")
        if len(parts) > 2:
            raise UnmaskError(f"Text {number} has {len(parts)} parts; a pair has two.")
        return dict(zip(("question", "context"), parts, strict=True))

    def item(self, row: Row) -> Input:
        return {"question": row.text, "context": row.pair}

    def row(self, values: Object, place: str) -> Row:
        question, context = (self.text(values, name, place) for name in ("question", "context"))
        return Question(question, context)

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        if line.strip() and "\t" not in line:
            raise UnmaskError(f"Text {number} is not a question, a tab and a context, or a JSON object with both.")
        return super().line(line, number)


class Chooses(Protocol):
    """A task that decides which of the spans is the answer, or that there is none."""

    unanswerable: bool

    def choose(self, found: Found) -> str: ...


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a context: its text, begin and end in characters, and the probability that it is the answer.

    score  the sum of its begin and end logits
    """

    text: str
    begin: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, slots=True)
class Found:
    """The answers that a model finds in a context.

    spans        the best spans, best first; their probabilities, with that of no answer where allowed, sum to 1
    no_answer    score of no answer: that of [CLS], the lowest over the windows
    probability  of no answer
    losses       of the true begin and end in each window; empty where the row has no answer to learn from
    """

    spans: tuple[Span, ...]
    no_answer: float
    probability: float
    losses: tuple[float, ...] = ()

    @property
    def doubt(self) -> float:
        """How much higher no answer scores than the best span."""
        return self.no_answer - self.spans[0].score if self.spans else np.inf


@dataclass(frozen=True)
class EncodedQuestions(Encoded):
    """Questions with the windows of their contexts.

    cut       indices of the rows whose question was cut
    torn      number of rows in which every annotated answer begins or ends inside a piece
    windows   [N] of each example
    contexts  of each row
    """

    torn: int = 0
    windows: tuple[Window, ...] = ()
    contexts: tuple[Context, ...] = ()

    @property
    def notice(self) -> str:
        notices = [f"{self._share(len(self.cut))} have a long question, which was cut."] if self.cut else []
        if self.split:
            notices.append(
                f"{self._share(self.split)} are longer than {self.length} tokens and were split into windows."
            )
        if self.torn:
            notices.append(
                f"{self._share(self.torn)} have an answer that begins or ends inside a piece: no span can match it."
            )
        return " ".join(notices)

    def _share(self, count: int) -> str:
        return f"{count:,} of {len(self.rows):,} rows ({count / len(self.rows):.1%})"


def as_answer(found: Found, task: Chooses) -> dict[str, Any]:
    """The answer as JSON values: its text, its place, and the other spans.

    {"answer": "" for none, "begin", "end", "probability", "spans": [{"text", "begin", "end", "score", "probability"}]},
    with offsets in characters of the context. Where the task may give no answer also "no_answer", its probability, and
    "doubt", how much higher it scores than the best span (None if there is no span).
    """
    text = task.choose(found)
    best = found.spans[0] if text else None
    return {
        "answer": text,
        "begin": best.begin if best else None,
        "end": best.end if best else None,
        "probability": best.probability if best else found.probability,
        "spans": [asdict(span) for span in found.spans],
        **({"no_answer": found.probability, "doubt": _finite(found.doubt)} if task.unanswerable else {}),
    }


def _finite(value: float) -> float | None:
    """A finite number; None for the infinite doubt of a context without a possible answer, which JSON does not have."""
    return value if np.isfinite(value) else None


def render_spans(answer: Mapping[str, Any]) -> str:
    """The most likely answers to a question with their places, the chosen one first."""
    found = [f"{s['text']} {s['probability']:.3f} ({_place(s)})" for s in answer["spans"][:SPANS]]
    nothing = f"no answer {answer.get('no_answer', answer['probability']):.3f}"
    if not answer["answer"]:
        found.insert(0, nothing)
    elif "no_answer" in answer:
        found.append(nothing)
    return ", ".join(found)


def _place(span: Mapping[str, Any]) -> str:
    return "not in the context" if span["begin"] is None else f"{span['begin']}-{span['end']}"


def answer_tokens(row: Row, context: Context) -> tuple[int, int] | None:
    """Index of the first and the last token of the first annotated answer; None where there is none."""
    if not isinstance(row, Question) or not row.answers:
        return None
    begin, text = row.answers[0]
    begins, ends = context.places.T
    inside = np.flatnonzero((ends > begin) & (begins < begin + len(text)) & (ends > begins))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def is_torn(row: Row, context: Context) -> bool:
    """Whether a row has annotated answers, but none of them begins and ends at the edges of pieces."""
    if not isinstance(row, Question) or not row.answers:
        return False
    begins, ends = context.places[context.begins, 0], context.places[context.ends, 1]
    bare = [(begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())) for begin, text in row.answers]
    return not any(begin in begins and end in ends for begin, end in bare)


def places_in(answer: tuple[int, int] | None, window: Window) -> np.ndarray:
    """The begin and the end of the answer in a window, [2]; both at [CLS] if the window does not hold all of it."""
    if answer is None or answer[0] < window.begin or answer[1] >= window.begin + window.count:
        return np.zeros(2, np.int64)
    return np.array(answer, np.int64) - window.begin + window.lead


def nearest_sentence(row: Question) -> str:
    """The sentence of the context that shares the most words with the question."""
    question = set(metrics.normalise_answer(row.text).split())

    def shared(sentence: str) -> int:
        return len(question & set(metrics.normalise_answer(sentence).split()))

    return max(sentences(row.pair or ""), key=shared, default="")
