"""Answers to questions about a text: exact match and F1 as the SQuAD scripts count them, and when to answer nothing.

SQuAD 1.1: Rajpurkar et al. 2016, section 6.1. SQuAD 2.0, where some questions have no answer: Rajpurkar et al. 2018.
KorQuAD: Lim et al. 2019. Everything is a fraction from 0 to 1; the scripts print percentages.
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
    """Lower case, without ASCII punctuation and the articles a, an, the; one space between words.

    characters  as KorQuAD does: quotes and brackets, the Korean ones too, become spaces, and articles stay
    """
    if characters:
        return " ".join(text.translate(KOREAN_MARKS).lower().translate(PUNCTUATION).split())
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str], *, characters: bool = False) -> float:
    """1 where the normalised text is one of the annotated answers, else 0."""
    guess = normalise_answer(predicted, characters=characters)
    return float(any(guess == normalise_answer(answer, characters=characters) for answer in answers))


def token_f1(predicted: str, answers: Sequence[str], *, characters: bool = False) -> float:
    """F1 of the words shared with the annotated answer that it is nearest to; a word counts as often as it stands.

    0 where nothing is shared, so also between two texts of no words at all.
    characters  count the characters of the words instead, as KorQuAD does
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
    """exact_match and f1, as fractions, of the predicted text of each question by its id; "" answers nothing.

    unanswerable  whether the rules of SQuAD 2.0 hold, by which nothing may be the answer; None: where a question
                  has none. An annotated answer without words then does not count, nothing is right where no answer
                  is left, and has_answer_… and no_answer_… give both metrics of either sort of question.
    characters    F1 over characters, and KorQuAD's normalisation

    A question without a prediction counts as wrong, and `missing` is their number; predictions for no question
    are passed over. Raises UnmaskError where ids are missing or not unique, or where a question has no label.
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
    """Above which no-answer score (or probability) to answer nothing, for the best metrics of SQuAD 2.0.

    best_exact_match and best_exact_match_threshold, best_f1 and best_f1_threshold, as `find_best_thresh` of the
    official script has them. As there, questions of equal score, in the order of `no_answer_scores`, are told apart,
    though no threshold does. Where it is best to answer nothing at all, the threshold is 0, as there, or just
    below the lowest score: the script was made for probabilities, this is for differences of scores as well.

    predicted  id -> the best text, also where the score speaks against it
    Raises UnmaskError as `of_answers` does, and where a question lacks a text or a score.
    """
    _check(questions)
    for question in questions:
        if question.id not in predicted or math.isnan(no_answer_scores.get(question.id, math.nan)):
            raise UnmaskError(
                f"The question '{question.id}' has no prediction or no no-answer score; "
                "a threshold is chosen on questions that have both."
            )
    by_id = {question.id: question for question in questions}
    order = sorted((id for id in no_answer_scores if id in by_id), key=lambda id: no_answer_scores[id])
    scores = [_score(predicted[id], by_id[id], True, characters) for id in order]
    lowest = float(no_answer_scores[order[0]])
    thresholds = [min(0.0, math.nextafter(lowest, -math.inf)), *(float(no_answer_scores[id]) for id in order)]
    nothing_is_right = sum(not question.golds for question in questions)
    found: dict[str, float] = {}
    for place, name in enumerate(("best_exact_match", "best_f1")):
        # What is won, or lost, as one question more is answered, from none on.
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
    """F1 of two bags, in the script's order of operations: a last bit may decide which threshold is the best."""
    shared = (guess & answer).total()
    if not shared:
        return 0.0
    precision, recall = shared / guess.total(), shared / answer.total()
    return 2 * precision * recall / (precision + recall)


def _means(name: str, scores: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The mean exact match and F1; nothing of no scores."""
    if not scores:
        return {}
    exact, f1 = (math.fsum(column) / len(scores) for column in zip(*scores, strict=True))
    return {f"{name}exact_match": exact, f"{name}f1": f1}


def _check(questions: Sequence[Question]) -> None:
    if not questions:
        raise UnmaskError("There are no questions whose answers could be scored.")
    seen: set[str] = set()
    for question in questions:
        where = question.place or f"The question '{question.id or question.text}'"
        if not question.id:
            raise UnmaskError(f"{where} has no id, by which its answer could be found; give it one.")
        if question.id in seen:
            raise UnmaskError(f"{where} has the id '{question.id}' of another question; make them differ.")
        if question.possible and not question.golds:
            raise UnmaskError(
                f"{where} has no annotated answer and is not marked as impossible; its answer cannot be scored."
            )
        seen.add(question.id)
