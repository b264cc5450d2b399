"""Answers to questions about a text: exact match and F1 like the SQuAD scripts, and the threshold for no answer.

SQuAD 1.1: Rajpurkar et al. 2016, section 6.1. SQuAD 2.0, in which some questions have no answer: Rajpurkar et al. 2018.
KorQuAD: Lim et al. 2019. All metrics are fractions from 0 to 1; the scripts print percentages.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.data.labelled.rows import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
KOREAN_MARKS = str.maketrans(dict.fromkeys("'\"()<>《》〈〉‘’", " "))


def normalise_answer(text: str, *, characters: bool = False) -> str:
    """The text in lower case, without ASCII punctuation and the articles a, an, the; one space between words.

    characters  normalise like KorQuAD: quotes and brackets, Korean ones too, become spaces, and articles stay
    """
    if characters:
        return " ".join(text.translate(KOREAN_MARKS).lower().translate(PUNCTUATION).split())
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str], *, characters: bool = False) -> float:
    """1 if the normalised text equals one of the annotated answers, else 0."""
    guess = normalise_answer(predicted, characters=characters)
    return float(any(guess == normalise_answer(answer, characters=characters) for answer in answers))


def token_f1(predicted: str, answers: Sequence[str], *, characters: bool = False) -> float:
    """The largest F1 of the words shared with an annotated answer; a repeated word counts repeatedly.

    0 if no word is shared, and also for two texts without words.

    characters  count the characters of the words instead, like KorQuAD
    """
    guess = _tokens(predicted, characters)
    return max((_overlap(guess, _tokens(answer, characters)) for answer in answers), default=0.0)


def of_answers(
    predicted: Mapping[str, str],
    questions: Sequence[Question],
    *,
    unanswerable: bool | None = None,
    characters: bool = False,
) -> dict[str, float]:
    """exact_match and f1, as fractions, of predicted texts by the ids of questions; "" predicts no answer.

    unanswerable  whether to apply the rules of SQuAD 2.0, in which a question may have no answer; None: if a question
                  has none. Annotated answers without words are then ignored, the empty text is correct if no answer is
                  left, and has_answer_… and no_answer_… are the metrics of the two sorts of questions.
    characters    F1 over characters, and the normalisation of KorQuAD

    A question without a prediction counts as wrong, and `missing` is their number; predictions without a question are
    ignored. Raises UnmaskError if ids are missing or repeated, or a question has no annotation.
    """
    _check(questions)
    if unanswerable is None:
        unanswerable = not all(question.golds for question in questions)
    scores = {
        question.id: _score(predicted[question.id], question, unanswerable, characters)
        if question.id in predicted
        else (0.0, 0.0)
        for question in questions
    }
    found = _means("", list(scores.values()))
    if unanswerable:
        found |= _means("has_answer_", [scores[question.id] for question in questions if question.golds])
        found |= _means("no_answer_", [scores[question.id] for question in questions if not question.golds])
    missing = len(scores.keys() - predicted.keys())
    return {**found, "missing": float(missing)} if missing else found


def best_threshold(
    predicted: Mapping[str, str],
    no_answer_scores: Mapping[str, float],
    questions: Sequence[Question],
    *,
    characters: bool = False,
) -> dict[str, float]:
    """The thresholds of the no-answer score (or probability) that give the best metrics of SQuAD 2.0. For a score above
    the threshold, the prediction is no answer.

    Returns best_exact_match and best_exact_match_threshold, best_f1 and best_f1_threshold, like `find_best_thresh` of
    the official script. As there, questions with equal scores are added one by one, in the order of `no_answer_scores`,
    although no threshold separates them. If it is best to answer no question, the threshold is the smaller of 0, as
    there, and a number just below the lowest score: scores here may be differences instead of probabilities.

    predicted  id -> the best text, even if the score predicts no answer

    Raises UnmaskError as `of_answers` does, and if a question lacks a text or a score.
    """
    _check(questions)
    for question in questions:
        if question.id not in predicted or math.isnan(no_answer_scores.get(question.id, math.nan)):
            raise UnmaskError(
                f"The question '{question.id}' has no prediction or no no-answer score; "
                "give both for each question to choose a threshold."
            )
    by_id = {question.id: question for question in questions}
    order = sorted((id for id in no_answer_scores if id in by_id), key=lambda id: no_answer_scores[id])
    scores = [_score(predicted[id], by_id[id], True, characters) for id in order]
    lowest = float(no_answer_scores[order[0]])
    thresholds = [min(0.0, math.nextafter(lowest, -math.inf)), *(float(no_answer_scores[id]) for id in order)]
    nothing_is_right = sum(not question.golds for question in questions)
    found: dict[str, float] = {}
    for place, name in enumerate(("best_exact_match", "best_f1")):
        # The change of the total when one more question is answered, starting from none.
        gains = (
            s[place] if by_id[id].golds else -float(predicted[id] != "") for id, s in zip(order, scores, strict=True)
        )
        totals = list(accumulate(gains, initial=float(nothing_is_right)))
        best = max(totals)
        found |= {name: best / len(questions), f"{name}_threshold": thresholds[totals.index(best)]}
    return found


def _score(predicted: str, question: Question, unanswerable: bool, characters: bool) -> tuple[float, float]:
    """Exact match and F1 of one question."""
    answers: Sequence[str] = question.golds
    if unanswerable:
        answers = [text for text in answers if normalise_answer(text, characters=characters)] or [""]
    exact = exact_match(predicted, answers, characters=characters)
    if unanswerable and not normalise_answer(predicted, characters=characters):
        return exact, exact
    return exact, token_f1(predicted, answers, characters=characters)


def _tokens(text: str, characters: bool) -> Counter[str]:
    words = normalise_answer(text, characters=characters).split()
    return Counter("".join(words)) if characters else Counter(words)


def _overlap(guess: Counter[str], answer: Counter[str]) -> float:
    """F1 of two bags, in the script's order of operations, because rounding may decide which threshold is the best."""
    shared = (guess & answer).total()
    if not shared:
        return 0.0
    precision, recall = shared / guess.total(), shared / answer.total()
    return 2 * precision * recall / (precision + recall)


def _means(name: str, scores: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The mean exact match and F1; empty if there are no scores."""
    if not scores:
        return {}
    exact, f1 = (math.fsum(column) / len(scores) for column in zip(*scores, strict=True))
    return {f"{name}exact_match": exact, f"{name}f1": f1}


def _check(questions: Sequence[Question]) -> None:
    if not questions:
        raise UnmaskError("There are no questions to score; give at least one.")
    seen: set[str] = set()
    for question in questions:
        where = question.place or f"The question '{question.id or question.text}'"
        if not question.id:
            raise UnmaskError(f"{where} has no id; give it one, so that its prediction can be found.")
        if question.id in seen:
            raise UnmaskError(f"{where} has the same id '{question.id}' as another question; make ids unique.")
        if question.possible and not question.golds:
            raise UnmaskError(
                f"{where} has no annotated answer and is not marked as impossible; add an answer or the mark."
            )
        seen.add(question.id)
