"""Predictions in files, as the official scripts of SQuAD read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.files import check_place, write_text
from unmask.serve.answering import Answer


def write_predictions(
    found: Iterable[tuple[str, Answer | None]], out: Path | str, *, no_answer: Path | str | None = None
) -> int:
    """Write {id: text of the answer}, "" for none, as the evaluation scripts of SQuAD read it; returns how many.
    Blank lines, whose answer is None, are passed over.

    no_answer  also write {id: probability of no answer} to this file, as the script of SQuAD 2.0 reads it (its
               --na-prob-file): of no answer or the best span, it being one of the two. So a threshold t of doubt is
               1 / (1 + exp(-t)) there (--na-prob-thresh). Its search for the best one, which looks at the texts, sees
               all of them where the predictor's own threshold is high

    Raises UnmaskError, and writes nothing, where answers are not those to questions, or lack an id, or the model never
    answers nothing and `no_answer` asks for it; and before any is made, where a file cannot be written.
    """
    for place in (out, no_answer):
        if place is not None:
            check_place(Path(place))
    texts: dict[str, str] = {}
    doubts: dict[str, float] = {}
    for asked, answer in found:
        if answer is None:
            continue
        if "spans" not in answer:
            raise UnmaskError("Only answers to questions about a context are written to a file; print the others.")
        if "id" not in answer:
            raise UnmaskError(f"The question '{asked}' has no id, by which its answer could be found; give it one.")
        if answer["id"] in texts:
            raise UnmaskError(f"The question '{asked}' has the id '{answer['id']}' of another one; make them differ.")
        if no_answer is not None and "doubt" not in answer:
            raise UnmaskError("This folder never says that there is no answer; say above which doubt: --no-answer 0.")
        texts[answer["id"]] = answer["answer"]
        doubts[answer["id"]] = _probability(answer.get("doubt"))
    write_text(Path(out), json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
    if no_answer is not None:
        write_text(Path(no_answer), json.dumps(doubts, ensure_ascii=False, indent=1) + "\n")
    return len(texts)


def _probability(doubt: float | None) -> float:
    """1 / (1 + exp(-doubt)), for doubts of any size; 1 where there is no span."""
    if doubt is None:
        return 1.0
    small = math.exp(-abs(doubt))
    return 1 / (1 + small) if doubt > 0 else small / (1 + small)
