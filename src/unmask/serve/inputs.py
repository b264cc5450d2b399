"""Inputs: texts, pairs, words, or objects by name, as the rows that a model can be asked about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unmask.data.columns import PAIRS, TEXTS
from unmask.data.rows import Choices, Question, Row
from unmask.data.words import split_words
from unmask.errors import UnmaskError, kind_of

Input = str | Sequence[str] | Mapping[str, Any]
"""A text, a pair of texts, a list of words, or an object: as_row says which of its keys count."""

_OBJECTS = {
    "tagging": "an object with words, or with text, and for semantic roles with predicate",
    "span": "a question and a context: a pair, or an object with both",
    "choice": "an object with context (or text), maybe question, and choices",
}
_NAMED = (
    f"an object with text, maybe pair, or in their place one of {', '.join(name for name in TEXTS if name != 'text')}, "
    f"or two of {', '.join(' and '.join(names) for names in PAIRS)}"
)
_FILES = {
    "span": "a question, a tab and a context, or a JSON object with both",
    "choice": f"JSON: {_OBJECTS['choice']}",
}


def as_row(item: Input, number: int, kind: str) -> Row:
    """An input as a row for the task called `kind` (anything else: a text or a pair).

    span     (question, context), or {"question", "context"}
    choice   {"context" or "text", "question", "choices": […]}; one of context and question may be absent
    tagging  a text, a list of words, or {"text"} or {"words"}; for semantic roles with "predicate", the number of the
             word, from 0, whose arguments are asked for
    other    a text, a pair, or {"text", "pair"}, also by the usual names of public data sets

    An object may have an "id", which the answer repeats; its other keys do not count. Raises UnmaskError, which counts
    the inputs by `number`, for an input of another form, and for an empty text.
    """
    named = item if isinstance(item, Mapping) else _by_name(item, number, kind)
    values = {name: value for name, value in named.items() if value is not None}
    place = f"Text {number}"
    row = _MAKERS.get(kind, _texts)(values, place)
    return replace(row, id=str(values.get("id", "")), place=place)


def from_line(line: str, number: int, kind: str, *, single: bool = False) -> Input:
    """A line of text as an input: a JSON object, the two texts of a pair with a tab between, or a text.

    single  the model is known to have learned from single texts, so that what a tab divides is no pair

    Raises UnmaskError, which counts the lines by `number`, for a line of another form.
    """
    found = _object(line)
    if found is not None:
        known = {"question", "context", "text", "words", "choices", *TEXTS, *(name for pair in PAIRS for name in pair)}
        if known & found.keys():
            return found
        wanted = _OBJECTS.get(kind, _NAMED)
        raise UnmaskError(f"Text {number} is a JSON object without a known key; it must be {wanted}.")
    begin, tab, rest = line.partition("\t")
    if kind in _FILES and line.strip() and (kind == "choice" or not tab):
        raise UnmaskError(f"Text {number} is not {_FILES[kind]}.")
    if tab and single:
        raise UnmaskError(
            f"Text {number} has a tab, as pairs have, and this model was fine-tuned on single texts: cut the other "
            "columns out, write a space for the tab, or score labelled rows with `unmask evaluate`."
        )
    return (begin, rest) if tab and kind != "tagging" else line


def asked_in(item: Input, line: str) -> str:
    """What a person sees of the line that an input was read from: of an object, the question or the first text."""
    if not isinstance(item, Mapping):
        return line
    return next((str(item[name]) for name in ("question", "text", "context") if item.get(name)), line)


def places_of(row: Row) -> list[tuple[int, int]]:
    """Begin and end of each word of a row in its text, or where it has none, in its words with spaces between."""
    if row.text in ("", " ".join(row.words)):
        return locate(row.words)
    found, end = [], 0
    for word in row.words:
        begin = row.text.find(word, end)
        if begin < 0:
            raise UnmaskError(f"{row.place}: the word '{word}' does not stand in the text behind the words before it.")
        end = begin + len(word)
        found.append((begin, end))
    return found


def locate(words: Sequence[str]) -> list[tuple[int, int]]:
    """Begin and end of each word in the text that has one space between them."""
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    return [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]


def _by_name(item: str | Sequence[str], number: int, kind: str) -> dict[str, Any]:
    """A text, a pair or words as the object that they stand for."""
    parts: list[Any] = list(item) if isinstance(item, (list, tuple)) else [item]
    if not parts or not all(isinstance(part, str) for part in parts):
        more = f", or {_OBJECTS[kind]}" if kind in _OBJECTS else ", or for tagging a list of words"
        raise UnmaskError(f"Text {number} must be a string, a pair of strings{more}.")
    if not any(part.strip() for part in parts):
        raise UnmaskError(f"Text {number} is empty.")
    if kind == "tagging":
        return {"text": item} if isinstance(item, str) else {"words": parts}
    if kind == "choice" or (kind == "span" and len(parts) == 1):
        raise UnmaskError(f"Text {number} must be {_OBJECTS[kind]}.")
    if len(parts) > 2:
        raise UnmaskError(f"Text {number} has {len(parts)} parts; a pair has two.")
    names = ("question", "context") if kind == "span" else ("text", "pair")
    return dict(zip(names, parts, strict=False))


def _texts(values: Mapping[str, Any], place: str) -> Row:
    known: tuple[tuple[str, ...], ...] = (("text", "pair"), *PAIRS, *((name,) for name in TEXTS))
    names = next((names for names in known if set(names) <= values.keys()), ("text",))
    texts = [_text(values, name, place, "", empty=len(names) > 1) for name in names]
    if not any(text.strip() for text in texts):
        raise UnmaskError(f"{place} is empty.")
    return Row(texts[0], texts[1] if len(texts) == 2 else None)


def _question(values: Mapping[str, Any], place: str) -> Row:
    question, context = (_text(values, name, place, "span") for name in ("question", "context"))
    return Question(question, context)


def _sentence(values: Mapping[str, Any], place: str) -> Row:
    if "words" not in values:
        text = _text(values, "text", place, "tagging")
        split = tuple(word for word, _ in split_words(text))
        return Row(text, words=split, predicate=_predicate(values, split, place))
    words = values["words"]
    if not _are_texts(words) or not words:
        raise UnmaskError(f"{place}: 'words' must be a list of strings that is not empty.")
    text = values.get("text", " ".join(words))
    if not isinstance(text, str):
        raise UnmaskError(f"{place}: 'text' must be a string.")
    return Row(text, words=tuple(words), predicate=_predicate(values, words, place))


def _predicate(values: Mapping[str, Any], words: Sequence[str], place: str) -> int | None:
    """The number of the word whose arguments are asked for, from 0; None where none are."""
    number = values.get("predicate")
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(words):
        raise UnmaskError(
            f"{place}: 'predicate' must be the number of a word, from 0 to {len(words) - 1}, not {number!r}."
        )
    return number


def _choices(values: Mapping[str, Any], place: str) -> Row:
    names = [name for name in ("context", "text", "question") if name in values]
    if not names:
        raise UnmaskError(f"{place} has neither 'context' nor 'question'; it must be {_OBJECTS['choice']}.")
    texts = [_text(values, name, place, "choice") for name in names]
    choices = values.get("choices", ())
    if not _are_texts(choices) or len(choices) < 2 or not all(choice.strip() for choice in choices):
        raise UnmaskError(f"{place}: 'choices' must be a list of two or more texts that are not empty.")
    return Choices(texts[0], texts[-1] if len(texts) > 1 else None, choices=tuple(choices))


_MAKERS = {"tagging": _sentence, "span": _question, "choice": _choices}


def _text(values: Mapping[str, Any], name: str, place: str, kind: str, *, empty: bool = False) -> str:
    """`values[name]`, a text that is not empty, unless it may be."""
    if name not in values:
        wanted = _OBJECTS.get(kind, "a string, a pair of strings, or an object with text")
        raise UnmaskError(f"{place} has no '{name}'; it must be {wanted}.")
    text = values[name]
    if not isinstance(text, str):
        raise UnmaskError(f"{place}: '{name}' must be a string, not {kind_of(text)}.")
    if not text.strip() and not empty:
        raise UnmaskError(f"{place} is empty." if name == "text" else f"{place} has an empty {name}.")
    return text


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def _object(line: str) -> dict[str, Any] | None:
    """The JSON object that a line is, if it is one."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
