"""Render: an answer as a person reads it on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SPANS = 3  # answers to a question that are shown
NUMBERS = 4  # of a vector that are shown


def render_answer(text: str, answer: Mapping[str, Any]) -> str:
    """An answer of `Predictor`, as a person reads it on a terminal; `text` is what was asked."""
    cut = "  (the text was cut)" if answer.get("cut") else ""
    if "spans" in answer:
        return f"{text}{cut}\n  {_spans(answer)}"
    if "choice" in answer:
        return f"{answer['text']}  {answer['probability']:.3f}  {text}{cut}"
    if "labels" in answer:
        if "scores" not in answer:  # a text that was written: one probability for all
            return f"{', '.join(answer['labels']) or 'no label'}  {answer['probability']:.3f}  {text}{cut}"
        labels = ", ".join(f"{label} {answer['scores'][label]:.3f}" for label in answer["labels"])
        return f"{labels or 'no label'}  {text}{cut}"
    if "label" in answer:
        return f"{answer['label']}  {answer['probability']:.3f}  {text}{cut}"
    if "score" in answer:
        return f"{answer['score']:.3f}  {text}{cut}"
    if "embedding" in answer:
        return f"{_vector(answer['embedding'])}  {text}{cut}"
    if "similarity" in answer:
        return f"{answer['similarity']:.3f}  {text}{cut}"
    if "similarities" in answer:
        return f"{'  '.join(f'{s:.3f}' for s in answer['similarities'])}  {text}{cut}"
    if "follows" in answer:
        return f"follows  {answer['follows']:.3f}  {text}{cut}"
    if "words" in answer:
        return "\n".join(f"{word['word']}\t{word['tag']}\t{word['probability']:.3f}" for word in answer["words"]) + "\n"
    if "tokens" in answer:
        tokens = [*answer["tokens"], *answer.get("pair", ())]
        return "\n".join([text + cut, *(f"  {one['token']}\t{one['probability']:.3f}" for one in tokens)])
    return _masks(text + cut, answer)


def _vector(vector: Sequence[float]) -> str:
    """The first numbers of a vector, how many there are, and its length."""
    begin = " ".join(f"{x:+.4f}" for x in vector[:NUMBERS])
    more = " …" if len(vector) > NUMBERS else ""
    return f"[{begin}{more}] {len(vector)} numbers, norm {math.hypot(*vector):.3f}"


def _spans(answer: Mapping[str, Any]) -> str:
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


def _masks(text: str, answer: Mapping[str, Any]) -> str:
    lines = [text]
    for number, guesses in enumerate(answer["masks"], 1):
        head = f"  {number}: " if len(answer["masks"]) > 1 else "  "
        lines.append(head + ", ".join(f"{guess['token']} {guess['probability']:.3f}" for guess in guesses))
    filled = "\t".join(answer[name] for name in ("text", "pair") if name in answer)
    return "\n".join([*lines, f"  {filled}"])
