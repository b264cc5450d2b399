"""Files of predictions in the format of the official evaluation scripts of SQuAD."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.files import check_place, write_text
from unmask.serve.answering import Answer
from unmask.tasks.forms import Form


def write_predictions(
    found: Iterable[tuple[str, Answer | None]], out: Path | str, *, no_answer: Path | str | None = None
) -> int:
    """Write {id: text of the answer} for the evaluation scripts of SQuAD, and return the number of answers. The text
    is "" for no answer. Blank lines, whose answer is None, are skipped.

    no_answer  also write {id: probability of no answer} to this file, for --na-prob-file of the script of SQuAD 2.0:
               the probability of no answer against the best span alone. A threshold t of doubt is
               1 / (1 + exp(-t)) for --na-prob-thresh. The script searches for the best threshold by the texts, so
               give the predictor a high threshold, which keeps all of them

    Raises UnmaskError, and writes nothing, if an answer is not to a question, if an id is missing or repeated, and if
    `no_answer` is given for a model that always answers; and, before the first answer, if a file cannot be written.
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
            raise _only_of_questions(out)
        if "id" not in answer:
            raise UnmaskError(f"The question '{asked}' has no id; give it one, which identifies its answer.")
        if answer["id"] in texts:
            raise UnmaskError(f"The question '{asked}' and an earlier one have the id '{answer['id']}'; change one.")
        if no_answer is not None and "doubt" not in answer:
            raise UnmaskError("This model always answers; give a threshold for no answer: --no-answer 0.")
        texts[answer["id"]] = answer["answer"]
        doubts[answer["id"]] = _probability(answer.get("doubt"))
    write_text(Path(out), json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
    if no_answer is not None:
        write_text(Path(no_answer), json.dumps(doubts, ensure_ascii=False, indent=1) + "\n")
    return len(texts)


def check_out(form: Form, out: Path | str) -> None:
    """Raises UnmaskError for inputs of a form whose answers `write_predictions` cannot write."""
    if not form.asks:
        raise _only_of_questions(out)


def _only_of_questions(out: Path | str) -> UnmaskError:
    return UnmaskError(
        f"{Path(out).name} can hold only answers to questions about a context: --out FILE.jsonl or FILE.parquet holds "
        "the rows of --file, each with its answer."
    )


def _probability(doubt: float | None) -> float:
    """1 / (1 + exp(-doubt)) without overflow; 1 if there is no span."""
    if doubt is None:
        return 1.0
    small = math.exp(-abs(doubt))
    return 1 / (1 + small) if doubt > 0 else small / (1 + small)
