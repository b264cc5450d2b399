"""CoNLL files of every family: which columns and lines count, and errors that name file, line and remedy."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled import dataset
from unmask.data.labelled.conll import holds, read_conll
from unmask.errors import UnmaskError


@pytest.fixture
def write(tmp_path):
    def put(name: str, text: str | bytes):
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return put


def told(found):
    return [list(zip(row.words, row.tags, strict=True)) for row in found.rows]


def lines_of(found):
    return [int(row.place.rpartition(":")[2]) for row in found.rows]


CONLL2003 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
-DOCSTART- -X- -X- O

BRUSSELS NNP I-NP I-LOC
"""


def test_conll_2003(write):
    found = read_conll(write("eng.testa.gz", CONLL2003))
    assert told(found) == [[("EU", "I-ORG"), ("rejects", "O")], [("Peter", "I-PER")], [("BRUSSELS", "I-LOC")]]
    assert lines_of(found) == [3, 6, 9]
    assert found.columns == {"words": "column 1", "tags": "column 4"}
    assert found.notes == ()
    assert found.rows[0].text == "EU rejects"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("eng.testa.gz", CONLL2003, True),
        ("a.txt", "Rome B-loc\nis O\n\n. O\n", True),
        ("a.tsv", "New York\tB-LOC\nis\tO\n", True),
        ("a.tsv", "## id\tRome is\nRome\tB-LOC\n \tO\nis\tO\n", True),
        ("a.txt", "The DT\ndog NN\n. .\n", True),
        ("a.conllu", "words alone", True),
        ("a.txt", "The dog barks .\nThe cat sleeps .\n\nIt is good .\n", False),
        ("a.txt", "The dog\nA cat\n", False),
        ("a.txt", "고양이 좋다\n개가 좋다\n", False),
        ("a.txt", "in 1999\nin 2000\n", False),
        ("a.txt", "HELLO WORLD\n", False),
        ("a.txt", "Rome B-LOC\nis\n", False),
        ("a.jsonl", '{"words": ["A"]}\n{"words": ["B"]}\n', False),
        ("empty.txt", "", False),
    ],
)
def test_words_with_tags_are_told_from_texts(write, name, text, expected):
    assert holds(write(name, text)) == expected


@pytest.mark.parametrize(
    ("word", "tag", "first"), [(None, "2", ("EU", "NNP")), ("2", None, ("NNP", "I-ORG")), ("4", "3", ("I-ORG", "I-NP"))]
)
def test_columns_are_chosen_by_number(write, word, tag, first):
    found = read_conll(write("eng.testa", CONLL2003), word, tag)
    assert told(found)[0][0] == first
    assert found.columns == {"words": f"column {word or 1}", "tags": f"column {tag or 4}"}


def test_conll_2000_with_windows_line_ends_and_no_last_one(write):
    found = read_conll(write("train.txt", "Rockwell NNP B-NP\r\nsaid VBD B-VP\r\n \t\r\nit PRP B-NP"))
    assert told(found) == [[("Rockwell", "B-NP"), ("said", "B-VP")], [("it", "B-NP")]]


def universal(*words: tuple[str, str, str]) -> str:
    return "".join("\t".join([number, form, "_", tag, "X", *"_____"]) + "\n" for number, form, tag in words)


CONLLU = (
    "# newdoc id = a\n# sent_id = 1\n#text=Don't\n"
    + universal(("1-2", "Don't", "_"), ("1", "Do", "AUX"), ("2", "n't", "PART"), ("2.1", "go", "VERB"))
    + "\n\n# sent_id = 2\n"
    + universal(("1", "#", "SYM"), ("2", "10 000", "NUM"))
)


@pytest.mark.parametrize("name", ["en.conllu", "en.UD.CONLLU.gz", "en.txt"])
def test_conllu_words_are_those_of_the_analysis(write, name):
    """Contractions and words that were left out are none; ten columns are CoNLL-U under any name."""
    found = read_conll(write(name, CONLLU))
    assert told(found) == [[("Do", "AUX"), ("n't", "PART")], [("#", "SYM"), ("10 000", "NUM")]]
    assert lines_of(found) == [5, 11]
    assert found.columns == {"words": "column 2", "tags": "column 4"}
    assert read_conll(write(name, CONLLU), None, "5").rows[0].tags == ("X", "X")


def test_wnut_with_tabs_and_blanks_around_tags(write):
    text = "@paulwalk\tO\nEmpire\tB-location \nState\t I-location\n\t\n##blessed\tO\n#\tO\n\tO\n"
    found = read_conll(write("wnut17train.conll", text))
    assert told(found) == [
        [("@paulwalk", "O"), ("Empire", "B-location"), ("State", "I-location")],
        [("##blessed", "O"), ("#", "O"), ("", "O")],
    ]


def test_wikiann_language_is_taken_off_and_noted(write):
    found = read_conll(write("train", "en:R.H.\tB-ORG\nen:en:\tO\n\nen::\tO\n"))
    assert [row.words for row in found.rows] == [("R.H.", "en:"), (":",)]
    assert [row.text for row in found.rows] == ["R.H. en:", ":"]
    assert lines_of(found) == [1, 4]
    assert found.notes == ('Every word began with "en:", which was removed.',)
    kept = read_conll(write("other", "en:R.H.\tB-ORG\nde:x\tO\n"))
    assert (kept.rows[0].words, kept.notes) == (("en:R.H.", "de:x"), ())


