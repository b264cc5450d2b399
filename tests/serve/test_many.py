"""Answers for many rows: order, parts, continuing after a kill, damaged rows; against the answers of one predictor."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from unmask import cli, huggingface
from unmask.data.labelled.rows import Row
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.runs.evaluation import evaluate
from unmask.serve import Predictor
from unmask.serve.many import BatchEmbedder, BatchPredictor
from unmask.serve.many.answers import Part, answer_file
from unmask.serve.many.asked import Asked, Predictions, as_json
from unmask.serve.many.source import Lines, ParquetRows, source_of

WORDS = "a good film dull the plot of great was and people talk".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def texts():
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, draw.integers(1, 9))) for _ in range(23)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, texts):
    place = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.train(texts * 5, 80)
    page = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=24, std=0.3)
    model = page.build(as_heads({"classification": 2}))
    huggingface.save(place / "classifier", model, tokenizer, labels=("bad", "good"))
    huggingface.save(place / "encoder", page.build(), tokenizer, settings={"pooling": "mean"})
    huggingface.save(place / "masked", page.build(as_heads({"mlm": 0})), tokenizer)
    return place


@pytest.fixture(scope="module")
def predictor(folders):
    return Predictor(folders / "classifier", precision="fp32")


@pytest.fixture(scope="module")
def wanted(texts, folders, predictor):
    """(label of each text, vector of each text), one by one."""
    encoder = Predictor(folders / "encoder", precision="fp32")
    return [predictor([one])[0]["label"] for one in texts], [encoder([one])[0]["embedding"] for one in texts]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    for module in ("source", "answers"):
        monkeypatch.setattr(f"unmask.serve.many.{module}.BLOCK", 4)
    monkeypatch.setattr("unmask.serve.many.store.OF_A_ROW_GROUP", 2)


@pytest.fixture
def table(texts):
    """Rows with a column that has nothing to do with the model."""
    return pyarrow.table({"text": texts, "when": pyarrow.array(range(len(texts)), pyarrow.timestamp("ms"))})


@pytest.fixture
def rows(table, tmp_path):
    """The table as a file whose row groups do not fit the blocks."""
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=5)
    return tmp_path / "rows.parquet"


def command(verb, folder, file, out, *more):
    cli.main([verb, "--model", str(folder), "--file", str(file), "--out", str(out), "--precision", "fp32", *more])


def answer(predictor, folder, rows, out, **how):
    given = {"model": folder, "options": {}, **how}
    return answer_file(Predictions(predictor), source_of(rows), out, **given)


def test_each_row_of_a_table_keeps_its_columns_and_gets_its_answer(folders, rows, table, wanted, tmp_path, capsys):
    command("predict", folders / "classifier", rows, tmp_path / "out.parquet")
    said = capsys.readouterr()
    assert said.out == f"23 predictions -> {tmp_path / 'out.parquet'}\n"
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.select(["text", "when"]).equals(table)
    assert [json.loads(one)["label"] for one in found["prediction"].to_pylist()] == wanted[0]
    assert len(set(wanted[0])) == 2
    assert found["error"].null_count == len(found)
    assert parquet.ParquetFile(tmp_path / "out.parquet").num_row_groups == 3  # 23 rows in row groups of 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "rows.parquet"]


def test_vectors_stand_beside_their_rows(folders, rows, table, wanted, tmp_path, capsys):
    command("embed", folders / "encoder", rows, tmp_path / "out.parquet")
    assert capsys.readouterr().out.startswith("23 embeddings -> ")
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    np.testing.assert_allclose(np.stack(found["embedding"].to_numpy()), wanted[1], atol=1e-5)
    named = table.rename_columns(["review", "when"])
    parquet.write_table(named, tmp_path / "named.parquet")
    command("embed", folders / "encoder", tmp_path / "named.parquet", tmp_path / "again.parquet", "--column", "review")
    assert parquet.read_table(tmp_path / "again.parquet")["embedding"].equals(found["embedding"])


def test_the_column_of_the_text_is_named(folders, table, wanted, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    parquet.write_table(table.rename_columns(["review", "text"]), tmp_path / "named.parquet")
    command("predict", folders / "classifier", tmp_path / "named.parquet", out, "--column", "review")
    assert [json.loads(one)["label"] for one in parquet.read_table(out)["prediction"].to_pylist()] == wanted[0]
    found = BatchPredictor(folders / "classifier", column="review")(table.rename_columns(["review", "when"]))
    assert [json.loads(one)["label"] for one in found["prediction"].to_pylist()] == wanted[0]
    rows = [{"review": "a film", "sentence1": "x", "sentence2": "y"}, {}, {"review": None}]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    skip = ["--column", "review", "--on-error", "skip"]
    command("predict", folders / "classifier", tmp_path / "rows.jsonl", tmp_path / "out.jsonl", *skip)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert found[0]["prediction"]["label"] == Predictor(folders / "classifier")(["a film"])[0]["label"]
    assert [one["error"] for one in found[1:]] == [f"Text {i}: 'review' must be a string, not null." for i in (2, 3)]
    for file, sentence in (("named.parquet", "There is no column 'reviw'"), ("lines.txt", "has lines of text")):
        (tmp_path / "lines.txt").write_text("a line\n")
        with pytest.raises(SystemExit):
            command("predict", folders / "classifier", tmp_path / file, tmp_path / "no.parquet", "--column", "reviw")
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("form", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", ["rows.txt", "rows.jsonl"])
def test_lines_are_rows(folders, texts, wanted, name, form, tmp_path, capsys):
    objects = [{"text": text, "n": i} for i, text in enumerate(texts)]
    lines = texts if name == "rows.txt" else [json.dumps(one) for one in objects]
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command("predict", folders / "classifier", tmp_path / name, tmp_path / f"out{form}")
    if form == ".jsonl":
        found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
        assert [one["prediction"]["label"] for one in found] == wanted[0]
        kept = [{key: one[key] for key in one if key not in ("prediction", "error")} for one in found]
        assert kept == ([{"text": text} for text in texts] if name == "rows.txt" else objects)
    else:
        found = parquet.read_table(tmp_path / "out.parquet")
        assert [json.loads(one)["label"] for one in found["prediction"].to_pylist()] == wanted[0]
        assert found["text" if name == "rows.txt" else "line"].to_pylist() == lines


@pytest.mark.parametrize(("form", "count"), [(".jsonl", 2), (".parquet", 3), (".parquet", 8)])
def test_the_parts_one_after_another_are_the_whole(predictor, folders, rows, form, count, tmp_path):
    whole = answer(predictor, folders / "classifier", rows, tmp_path / f"whole{form}")
    parts = [
        answer(predictor, folders / "classifier", rows, tmp_path / f"part{form}", part=Part(i + 1, count))
        for i in range(count)
    ]
    names = [one.out.name for one in parts]
    assert names == sorted(names)
    assert names[0] == f"part-00001-of-{count:05d}{form}"
    assert sum(one.tally.rows for one in parts) == whole.tally.rows == 23
    if form == ".jsonl":
        assert b"".join(one.out.read_bytes() for one in parts) == whole.out.read_bytes()
    else:
        tables = [parquet.read_table(one.out) for one in parts]
        assert pyarrow.concat_tables(tables).equals(parquet.read_table(whole.out))


def test_right_answers_of_the_parts_add_up_to_those_of_an_evaluation(predictor, folders, texts, table, tmp_path):
    labels = ["good", "bad", "bad"] * 7 + ["good", "good"]
    parquet.write_table(table.append_column("label", [labels]), tmp_path / "rows.parquet")
    parts = [
        answer(predictor, folders / "classifier", tmp_path / "rows.parquet", tmp_path / "x.parquet", part=Part(i, 3))
        for i in (1, 2, 3)
    ]
    rows = [row for part in parts for row in parquet.read_table(part.out).to_pylist()]
    right = sum(json.loads(row["prediction"])["label"] == row["label"] for row in rows)
    scores = evaluate(folders / "classifier", tmp_path / "rows.parquet")
    assert right / len(texts) == pytest.approx(scores["metrics"]["accuracy"])
    assert 0 < right < len(texts)


def test_lines_have_parts_too(predictor, folders, texts, tmp_path):
    (tmp_path / "rows.txt").write_text("\n".join(texts), encoding="utf-8")  # the last line does not end
    whole = answer(predictor, folders / "classifier", tmp_path / "rows.txt", tmp_path / "whole.jsonl")
    parts = [
        answer(predictor, folders / "classifier", tmp_path / "rows.txt", tmp_path / "part.jsonl", part=Part(i, 3))
        for i in (1, 2, 3)
    ]
    assert b"".join(one.out.read_bytes() for one in parts) == whole.out.read_bytes()


@pytest.mark.parametrize("rate", [0, 1, 3, 4, 5, 22, 23])
def test_blocks_are_those_of_the_rows(texts, rows, tmp_path, rate):
    """Any block of a Parquet file, and of lines, holds the rows that a slice of the list holds."""
    (tmp_path / "rows.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for one in (ParquetRows(rows), Lines(tmp_path / "rows.txt")):
        assert one.rows == 23
        begin, end = rate // 4, rate // 4 + 2
        found = list(one.blocks(begin, end))
        got = [value if isinstance(value, str) else value["text"] for block in found for value in block.values]
        assert got == texts[begin * 4 : end * 4]
        assert [block.first for block in found] == [4 * i + 1 for i in range(begin, begin + max(len(found), 1))]


class Echo(Asked):
    """Answers with the text; ends its process without a last word at one text. It has no model, so it can be forked."""

    name = "prediction"

    def __init__(self, last=None):
        self.last = last

    def row(self, value, number):
        return Row(text=value["text"])

    def answer(self, rows):
        if any(row.text == self.last for row in rows):
            os.kill(os.getpid(), signal.SIGKILL)
        return [row.text for row in rows]

    def array(self, answers):
        return pyarrow.array(answers, pyarrow.string())


@pytest.mark.parametrize("form", [".jsonl", ".parquet"])
def test_a_killed_process_continues_after_its_blocks(folders, texts, rows, form, tmp_path):
    out, given = tmp_path / f"out{form}", {"model": folders / "classifier", "options": {}}
    whole = answer_file(Echo(), source_of(rows), tmp_path / f"whole{form}", **given).out.read_bytes()
    process = multiprocessing.get_context("fork").Process(
        target=lambda: answer_file(Echo(texts[13]), source_of(rows), out, **given)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not out.exists()
    (tmp_path / f"out{form}.blocks" / ".00000003.abcdefgh.tmp").write_bytes(b"half a bl")  # as a kill may leave it
    found = answer_file(Echo(), source_of(rows), out, **given)
    assert found.continued == 12
    assert out.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["rows.parquet", f"whole{form}", out.name])


def test_rows_that_stopped_a_command_can_be_skipped_by_the_next(folders, texts, rows, tmp_path):
    class Refuses(Echo):
        def row(self, value, number):
            if value["text"] == texts[13]:
                raise UnmaskError(f"Text {number} is odd.")
            return super().row(value, number)

    out, given = tmp_path / "out.jsonl", {"model": folders / "classifier", "options": {}}
    with pytest.raises(UnmaskError, match=r"Text 14 is odd.*--on-error skip"):
        answer_file(Refuses(), source_of(rows), out, **given)
    found = answer_file(Refuses(), source_of(rows), out, skip=True, **given)
    assert (found.continued, found.tally.rows, found.tally.errors) == (12, 23, 1)


@pytest.fixture
def unfinished(folders, rows, tmp_path, monkeypatch):
    """A file whose blocks are all there, but not joined."""
    with monkeypatch.context() as patched:
        patched.setattr("unmask.serve.many.store.Store.join", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            answer_file(Echo(), source_of(rows), tmp_path / "out.parquet", model=folders / "classifier", options={})
    return tmp_path / "out.parquet"


@pytest.mark.parametrize(
    ("changed", "continues"), [("nothing", True), ("options", False), ("model", False), ("rows", False)]
)
def test_only_answers_of_the_same_rows_model_and_options_are_continued(unfinished, folders, rows, changed, continues):
    given = {"model": folders / "classifier", "options": {}}
    if changed == "rows":
        os.utime(rows, (1, 1))
    given |= {"options": {"options": {"top": 3}}, "model": {"model": folders / "encoder"}}.get(changed, {})
    if continues:
        assert answer_file(Echo(), source_of(rows), unfinished, **given).continued == 23
    else:
        with pytest.raises(UnmaskError, match="holds answers of another command"):
            answer_file(Echo(), source_of(rows), unfinished, **given)


def test_a_damaged_block_is_one_sentence(unfinished, folders, rows, tmp_path):
    block = tmp_path / "out.parquet.blocks" / "00000002"
    block.write_bytes(block.read_bytes()[:-9])
    with pytest.raises(UnmaskError, match=r"out\.parquet\.blocks/00000002 is damaged"):
        answer_file(Echo(), source_of(rows), unfinished, model=folders / "classifier", options={})
    assert not unfinished.exists()


def test_two_processes_do_not_write_one_file(predictor, folders, rows, tmp_path):
    class Meanwhile(Predictions):
        def answer(self, rows_of_block):
            with pytest.raises(UnmaskError, match=r"Another process is writing .*out\.jsonl"):
                answer(predictor, folders / "classifier", rows, tmp_path / "out.jsonl")
            return super().answer(rows_of_block)

    given = {"model": folders / "classifier", "options": {}}
    found = answer_file(Meanwhile(predictor), source_of(rows), tmp_path / "out.jsonl", **given)
    assert found.tally.rows == 23


DAMAGED = {2: '{"text": "a film"', 5: "[1]", 9: '{"text": 3}', 14: '{"words": 1}', 17: '{"text": "a", "error": 1}'}
SAYS = {2: "not valid JSON", 5: "must be a JSON object", 9: "must be a string", 14: "has no 'text'", 17: "has 'error'"}


@pytest.mark.parametrize("form", [".jsonl", ".parquet"])
def test_a_damaged_line_keeps_its_place(folders, texts, wanted, form, tmp_path, capsys):
    lines = [DAMAGED.get(i, json.dumps({"text": text})).encode() for i, text in enumerate(texts)]
    lines[20] = b'{"text": "caf\xe9"}'
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    out = tmp_path / f"out{form}"
    command("predict", folders / "classifier", tmp_path / "rows.jsonl", out, "--on-error", "skip")
    said = capsys.readouterr()
    assert said.err == "6 rows have no answer; the column 'error' says why.\n"
    if form == ".jsonl":
        found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    else:
        found = parquet.read_table(out).to_pylist()
        assert [one["line"].encode() for one in found][:20] == lines[:20]
    assert len(found) == 23
    for i, one in enumerate(found):
        if i in SAYS or i == 20:
            assert SAYS.get(i, "not UTF-8") in one["error"]
            assert one["prediction"] is None
        else:
            answer = one["prediction"] if form == ".jsonl" else json.loads(one["prediction"])
            assert (answer["label"], one["error"]) == (wanted[0][i], None)
    with pytest.raises(SystemExit):
        command("predict", folders / "classifier", tmp_path / "rows.jsonl", tmp_path / "stopped.jsonl")
    assert "rows.jsonl:3 is not valid JSON" in capsys.readouterr().err
    assert not list(tmp_path.glob("stopped*"))


def test_a_row_that_the_model_cannot_answer_does_not_stop_its_neighbours(folders, tmp_path, capsys):
    """A text without a mask is known only when the model is asked."""
    given = ["a [MASK] film", "no mask here", "", "[MASK] people", "a film", "the [MASK]"]
    (tmp_path / "rows.txt").write_text("\n".join(given), encoding="utf-8")
    command("predict", folders / "masked", tmp_path / "rows.txt", tmp_path / "out.jsonl", "--on-error", "skip")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [one["text"] for one in found] == given
    assert [one["prediction"] is not None for one in found] == [True, False, False, True, False, True]
    assert [one["error"] is not None for one in found] == [False, True, False, False, True, False]  # blank: no error
    assert "2 rows have no answer" in capsys.readouterr().err


def test_missing_texts_of_a_table_have_no_vector(folders, texts, wanted, tmp_path):
    parquet.write_table(pyarrow.table({"text": [*texts[:3], None, "", *texts[3:6]]}), tmp_path / "rows.parquet")
    command("embed", folders / "encoder", tmp_path / "rows.parquet", tmp_path / "out.parquet", "--on-error", "skip")
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [one["embedding"] is None for one in found] == [False] * 3 + [True] * 2 + [False] * 3
    assert [found[i]["error"] for i in (3, 4)] == ["Text 4: 'text' must be a string, not null.", "Text 5 is empty."]
    np.testing.assert_allclose([one["embedding"] for one in found if one["embedding"]], wanted[1][:6], atol=1e-5)


def test_a_truncated_table_is_one_sentence(folders, rows, tmp_path, capsys):
    rows.write_bytes(rows.read_bytes()[:-20])
    with pytest.raises(SystemExit):
        command("predict", folders / "classifier", rows, tmp_path / "out.parquet")
    assert "is damaged or not Parquet" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["predict", "--part", "2/3"], "--part is for a file with all rows: add --out FILE.parquet or FILE.jsonl"),
        (["predict", "--part", "4/3", "--out", "OUT.jsonl", "--file", "ROWS"], "--part must be I/N .* not '4/3'"),
        (["predict", "--out", "OUT.parquet"], "add --file FILE"),
        (["predict", "a text", "--out", "OUT.parquet"], "leave the other input"),
        (["predict", "--out", "OUT.parquet", "--file", "none.parquet"], "There is no file none.parquet"),
        (["predict", "--out", "OUT.jsonl", "--file", "TAKEN"], "taken.parquet has 'prediction', as the answers have"),
        (
            ["embed", "--out", "OUT.parquet", "--file", "ROWS", "--column", "texts"],
            "no column 'texts' in .*did you mean",
        ),
        (["embed", "--out", "OUT.npy", "--on-error", "skip"], "--on-error is for .* --out FILE.parquet"),
        (["embed", "--out", "OUT.parquet", "--file", "rows.csv"], "rows.csv must be Parquet, JSON lines or lines"),
        (["predict", "--file", "ROWS"], "rows.parquet are not lines"),
    ],
)
def test_options_that_do_not_go_together(given, sentence, folders, rows, texts, tmp_path, capsys):
    parquet.write_table(pyarrow.table({"text": texts, "prediction": texts}), tmp_path / "taken.parquet")
    places = {"OUT": str(tmp_path / "out"), "ROWS": str(rows), "TAKEN": str(tmp_path / "taken.parquet")}
    words = [places.get(word, word.replace("OUT", places["OUT"])) for word in given]
    with pytest.raises(SystemExit):
        cli.main([words[0], "--model", str(folders / "classifier"), *words[1:]])
    error = capsys.readouterr().err
    assert re.search(sentence, error), error
    assert not list(tmp_path.glob("out*"))


def test_functions_for_batches_are_small_and_open_no_model_until_they_are_called(folders, table, wanted, monkeypatch):
    opened = []
    of_rows = table.slice(0, 6)
    monkeypatch.setattr("unmask.huggingface.opened", lambda *a, real=huggingface.opened: opened.append(a) or real(*a))
    for kind, name, name_of in (
        (BatchPredictor, "classifier", "prediction"),
        (BatchEmbedder, "encoder", "embedding"),
    ):
        function = pickle.loads(pickle.dumps(kind(folders / name, precision="fp32")))  # noqa: S301
        assert len(pickle.dumps(function)) < 1_000
        assert not opened
        found = function(of_rows)
        assert opened
        assert found.column_names == ["text", "when", name_of, "error"]
        before = len(opened)
        batches = list(function.arrow(of_rows.to_batches(max_chunksize=4)))
        assert [len(batch) for batch in batches] == [4, 2]
        again = pyarrow.Table.from_batches(batches)
        assert len(opened) == before  # a process opens a model once
        opened.clear()
        if name_of == "prediction":
            for one in (found, again):
                assert [json.loads(text)["label"] for text in one[name_of].to_pylist()] == wanted[0][:6]
        else:
            for one in (found, again):
                np.testing.assert_allclose(one[name_of].to_pylist(), wanted[1][:6], atol=1e-5)
        with pytest.raises(UnmaskError, match="The table has"):
            function(found)
        with pytest.raises(UnmaskError, match="give map_batches batch_format='pyarrow'"):
            function({"text": np.array(["a film"])})


def test_json_of_a_text_that_cannot_be_encoded_is_escaped():
    assert as_json({"a": "é"}) == '{"a": "é"}'
    assert json.loads(as_json({"a": "\ud800é"})) == {"a": "\ud800é"}
    as_json({"a": "\ud800é"}).encode()
