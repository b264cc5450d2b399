"""All entries, chapter by chapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unmask.errors import unknown
from unmask.runs.lectures import (
    attention,
    coreference,
    documents,
    knowledge,
    masking,
    pictures,
    pretraining,
    recurrence,
    sequences,
    signals,
    sound,
    systems,
    texts,
    transformer,
    word_models,
    words,
    writing,
)
from unmask.runs.lectures.entry import Entry

CHAPTERS: Mapping[str, Sequence[Entry]] = {
    "Words": (*words.ENTRIES, *word_models.ENTRIES),
    "Recurrence": (*recurrence.ENTRIES, *sequences.ENTRIES, documents.documents),
    "Attention": (*attention.ENTRIES, documents.map_memory),
    "The Transformer": transformer.ENTRIES,
    "Writing": writing.ENTRIES,
    "Text to text": texts.ENTRIES,
    "Pre-training": (*pretraining.ENTRIES, *masking.ENTRIES, *word_models.CONTEXTUAL),
    "Systems": systems.ENTRIES,
    "Mentions": coreference.ENTRIES,
    "Knowledge and pictures": knowledge.ENTRIES,
    "Pictures": pictures.ENTRIES,
    "Sound and records": (*signals.ENTRIES, *sound.ENTRIES),
}


def find(name: str) -> Entry:
    """The entry of a name. Raises UnmaskError, which suggests the nearest name, if there is none."""
    named = {entry.name: entry for entries in CHAPTERS.values() for entry in entries}
    if name not in named:
        raise unknown("entry of the lectures", name, named)
    return named[name]