def test_klue_has_characters_for_words_and_comments_with_tabs(write):
    found = read_conll(write("ner.tsv", "## klue-ner-00\t<경찰:OG> 또\n경\tB-OG\n찰\tI-OG\n \tO\n또\tO\n"))
    assert found.rows[0].words == ("경", "찰", " ", "또")
    assert lines_of(found) == [2]


def test_headings_where_blanks_part_the_columns(write):
    """ "# x y" is a word there, as in tweets; what is known to head a sentence is not."""
    text = "# id 5239d808\tdomain=en\nlondon _ _ B-LOC\n# _ _ O\n## _ _ O\n\n#begin document (a); part 000\nx _ _ O\n"
    found = read_conll(write("en_dev.conll", text))
    assert [row.words for row in found.rows] == [("london", "#", "##"), ("x",)]


def test_one_stray_tab_does_not_change_what_parts_the_columns(write):
    found = read_conll(write("a.conll", "a b\u00a0c O\n\nb\tx O\nc x O\n"))
    assert told(found) == [[("a", "O")], [("b", "O"), ("c", "O")]]


def test_words_to_be_answered_need_no_tags(write):
    found = read_conll(write("test.conll", "a\nb\n\nc\n"), labelled=False)
    assert [(row.words, row.tags) for row in found.rows] == [(("a", "b"), ()), (("c",), ())]
    assert found.columns == {"words": "column 1"}
    assert read_conll(write("b.conll", "a \nb \n"), labelled=False).rows[0].words == ("a", "b")


def test_a_data_set_is_made_of_them(write):
    found = dataset.read(write("train.conll", "en:a\tB-X\nen:b\tO\n"))
    assert (found.tagged, found.labels, found.columns["tags"]) == (True, ("O", "B-X"), "column 2")
    assert found.notes == ('Every word began with "en:", which was removed.',)


BAD = {
    "empty": ("a.conll", "", {}, r"a\.conll cannot be read as text: it is empty"),
    "no sentences": ("a.conll", "\n# id = 3\n-DOCSTART- -X- O\n\n", {}, r"a\.conll has no sentences"),
    "only contractions": ("a.conllu", universal(("1-2", "a", "_")), {}, r"a\.conllu has no sentences"),
    "ragged": (
        "a.conll",
        "a X O\nb O\n",
        {},
        r"a\.conll:2 has 2 columns, but the lines before it have 3: 'b \| O'; .* empty",
    ),
    "ragged later": ("a.conll", "a X O\n\nb O\n", {}, r"a\.conll:3 has 2 columns"),
    "blanks among tabs": ("a.conll", "a\tO\nb\tO\nc O\n", {}, r"a\.conll:3 has 1 column, .* everywhere by one tab"),
    "one column": ("a.conll", "a\nb\n", {}, r"a\.conll:1 has only one column: 'a'; .* separated by a tab or blanks"),
    "no such column": (
        "a.conll",
        "\na X O\n",
        {"tag": "4"},
        r"a\.conll:2 has 3 columns; there is no column 4: 'a \| X \| O'\.",
    ),
    "no such word": ("a.conll", "a X O\n", {"word": "9"}, r"a\.conll:1 has 3 columns; there is no column 9"),
    "named column": ("a.conll", "a X O\n", {"tag": "ner"}, r"no names; give a number, counted from 1, .* 'ner'"),
    "column zero": ("a.conll", "a X O\n", {"tag": "0"}, r"counted from 1, instead of '0'"),
    "odd digits": ("a.conll", "a X O\n", {"tag": "²"}, r"counted from 1, instead of '²'"),
    "no tag": ("a.conll", "a\tO\nb\t \n", {}, r"a\.conll:2 has no tag: its column 2 is empty"),
    "mixed encodings": ("a.conll", "é O\n".encode() + b"\nM\xfcnchen B-LOC\n", {}, r"a\.conll:3 is not UTF-8 .* save"),
    "old line ends": ("a.conll", "a O\rb O\r\rc O\r", {}, r"a\.conll:1 has a CR inside; .* LF or CRLF"),
    "not CoNLL-U": ("a.conllu", "the\tDET\n", {"tag": "2"}, r"a\.conllu:1 begins with 'the', not with the number"),
    "a table": ("a.conll", "text\tlabel\na film\t1\n", {}, "it is a table, not CoNLL"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_sentence_with_the_place(write, case):
    name, text, columns, message = BAD[case]
    with pytest.raises(UnmaskError, match=message) as error:
        read_conll(write(name, text), **columns)
    assert "\n" not in str(error.value)


fields = st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="#-:"), min_size=1, max_size=5)
sentences = st.lists(st.lists(st.tuples(fields, fields), min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.mark.parametrize("between", ["\t", " ", "  "])
@given(sentences)
def test_what_is_written_is_read(tmp_path_factory, between, written):
    path = tmp_path_factory.getbasetemp() / "any.conll"
    path.write_text("\n".join("".join(f"{a}{between}{b}\n" for a, b in one) for one in written), encoding="utf-8")
    assert told(read_conll(path)) == written
