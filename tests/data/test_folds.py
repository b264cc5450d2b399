"""Folds of rows: every row in one part, groups and copies whole, classes spread evenly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.folds import parts
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError
from unmask.tasks import reading
from unmask.tasks.rows import TextRows

ROWS = TextRows(folds=2, fold=1)
labels = st.sampled_from("abc")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.lists(labels, min_size=2, max_size=60), st.integers(2, 7), st.integers(0, 9))
def test_without_groups_every_part_has_its_share_of_each_class(found: list[str], count: int, seed: int) -> None:
    rows = [Row(text=f"text {i}", label=label) for i, label in enumerate(found)]
    if len(rows) < count:
        with pytest.raises(UnmaskError, match="too few"):
            parts(rows, count, rng(seed))
        return
    part_N = parts(rows, count, rng(seed))
    assert sorted(set(part_N.tolist())) == list(range(count))
    for label in (None, *"abc"):
        sizes = np.bincount(part_N[[label in (None, one) for one in found]], minlength=count)
        assert sizes.max() - sizes.min() <= 1, label


@given(st.lists(st.tuples(st.integers(0, 8), labels), min_size=1, max_size=60), st.integers(2, 4))
def test_a_group_is_whole_and_no_part_is_empty(found: list[tuple[int, str]], count: int) -> None:
    rows = [Row(text=f"text {i}", label=label, group=f"p{group}") for i, (group, label) in enumerate(found)]
    if len({row.group for row in rows}) < count:
        with pytest.raises(UnmaskError, match="too few"):
            parts(rows, count, rng())
        return
    part_N = parts(rows, count, rng())
    assert sorted(set(part_N.tolist())) == list(range(count))
    assert len({(row.group, part) for row, part in zip(rows, part_N, strict=True)}) == len({row.group for row in rows})


def test_equal_groups_of_unequal_classes_are_spread():
    rows = [Row(text=f"{g} {i}", label="b" if g < 4 else "a", group=str(g)) for g in range(12) for i in range(5)]
    part_N = parts(rows, 4, rng())
    for part in range(4):
        assert Counter(rows[i].label for i in np.flatnonzero(part_N == part)) == {"a": 10, "b": 5}


def test_copies_stay_together_and_the_seed_decides():
    rows = [Row(text=f"Text {i // 2}" if i % 2 else f"text  {i // 2}", label="a") for i in range(40)]
    part_N = parts(rows, 5, rng())
    assert (part_N[::2] == part_N[1::2]).all()
    assert np.bincount(part_N).tolist() == [8] * 5
    assert (parts(rows, 5, rng()) == part_N).all()
    assert (parts(rows, 5, rng(1)) != part_N).any()


def test_each_fold_is_the_test_rows_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 3 == 0]}\n" for i in range(40)))
    said: list[str] = []
    tested: list[str] = []
    for fold in range(1, 5):
        rows = TextRows(train=path, folds=4, fold=fold)
        sets = reading.read_sets("classification", rows, said.append, rng())
        names = {name: {row.text for row in found} for name, found in sets.items()}
        assert set.union(*names.values()) == {f"text {i}" for i in range(40)}
        assert sum(map(len, names.values())) == 40
        tested += sorted(names["test"])
    assert len(tested) == len(set(tested)) == 40
    assert "Fold 4 of 4: 10 rows as test rows." in said


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"folds": 1, "fold": 1}, "2 or more"),
        ({"folds": 3}, "--fold 1 to 3"),
        ({"folds": 3, "fold": 4}, "--fold 1 to 3"),
        ({"fold": 2}, "not None"),
        ({"folds": 2, "fold": 1, "test": True}, "leave --test out"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object], message: str, tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{name} {i}\t{i % 2}\n" for i in range(20)))
    given = {**fields, "test": tmp_path / "test.tsv" if "test" in fields else None}
    rows = TextRows(train=tmp_path / "train.tsv").replace(**given)
    with pytest.raises(UnmaskError, match=message):
        reading.read_sets("classification", rows, lambda _: None, rng())


def test_the_groups_of_a_fold_are_counted(tmp_path: Path) -> None:
    rows = tuple(Row(text=str(i), label="ab"[i % 2], group=f"p{i // 4}") for i in range(24))
    said: list[str] = []
    sets = reading._fold({"train": Dataset(tmp_path, rows, {})}, "classification", ROWS, said.append, rng())
    assert said == ["Fold 1 of 2: 12 rows of 3 groups as test rows."]
    assert not {row.group for row in sets["train"]} & {row.group for row in sets["test"]}


def test_a_class_of_one_fold_is_named(tmp_path: Path) -> None:
    rows = Dataset(tmp_path, tuple(Row(text=str(i), label="rare" if i == 7 else "ab"[i % 2]) for i in range(20)), {})
    with pytest.raises(UnmaskError, match="the label 'rare' are in one fold"):
        reading._fold({"train": rows}, "classification", ROWS, lambda _: None, rng())
