"""All entries, chapter by chapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unmask.errors import unknown
from unmask.runs.lectures import attention, coreference, documents, recurrence, texts, words
from unmask.runs.lectures.entry import Entry

CHAPTERS: Mapping[str, Sequence[Entry]] = {
    "Words": words.ENTRIES,
    "Recurrence": recurrence.ENTRIES,
    "Attention": attention.ENTRIES,
    "Documents": documents.ENTRIES,
    "Text to text": texts.ENTRIES,
    "Mentions": coreference.ENTRIES,
}


def find(name: str) -> Entry:
    """The entry of a name. Raises UnmaskError, which suggests the nearest name, if there is none."""
    named = {entry.name: entry for entries in CHAPTERS.values() for entry in entries}
    if name not in named:
        raise unknown("entry of the lectures", name, named)
    return named[name]
