"""Documents out of files of every kind, encoding and damage; sentences out of tricky prose."""

from __future__ import annotations

import builtins
import gzip
import json
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from unmask.data.files import encodings, tables
from unmask.data.files import lines as reader
from unmask.data.text import reading as text
from unmask.data.text.reading import TextStatistics, documents
from unmask.data.text.sentences import sentences
from unmask.errors import UnmaskError

STORY = "One line.\nIts second line.\n\n\n  \nAnother document.\n"


def texts(*paths: Path | str, **options: object) -> list[str]:
    return [document.text for document in documents(paths, **options)]  # type: ignore[arg-type]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# plain text


def test_what_makes_a_document(tmp_path: Path):
    path = write(tmp_path / "a.txt", STORY)
    assert texts(path) == ["One line.\nIts second line.", "Another document."]
    assert texts(path, per="line") == ["One line.", "Its second line.", "Another document."]
    assert texts(path, per="file") == [STORY.strip()]
    assert [d.source for d in documents(path)] == [f"{path}:1", f"{path}:6"]
    assert [d.source for d in documents([path], per="line")] == [f"{path}:1", f"{path}:2", f"{path}:6"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("encoding", "noted"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("utf-32", "utf-32"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
    ],
)
def test_encodings_and_line_ends(encoding: str, noted: str, end: str, tmp_path: Path):
    story = "Caf\u00e9 is a French word.\nLine two \U0001f600.\n\nThe next document."
    path = write(tmp_path / "a", story.replace("\n", end).encode(encoding))
    statistics = TextStatistics()
    assert texts(path, statistics=statistics) == story.split("\n\n")
    facts = statistics.files[str(path)]
    assert (facts.encoding, facts.nul, facts.documents) == (noted, 0, 2)
    assert facts.characters == len(story) - 2


PROSE = {
    "cp1252": "Le caf\u00e9 est ferm\u00e9, mais l\u2019\u00e9picerie d\u2019\u00e0 c\u00f4t\u00e9 est ouverte.",
    "euc-kr": "\uc601\ud654\uac00 \uc7ac\ubbf8\uc788\uc5c8\ub2e4. \uc815\ub9d0 \uc88b\uc558\ub2e4.",
    "cp932": "\u543e\u8f29\u306f\u732b\u3067\u3042\u308b\u3002\u540d\u524d\u306f\u307e\u3060\u7121\u3044\u3002",
    "gb18030": "\u6211\u7684\u670b\u53cb\u4e0d\u5728\u4e2d\u56fd\uff0c\u4ed6\u5230\u4e86\u6cd5\u56fd\u3002",
    "cp1251": "\u041a\u043e\u0448\u043a\u0430 \u0441\u0438\u0434\u0438\u0442 \u043d\u0430 \u043e\u043a\u043d\u0435.",
}


@pytest.mark.parametrize("encoding", PROSE)
def test_text_of_another_encoding_is_refused_and_read_where_it_is_named(encoding: str, tmp_path: Path):
    path = write(tmp_path / "old.txt", b"plain\n\n" + PROSE[encoding].encode(encoding))
    with pytest.raises(UnmaskError) as raised:
        texts(path)
    assert str(raised.value).startswith(f"{path}:3 is not UTF-8 text (the byte 0x")
    assert str(raised.value).endswith(f"give its encoding: --encoding {encoding}, which is likely.")
    statistics = TextStatistics()
    assert texts(path, encoding=encoding, statistics=statistics) == ["plain", PROSE[encoding]]
    assert encodings.checked(encoding) == statistics.files[str(path)].encoding
    rows = write(tmp_path / "old.csv.gz", gzip.compress(f'text\n"{PROSE[encoding]}"\n'.encode(encoding)))
    assert texts(rows, encoding=encoding) == [PROSE[encoding]]


def test_what_is_wrong_with_bytes_is_said(tmp_path: Path):
    damaged = "\u00c4rger \u00fcber \u00d6l\n".encode()
    for content, message in (
        (
            damaged + b"x\xed\xa0\x80y " + damaged * 2,
            r"a:2 is not UTF-8 text \(the byte 0xED\), although .* correct the line",
        ),
        (b"\x80\x81\xfe\xff", r"a:1 is not UTF-8 text \(the byte 0x80\); .*: --encoding NAME\.$"),
        ("\ufeffok".encode("utf-16-le") + b"\x00\xd8", "a is not utf-16 text after line 0"),
    ):
        with pytest.raises(UnmaskError, match=message):
            texts(write(tmp_path / "a", content))
    with pytest.raises(UnmaskError, match=r"a:1 is not cp1252 text \(the byte 0x81\)"):
        texts(write(tmp_path / "a", b"caf\xe9 \x81"), encoding="cp1252")
    assert texts(write(tmp_path / "a", "\ufeffna\u00efve".encode("utf-16")), encoding="cp1252") == ["na\u00efve"]
    with pytest.raises(UnmaskError, match="There is no encoding 'latin-l'; did you mean 'latin-1'"):
        texts(tmp_path / "a", encoding="latin-l")
    with pytest.raises(UnmaskError, match="'base64' is not a text encoding"):
        texts(tmp_path / "a", encoding="base64")


def test_nul_is_judged_alike_alone_and_in_a_folder(tmp_path: Path):
    some = write(tmp_path / "texts" / "some.txt", b"a word\x00 or two, and\x00 more")
    full = write(tmp_path / "texts" / "full.bin", b"a\x00b\x00" * 3)
    statistics = TextStatistics()
    assert texts(tmp_path / "texts", statistics=statistics) == ["a word or two, and more"] == texts(some)
    assert statistics.files[str(some)].nul == 2
    reason = "it is full of NUL bytes, so it is probably not text"
    assert statistics.skipped == {str(full): reason}
    with pytest.raises(UnmaskError, match=reason):
        texts(full)
    assert text.losses({"some.txt": 2}, statistics.skipped) == [
        f"{full}: passed over, {reason}",
        "some.txt: NUL characters that were removed: 2",
        "Passed over: 1 file.",
    ]


BAD = {
    "a.gz": (b"no gzip", "it is damaged or cut short: Not a gzipped file"),
    "cut.txt.gz": (gzip.compress(b"one two three\n\n" * 500)[:-9], "it is damaged or cut short"),
    "b.jsonl": (b'{"text": "a"}\n{"text": \n{"text": "c"}\n', "line 2 is not valid JSON"),
    "c.tsv": (b"id\tbody\n1\ta\n", "There is no column 'text' in "),
    "d.csv": (b"text,n\na,1\nb\n", "line 3 has 1 field, but the first line has 2"),
    "e.txt": ("caf\u00e9".encode("latin-1"), "line 1 is not UTF-8 text"),
    "f.parquet": (b"PAR1", "it is damaged or not Parquet"),
}


@pytest.mark.parametrize("held", [0, 1 << 20], ids=["read twice", "held"])
def test_a_bad_file_does_not_stop_a_folder_and_nothing_of_it_is_read(held: int, tmp_path: Path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(text, "HELD", held)
    for name, (content, _) in BAD.items():
        write(tmp_path / name, content)
    write(tmp_path / "0.txt", "first\n\nsecond")
    write(tmp_path / "z.jsonl", '{"text": "last"}\n')
    statistics = TextStatistics()
    assert texts(tmp_path, statistics=statistics) == ["first", "second", "last"]
    assert [facts.documents for facts in statistics.files.values()] == [2, 1]
    skipped = {Path(path).name: reason for path, reason in statistics.skipped.items()}
    assert sorted(skipped) == sorted(BAD)
    for name, (_, reason) in BAD.items():
        assert skipped[name].startswith(reason)
        with pytest.raises(UnmaskError, match=name):
            texts(tmp_path / name)
    assert text.losses({}, statistics.skipped, 2)[2:] == [
        "5 more such files; unmask corpus check names them",
        "Passed over: 7 files.",
    ]


def test_a_folder_of_bad_files_says_what_is_wrong_with_the_first(tmp_path: Path):
    write(tmp_path / "a.jsonl", '{"text": ')
    write(tmp_path / "b.txt", "")
    with pytest.raises(UnmaskError, match=r"no text in the folder .*a\.jsonl was passed over: line 1 is not valid"):
        texts(tmp_path)


def test_short_documents_of_long_files_bring_up_one_document_a_file(tmp_path: Path):
    book = write(tmp_path / "book.txt", "\n\n".join(f"Line {i} of a dialogue." for i in range(60)))
    poems = write(tmp_path / "poems.txt", "\n\n".join(f"Line {i}." for i in range(9)))
    prose = write(tmp_path / "prose.txt", "\n\n".join("A sentence of some words. " * 20 for _ in range(60)))

    def advice(*paths: Path, **how: object) -> str:
        statistics = TextStatistics()
        texts(*paths, statistics=statistics, **how)
        return statistics.advice()

    assert f"2 files became 120 documents, those of {book} of 22 characters on average" in advice(tmp_path)
    assert advice(book).endswith("if a file is one document, use --per file.")
    assert advice(poems, prose) == advice(book, per="line") == advice(book, per="file") == ""


def test_byte_order_marks_inside_a_file_go(tmp_path: Path):
    assert texts(write(tmp_path / "a.txt", "\ufeffone\n\n\ufefftwo")) == ["one", "two"]


def test_folders_are_read_in_order_without_what_is_not_text(tmp_path: Path):
    for name in ("b.txt", "a/z.md", "a/.hidden.txt", ".git/config", "c", "a/sub/y.text"):
        write(tmp_path / name, name)
    write(tmp_path / "empty.txt", "")
    write(tmp_path / "blank.txt", " \n\n")
    write(tmp_path / "picture", b"\x89PNG\r\n\x1a\n\x00")
    write(tmp_path / "numbers.bin", bytes(range(256)))
    (tmp_path / "loop").symlink_to(tmp_path)
    statistics = TextStatistics()
    assert texts(tmp_path, statistics=statistics) == ["a/sub/y.text", "a/z.md", "b.txt", "c"]
    skipped = {Path(path).name: reason for path, reason in statistics.skipped.items()}
    assert sorted(skipped) == ["blank.txt", "empty.txt", "numbers.bin", "picture"]
    assert "image" in skipped["picture"]
    assert len(statistics.files) == 4


def test_named_files_without_text_are_passed_over_beside_others(tmp_path: Path):
    blank, empty = write(tmp_path / "blank.txt", " \n\n"), write(tmp_path / "empty.txt", "")
    rows, sound = write(tmp_path / "rows.jsonl", '{"text": ""}\n'), write(tmp_path / "sound.txt", STORY)
    statistics = TextStatistics()
    assert len(texts(blank, empty, sound, rows, statistics=statistics)) == 2
    assert {Path(path).name: reason for path, reason in statistics.skipped.items()} == {
        "blank.txt": "it holds no text",
        "empty.txt": "it is empty",
        "rows.jsonl": "it holds no text",
    }
    assert list(statistics.files) == [str(sound)]
    with pytest.raises(UnmaskError, match=r"blank\.txt cannot be read as text: it holds no text"):
        texts(blank, empty, statistics=TextStatistics())
    with pytest.raises(UnmaskError, match=r"blank\.txt cannot be read as text"):  # nobody would tell of it
        texts(sound, blank)
    with pytest.raises(UnmaskError, match=r"paper\.pdf cannot be read as text: it is a PDF"):
        texts(sound, write(tmp_path / "paper.pdf", b"%PDF-1.7 ..."), statistics=TextStatistics())


def test_long_documents_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text, "LONGEST_DOCUMENT", 100)
    lines = [f"line number {i}" for i in range(50)]
    path = write(tmp_path / "a.txt", "\n".join(lines))
    for per in ("file", "blank-line"):
        found = list(documents([path], per=per))
        assert "\n".join(d.text for d in found).split("\n") == lines
        assert all(len(d.text) <= 100 for d in found)
        assert found[1].source == f"{path}:8"
    row = write(tmp_path / "a.jsonl", json.dumps({"text": "word " * 100 + "x" * 250}))
    assert "".join(texts(row)) == "word " * 100 + "x" * 250
    assert all(len(part) <= 100 for part in texts(row))


def test_endless_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    assert texts(write(tmp_path / "a.txt", "x" * 999 + "\n" + "y" * 1000)) != []
    with pytest.raises(UnmaskError, match=r"b\.txt:2 is longer than 1,000 characters"):
        texts(write(tmp_path / "b.txt", "short\n" + "x" * 1001))


def test_reading_is_lazy_and_needs_no_more_than_a_line(tmp_path: Path):
    path = write(tmp_path / "a.txt", "first\n\n" + "x " * 200_000 + "\n\nlast")
    found = documents([path])
    assert next(found).text == "first"
    assert isinstance(found, Iterator)


# compression


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_files(ending: str, tmp_path: Path):
    zstandard = pytest.importorskip("zstandard") if ending == ".zst" else None
    compress = zstandard.ZstdCompressor().compress if zstandard else gzip.compress
    story = STORY.encode() * 500
    two = write(tmp_path / f"a.txt{ending}", compress(story) + compress(b"\nThe end."))  # two frames in one file
    assert texts(two) == [*texts(write(tmp_path / "plain", story)), "The end."]
    rows = write(tmp_path / f"a.jsonl{ending}", compress(b'{"text": "row"}\n'))
    assert texts(rows) == ["row"]
    whole = compress(bytes(range(10, 250)) * 300)
    for content in (whole[:-9], b"not compressed at all", whole[: len(whole) // 2]):
        with pytest.raises(UnmaskError, match=r"bad\.txt"):
            texts(write(tmp_path / f"bad.txt{ending}", content))
    with pytest.raises(UnmaskError, match="empty"):
        texts(write(tmp_path / f"empty{ending}", compress(b"")))


# tables


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.jsonl",
            '{"text": "a\\r\\nb", "n": 1}\n\n{"text": "c\\u0000\\ud800"}\n{"text": null}\n',
            ["a\nb", "c\ufffd"],
        ),
        ("a.json", '{"text": "a"}\n{"text": "b"}', ["a", "b"]),
        ("array.json", ' [\n{"text": "a"},\n {"text": "b"}\n]\n', ["a", "b"]),
        ("a.csv", '\ufeffid, text\r\n1,"a, ""b"" \r\nc"\r\n\r\n2,d\r\n', ['a, "b" \nc', "d"]),
        ("a.tsv", 'id\ttext\n1\tsay "hi\n2\td\n', ['say "hi', "d"]),
        ("odd.csv", 'id,text,\n1,"a"b,\n', ["ab"]),
        ("twice.csv", "text,n,n\na,1,2\n", ["a"]),
        ("semicolon.csv", "id;text\n1;a, b\n", ["a, b"]),
        ("one.json", '[{"text": "a"}, {"text": "b"}]', ["a", "b"]),
    ],
)
def test_tables(name: str, content: str, expected: list[str], tmp_path: Path):
    assert texts(write(tmp_path / name, content)) == expected


