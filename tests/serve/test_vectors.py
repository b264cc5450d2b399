"""Vectors of texts: in order, in three forms, whole or absent; the verb `embed`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from unmask import cli, huggingface
from unmask.cli.export import _lines
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text import byte_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.kernels.processor import settle
from unmask.models.bert import Bert, Roberta
from unmask.models.vit import Vit
from unmask.serve import Predictor
from unmask.serve.vectors import encoder_of, vectors, write_vectors

TEXTS = ["a good film", "dull", "the plot of a great film was dull and people talk", "great people", "a film"]
SIZE = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 24, "std": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("encoder")
    tokenizer = Tokenizer.train(TEXTS * 5, 80)
    model = Bert(vocabulary=tokenizer.size, **SIZE).build({})
    huggingface.save(place, model, tokenizer, settings={"pooling": "mean", "normalise": True})
    return place


@pytest.fixture(scope="module")
def wanted(folder):
    return np.array([answer["embedding"] for answer in Predictor(folder, precision="fp32")(TEXTS)], np.float32)


def test_in_the_order_of_the_texts(folder, wanted, monkeypatch):
    monkeypatch.setattr("unmask.serve.vectors.AT_ONCE", 2)
    parts = list(vectors(Predictor(folder, precision="fp32"), iter(TEXTS)))
    assert [len(part) for part in parts] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(parts), wanted, atol=1e-6)


@pytest.mark.parametrize("form", [".npy", ".safetensors", ".jsonl"])
def test_the_command_writes_every_form(folder, wanted, tmp_path, form, capsys):
    file, out = tmp_path / "texts.txt", tmp_path / f"vectors{form}"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    cli.main(["embed", "--model", str(folder), "--file", str(file), "--out", str(out), "--precision", "fp32"])
    said = capsys.readouterr()
    assert said.out.startswith("5 vectors of 16 numbers")
    assert said.err == ""
    if form == ".npy":
        found = np.load(out, allow_pickle=False)
    elif form == ".jsonl":
        found = np.array([json.loads(line) for line in out.read_text().splitlines()])
    else:
        found = load_file(out)["vectors"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_byte_order_mark_is_no_part_of_the_first_text(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes("\n".join(TEXTS).encode("utf-8-sig"))
    assert list(_lines(str(file), None)) == TEXTS


def test_a_blank_line_is_refused_but_for_the_end(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a film\n\ndull\n")
    with pytest.raises(UnmaskError, match=r"Line 2 of .*texts\.txt is blank, and has no vector: remove it"):
        list(_lines(str(file), None))
    file.write_text("a film\ndull\n\n \n")
    assert list(_lines(str(file), None)) == ["a film", "dull"]


def test_the_texts_of_a_table_are_those_of_a_column(tmp_path):
    rows = "id\ttext\tlabel\n" + "".join(f"{i}\t{text}\tx\n" for i, text in enumerate(TEXTS))
    for name, column in (("a.tsv", None), ("a.tsv", "text"), ("a.txt", "text")):
        (tmp_path / name).write_text(rows)
        assert list(_lines(str(tmp_path / name), None, column)) == TEXTS
    assert list(_lines(str(tmp_path / "a.txt"), None)) == rows.splitlines()
    (tmp_path / "a.jsonl").write_text('{"text": 3}\n')
    for column, said in ((None, "'text' must be text, not"), ("title", "There is no column 'title'")):
        with pytest.raises(UnmaskError, match=said):
            list(_lines(str(tmp_path / "a.jsonl"), None, column))
    with pytest.raises(UnmaskError, match="--column names a column of a table"):
        list(_lines(None, None, "text"))


@pytest.mark.usefixtures("bf16")
def test_bfloat16_is_nearly_the_same(folder, wanted):
    found = np.concatenate(list(vectors(Predictor(folder, precision="bf16"), TEXTS)))
    assert not np.array_equal(found, wanted)
    assert (found * wanted).sum(1).min() > 0.999


@pytest.mark.usefixtures("bf16", "by_processor")
@pytest.mark.parametrize("precision", ["auto", "bf16"])
def test_the_command_takes_any_precision_and_says_what_it_computes(folder, wanted, tmp_path, precision, capsys):
    file, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    cli.main(["embed", "--model", str(folder), "--file", str(file), "--out", str(out), "--precision", precision])
    note = settle(precision).note
    assert capsys.readouterr().err == (f"{note}\n" if note else "")
    assert (np.load(out, allow_pickle=False) * wanted).sum(1).min() > 0.999


@pytest.mark.usefixtures("by_processor")
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("command", [["predict", "a film"], ["evaluate", "--data", "ROWS"], ["serve", "--port", "0"]])
def test_what_auto_chose_is_said_beside_the_answers(folder, tmp_path, command, own, monkeypatch, capsys):
    monkeypatch.setattr("unmask.kernels.processor.abilities", lambda: {"architecture": "x86_64", "avx512_bf16": own})
    monkeypatch.setattr("unmask.serve.http.server.run", lambda *_: None)
    rows = tmp_path / "rows.tsv"
    rows.write_text("sentence1\tsentence2\tscore\na film\tdull\t1.0\ngreat\tgood\t4.0\na film\tgood\t2.0\n", "utf-8")
    verb, *rest = [str(rows) if word == "ROWS" else word for word in command]
    cli.main([verb, "--model", str(folder), *rest])
    said = capsys.readouterr()
    assert said.err.startswith("Computed in bf16" if own else "Computed in fp32")
    assert "Computed" not in said.out


def test_nothing_is_written_where_a_text_is_empty(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.serve.vectors.AT_ONCE", 1)
    with pytest.raises(UnmaskError, match="Text 2 is empty"):
        write_vectors(vectors(Predictor(folder), ["a film", " "]), tmp_path / "x.npy")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said(folder, tmp_path):
    with pytest.raises(UnmaskError, match=r"written to x\.csv: .* \.npy, \.safetensors, \.jsonl"):
        write_vectors(iter([]), tmp_path / "x.csv")
    with pytest.raises(UnmaskError, match="no texts"):
        write_vectors(iter([]), tmp_path / "x.npy")


def test_only_encoders_give_vectors(tmp_path):
    tokenizer = Tokenizer.train(TEXTS * 5, 80)
    huggingface.save(tmp_path, Bert(vocabulary=tokenizer.size, **SIZE).build(as_heads({"mlm": 0})), tokenizer)
    with pytest.raises(UnmaskError, match="computes no vectors"):
        next(vectors(Predictor(tmp_path), TEXTS))


def test_a_device_that_is_not_there_is_named(folder):
    with pytest.raises(UnmaskError, match="device 'nowhere'"):
        Predictor(folder, device="nowhere")


@pytest.mark.parametrize(
    "command", [["predict", "a film"], ["evaluate", "--data", "ROWS"], ["embed", "--out", "x.npy"]]
)
def test_no_command_passes_over_the_device(folder, tmp_path, command, capsys):
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tpair\tscore\na film\tdull\t1.0\ngreat\tgood\t4.0\n", encoding="utf-8")
    verb, *rest = [str(rows) if word == "ROWS" else word for word in command]
    given = ["--file", str(rows)] if verb == "embed" else []
    with pytest.raises(SystemExit):
        cli.main([verb, "--model", str(folder), *rest, *given, "--device", "nowhere"])
    assert "no device 'nowhere'; use cpu" in capsys.readouterr().err


def test_vectors_of_pictures(tmp_path, capsys):
    Image = pytest.importorskip("PIL.Image")
    transformers = pytest.importorskip("transformers")
    page = Vit(size=8, patch=4, dim=16, layers=1, heads=2, hidden=32, std=0.3)
    huggingface.save(tmp_path / "vit", page.build({}, seed=3), ImageProcessor(size=8, patch=4))
    rng = np.random.default_rng(0)
    for name in ("b/2.png", "a/1.png", "3.png"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(tmp_path / "pictures" / name)
    given = ["embed", "--model", str(tmp_path / "vit"), "--data", str(tmp_path / "pictures")]
    cli.main([*given, "--out", str(tmp_path / "out.npy")])
    names = (tmp_path / "out.names.txt").read_text().split()
    assert names == ["3.png", "a/1.png", "b/2.png"]
    model = transformers.ViTModel.from_pretrained(tmp_path / "vit", add_pooling_layer=False).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "vit")
    pixels = processor([Image.open(tmp_path / "pictures" / name) for name in names], return_tensors="pt")
    with torch.no_grad():
        expected = model(**pixels).last_hidden_state[:, 0]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected.numpy(), atol=1e-5)
    (tmp_path / "pictures" / "c.png").write_bytes(b"no picture")
    capsys.readouterr()
    for more, sentence in (
        (["--out", str(tmp_path / "x.npy")], "c.png cannot be decoded"),
        (["--out", str(tmp_path / "x.npy"), "--file", "a"], "leave one of them out"),
        (["--out", str(tmp_path / "x.txt")], "Vectors cannot be written to x.txt"),
    ):
        with pytest.raises(SystemExit):
            cli.main([*given, *more])
        assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("x.*"))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("page", [Bert, Roberta])
def test_any_encoder_gives_the_vectors_of_sentence_transformers(page, pooling, tmp_path, capsys):
    """A folder without a sentence head, as its default for one is: `Transformer`, then `Pooling`."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    tokenizer = byte_pairs.train(TEXTS * 5, 300) if page is Roberta else Tokenizer.train(TEXTS * 5, 80)
    model = page(vocabulary=tokenizer.size, **SIZE, padding=tokenizer.pad).build(as_heads({"mlm": 0}), seed=2)
    huggingface.save(tmp_path / "plain", model, tokenizer)
    texts = [*TEXTS, " ".join(TEXTS * 3)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    out = tmp_path / "vectors.npy"
    asked = ["--model", str(tmp_path / "plain"), "--file", str(tmp_path / "texts.txt"), "--out", str(out)]
    cli.main(["embed", *asked, "--precision", "fp32", *(["--pooling", pooling] if pooling == "cls" else [])])
    assert "was not trained for sentence vectors: its vectors are th" in capsys.readouterr().err
    steps = [Transformer(str(tmp_path / "plain")), Pooling(model.config.dim, pooling)]
    theirs = SentenceTransformer(modules=steps, device="cpu")
    np.testing.assert_allclose(np.load(out), theirs.encode(texts), atol=1e-5)
    if pooling == "mean":
        np.testing.assert_array_equal(
            SentenceTransformer(str(tmp_path / "plain"), device="cpu").encode(texts), theirs.encode(texts)
        )


def test_what_pools_already_or_reads_no_text_is_not_pooled_again(folder, tmp_path):
    assert encoder_of(folder) == (folder, "") == encoder_of(folder, "mean")
    with pytest.raises(UnmaskError, match="is a sentence encoder, trained with the pooling mean: leave --pooling out"):
        encoder_of(folder, "cls")
    config = Vit(size=8, patch=4, dim=8, layers=1, heads=2, hidden=12)
    huggingface.save(tmp_path / "vit", config.build(), ImageProcessor().resized(8))
    with pytest.raises(UnmaskError, match="vit reads no texts"):
        encoder_of(tmp_path / "vit")
