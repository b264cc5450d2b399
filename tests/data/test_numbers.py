"""Numbers: what is a vector and what is not; arrays and lines hold the same numbers; texts as of Tokenizer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unmask.data.bitext import numbers
from unmask.data.bitext import reading as bitext
from unmask.data.bitext.numbers import NoVector, Numbers
from unmask.data.text.subwords import train as train_subwords
from unmask.errors import UnmaskError

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.fixture(scope="module")
def read():
    return Numbers(train_subwords(["one two three", "two one"], 10, "word").side, 3)


@given(st.lists(finite, min_size=1, max_size=9), st.sampled_from([" ", ",", ", ", "\t"]), st.booleans())
def test_numbers_in_any_usual_form_are_a_vector(values, between, brackets):
    text = between.join(map(repr, values))
    found = numbers.vector(f"[{text}]" if brackets else f" {text}")
    assert found.dtype == np.float32
    assert found.tolist() == values
    assert numbers.vector(json.dumps(values)).tolist() == values


NONE = ["", "  ", "[]", "1 two 3", "nan 1", "1 -inf", "1e39", "3.4.05", "[[1, 2]]", "{1}"]
NONE += ["0,5 1,2", "1,,2", "1,", "1_0 2", "\uff11 2", "[1 2", "1 2]"]  # decimal commas, a missing number, other digits


@pytest.mark.parametrize("text", NONE)
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
        (np.array([["a", "b"]]), "must have a row of numbers for each text"),
        (np.array([[1.0, 2.0], [1.0, np.nan]]), "Row 2 of .* not finite"),
        (np.array([[1e300]]), "Row 1 of .* not finite"),
        (np.array([[None]]), "not an array that NumPy can read"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, says):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UnmaskError, match=says):
        numbers.lines(tmp_path / "a.npy")


def test_a_file_that_is_no_array_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.savez(tmp_path / "archive.npz", np.zeros((2, 2)))
    np.save(path, np.zeros((2, 2)))
    whole = path.read_bytes()
    damaged = whole.replace(b"'shape': (2, 2)", b"'shape': (2, 2(")
    for content in (b"", b"0.5 0.5\n", b"PK\x03\x04", (tmp_path / "archive.npz").read_bytes(), whole[:-1], damaged):
        path.write_bytes(content)
        with pytest.raises(UnmaskError, match=r"a\.npy is not an array"):
            numbers.lines(path)


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "i8", ">i2", "u1", "?", "f2"])
def test_numbers_of_all_kinds_are_read(tmp_path, dtype):
    array = np.asfortranarray(np.array([[1, 0, 3], [0, 1, 0]]).astype(dtype))
    np.save(tmp_path / "a.npy", array)
    found = [numbers.vector(line) for line in numbers.lines(tmp_path / "a.npy")]
    assert np.array_equal(found, array.astype(np.float32))


def test_a_source_is_one_item_and_a_target_is_a_text(read):
    found = read.ids(["1 2 3", " ", "[0.5, -1, 2e3]"])
    assert [one.shape for one in found] == [(1, 3), (0, 3), (1, 3)]
    assert found[2].tolist() == [[0.5, -1.0, 2000.0]]
    assert read.closed(found[0], 1) is found[0]
    assert read.lacking(np.full((1, 3), read.unknown, np.float32)) == 0
    ids = read.target.ids(["two three"])[0]
    assert read.target.decode(ids) == read.decode(ids) == "two three"
    assert read.pieces(ids) == read.target.pieces(ids)
    for view in (lambda: read.pieces(found[0]), lambda: read.encode("1 2 3")):
        with pytest.raises(UnmaskError, match="no tokens"):
            view()
    assert read.shown("1 " * 99) == "1 " * 20 + "…"
    assert read.target.shown("1 " * 99) == "1 " * 99


@pytest.mark.parametrize(
    ("text", "says"),
    [("1 2", "'1 2' has 2 numbers, but the model reads vectors of 3"), ("one", "'one' is not a line of finite")],
)
def test_a_source_that_is_none_is_quoted(read, text, says):
    with pytest.raises(NoVector, match=says) as caught:
        read.ids(["1 2 3", text])
    assert caught.value.place == 1


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
        assert "hardly correlated" not in one.description
    for names in (["v.npy"], ["t.txt", "v.npy"], ["v.npy.gz"]):
        with pytest.raises(UnmaskError, match="give the file of texts second"):
            bitext.read(*[tmp_path / name for name in names])
    np.save(tmp_path / "short.npy", array[:9])
    with pytest.raises(UnmaskError, match=r"short\.npy has 9 rows but .*t\.txt 150 lines\.$"):
        bitext.read(tmp_path / "short.npy", tmp_path / "t.txt")


def test_lists_in_a_table_are_vectors_where_sources_stand(tmp_path):
    for row in ({"vector": "x", "text": [1, 2]}, {"vector": [1, True], "text": "a"}, {"vector": [], "text": "a"}):
        (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
        with pytest.raises(UnmaskError, match=r"rows\.jsonl:1: the column \w+ must be text"):
            bitext.read(tmp_path / "rows.jsonl")


def test_a_number_in_the_first_line_makes_no_vectors_of_texts(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a.txt", "b.txt"):
        lengths = rng.permutation(np.arange(1, 201))
        (tmp_path / name).write_text("1\n" + "".join("word " * n + f"{n}\n" for n in lengths))
    assert "hardly correlated" in bitext.read(tmp_path / "a.txt", tmp_path / "b.txt").description
