"""Questions on contexts from SQuAD files, nested or flat; every answer is checked against its position.

Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016; "Know What You Don't Know:
Unanswerable Questions for SQuAD", ACL 2018. KorQuAD 1.0, SQuADShifts and KLUE-MRC have the same form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.config import flatten
from unmask.data.files.lines import opened
from unmask.data.files.tables import format_by_name, json_values, rows
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Question, listed
from unmask.errors import UnmaskError, kind_of, plural

OFF, MANY = 0.9, 10  # smallest share and number of moved answers that suggest a systematic error
NEAR = 20  # largest distance in characters of an answer from its position, if its text occurs more than once

HEAD = 1 << 16  # bytes of a file that determine its form

_KEY = re.compile(r'"(\w+)"\s*:')
_COLUMNS = {"text": "question", "pair": "context"}


def read(path: Path | str, *, labelled: bool = True, scoring: bool = False, encoding: str | None = None) -> Dataset:
    """Read the questions of a SQuAD 1.1 or 2.0 file, or of the flat form of the `datasets` library.

    labelled  False: questions without answers, for prediction; answers in the file are ignored
    scoring   whether to keep questions whose answers are all missing in their contexts, because official scores count
              them
    encoding  as for `data.files.lines.lines`

    JSON, JSON lines or Parquet, also .gz or .zst: `data[].paragraphs[].qas[]`, or an object for each question with id,
    context, question and answers, where an empty list of answers means that there is no answer. `plausible_answers` are
    ignored. `Row.id` is the id of the question; for flat rows without ids, it is the number of the row.

    If an answer is not at its position in the context, it is moved: to the position in UTF-16 units or bytes, else to
    the only occurrence of its text, else to the nearest occurrence within NEAR characters. If there is none, it goes to
    `Question.unplaced`, and a question without other answers is left out. `notes` counts both. Raises UnmaskError,
    which names file and question, if something is missing or contradictory or an id is repeated, and if more questions
    would be left out than kept.
    """
    path = Path(path)
    repairs = _Repairs()
    found = [_question(place, values, labelled, repairs) for place, values in _entries(path, encoding)]
    if not found:
        raise UnmaskError(f"{path} has no questions.")
    _check_ids(path, found)
    if not labelled:
        return Dataset(path, tuple(found), _COLUMNS)
    if not repairs.marked and not any(row.golds for row in found):
        raise UnmaskError(f"No question of {path} has an answer; questions without answers can only be predicted.")
    kept = tuple(row for row in found if scoring or row.answers or not row.possible)
    skipped = [row.place for row in found if row.possible and not row.answers]
    if not scoring and len(skipped) > len(kept):
        raise UnmaskError(
            f"No answer is in its context for {len(skipped):,} of the {plural(len(found), 'question')} of {path}; "
            f"check that answers and contexts belong together. The first are {listed(skipped)}."
        )
    return Dataset(path, kept, {**_COLUMNS, "label": "answers"}, repairs.notes(skipped, scoring))


def nested(path: Path) -> bool:
    """Whether a file begins like nested SQuAD JSON, which no other task reads. Flat questions with their contexts are
    also a table for other tasks, such as positive pairs."""
    with opened(path) as stream:
        head = stream.read(HEAD).decode("utf-8-sig", "replace")
    return head.lstrip().startswith("{") and {"data", "paragraphs"} <= set(_KEY.findall(head))


@dataclass
class _Repairs:
    """The number of answers, the places of moved and of missing ones, and whether any question has `is_impossible`."""

    answers: int = 0
    moved: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    marked: bool = False

    def notes(self, skipped: list[str], scoring: bool) -> tuple[str, ...]:
        done = "kept only for scores" if scoring else "left out"
        moved = "Answers that were not at their positions and were moved"
        kinds = {
            moved: self.moved,
            "Answers that are not in their contexts": self.unplaced,
            f"Questions {done}, because no answer is in the context": skipped,
        }
        told = {
            kind: f"{kind}: {len(places):,} ({listed(list(dict.fromkeys(places)))})."
            for kind, places in kinds.items()
            if places
        }
        if len(self.moved) >= max(MANY, OFF * self.answers):
            told[moved] = (
                f"{moved}: {len(self.moved):,} of {self.answers:,}; the positions in the file seem to count something "
                "other than characters of these contexts, such as bytes, or characters of another text."
            )
        return tuple(told.values())


def _question(place: str, values: Mapping[str, Any], labelled: bool, repairs: _Repairs) -> Question:
    text, context = (_get(values, name, str, place) for name in ("question", "context"))
    if not context.strip():
        raise UnmaskError(f"{place} has an empty context.")
    row = {"text": text, "pair": context, "id": str(values["id"]), "place": place}
    if not labelled:
        return Question(**row)
    annotated, impossible = _annotated(place, values), _impossible(place, values)
    repairs.marked |= impossible is not None
    _check_label(place, annotated, impossible)
    if not annotated:
        return Question(**row, possible=False)
    answers, unplaced = [], []
    repairs.answers += len(annotated)
    for answer, begin in annotated:
        placed = locate(context, answer, begin)
        if placed is None:
            unplaced.append(answer)
            repairs.unplaced.append(place)
            continue
        answers.append(placed)
        if placed != (begin, answer):
            repairs.moved.append(place)
    return Question(**row, answers=tuple(answers), unplaced=tuple(unplaced))


# ------------------------------------------------------------------------------------------------ places


def locate(context: str, answer: str, begin: int) -> tuple[int, str] | None:
    """The position of an answer in a context, near `begin`: (begin, text) with `context[begin:][:len(text)] == text`.

    The text equals the answer, apart from whitespace, which scores ignore. None if the context does not have it, or has
    it several times, but not near the given position.
    """
    if not answer.strip():
        return None
    if begin >= 0 and context.startswith(answer, begin):
        return begin, answer
    for encoding, width in (("utf-16-le", 2), ("utf-8", 1)):
        place = _in_characters(context, begin * width, encoding)
        if place is not None and context.startswith(answer, place):
            return place, answer
    spaced = r"\s+".join(map(re.escape, answer.split()))
    return _nearest(context, re.escape(answer), begin) or _nearest(context, spaced, begin)


def _in_characters(context: str, begin: int, encoding: str) -> int | None:
    """The number of characters in the first `begin` bytes; None if that is not the begin of a character."""
    data = context.encode(encoding, "surrogatepass")
    if not 0 <= begin < len(data):
        return None
    try:
        return len(data[:begin].decode(encoding, "surrogatepass"))
    except UnicodeDecodeError:
        return None


def _nearest(context: str, pattern: str, begin: int) -> tuple[int, str] | None:
    matches = list(re.finditer(f"(?=({pattern}))", context))  # a look-ahead, so that matches may overlap
    if not matches:
        return None
    best = min(matches, key=lambda match: abs(match.start() - begin))
    return (best.start(), best[1]) if len(matches) == 1 or abs(best.start() - begin) <= NEAR else None


# ------------------------------------------------------------------------------------------------ entries


def _entries(path: Path, encoding: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The place and values of each question, for all forms of files; each has an id."""
    format = format_by_name(path) or "json"
    if format not in ("json", "jsonl", "parquet"):
        raise UnmaskError(f"{path} cannot have questions on contexts: they are read from JSON, JSON lines or Parquet.")
    found = rows(path, format) if format == "parquet" else json_values(path, format, encoding)
    for number, value in found:
        if not isinstance(value, Mapping):
            raise UnmaskError(f"{path}:{number} must be an object, not {kind_of(value)}.")
        if "data" not in value:
            yield _flat(path, number, value)
            continue
        for i, article in enumerate(_get(value, "data", list, str(path)), 1):
            if isinstance(article, Mapping) and "paragraphs" not in article and "context" in article:
                yield _flat(path, i, article)
            else:
                yield from _nested(path, f"{path}: article {i}", article)