def test_rows_say_where_they_come_from(tmp_path: Path):
    path = write(tmp_path / "a.csv", 'body,n\n"x\ny",1\nz,2\n')
    assert [d.source for d in documents([path], column="body")] == [f"{path}:2", f"{path}:4"]


def test_large_fields_are_read(tmp_path: Path):
    large = "word " * 50_000
    assert texts(write(tmp_path / "a.csv", f'text\n"{large}"\n')) == [large.strip()]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "id,texts\n1,a\n", "did you mean 'texts'"),
        ("a.tsv", "id,text\n1,a\n", "no column"),
        ("a.csv", "id,text\n1,a,b\n", "a.csv:2 has 3 fields"),
        ("a.csv", "text\n", "no text"),
        ("a.csv", "", "empty"),
        ("a.jsonl", '{"texts": "a"}\n', "did you mean 'texts'"),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n', "a.jsonl:2: 'text' must be text, not a number"),
        ("a.jsonl", '{"text": "a"}\n"b"\n', "a.jsonl:2 must be a JSON object, not text"),
        ("a.jsonl", '{"text": "a"\n', "a.jsonl:1 is not valid JSON"),
        ("a.jsonl", "[" * 100_000, "not valid JSON"),
        ("a.json", '[{"text": "a"}', "not valid JSON"),
        ("a.parquet", "PAR1 no parquet", "damaged"),
        ("a.parquet", "", "empty"),
        ("a.txt", "", "empty"),
        ("a.txt", "\n \n", "no text"),
        ("a.txt", "%PDF-1.7", "PDF"),
        ("a.txt", "PK\x03\x04", "zip"),
    ],
)
def test_bad_files_are_named_in_a_sentence(name: str, content: str, message: str, tmp_path: Path):
    path = write(tmp_path / name, content)
    with pytest.raises(UnmaskError, match=message) as raised:
        texts(path)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_json_arrays_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "LONGEST_JSON", 50)
    with pytest.raises(UnmaskError, match="JSON lines"):
        texts(write(tmp_path / "a.json", '[\n{"text": "a"},\n' + '{"text": "b"},\n' * 9 + "{}]"))


