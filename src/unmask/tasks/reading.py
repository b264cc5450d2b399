"""Reading: labelled rows from files for all tasks; held-out rows, public data sets, overlap between sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.files.tables import on_hub
from unmask.data.labelled import dataset, folds, glue
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row, listed
from unmask.errors import UnmaskError, plural
from unmask.tasks.registry import TASKS, task_fitting, task_named
from unmask.tasks.rows import Rows
from unmask.tasks.task import Say

SHOWN = 20  # labels that are listed with their shares
LABELS_ALONE = 10  # rows from which on it is a mistake if each has a label of its own


def check_scored(rows: Rows) -> None:
    """Raises UnmaskError for a field that is set but has no effect where the rows of one file are scored."""
    usual = type(rows)()
    for name in rows.LEARNING:
        if getattr(rows, name) != getattr(usual, name):
            raise UnmaskError(f"--rows.{name.replace('_', '-')} has no effect here: every row of --data is scored.")


def read(path: Path, task: str, rows: Rows | None = None, *, scoring: bool = False) -> Dataset:
    """The rows of one file, or of a data set of the hub, as a task needs them.

    rows     config of the rows, of the task's class
    scoring  whether the rows are for scoring, not for training: then questions whose answer cannot be learned are kept

    Raises UnmaskError where the file holds rows of another kind.
    """
    kind = task_named(task)
    folder = path.is_dir()
    if not (path.is_file() or on_hub(path) or (folder and kind.folders)):
        if not folder:
            raise UnmaskError(f"There is no file {path}.")
        tables = [one.name for one in sorted(path.iterdir()) if one.is_file() and "train" in one.name]
        if tables:
            one = path / tables[0]
            raise UnmaskError(f"{path} is a folder: name a file in it, such as {one}, or give its --benchmark NAME.")
        others = " or ".join(name for name, one in TASKS.items() if one.folders)
        raise UnmaskError(f"{path} is a folder, not a file; a folder is for --task {others}.")
    for name, other in TASKS.items():
        if path.is_file() and other.owns(path) and not kind.owns(path):
            raise _of_another(path, name, task)
    return kind.read_rows(path, kind.rows_class() if rows is None else rows, scoring=scoring)


def read_table(path: Path, task: str, rows: Rows, *, format: str | None = None) -> Dataset:
    """Rows of a table, or of columns of words, with the columns that the task's rows name. Raises UnmaskError where
    they fit another task."""
    found = table(path, rows, format=format)
    if not TASKS[task].fits(found):
        raise _of_another(path, task_fitting(found).task_name, task)
    return found


def table(path: Path, rows: Rows, *, format: str | None = None) -> Dataset:
    """As `read_table`, but for rows of any task."""
    names = ("text", "pair", "label", "several", "skip")
    given: dict[str, Any] = {name: getattr(rows, name) for name in names if hasattr(rows, name)}
    return dataset.read(path, **given, format=format or getattr(rows, "format", None), encoding=rows.encoding)


def _of_another(path: Path, other: str, task: str) -> UnmaskError:
    return UnmaskError(
        f"{path} has {TASKS[other].rows_are}, which {task} cannot use; they are rows for --task {other}."
    )


def read_sets(task: str, rows: Rows, say: Say, rng: np.random.Generator) -> dict[str, Dataset]:
    """The rows of train, dev and, if given, test. Without dev rows, a tenth of the training rows is held out."""
    assert rows.train is not None
    sets: dict[str, Dataset] = {}
    if rows.benchmark is not None:
        sets = _published(task, rows.benchmark, rows.train, say)
    for name, path in rows.files.items():
        if path is not None and not (rows.benchmark is not None and name == "train"):
            sets[name] = read(path, task, rows, scoring=name != "train")
    if rows.most is not None:
        if rows.most < 1:
            raise UnmaskError(f"--most must be 1 or more, not {rows.most}.")
        given = len(sets["train"])
        sets["train"] = sets["train"].take(range(min(rows.most, given)))
        if rows.most < given:
            say(f"Of the {given:,} training rows, the first {rows.most:,} are used.")
    for name, found in sets.items():
        say(f"{name}: {found.description}.")
    if rows.folds is not None or rows.fold is not None:
        sets = _fold(sets, task, rows, say, rng)
    if "dev" not in sets:
        sets = _held_out(sets, rows, say, rng)
    for name in [name for name in sets if name != "train"]:
        common = dataset.overlap(sets["train"], sets[name])
        if not rows.allow_overlap and (name == "test" or rows.dev is not None):
            dataset.check_apart(sets["train"], sets[name])
        if common:
            rows_of = plural(len(sets[name]), f"{name} row")
            say(f"The training rows also hold {len(common):,} of the {rows_of} ({listed([r.place for r in common])}).")
    return sets


def _held_out(sets: dict[str, Dataset], rows: Rows, say: Say, rng: np.random.Generator) -> dict[str, Dataset]:
    """The sets with about a tenth of the training rows as dev rows, chosen by `Rows.hold_out`."""
    whole = sets["train"]
    if len(whole) < rows.fewest:
        few = plural(len(whole), "row")
        raise UnmaskError(f"{whole.path} has {few}: too few to hold some out; give --dev FILE.")
    dev, train, how = rows.hold_out(whole, round(len(whole) / 10), rng)
    say(f"There are no dev rows; held out instead, {how}: {plural(len(dev), 'row')} of {whole.path}.")
    return {"train": train, "dev": dev, **{name: found for name, found in sets.items() if name == "test"}}


def _fold(sets: dict[str, Dataset], task: str, rows: Rows, say: Say, rng: np.random.Generator) -> dict[str, Dataset]:
    """The sets with one fold of the training rows as test rows. The folds of equal rows and generators are those of one
    partition."""
    if rows.folds is None or rows.folds < 2:
        raise UnmaskError(f"--folds must be the number of folds, 2 or more, not {rows.folds}.")
    if rows.fold is None or not 1 <= rows.fold <= rows.folds:
        raise UnmaskError(
            f"Give the fold to test, --fold 1 to {rows.folds}; unmask finetune and train also test each in turn, but "
            "not with --search, --curve or --advise."
        )
    if "test" in sets:
        raise UnmaskError("With --folds, the test rows are taken out of the training rows: leave --test out.")
    whole = sets["train"]
    part_N = folds.parts(whole, rows.folds, rng)
    own = np.flatnonzero(part_N == rows.fold - 1)
    found_in: dict[str, set[int]] = {}
    for row, part in zip(whole, part_N.tolist(), strict=True):
        found_in.setdefault(row.label, set()).add(part)
    alone = [label for label, places in found_in.items() if len(places) == 1]
    if alone and TASKS[task].one_label:
        raise UnmaskError(
            f"All rows with the label '{alone[0]}' are in one fold, so a model would be tested on a label that it has "
            "not seen: remove these rows, give more of them, or fewer folds."
        )
    groups = {row.group for row in whole.take(own) if row.group}
    of = f" of {plural(len(groups), 'group')}" if groups else ""
    say(f"Fold {rows.fold} of {rows.folds}: {plural(len(own), 'row')}{of} as test rows.")
    train = whole.take(np.flatnonzero(part_N != rows.fold - 1).tolist())
    return {**sets, "train": train, "test": whole.take(own.tolist())}


def _published(task: str, name: str, folder: Path, say: Say) -> dict[str, Dataset]:
    """The labelled parts of a public data set."""
    benchmark = glue.find(name)
    if not TASKS[task].learns(benchmark):
        other = next(name for name, kind in TASKS.items() if kind.learns(benchmark))
        raise UnmaskError(f"The rows of {benchmark.name} are for --task {other}, not {task}.")
    sets = {part: glue.split(name, folder, part) for part in ("train", "dev") if part in benchmark.parts}
    if "test" in benchmark.parts and not benchmark.test_rows:  # GLUE keeps the labels of its test rows
        try:
            sets["test"] = glue.split(name, folder, "test")
        except UnmaskError as error:
            say(f"No test rows: {error}")
    return sets


# ------------------------------------------------------------------------------------------------ labels


def labels_of(
    sets: Mapping[str, Dataset], say: Say, *, held_out: bool, what: str = "Labels", several: bool = False
) -> tuple[str, ...]:
    """The labels, or tags, of the training rows; the share of each is reported with `say`.

    held_out  whether the dev rows were taken from the training rows, so that they may have labels of their own
    what      the name of labels in the report
    several   whether a row may have several labels; shares are then shares of rows

    Raises UnmaskError where there is only one label, and for a row of another set with a label that `train` lacks.
    """
    train = sets["train"]
    labels = tuple(dataset.ordered({*dataset.classes(train), *(sets["dev"].labels if held_out else ())}))
    for name, other in sets.items():
        if name != "train":
            dataset.check_labels(other, labels, f"the training rows of {train.path}")
    counts = train.histogram()
    alone = len(counts) == sum(counts.values()) == len(train) >= LABELS_ALONE
    if alone and any(dataset.number(label) is None for label in counts):
        raise UnmaskError(
            f"Each of the {len(train):,} rows of {train.path} has a label of its own, such as '{train[0].label}': are "
            "text and label swapped?"
        )
    whole = len(train) if several else sum(counts.values())
    shares = [f"{label} {n / whole:.1%}" for label, n in counts.items()]
    if len(shares) > SHOWN:
        shares[SHOWN:] = [f"and {len(shares) - SHOWN} more"]
    say(f"{what}: {', '.join(shares)}.")
    return labels


def counts_of(train: Dataset, labels: Sequence[str]) -> list[int]:
    """How many training rows, or words, have each label."""
    counts = train.histogram()
    return [counts.get(label, 0) for label in labels]


def with_labels(rows: Dataset, labels: tuple[str, ...], owner: str) -> Dataset:
    """The rows with labels as the model names them: `1` is its second output, `positive` its `POSITIVE`.

    Raises UnmaskError for a label that matches no output in these ways. Where the model's labels are numbers, such as
    stars from 1 to 5, numbers are never read as indices of outputs, which would shift them by one.
    """
    known = set(rows.histogram())
    by_number = {str(i): label for i, label in enumerate(labels)}
    by_lower = {label.lower(): label for label in labels}
    if known <= set(labels):
        return rows
    if known <= set(by_number) and not set(labels) & set(by_number):
        names = by_number
    elif {label.lower() for label in known} <= set(by_lower):
        names = {label: label if label in labels else by_lower[label.lower()] for label in known}
    else:
        dataset.check_labels(rows, labels, f"the outputs of {owner}")
        return rows

    def named(row: Row) -> Row:
        label = names.get(row.label, row.label)
        return replace(
            row,
            label=label,
            labels=tuple(names[label] for label in row.labels),
            tags=tuple(names[tag] for tag in row.tags),
        )

    return replace(rows, rows=tuple(named(row) for row in rows))
