"""Found spans: what a model finds in a context, how questions are asked, and how what is found is told.

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

    def by_name(self, parts: Sequence[str], whole: bool, number: int) -> Object:
        if len(parts) == 1:
            raise UnmaskError(f"Text {number} must be {self.wanted}.")
        if len(parts) > 2:
            raise UnmaskError(f"Text {number} has {len(parts)} parts; a pair has two.")
        return dict(zip(("question", "context"), parts, strict=True))

    def row(self, values: Object, place: str) -> Row:
        question, context = (self.text(values, name, place) for name in ("question", "context"))
        return Question(question, context)

    def line(self, line: str, number: int, *, single: bool = False) -> Input:
        if line.strip() and "\t" not in line:
            raise UnmaskError(f"Text {number} is not a question, a tab and a context, or a JSON object with both.")
        return super().line(line, number)


class Chooses(Protocol):
    """What decides which of the spans is the answer, or that there is none."""

    unanswerable: bool

    def choose(self, found: Found) -> str: ...


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
    losses       of the begin and of the end in each window, against where the row says they are; none where it has no
                 answer to learn from
    """

    spans: tuple[Span, ...]
    no_answer: float
    probability: float
    losses: tuple[float, ...] = ()

    @property
    def doubt(self) -> float:
        """How much more speaks for no answer than for the best span."""
        return self.no_answer - self.spans[0].score if self.spans else np.inf


@dataclass(frozen=True)
class EncodedQuestions(Encoded):
    """Questions with the windows of their contexts.

    cut       rows whose question was cut
    torn      rows in which every annotated answer begins or ends inside a piece
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
                f"{self._share(self.torn)} have an answer that no pieces make up: none can match it exactly."
            )
        return " ".join(notices)

    def _share(self, count: int) -> str:
        return f"{count:,} of {len(self.rows):,} rows ({count / len(self.rows):.1%})"


def as_answer(found: Found, task: Chooses) -> dict[str, Any]:
    """What a person or a program is told: the answer, where it stands, and what else it may be.

    {"answer": "" for none, "begin", "end", "probability", "spans": [{"text", "begin", "end", "score", "probability"}]},
    offsets in characters of the context; and where the model may say so, "no_answer", its probability, and "doubt", by
    how much it scores higher than the best span (None: there is no span).
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
    """A number as JSON has it; None for the doubt about a context in which nothing can be answered."""
    return value if np.isfinite(value) else None


def render_spans(answer: Mapping[str, Any]) -> str:
    """The likeliest answers to a question with their places; what is answered stands first."""
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
    """First and last token of the first annotated answer; None where there is none."""
    if not isinstance(row, Question) or not row.answers:
        return None
    begin, text = row.answers[0]
    begins, ends = context.places.T
    inside = np.flatnonzero((ends > begin) & (begins < begin + len(text)) & (ends > begins))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def is_torn(row: Row, context: Context) -> bool:
    """Whether there are annotated answers, and none of them begins and ends where pieces do."""
    if not isinstance(row, Question) or not row.answers:
        return False
    begins, ends = context.places[context.begins, 0], context.places[context.ends, 1]
    bare = [(begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())) for begin, text in row.answers]
    return not any(begin in begins and end in ends for begin, end in bare)


def places_in(answer: tuple[int, int] | None, window: Window) -> np.ndarray:
    """Where in a window the answer begins and ends [2]; at [CLS] where it is not all there."""
    if answer is None or answer[0] < window.begin or answer[1] >= window.begin + window.count:
        return np.zeros(2, np.int64)
    return np.array(answer, np.int64) - window.begin + window.lead


def nearest_sentence(row: Question) -> str:
    """The sentence of the context that shares most words with the question."""
    asked = set(metrics.normalise_answer(row.text).split())

    def shared(sentence: str) -> int:
        return len(asked & set(metrics.normalise_answer(sentence).split()))

    return max(sentences(row.pair or ""), key=shared, default="")
