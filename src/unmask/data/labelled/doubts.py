"""Doubts: what is unusual about the sets of labelled files, such as recordings, that a run reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from unmask.data.files.copies import copies_note, copies_of
from unmask.data.files.items import SHOWN
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import listed
from unmask.errors import plural


def doubts(sets: Mapping[str, Dataset], noun: str) -> Iterator[str]:
    """Sentences on classes that a set lacks although "train" has them, on groups that are in two sets, and on copies of
    a file within a set; `noun` is one of the files: "recording"."""
    classes = {row.label for row in sets["train"]}
    groups = {name: {row.group for row in rows if row.group} for name, rows in sets.items()}
    for name, rows in sets.items():
        if lacking := sorted(classes - {row.label for row in rows}):
            yield f"{name} has no {noun} of {plural(len(lacking), 'class', 'classes')}: {listed(lacking, SHOWN)}."
        if name != "train" and (common := sorted(groups[name] & groups["train"])):
            of = f"{len(common):,} of the {plural(len(groups[name]), 'group')} of {name}"
            yield f"The training rows also hold {of} ({listed(common, SHOWN)})."
        places, labels = [row.place for row in rows], [row.label for row in rows]
        copies = copies_of(row.key for row in rows)
        for note in copies_note(copies, places.__getitem__, labels.__getitem__, noun):
            yield f"{name}: {note}."
