"""Visits of patients, each a set of codes such as diagnoses: how they are read, and visits that are made up.

A patient is a list of visits in order of time; the order of the codes within a visit means nothing. A basket of items
is read as the only visit of a patient.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.lines import lines
from unmask.data.files.tables import column_of, format_by_name, read_table
from unmask.errors import UnmaskError
from unmask.files import write_text
from unmask.runs.word_vectors import reading

PATIENTS = ("patient", "patient_id", "subject", "subject_id", "person")
VISITS = ("visit", "visit_id", "encounter", "encounter_id", "admission", "hadm_id", "date")
CODES = ("code", "icd", "icd_code", "diagnosis", "concept")
"""Usual names of columns."""

GROUPS, MEMBERS = 20, 12  # of made-up codes
SHARE = 0.8  # of the made-up patients are training data

Visit = Sequence[str | int]


def in_sequence(patients: Iterable[Sequence[Visit]]) -> Iterator[Visit]:
    """The visits of all patients with codes, and an empty one after each patient."""
    for patient in patients:
        yield from (visit for visit in patient if len(visit))
        yield []


def read(
    paths: Sequence[str | Path], encoding: str | None = None, *, alone: bool = False
) -> Iterator[Sequence[Sequence[str]]]:
    """The visits of each patient.

    In a JSONL file, a line is a patient: a list of visits, which are lists of codes, [["E11", "I10"], ["N18"]]. In a
    CSV, TSV or Parquet file with the columns `patient`, `visit` and `code`, a row is a code; the rows of a patient
    follow each other, in order of time. With `alone`, a file may also hold single sets, such as baskets: a list of
    items a line in a JSONL file, ["bread", "butter"], or items separated by white space in a text file. Raises
    UnmaskError without files, for a line or row of another form, and for a patient whose rows are apart.
    """
    if not paths:
        raise UnmaskError("Give the visits of patients with --data; `unmask words visits` writes made-up ones.")
    for path in map(Path, paths):
        if not path.is_file():
            raise UnmaskError(f"There is no file {path}.")
        if alone and _holds_sets(path, encoding):
            items = reading.read([path], reading.Reading(tokens="spaces", lower=False, encoding=encoding))
            yield from ([one] for one in items)
            continue
        yield from _lines(path, encoding) if format_by_name(path) == "jsonl" else _table(path, encoding)


def _holds_sets(path: Path, encoding: str | None) -> bool:
    """Whether the lines of a file are single sets, not patients: those of a text, and of JSONL by the first line."""
    if format_by_name(path) != "jsonl":
        return format_by_name(path) is None
    first = next((line for _, line in lines(path, encoding=encoding, newline="\n") if line.strip()), "")
    return first.lstrip().startswith("[") and not first.replace(" ", "").startswith("[[")


def _lines(path: Path, encoding: str | None) -> Iterator[list[list[str]]]:
    for number, line in lines(path, encoding=encoding, newline="\n"):
        if not line.strip():
            continue
        try:
            patient = json.loads(line)
        except (ValueError, RecursionError):
            patient = None
        if not isinstance(patient, list) or not all(map(_is_visit, patient)):
            raise UnmaskError(
                f'{path}:{number} must be a list of visits, each a list of codes: [["E11", "I10"], []]; in a file of '
                'baskets, every line is a list of items: ["bread", "butter"].'
            )
        yield [[str(code) for code in visit] for visit in patient]


def _is_visit(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {str, int} and "" not in value


def _table(path: Path, encoding: str | None) -> Iterator[list[list[str]]]:
    format = format_by_name(path)
    if format in (None, "conll"):
        raise UnmaskError(f"{path} must be .jsonl, or a table such as .csv or .tsv.")
    table = read_table(path, format or "", encoding=encoding)
    names = [column_of(table.columns, known) for known in (PATIENTS, VISITS, CODES)]
    if None in names:
        raise UnmaskError(f"{path} must have the columns patient, visit and code, not {', '.join(table.columns)}.")
    rows = []
    for number, cells in table.rows:
        values = [str(cells.get(name) or "").strip() for name in names if name is not None]
        if not all(values):
            raise UnmaskError(f"{path}:{number} must have a patient, a visit and a code.")
        rows.append(values)
    seen: set[str] = set()
    for name, own in groupby(rows, itemgetter(0)):
        if name in seen:
            raise UnmaskError(f"The rows of patient '{name}' in {path} do not follow each other: sort them.")
        seen.add(name)
        yield [[code for *_, code in visit] for _, visit in groupby(own, itemgetter(1))]


# ------------------------------------------------------------------------------------------------ made-up visits


def made_up(patients: int, rng: np.random.Generator) -> Iterator[list[list[str]]]:
    """Patients with 3 to 8 visits. The codes have 20 groups of 12, A00 to T11, whose first ones are the most frequent.

    A patient has one or two lasting groups; at each visit, a lasting group leads to the next letter with probability
    0.3, which then lasts, too. A visit has 1 to 4 codes of each group that lasts, and one or two of any group. So codes
    of a group occur together, and the codes of the following letter come later.
    """
    weights_M = 1 / np.arange(1, MEMBERS + 1)
    weights_M /= weights_M.sum()

    def codes(group: int, count: int) -> list[str]:
        return [f"{chr(ord('A') + group)}{i:02}" for i in rng.choice(MEMBERS, count, replace=False, p=weights_M)]

    for _ in range(patients):
        lasting = set(rng.choice(GROUPS, rng.integers(1, 3), replace=False).tolist())
        visits = []
        for _ in range(rng.integers(3, 9)):
            found = {code for group in sorted(lasting) for code in codes(group, int(rng.integers(1, 5)))}
            found |= {code for group in rng.integers(0, GROUPS, rng.integers(1, 3)) for code in codes(int(group), 1)}
            visits.append(sorted(found))
            lasting |= {(group + 1) % GROUPS for group in sorted(lasting) if rng.random() < 0.3}
        yield visits


def write(folder: Path, patients: int = 2_000, seed: int = 0) -> list[Path]:
    """Write made-up patients as train.jsonl and test.jsonl, and groups.tsv with the group of each code. Raises
    UnmaskError for fewer than 10 patients, and for a folder that is not empty."""
    if patients < 10 or seed < 0:
        raise UnmaskError("There must be at least 10 patients, and the seed must not be negative.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnmaskError(f"{folder} holds something already; choose another folder, or delete it.")
    found = [json.dumps(one) + "\n" for one in made_up(patients, np.random.default_rng(seed))]
    cut = round(SHARE * patients)
    groups = [f"{chr(ord('A') + g)}{i:02}\t{chr(ord('A') + g)}\n" for g in range(GROUPS) for i in range(MEMBERS)]
    texts = {"train.jsonl": found[:cut], "test.jsonl": found[cut:], "groups.tsv": groups}
    for name, parts in texts.items():
        write_text(folder / name, "".join(parts))
    return [folder / name for name in texts]
