"""Semantic roles: the arguments of a marked predicate, as tags of the words of its sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.roles import read_roles
from unmask.tasks.rows import Rows, column
from unmask.tasks.tagging import Tagging


@dataclass(frozen=True, kw_only=True)
class RolesRows(Rows):
    """Sentences with marked predicates and their arguments.

    text       number of the column of the words, if it is not the usual one
    predicate  number of the column that marks predicates
    label      number of the column of the first predicate's arguments
    """

    text: str | None = column()
    predicate: str | None = column()
    label: str | None = column()


class Roles(Tagging):
    """Tagging of rows with one marked predicate each. The model and its folder are those of a tagger."""

    task_name = "roles"
    also_called = ("srl", "semantic-role-labelling", "semantic-role-labeling")
    rows_class = RolesRows
    rows_are = "marked predicates and their arguments"
    pipeline = ""  # that of a tagger marks no predicate

    @classmethod
    def read_rows(cls, path: Path, rows: Any, *, scoring: bool = False) -> Dataset:
        names = {"word": rows.text, "predicate": rows.predicate, "arguments": rows.label}
        return Dataset(path, *read_roles(path, **names, encoding=rows.encoding))

    @classmethod
    def fits(cls, rows: Dataset) -> bool:
        return False