def _flat(path: Path, number: int, value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    if "context" not in value:
        raise UnmaskError(
            f"{path}:{number} has neither 'data' nor 'context': a SQuAD file is an object with "
            "data[].paragraphs[].qas[], or one for each question with context, question and answers."
        )
    values, place = flatten(value), f"{path}:{number}"
    id = _id(values, place)
    return (place, {**values, "id": number}) if id is None else (f"{path}: question {id}", {**values, "id": id})


def _nested(path: Path, place: str, article: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for j, paragraph in enumerate(_get(article, "paragraphs", list, place), 1):
        inside = f"{place}, paragraph {j}"
        context = _get(paragraph, "context", str, inside)
        for k, values in enumerate(_get(paragraph, "qas", list, inside), 1):
            if not isinstance(values, Mapping) or _id(values, f"{inside}, question {k}") is None:
                raise UnmaskError(f"{inside}, question {k} has no 'id'.")
            id = _id(values, inside)
            yield f"{path}: question {id}", {**flatten(values), "id": id, "context": context}


def _id(values: Mapping[str, Any], place: str) -> str | None:
    id = values.get("id", values.get("guid"))  # guid in KLUE-MRC
    if id is not None and (isinstance(id, bool) or not isinstance(id, (str, int)) or not str(id).strip()):
        raise UnmaskError(f"{place}: 'id' must be text or a number that is not empty.")
    return None if id is None else str(id)


def _annotated(place: str, values: Mapping[str, Any]) -> list[tuple[str, int]] | None:
    """The text and position of each answer, from a list of objects or an object of lists; None if there are none."""
    if values.get("answers.text") is not None:
        columns = [_get(values, f"answers.{name}", list, place) for name in ("text", "answer_start")]
        if len(columns[0]) != len(columns[1]):
            found = f"{plural(len(columns[0]), 'answer')}, but {plural(len(columns[1]), 'value')} of answer_start"
            raise UnmaskError(f"{place} has {found}.")
        answers = [dict(zip(("text", "answer_start"), pair, strict=True)) for pair in zip(*columns, strict=True)]
    elif values.get("answers") is not None:
        answers = _get(values, "answers", list, place)
    else:
        return None
    owner = f"{place}, in 'answers',"
    return [(_get(answer, "text", str, owner), _get(answer, "answer_start", int, owner)) for answer in answers]


def _impossible(place: str, values: Mapping[str, Any]) -> bool | None:
    value = values.get("is_impossible")
    if value not in (None, False, True):
        raise UnmaskError(f"{place}: 'is_impossible' must be true or false.")
    return None if value is None else bool(value)


# ------------------------------------------------------------------------------------------------ checks


def _check_label(place: str, annotated: list[tuple[str, int]] | None, impossible: bool | None) -> None:
    if annotated is None and not impossible:
        raise UnmaskError(f"{place} has no 'answers'; questions without answers can only be predicted.")
    if annotated and impossible:
        raise UnmaskError(f"{place} is marked as impossible but has answers; remove the answers or the mark.")
    if not annotated and impossible is False:
        raise UnmaskError(f"{place} is marked as possible but has no answers; add them or change 'is_impossible'.")


def _check_ids(path: Path, found: list[Question]) -> None:
    twice = [id for id, count in Counter(row.id for row in found).items() if count > 1]
    if twice:
        names = listed([f"'{id}'" for id in twice])
        raise UnmaskError(f"{path} has {plural(len(twice), 'id')} more than once: {names}; give each question its own.")


_NAMES = {str: "text", list: "a list", int: "a whole number"}


def _get(values: Any, name: str, kind: type, place: str) -> Any:
    """`values[name]`. Raises UnmaskError if it is missing or of another type."""
    value = values.get(name) if isinstance(values, Mapping) else None
    if value is None:
        raise UnmaskError(f"{place} has no '{name}'.")
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UnmaskError(f"{place}: '{name}' must be {_NAMES[kind]}, not {kind_of(value)}.")
    return value
