"""Documents with clusters: columns of CoNLL-2012 and LitBank, GAP, and errors that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from unmask.data.labelled.coreference import is_gap, read_documents, read_gap, sentence_starts
from unmask.errors import UnmaskError

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
LITBANK = """#begin document (a_book); part 0
a_book\t0\t0\tThe\t_\t_\t(0
a_book\t0\t1\tmother\t_\t_\t
a_book\t0\t2\tof\t_\t_\t
a_book\t0\t3\tAnn\t_\t_\t(1)|0)
a_book\t0\t4\t.\t_\t_\t

a_book\t0\t0\tShe\t_\t_\t(0)
a_book\t0\t1\tsang\t_\t_\t
#end document
#begin document (another); part 0
another\t0\t0\tHe\t_\t_\t(0)
#end document
"""
ONTONOTES = """#begin document (bc/x); part 000
bc/x   0   0   I   PRP   (TOP*   -   -   -   spk   *   (3)
bc/x   0   1   ran   VBD   *)   run   01   1   spk   *   -

#end document
#begin document (bc/x); part 001
bc/x   1   0   my   PRP$   (TOP*   -   -   -   spk   *   (3|(4
bc/x   1   1   car   NN   *)   -   -   -   spk   *   4)|3)
#end document
"""
GAP_HEAD = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
GAP_ROW = "t-1\tMary Ann met Eve. She sang.\tShe\t18\tMary Ann\t0\tTRUE\tEve\t13\tFALSE\thttp://x\n"


def test_columns_of_litbank(tmp_path):
    (tmp_path / "b.conll").write_text(LITBANK)
    first, second = read_documents(tmp_path / "b.conll")
    assert first.words == ("The", "mother", "of", "Ann", ".", "She", "sang")
    assert first.starts == (0, 5)
    assert set(first.clusters) == {((0, 4), (5, 6)), ((3, 4),)}
    assert (first.id, first.place) == ("a_book 0", f"{tmp_path / 'b.conll'}:2")
    assert second.clusters == (((0, 1),),)
    (tmp_path / "a.conll").write_text(ONTONOTES)
    both = read_documents(tmp_path)
    assert [row.id for row in both] == ["bc/x 0", "bc/x 1", "a_book 0", "another 0"]
    assert both[1].clusters == (((0, 2),), ((0, 2),))  # two clusters begin and end there
    assert not any(row.clusters for row in read_documents(tmp_path, labelled=False))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LITBANK.replace("(1)|0)", "0)|(1"), ":5 begins a mention of cluster 1, which its document does not end"),
        (LITBANK.replace("\t(0\n", "\t\n"), ":5 ends a mention of cluster 0, but none is open"),
        (LITBANK.replace("(1)|0)", "(1)0)"), r":5 has '\(1\)0\)' in its last column; write \(3"),
        (LITBANK.replace("(1)|0)", "1|0)"), ":5 has '1' in its last column"),
        ("a\t0\t0\tHe\nb\t0\t0\tHe\n", ":1 has 4 columns; it needs document, part, number of the word"),
        (LITBANK.replace("\t(0\n", "\t(0\t\n"), ":3 has 7 columns, but the lines before it have 8"),
        ("a\t0\t0\tHe\t_\n", "has no clusters: the last column"),
    ],
)
def test_errors_name_the_line(tmp_path, text, message):
    (tmp_path / "x.conll").write_text(text)
    with pytest.raises(UnmaskError, match=f"x.conll ?{message}"):
        read_documents(tmp_path / "x.conll")


def test_a_folder_without_documents(tmp_path):
    with pytest.raises(UnmaskError, match=r"has no file \*.conll"):
        read_documents(tmp_path)


def test_rows_of_gap(tmp_path):
    path = tmp_path / "gap.tsv.gz"
    path.write_bytes(gzip.compress((GAP_HEAD + GAP_ROW).encode()))
    (row,) = read_gap(path)
    assert is_gap(path)
    assert [row.words[slice(*span)] for span in (row.pronoun, *row.names)] == [("She",), ("Mary", "Ann"), ("Eve",)]
    assert row.meant == (True, False)
    assert row.starts == (0, 5)
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\na\tb\n")
    assert not is_gap(other)
    assert not is_gap(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("She\t18", "She\t17", ":2: the text does not have 'She' at character 17"),
        ("\tFALSE", "\tmaybe", ":2: B-coref must be TRUE or FALSE, not 'maybe'"),
    ],
)
def test_errors_of_gap_name_the_row(tmp_path, old, new, message):
    (tmp_path / "gap.tsv").write_text(GAP_HEAD + GAP_ROW.replace(old, new))
    with pytest.raises(UnmaskError, match=message):
        read_gap(tmp_path / "gap.tsv")


def test_sentences_of_words():
    words = ["He", "came", ".", '"', "Why", "?", '"', "she", "said", ".", ".", ".", "Nothing"]
    assert [words[i] for i in sentence_starts(tuple(words))] == ["He", "Why", "she", "Nothing"]
    assert sentence_starts(("a", ".")) == (0,)


@pytest.mark.skipif(not (DATA / "gap").is_dir(), reason="needs the staged GAP")
def test_gap_as_published():
    found = read_gap(DATA / "gap" / "gap-validation.tsv.gz")
    assert len(found) == 454
    assert all(sum(row.meant) < 2 for row in found)
