"""Character spans: converts texts with marked spans, from doccano, Label Studio and spaCy, to tagged words.

A row has a text and a list of spans, each [begin, end, kind] or an object. Begin and end count characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.data.files.tables import Table
from unmask.data.labelled.conll import Sentences
from unmask.data.labelled.rows import Row, listed
from unmask.data.labelled.schemes import Span, to_tags
from unmask.data.labelled.words import split_words
from unmask.errors import UnmaskError, kind_of, unknown

COLUMNS = ("spans", "entities", "ents", "label", "labels", "annotations")
_TEXTS = ("text", "data.text", "sentence", "content", "document")
_BEGINS, _ENDS = ("start", "begin", "start_offset"), ("end", "end_offset")
_KINDS = ("label", "labels", "kind", "type", "tag")


class _Misplaced(Exception):
    """The spans of a row cannot be expressed by tags of words: the reason, and the span."""


def column(table: Table, name: str | None = None) -> str | None:
    """The column of character spans: `name`, or the first usual name; None if it has no character spans."""
    for candidate in COLUMNS if name is None else (name,):
        lists = (values.get(candidate) for _, values in table.rows)
        first = next((value[0] for value in lists if isinstance(value, (list, tuple)) and value), None)
        if _is_span(first):
            return candidate
    return None


def read_spans(path: Path, table: Table, marked: str, text: str | None = None) -> Sentences:
    """Convert rows with a text and character spans to words (`split_words`) with IOB2 tags; `Row.text` is the text.

    marked  the column of spans: lists of [begin, end, kind], or of objects with start, begin or start_offset; end or
            end_offset; label, labels (a list of one) or type. In an export of Label Studio, the column of annotations;
            the first one that was not cancelled is used
    text    the column of texts; None: the first usual name

    A row is left out, and recorded in `notes` with its place, span and reason, if a span begins or ends inside a word,
    shares a word with another span, covers no word, ends after the text, or has a text that differs from the one at its
    place; blanks at the ends of a span are ignored. Raises UnmaskError, which names file and row, for spans of another
    form and missing texts, and if no row is left.
    """
    text = _text_column(path, table, text)
    rows: list[Row] = []
    notes: dict[str, list[str]] = {}
    for number, values in table.rows:
        place = f"{path}:{number}"
        try:
            rows.append(_row(values, text, marked, place))
        except _Misplaced as error:
            why, what = error.args
            notes.setdefault(why, []).append(f"{place}{what and f' {what}'}")
    found = tuple(f"Rows left out, as {why}: {len(places):,} ({listed(places)})." for why, places in notes.items())
    if not rows:
        raise UnmaskError(
            f"No row of {path} can be tagged word by word. {' '.join(found)} Mark whole words, or give words and tags "
            "as two lists."
        )
    return Sentences(tuple(rows), {"words": text, "tags": marked}, found)


def _row(values: Mapping[str, Any], text: str, marked: str, place: str) -> Row:
    raw = values.get(text)
    if not isinstance(raw, str):
        raise UnmaskError(f"{place}: the column {text} must be text, not {_kind_of(raw)}.")
    given = values.get(marked)
    if not isinstance(given, (list, tuple)):
        raise UnmaskError(
            f"{place}: the column {marked} must be a list of spans, not {_kind_of(given)}; write an empty list if "
            "there are none."
        )
    spans = {_span(item, raw, f"{place}, in '{marked}'") for item in _items(given)}
    words = split_words(raw)
    if not words:
        raise _Misplaced("their text has no words", "")
    tags = to_tags(_in_words(sorted(spans), words, raw), len(words))
    return Row(raw, words=tuple(word for word, _ in words), tags=tags, place=place)


def _in_words(spans: list[Span], words: list[tuple[str, tuple[int, int]]], text: str) -> Iterator[Span]:
    """Convert spans in characters, ascending, to spans in words."""
    first, last = 0, 0  # words from `first` end after the span's begin; words before `last` belong to earlier spans
    for begin, end, kind in spans:
        shown = f"{begin}-{end} '{text[begin:end]}'"
        while first < len(words) and words[first][1][1] <= begin:
            first += 1
        behind = first
        while behind < len(words) and words[behind][1][0] < end:
            behind += 1
        if behind == first:
            raise _Misplaced("a span covers no word", shown)
        if first < last:
            raise _Misplaced("two spans share a word", shown)
        cut = [word for word, (a, b) in words[first:behind] if a < begin or b > end]
        if cut:
            raise _Misplaced("a span cuts words", f"{shown} of {' and '.join(repr(word) for word in cut)}")
        yield first, behind, kind
        last = behind


def _items(given: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    """The spans of a row; in Label Studio, those of its first annotation, without relations and other results."""
    if not (given and isinstance(given[0], Mapping) and "result" in given[0]):
        yield from given
        return
    kept = next((item for item in given if isinstance(item, Mapping) and not item.get("was_cancelled")), None)
    results = (kept or {}).get("result")
    for result in results if isinstance(results, list | tuple) else ():
        if isinstance(result, Mapping) and isinstance(value := result.get("value"), Mapping) and "start" in value:
            yield value


def _span(item: Any, text: str, place: str) -> Span:
    """Begin, end and kind of a span; UnmaskError where it lacks one, _Misplaced where the text has no such place."""
    if isinstance(item, Mapping):
        begin, end, kind = (_first(item, names) for names in (_BEGINS, _ENDS, _KINDS))
    elif isinstance(item, (list, tuple)) and len(item) == 3:
        begin, end, kind = item
    else:
        begin = end = kind = None
    kind = kind[0] if isinstance(kind, (list, tuple)) and len(kind) == 1 else kind
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in (begin, end))
    if not whole or not isinstance(kind, (str, int)) or not str(kind).strip():
        raise UnmaskError(
            f'{place}: a span must be a begin, an end and one kind, as [3, 9, "PER"], not {_short(item)}.'
        )
    shown = f"{begin}-{end}"
    if not 0 <= begin < end <= len(text):
        raise _Misplaced("a span is empty or ends beyond its text", f"{shown} of {len(text)} characters")
    said = item.get("text") if isinstance(item, Mapping) else None
    if isinstance(said, str) and said.strip() != text[begin:end].strip():
        raise _Misplaced("a span holds another text than is said", f"{shown} '{text[begin:end]}' for '{said}'")
    return begin, end, str(kind).strip()


def _is_span(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "result" in value or (_first(value, _BEGINS) is not None and _first(value, _ENDS) is not None)
    return isinstance(value, (list, tuple)) and len(value) == 3 and all(isinstance(part, int) for part in value[:2])


def _text_column(path: Path, table: Table, name: str | None) -> str:
    if name is not None:
        if name not in table.columns:
            raise unknown("column", name, table.columns, path)
        return name
    nested = [column for column in table.columns if column.startswith("data.")]
    found = next((column for column in _TEXTS if column in table.columns), nested[0] if len(nested) == 1 else None)
    if found is None:
        raise UnmaskError(
            f"{path} has no column of texts with a usual name; give one of these with --text (text= in Python): "
            f"{', '.join(table.columns[:30])}."
        )
    return found


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _kind_of(value: Any) -> str:
    return "missing" if value is None else kind_of(value)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"