def test_parquet(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    rows = [f"row {i}" for i in range(3000)]
    parquet.write_table(arrow.table({"n": list(range(3001)), "text": [*rows, None]}), path, row_group_size=700)
    assert texts(path) == rows
    assert next(documents([path])).source == f"{path}:1"
    with pytest.raises(UnmaskError, match="did you mean 'text'"):
        texts(path, column="txt")
    with pytest.raises(UnmaskError, match="must be text"):
        texts(path, column="n")
    write(tmp_path / "cut.parquet", path.read_bytes()[:-20])
    with pytest.raises(UnmaskError, match=r"cut\.parquet"):
        texts(tmp_path / "cut.parquet")


# missing things


def test_missing_files_and_choices_are_told_at_once(tmp_path: Path):
    with pytest.raises(UnmaskError, match="no file or folder"):
        documents([tmp_path / "none.txt"])
    with pytest.raises(UnmaskError, match="did you mean 'line'"):
        documents([tmp_path], per="lines")  # type: ignore[arg-type]
    with pytest.raises(UnmaskError, match="at least one"):
        documents([])
    with pytest.raises(UnmaskError, match="no text in the folder"):
        texts(tmp_path)


@pytest.mark.parametrize(
    ("name", "module"), [("a.zst", "zstandard"), ("a.parquet", "pyarrow"), ("hub:a/b", "datasets")]
)
def test_missing_extras_are_named(name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(wanted: str, *rest: object) -> types.ModuleType:
        if wanted.split(".")[0] == module:
            raise ImportError(wanted)
        return real(wanted, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    path = name if name.startswith("hub:") else write(tmp_path / name, "x")
    with pytest.raises(UnmaskError, match=r"pip install 'unmask\[data\]'"):
        texts(path)


def test_hub_names(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def load_dataset(path: str, name: str | None, *, split: str, streaming: bool) -> Iterator[dict[str, str | None]]:
        asked.append((path, name, split, streaming))
        if path == "no/network":
            raise ConnectionError("the hub\ncannot be reached")
        return iter([{"text": "a\r\nb"}, {"text": None}, {"text": "c"}])

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert [(d.text, d.source) for d in documents(["hub:me/mine"])] == [
        ("a\nb", "hub:me/mine:1"),
        ("c", "hub:me/mine:3"),
    ]
    assert texts("hub:me/mine/small.en:test") == ["a\nb", "c"]
    assert asked == [("me/mine", None, "train", True), ("me/mine", "small.en", "test", True)]
    with pytest.raises(UnmaskError, match="did you mean 'text'"):
        texts("hub:me/mine", column="tex")
    with pytest.raises(UnmaskError, match=r"^hub:no/network cannot be read from the hub: the hub\.$"):
        texts("hub:no/network")
    with pytest.raises(UnmaskError, match="owner/name"):
        texts("hub:name")


# sentences

SPLITS = [
    "Mr. Smith met Dr. J. R. Watson. | They talked, e.g. about Python, i.e. the snake.",
    "It cost 3.14 dollars in version 1.2.3. | See Fig. 3, Eq. (4) and Sec. IV. | He said no. | No. 5 is alive.",
    "The U.S. Army left the U.S. | The end came at 5 p.m. | It was Jan. 5 then.",
    '"Stop!" he cried. | "Why?" | She left (quietly.) | [So did we.] | Well... yes. | Then rain... | Nothing…',
    "We use dict.get and os.path. numbers go on after a small letter. | We know.",
    "1. First do this. | 2. Then do that. | B. Or this.",
    "Smith et al. (2018) agree with Jones et al. | However, cf. Brown and vs. Python. | Apple Inc. Announced it.",
    "It was shown before.[12] | Others disagree.[3][4] | Is it true?! | Yes!!!",
    "我喜欢你。|你呢？|很好！|“走吧。”|他说",
    "吾輩は猫である。|名前はまだ無い。",
    "영화가 재미있었다. | 정말 좋아요! | python은 쉽습니다. | 끝났다.|그는 갔다. | 3.5점",
    "वह गया। | वह आया। | هل أنت بخير؟ | نعم.",
    "No stop at the end",
    "A paragraph without a stop\n\nAnd another one",
    "Hard wrapped\nprose goes on\nhere. | A new sentence.",
    "Etc. is short. | Cats, dogs, etc. are here. | Cats, dogs, etc. | The rest is not.",
    "Vitamin C. | It helps. | Plan B. Smith came.",
    "Prices rose 5%. | $3 was paid. | 42 came.",
    "Он ушёл. | Она осталась.",
]


@pytest.mark.parametrize("marked", SPLITS)
def test_tricky_sentences(marked: str):
    plain = marked.replace(" | ", " ").replace("|", "")
    expected = [" ".join(part.split()) for whole in marked.split("\n\n") for part in whole.split("|")]
    assert sentences(plain) == expected


def test_no_sentences_without_text():
    assert sentences("") == sentences(" \n\n\t") == []
    assert sentences(".") == ["."]


def test_runs_without_a_stop_are_cut_at_whitespace():
    found = sentences("word " * 1000 + "x" * 5000)
    assert [len(part) for part in found] == [1999, 1999, 999, 2000, 2000, 1000]
    assert all(part == "word " * (len(part) // 5) + "word" for part in found[:2])


@pytest.mark.parametrize("unit", [". ", "a. B", ".", "\n ", '."', ".[1]", ".[[", "Mr. ", "( ", ". ((( ", "다.", "1. "])
def test_sentences_take_linear_time(unit: str):
    def seconds(length: int) -> float:
        begin = time.process_time()
        sentences(unit * (length // len(unit)))
        return time.process_time() - begin

    assert seconds(160_000) < 40 * seconds(20_000) + 0.2  # 8 times the text; a quadratic rule takes 64 times as long
