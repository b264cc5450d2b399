"""Pictures of digits on a grid: captions say what lies where; tables of pictures with captions; sources of requests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.pictures import captions, compositions
from unmask.data.pictures.captions import Captions, captioned, holds_captions
from unmask.data.pictures.compositions import Digits
from unmask.data.pictures.compositions import compositions as composed
from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text import subwords
from unmask.errors import UnmaskError

# Each digit is a cell of one brightness, so that a picture can be read without a model.
PLAIN = Digits(np.stack([np.full((4, 4), 10 + 20 * digit, np.uint8) for digit in range(10)]), np.arange(10))


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_a_caption_says_what_lies_where(seed, side):
    (one,) = composed(PLAIN, 1, np.random.default_rng(seed), side=side)
    assert one.pixels.shape == (4 * side, 4 * side)
    rows = [[str((v - 10) // 20) for v in row if v] for row in one.pixels[::4, ::4].tolist()]
    assert one.caption == ", above ".join(" left of ".join(row) for row in rows if row)
    assert 2 <= sum(map(len, rows)) <= compositions.MOST


def test_pairs_depend_on_the_seed_and_the_split_alone():
    first, again, other = compositions.pairs(5), compositions.pairs(5), compositions.pairs(5, split="dev")
    assert (first.sources, first.targets) == (again.sources, again.targets)
    assert not set(first.sources) & set(other.sources)


def test_drawings_of_a_digit_differ_and_digits_are_far_apart():
    drawn = Digits.drawn(np.random.default_rng(0), each=3)
    assert len({one.tobytes() for one in drawn.pixels}) == 30
    assert drawn.labels.tolist() == [digit for digit in range(10) for _ in range(3)]
    assert len(set(compositions.GLYPHS)) == 10


def test_a_folder_is_read_as_it_was_written(tmp_path):
    made = list(composed(PLAIN, 3, np.random.default_rng(1)))
    compositions.write(tmp_path / "x", made)
    assert holds_captions(tmp_path / "x")
    assert holds_captions(tmp_path / "x" / "captions.tsv")
    found = captioned(tmp_path / "x")
    assert found.targets == [one.caption for one in made]
    for source, one in zip(found.sources, made, strict=True):
        np.testing.assert_array_equal(decode(source, 1)[..., 0], one.pixels)
    with pytest.raises(UnmaskError, match="exists already"):
        compositions.write(tmp_path / "x", made)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("picture\tcaption\na.png\t\n", "the column caption is empty"),
        ("picture\tcaption\n\ta cat\n", "there is no picture"),
        ("picture\tlabel\na.png\t1\n", "no column of captions"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, table, why):
    (tmp_path / "captions.tsv").write_text(table)
    with pytest.raises(UnmaskError, match=why):
        captioned(tmp_path)


def test_a_folder_without_a_table_is_refused(tmp_path):
    with pytest.raises(UnmaskError, match=r"a folder without captions\.tsv"):
        captioned(tmp_path)


def test_columns_can_be_named(tmp_path):
    (tmp_path / "t.tsv").write_text("image\tcomment\tcaption\nb.png\tx\ty\n")
    assert captioned(tmp_path / "t.tsv", columns=("image", "comment")).targets == ["x"]
    assert captioned(tmp_path / "t.tsv").sources == [str(tmp_path / "b.png")]


def test_a_table_of_texts_has_no_captions(tmp_path):
    (tmp_path / "t.tsv").write_text("source\ttarget\na\tb\n")
    assert not holds_captions(tmp_path / "t.tsv")
    assert not holds_captions(tmp_path)


@pytest.fixture(scope="module")
def processor() -> Captions:
    side = subwords.train(["3 left of 7"], 50, "word").side
    return Captions(side, ImageProcessor(size=84, patch=28, mean=(0.5,), std=(0.5,)))


def test_a_source_is_read_when_it_is_needed(processor, tmp_path):
    pairs = compositions.pairs(1)
    (from_uri,) = processor.ids(pairs.sources)
    assert len(from_uri) == 10
    path = tmp_path / "p.png"
    path.write_bytes(from_uri.source)
    (from_file,) = processor.ids([str(path)])
    np.testing.assert_array_equal(from_file.read(), from_uri.read())
    assert processor.places(from_uri) == ["CLS", *(f"{r},{c}" for r in (1, 2, 3) for c in (1, 2, 3))]
    assert processor.lacking(from_uri) == 0
    assert len(processor.ids([" "])[0]) == 0


def test_requests_read_no_files(processor, tmp_path):
    asked = processor.of_requests()
    assert len(asked.ids(compositions.pairs(1).sources)) == 1
    (tmp_path / "p.png").write_bytes(b"")
    with pytest.raises(UnmaskError, match="not as the name of a file"):
        asked.ids([str(tmp_path / "p.png")])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("nothing.png", "There is no picture nothing.png"),
        (captions.URI + "%%", "must be in base64"),
        (captions.URI + "aGVsbG8=", "not a picture"),
    ],
)
def test_sources_that_are_no_pictures_are_refused(processor, source, why):
    with pytest.raises(UnmaskError, match=why):
        processor.ids([source])


def test_a_picture_has_no_tokens(processor):
    with pytest.raises(UnmaskError, match="has no tokens to show"):
        processor.encode("a.png")
    with pytest.raises(UnmaskError, match="has no tokens to show"):
        processor.pieces(processor.ids(compositions.pairs(1).sources)[0])
