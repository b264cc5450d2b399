"""Numbers: what is a vector and what is not; arrays and lines hold the same numbers; texts as of Subwords."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.data import bitext, numbers
from unmask.data.numbers import Numbers
from unmask.data.subwords import Subwords
from unmask.errors import UnmaskError

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.fixture(scope="module")
def read():
    return Numbers(Subwords.train(["one two three", "two one"], 10, "word").side, 3)


@given(st.lists(finite, min_size=1, max_size=9), st.sampled_from([" ", ",", ", ", "\t"]), st.booleans())
def test_numbers_in_any_usual_form_are_a_vector(values, between, brackets):
    text = between.join(map(repr, values))
    found = numbers.vector(f"[{text}]" if brackets else f" {text}")
    assert found.dtype == np.float32
    assert found.tolist() == values
    assert numbers.vector(json.dumps(values)).tolist() == values


@pytest.mark.parametrize("text", ["", "  ", "[]", "1 two 3", "nan 1", "1 -inf", "1e39", "3.4.05", "[[1, 2]]", "{1}"])
def test_anything_else_is_none(text):
    assert numbers.vector(text) is None


@given(arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 5)), elements=finite))
def test_an_array_is_read_to_the_last_bit(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("array") / "a.npy"
    np.save(path, array)
    found = numbers.lines(path)
    assert len(found) == len(array)
    for line, row in zip(found, array, strict=True):
        assert numbers.vector(line).tolist() == row.tolist()


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros(3), r"array \[3\] of float64"),
        (np.zeros((2, 3, 1)), r"array \[2, 3, 1\]"),
        (np.zeros((2, 0)), r"array \[2, 0\]"),
        (np.array([["a", "b"]]), "a row of numbers for each text is wanted"),
        (np.array([[1.0, 2.0], [1.0, np.nan]]), "Row 2 of .* not finite"),
        (np.array([[1e300]]), "Row 1 of .* not finite"),
        (np.array([[None]]), "no array that NumPy can read"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UnmaskError, match=says):
        numbers.lines(tmp_path / "a.npy")


def test_a_file_that_is_no_array_is_refused(tmp_path):
    (tmp_path / "a.npy").write_text("0.5 0.5\n")
    with pytest.raises(UnmaskError, match=r"a\.npy is no array"):
        numbers.lines(tmp_path / "a.npy")


def test_a_source_is_one_item_and_a_target_is_a_text(read):
    found = read.encode_all(["1 2 3", " ", "[0.5, -1, 2e3]"])
    assert [one.shape for one in found] == [(1, 3), (0, 3), (1, 3)]
    assert found[2].tolist() == [[0.5, -1.0, 2000.0]]
    assert read.closed(found[0], 1) is found[0]
    assert read.lacking(np.full((1, 3), read.unknown, np.float32)) == 0
    ids = read.target.encode("two three")
    assert read.target.decode(ids) == read.decode(ids) == "two three"
    assert read.pieces(ids) == read.target.pieces(ids)
    with pytest.raises(UnmaskError, match="no tokens"):
        read.pieces(found[0])
    assert read.shown("1 " * 99) == "1 " * 20 + "…"
    assert read.target.shown("1 " * 99) == "1 " * 99


@pytest.mark.parametrize(
    ("text", "says"),
    [("1 2", "source '1 2' has 2 numbers, but the model reads vectors of 3"), ("one", "'one' is no line of finite")],
)
def test_a_source_that_is_none_is_quoted(read, text, says):
    with pytest.raises(UnmaskError, match=says):
        read.encode_all(["1 2 3", text])


def test_pairs_of_vectors_and_texts_from_all_kinds_of_files(tmp_path):
    array = np.random.default_rng(0).normal(size=(150, 3)).astype(np.float32)
    texts = [f"text number {'long ' * (i % 7)}{i}" for i in range(150)]
    np.save(tmp_path / "v.npy", array)
    (tmp_path / "v.txt").write_text("".join(" ".join(map(repr, row.tolist())) + "\n" for row in array))
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in array))
    (tmp_path / "t.txt").write_text("".join(text + "\n" for text in texts))
    rows = [{"vector": row.tolist(), "text": text} for row, text in zip(array, texts, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [bitext.read(tmp_path / name, tmp_path / "t.txt") for name in ("v.npy", "v.txt", "v.jsonl")]
    for one in [*found, bitext.read(tmp_path / "rows.jsonl")]:
        assert one.targets == texts
        assert np.array_equal([numbers.vector(source) for source in one.sources], array)
        assert "hardly go together" not in one.description
    np.save(tmp_path / "short.npy", array[:9])
    with pytest.raises(UnmaskError, match=r"short\.npy has 9 rows but .*t\.txt 150 lines\.$"):
        bitext.read(tmp_path / "short.npy", tmp_path / "t.txt")
