"""Bitext: every layout gives the same pairs; what is left out or odd is counted with its lines; errors name places."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.bitext import alignment as aligned
from unmask.data.bitext import reading as bitext
from unmask.data.bitext.pairs import Bitext, Report, check_apart, fitting, hold_out
from unmask.errors import UnmaskError

PAIRS = [('a "dog"', "ein Hund"), ("two, three", "zwei, drei"), ("개가 짖다", "naïve ça")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def two_files(folder, sources, targets):
    return write(folder / "x.en", "".join(f"{s}\n" for s in sources)), write(
        folder / "x.de", "".join(f"{s}\n" for s in targets)
    )


def made(pairs, name="made"):
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    return Bitext(sources, targets, Report(name, len(pairs)), list(range(1, len(pairs) + 1)))


def layouts(folder):
    """Path, second path and arguments of the same pairs in every layout."""
    yield (*two_files(folder, *zip(*PAIRS, strict=True)), {})
    left, right = folder / "z.en.gz", folder / "z.de.zst"
    with gzip.open(left, "wt", encoding="utf-8") as file:
        file.writelines(f"{s}\r\n" for s, _ in PAIRS)
    import zstandard

    right.write_bytes(zstandard.compress("\n".join(t for _, t in PAIRS).encode()))
    yield left, right, {}
    yield write(folder / "bare.txt", "".join(f"{s}\t{t}\tCC-BY\n" for s, t in PAIRS)), None, {"columns": ("1", "2")}
    yield write(folder / "bare.tsv", "".join(f"{s}\t{t}\n" for s, t in PAIRS)), None, {}
    yield write(folder / "turned.tsv", "".join(f"{t}\t{s}\n" for s, t in PAIRS)), None, {"columns": ("2", "1")}
    yield (
        write(folder / "named.tsv", "de\ten\n" + "".join(f"{t}\t{s}\n" for s, t in PAIRS)),
        None,
        {"columns": ("en", "de")},
    )
    yield write(folder / "codes.tsv", "en\tde\n" + "".join(f"{s}\t{t}\n" for s, t in PAIRS)), None, {}
    yield write(folder / "ids.tsv", "id\tEN\tpt-BR\n" + "".join(f"0\t{s}\t{t}\n" for s, t in PAIRS)), None, {}
    yield write(folder / "languages.tsv", "English\tgerman\n" + "".join(f"{s}\t{t}\n" for s, t in PAIRS)), None, {}
    with open(folder / "chat.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("Q", "A", "label"), *((s, t, 0) for s, t in PAIRS)])
    yield folder / "chat.csv", None, {}
    nested = [{"id": str(i), "translation": {"en": s, "de": t}} for i, (s, t) in enumerate(PAIRS)]
    yield write(folder / "n.jsonl", "".join(f"{json.dumps(row)}\n" for row in nested)), None, {}
    yield write(folder / "n.json", json.dumps(nested)), None, {"columns": ("en", "translation.de")}
    flat = [{"src": s, "tgt": t, "score": 0.5} for s, t in PAIRS]
    yield write(folder / "flat.jsonl", "".join(f"{json.dumps(row)}\n" for row in flat)), None, {}
    import pyarrow
    import pyarrow.parquet

    sides = pyarrow.struct([("en", pyarrow.string()), ("de", pyarrow.string())])
    schema = pyarrow.schema([("id", pyarrow.string()), ("translation", sides)])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(nested, schema=schema), folder / "n.parquet")
    yield folder / "n.parquet", None, {}


def test_every_layout_gives_the_same_pairs(tmp_path):
    for source, target, arguments in layouts(tmp_path):
        found = bitext.read(source, target, **arguments)
        assert list(found) == PAIRS, source
        assert len(found) == found.report.read == 3
        assert not found.report.left_out
        assert not found.report.noted


def test_the_remark_says_which_columns(tmp_path):
    assert bitext.read(write(tmp_path / "a.csv", "Q,A\nx,y\n")).report.remarks == (
        "Sources are the column Q, targets A.",
    )
    found = bitext.read(write(tmp_path / "a.tsv", "Go.\tVa !\nRun!\tCours !\n"))
    assert found.report.remarks == ("Sources are the column 1, targets 2. There is no header line.",)
    assert found.description.startswith(f"{tmp_path / 'a.tsv'}: 2 pairs. Sources are the column 1")


@pytest.mark.parametrize(
    ("first", "is_header"),
    [
        *((names, True) for names in ("id\ten", "EN\tDE", "eng\tdeu", "en\tjp", "ace_Latn\tzh_Hans", "German\tfr")),
        *((pair, False) for pair in ("no\tno", "yes\toui", "It\tEs", "dog\tcan", "Polish\tPolish", "English\tAnglais")),
    ],
)
def test_the_first_of_two_columns_is_a_header_where_both_are_languages(tmp_path, first, is_header):
    found = bitext.read(write(tmp_path / "a.tsv", f"{first}\nGo.\tVa !\n"))
    assert list(found) == [*([] if is_header else [tuple(first.split("\t"))]), ("Go.", "Va !")]


@pytest.mark.parametrize(
    ("first", "columns", "said"),
    [
        ("text\tlabel", None, "has labelled rows, not pairs of texts: its columns are text, label."),
        ("label\tid\tsentence", None, "has labelled rows, not pairs of texts"),
        ("Hi!\tSalut !", ("en", "fr"), "its first line is Hi!, Salut !. If that is a pair already"),
    ],
)
def test_labelled_rows_and_a_missing_header_are_called_that(tmp_path, first, columns, said):
    row = "\t".join("x" for _ in first.split("\t"))
    with pytest.raises(UnmaskError, match=said.replace(".", r"\.")):
        bitext.read(write(tmp_path / "a.tsv", f"{first}\n{row}\n"), columns=columns)


@pytest.mark.parametrize(
    "text", ["id,english,french,note\n0,Go.,Va !,z\n", "0,Go.,Va !\n", "row,en,french\n0,Go.,Va !\n"]
)
def test_more_than_two_columns_with_other_names_are_not_guessed_at(tmp_path, text):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(
        UnmaskError, match=r"no columns with usual names .* give two with --columns, from: .* in --columns 1,2"
    ):
        bitext.read(path)
    if text.startswith("id"):
        assert list(bitext.read(path, columns=("english", "french"))) == [("Go.", "Va !")]


def test_hub(monkeypatch):
    asked = []

    def load_dataset(*arguments, **more):
        asked.append((*arguments, more["split"]))
        return iter([{"translation": {"de": t, "en": s}} for s, t in PAIRS])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found = bitext.read("hub:wmt/wmt16/de-en:validation", columns=("en", "de"))
    assert list(found) == PAIRS
    assert asked == [("wmt/wmt16", "de-en", "validation")]
    assert list(bitext.read("hub:wmt/wmt16/de-en")) == [(t, s) for s, t in PAIRS]  # in the order of the columns


# ------------------------------------------------------------------------------------------------ what is left out


def test_nothing_is_dropped_in_silence(tmp_path):
    lines = [
        ("a", "b"),
        ("", "b"),
        ("a", "  "),
        (" \t", ""),
        ("a", "b"),
        ("x", "x"),
        ("n\0ul", "t\x07"),
        ("\ufffd", "c"),
    ]
    found = bitext.read(*two_files(tmp_path, *zip(*lines, strict=True)))
    assert list(found) == [("a", "b"), ("a", "b"), ("x", "x"), ("n ul", "t"), ("\ufffd", "c")]
    assert found.lines == [1, 5, 6, 7, 8]
    assert found.report.left_out == {"with the source empty": (2,), "with the target empty": (3,), "both empty": (4,)}
    assert found.report.noted == {
        "seen before": (5,),
        "with equal sides": (6,),
        "with control characters, which became spaces": (7,),
        "with U+FFFD, a sign of text that was decoded wrongly": (8,),
    }
    assert "Pairs left out, with the source empty: 1 (line 2)." in found.report.notes
    assert found.report.read == len(found) + 3


def test_unusual_line_ends_do_not_shift_lines(tmp_path):
    found = bitext.read(*two_files(tmp_path, ["a\u2028b", "c\x85d", "e\rf"], ["1", "2", "3"]))
    assert list(found) == [("a b", "1"), ("c d", "2"), ("e f", "3")]
    assert found.report.noted == {"with control characters, which became spaces": (1, 2, 3)}


def test_cells_without_text_are_empty_and_lone_surrogates_are_noted(tmp_path):
    rows = ['{"src": null, "tgt": "a"}', '{"src": "b"}', '{"src": "\\ud800c", "tgt": "d\\ne"}']
    found = bitext.read(write(tmp_path / "a.jsonl", "\n".join(rows)), columns=("src", "tgt"))
    assert list(found) == [("\ufffdc", "d e")]
    assert found.report.left_out == {"with the source empty": (1,), "with the target empty": (2,)}
    assert len(found.report.noted) == 2


def test_blank_lines_between_rows_are_counted(tmp_path):
    found = bitext.read(write(tmp_path / "a.tsv", "en\tfr\na\tb\n\nc\td\te\n \t \ng\th\n"))
    assert list(found) == [("a", "b"), ("g", "h")]
    assert found.report.left_out == {"with more or fewer fields than the first line": (4,), "both empty": (3, 5)}
    assert found.report.read == 5


def test_rows_of_another_number_of_fields_are_counted(tmp_path):
    found = bitext.read(write(tmp_path / "a.tsv", "en\tfr\na\tb\nc\nd\te\tf\ng\th\n"))
    assert list(found) == [("a", "b"), ("g", "h")]
    assert found.report.left_out == {"with more or fewer fields than the first line": (3, 4)}
    assert found.report.read == 4
    with pytest.raises(UnmaskError, match="give its format"):
        bitext.read(write(tmp_path / "b.tsv", "en\tfr\na\tb\nc\nd\te\tf\n"))


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=20))
def test_every_row_is_kept_or_counted(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    write(path, "".join(f"{json.dumps({'src': s, 'tgt': t})}\n" for s, t in [*pairs, ("a", "b")]))
    found = bitext.read(path)
    left = [line for lines in found.report.left_out.values() for line in lines]
    assert sorted([*found.lines, *left]) == list(range(1, len(pairs) + 2))
    for text in (*found.sources, *found.targets):
        assert text.encode().decode().strip() == text != ""
        assert len(text.split("\n")) == 1


# ------------------------------------------------------------------------------------------------ errors


def lengths(count, rng):
    """Lengths of lines and of their translations: a fifth longer, give or take a fifth."""
    sources = rng.integers(10, 120, count)
    return sources.tolist(), (sources * 1.2 * rng.uniform(0.8, 1.2, count)).astype(int).tolist()


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("lost", [0, 137, 500, 998])
def test_the_first_suspicious_line(side, lost):
    pair = lengths(1000, np.random.default_rng(lost))
    del pair[side][lost : lost + 1 + lost % 2]
    assert abs(aligned.first_suspicious(*pair) - (lost + 1)) <= 5


@pytest.mark.parametrize("side", [0, 1])
def test_a_line_of_odd_length_is_not_where_files_come_apart(side):
    pair = lengths(300, np.random.default_rng(0))
    pair[side][30] = 100_000
    del pair[1][120]
    assert abs(aligned.first_suspicious(*pair) - 121) <= 5


def test_a_file_that_was_cut_short_comes_apart_at_its_end():
    sources, targets = lengths(1000, np.random.default_rng(3))
    assert aligned.first_suspicious(sources, targets[:700]) == 701
    assert aligned.first_suspicious(sources, []) == 1


def test_unequal_numbers_of_lines(tmp_path):
    sources, targets = (["x" * n for n in side] for side in lengths(300, np.random.default_rng(1)))
    del targets[120]
    paths = two_files(tmp_path, sources, targets)
    with pytest.raises(UnmaskError, match=r"x\.en has 300 lines but .*x\.de has 299; .* misaligned from line 12\d"):
        bitext.read(*paths)


def test_files_that_are_not_aligned_are_doubted(tmp_path):
    rng = np.random.default_rng(2)
    sources, targets = (["x" * n for n in side] for side in lengths(300, rng))
    assert bitext.read(*two_files(tmp_path, sources, targets)).report.remarks == ()
    (remark,) = bitext.read(*two_files(tmp_path, sources, rng.permutation(targets))).report.remarks
    assert remark.endswith("check that the files are aligned.")


def test_not_utf8_names_file_and_line(tmp_path):
    source, target = two_files(tmp_path, ["a", "b", "c"], ["d", "e", "f"])
    target.write_bytes("d\nein schöner Tag\nf\n".encode("latin-1"))
    with pytest.raises(UnmaskError, match=r"x\.de:2 is not UTF-8"):
        bitext.read(source, target)


def test_utf16_with_a_mark_is_read(tmp_path):
    source, target = two_files(tmp_path, ["a", "b"], ["ä", "ö"])
    target.write_bytes("ä\r\nö\r\n".encode("utf-16"))
    assert list(bitext.read(source, target)) == [("a", "ä"), ("b", "ö")]


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "en\tde\na\tb\n", ("en", "fr"), "no column 'fr' in "),
        ("a.tsv", "en\tde\na\tb\n", ("en", "en"), "cannot both be the column en"),
        ("a.tsv", "a\tb\n", ("1", "3"), "no column '3' in "),
        ("a.tsv", "a\n", None, "no column '2' in "),
        ("a.tsv", "en\tde\n", None, "no rows"),
        ("a.tsv", "\t\n \t \n", None, "empty"),
        ("a.csv", "Q,A\n,\n , \n", None, "has no pair of sentences.*both empty: 2"),
        ("a.tsv", "", None, "empty"),
        ("a.jsonl", '{"en": "a", "de": "b", "fr": "c"}', None, "no columns with usual names .* en, de, fr"),
        ("a.jsonl", '{"id": "a", "en": "b", "french": "c"}', None, "no columns with usual names .* id, en, french"),
        ("a.jsonl", '{"src": "a", "tgt": 3}', None, r"a\.jsonl:1: the column tgt must be text, not a number"),
        ("a.jsonl", '{"src": "a"', None, r"a\.jsonl:1 is not valid JSON"),
        ("a.conllu", "a\tb\n", None, "looks like conll"),
        (
            "a.en",
            "one line\nanother\n",
            None,
            "looks like plain text, which has no pairs; give the second file too",
        ),
    ],
)
def test_errors_of_tables(tmp_path, name, text, columns, message):
    with pytest.raises(UnmaskError, match=message):
        bitext.read(write(tmp_path / name, text), columns=columns)


def test_errors_of_arguments(tmp_path):
    source, target = two_files(tmp_path, "a", "b")
    with pytest.raises(UnmaskError, match="no file"):
        bitext.read(tmp_path / "none.tsv")
    with pytest.raises(UnmaskError, match="no file"):
        bitext.read(source, tmp_path / "none.de")
    with pytest.raises(UnmaskError, match="belong to a table"):
        bitext.read(source, target, columns=("1", "2"))
    with pytest.raises(UnmaskError, match="no format 'tvs'; did you mean 'tsv'"):
        bitext.read(source, format="tvs")


# ------------------------------------------------------------------------------------------------ limits, train, dev


def test_limits_by_any_size_keep_count():
    pairs = made([("a " * n, "b " * m) for n, m in [(1, 1), (5, 1), (9, 9), (30, 1), (2, 5)]])
    sizes = [[len(text.split()) for text in side] for side in (pairs.sources, pairs.targets)]
    found, kept = fitting(pairs, *sizes, longest=9, ratio=3, unit="words")
    assert kept.tolist() == [0, 2, 4]
    assert found.lines == [1, 3, 5]
    assert found.report.left_out == {
        "longer than 9 words": (4,),
        "one side more than 3 times as long as the other": (2,),
    }
    assert found.report.notes[-1] == "Pairs left out, one side more than 3 times as long as the other: 1 (line 2)."
    again, kept = fitting(pairs, *sizes)
    assert (len(again), len(kept)) == (5, 5)
    _, kept = fitting(pairs, *sizes, ratio=3)
    assert kept.tolist() == [0, 2, 4]
    with pytest.raises(UnmaskError, match="No pair of made is within the limits"):
        fitting(pairs, *sizes, longest=0)
    with pytest.raises(UnmaskError, match="sizes of both sides"):
        fitting(pairs, [1], [1])


def test_dev_pairs_that_are_in_training():
    train = made([(f"s{i}", f"t{i}") for i in range(50)], "train")
    dev = made([(f"d{i}", f"e{i}") for i in range(20)] + [("S3 ", "t3"), ("s4", "new")], "dev")
    assert check_apart(train, dev) == (
        "Pairs of dev also in training: 1 (line 21).",
        "Sources of dev also in training: 2 (lines 21, 22).",
    )
    assert check_apart(train, dev.take(range(20))) == ()
    with pytest.raises(UnmaskError, match=r"dev shares 3 of its 20 pairs with train .* line 1"):
        check_apart(train, made([*train][:3] + [*dev][:17], "dev"))


def test_held_out_sources_are_not_in_training():
    pairs = made([(f"s{i // 3}", f"t{i}") for i in range(300)])
    train, dev = hold_out(pairs, 30, seed=1)
    assert sorted(train.lines + dev.lines) == pairs.lines
    assert 30 <= len(dev) <= 32
    assert not set(train.sources) & set(dev.sources)
    assert hold_out(pairs, 30, seed=1)[1].lines == dev.lines != hold_out(pairs, 30, seed=2)[1].lines
    for count in (0, 300):
        with pytest.raises(UnmaskError, match="too few to hold some out"):
            hold_out(pairs, count)


def test_pairs_of_another_encoding_are_refused_and_read_where_it_is_named(tmp_path):
    source, target, table = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "both.tsv"
    source.write_text("five\nsix\n")
    target.write_bytes("fünf\nsechs\n".encode("latin-1"))
    table.write_bytes("five\tfünf\nsix\tsechs\n".encode("latin-1"))
    for files in ((source, target), (table,)):
        with pytest.raises(UnmaskError, match=r":1 is not UTF-8 text \(the byte 0xFC\); .*--encoding cp1252"):
            bitext.read(*files)
        assert bitext.read(*files, encoding="cp1252").targets == ["fünf", "sechs"]
