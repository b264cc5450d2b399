"""What the fuzzer found: files that once ended a command with anything but a sentence, and what bends them."""

from __future__ import annotations

import copy
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from unmask import huggingface
from unmask.config import flatten
from unmask.data.files import tables
from unmask.data.labelled import dataset, pairs
from unmask.data.text import byte_pairs
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import LONGEST, UnmaskError, unknown
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.seq2seq import Seq2Seq
from unmask.models.t5 import T5
from unmask.runs import probes
from unmask.runs.transfer import Transfer, prepare
from unmask.runs.transfer.adapter import load_adapter, save_adapter
from unmask.serve.translator import Translator
from unmask.train import metrics
from unmask.visualize import runs

sys.path.append(str(Path(__file__).resolve().parents[2] / "reliability"))
import fuzz
import guided
from bending import TOKENS, VALUES, bend
from folders import SUBJECTS

SIZES = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}


def changed(place: Path, **fields: object) -> None:
    place.write_text(json.dumps({**json.loads(place.read_text()), **fields}))


# ------------------------------------------------------------------------------------------------ messages


def test_names_from_files_stay_on_the_line():
    error = unknown("column", "a\nb\u2028\x1b[2J\ud800", ["c\rd"])
    assert str(error) == r"There is no column 'a\nb\u2028\x1b[2J\ud800'. Known: c\rd."
    assert str(UnmaskError("für 中文 🙂 a\xa0b")) == "für 中文 🙂 a\xa0b"


def test_a_message_is_no_longer_than_can_be_read():
    said = str(UnmaskError(f"There is no field '{'x' * 100_000}'; choose another."))
    assert len(said) <= LONGEST + 3
    assert said.startswith("There is no field")
    assert said.endswith("; choose another.")


# ------------------------------------------------------------------------------------------------ files


def test_objects_nested_as_deep_as_the_parser_goes_are_flattened(tmp_path):
    value = json.loads('{"a":' * 900 + "1" + "}" * 900)
    for _ in range(5_000):
        value = {"a": value}
    assert list(flatten(value).values()) == [1]
    assert flatten({"a": {"b": 1, "c": {}}, "d": 2}, "x.") == {"x.a.b": 1, "x.d": 2}


def test_parquet_whose_names_are_no_text(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    table = arrow.table({"text": arrow.array([b"river"]).view(arrow.binary()).cast(arrow.binary())})
    parquet.write_table(table, path)
    written = parquet.ParquetFile(path).read()
    broken = arrow.Array.from_buffers(arrow.string(), 1, written["text"].chunk(0).buffers())
    parquet.write_table(arrow.table({"text": broken}), path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"river", b"r\xec\xecer"))
    with pytest.raises(UnmaskError, match="is damaged or not Parquet"):
        tables.read_table(path, "parquet")


def test_results_of_label_studio_that_are_no_list(tmp_path):
    path = tmp_path / "studio.json"
    span = {"value": {"start": 0, "end": 5, "labels": ["PER"]}}
    annotations = [[{"result": [span]}], [{"result": True}]]
    path.write_text(json.dumps([{"data": {"text": "Peter goes."}, "annotations": a} for a in annotations]))
    assert [row.tags for row in dataset.read(path)] == [("B-PER", "O", "O"), ("O", "O", "O")]


def test_half_a_character_in_a_vocabulary(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "\\ud83d": 3}')
    (tmp_path / "merges.txt").write_text("a b\n")
    with pytest.raises(UnmaskError, match="are not a vocabulary"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("load", [Tokenizer.load, partial(Tokenizer.load, written=True)])
def test_a_prefix_that_merged_pieces_are_shorter_than(tmp_path, load):
    byte_pairs.train(["the river is long"] * 5, 300).save(tmp_path)
    place = tmp_path / "tokenizer.json"
    model = {**json.loads(place.read_text())["model"], "continuing_subword_prefix": "-----"}
    changed(place, model=model)
    with pytest.raises(UnmaskError, match=r"tokenizer\.json is damaged or not a tokenizer"):
        load(tmp_path)


@pytest.mark.parametrize("load", [Tokenizer.load, partial(Tokenizer.load, written=True)])
def test_a_vocabulary_without_its_unknown_word(tmp_path, load):
    Tokenizer.train(["the river is long"] * 5, 60).save(tmp_path)
    place = tmp_path / "tokenizer.json"
    changed(place, model={**json.loads(place.read_text())["model"], "unk_token": "[WHAT]"})
    changed(tmp_path / "tokenizer_config.json", eos_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]")
    with pytest.raises(UnmaskError, match=r"lacks its own unknown token '\[WHAT\]'"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lora_alpha", 1e400),
        ("lora_alpha", 10**400),
        *(("lora_dropout", value) for value in (1.5, 1e308, True, [1], {"a": 1})),
    ],
    ids=str,
)
def test_adapters_that_ask_for_the_impossible(tmp_path, name, value):
    model = Bert(vocabulary=20, **SIZES).build(as_heads({"classification": 2}))
    plain = copy.deepcopy(model)
    prepare(model, Transfer(strategy="lora", rank=2))
    save_adapter(tmp_path, model)
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "adapter_config.json", **{name: value})
    with pytest.raises(UnmaskError, match=f"{name} (must be )?a number"):
        load_adapter(tmp_path, plain)


def test_a_pooling_that_is_no_name(tmp_path):
    tokenizer = Tokenizer.train(["the river is long"] * 5, 60)
    model = Bert(vocabulary=tokenizer.size, **SIZES).build({})
    huggingface.save(tmp_path, model, tokenizer, settings={"pooling": "mean", "normalise": True})
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "1_Pooling" / "config.json", pooling_mode=[["mean"]])
    with pytest.raises(UnmaskError, match="pooling"):
        huggingface.load(tmp_path)


def test_a_prompt_that_is_no_name(tmp_path):
    tokenizer = Tokenizer.train(["the river is long"] * 5, 60)
    model = Bert(vocabulary=tokenizer.size, **SIZES).build({})
    huggingface.save(tmp_path, model, tokenizer, settings={"pooling": "mean", "normalise": True})
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "config_sentence_transformers.json", default_prompt_name=["query"], prompts={"query": "q: "})
    assert huggingface.load(tmp_path).settings["pooling"] == "mean"


def test_a_feedforward_of_t5_that_is_no_name(tmp_path):
    sizes = {"dim": 16, "heads": 2, "head_dim": 8, "hidden": 32, "encoder_layers": 1, "decoder_layers": 1}
    huggingface.save(tmp_path, T5(vocabulary=20, **sizes).build())
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "config.json", feed_forward_proj=["relu"])
    with pytest.raises(UnmaskError, match="feed_forward_proj"):
        huggingface.load(tmp_path)


def test_runs_whose_files_were_bent(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss/mlm": 2.0}\n')
    (tmp_path / "run.json").write_text('{"config": 7}')
    assert runs.run(tmp_path)["config"] == {}
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + "[" * 100_000 + "\n" + '{"step": 2}\n')
    with pytest.raises(UnmaskError, match="line 2 is not valid JSON"):
        metrics.read(tmp_path / "metrics.jsonl")


def test_guesses_about_a_text_with_other_ends_of_lines_come_back(tmp_path):
    prompt = probes.Probe(text="a\u2028[MASK]\x85b", tokens=np.array([1]), expected=("c",))
    probes.note(tmp_path, 1, probes.samples([prompt], [[("c", 0.5)]]))
    probes.note(tmp_path, 2, probes.samples([prompt], [[("d", 0.5)]]))
    assert [line["step"] for line in probes.read(tmp_path)] == [1, 2]
    with (tmp_path / probes.FILE).open("a") as file:
        file.write("[" * 100_000 + "\n7\n{torn")
    assert [line["step"] for line in probes.read(tmp_path)] == [1, 2]


@pytest.mark.parametrize("number", ["²", "9" * 5_000], ids=["square", "long"])
def test_digits_that_are_no_number(tmp_path, number):
    words = train_subwords(["the river is long and the film was good"] * 5, 30)
    words.save(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<sep>": 40}))
    changed(tmp_path / "tokenizer_config.json", added_tokens_decoder={number: {"content": "<sep>", "special": True}})
    with pytest.raises(UnmaskError, match="added tokens are not a table"):
        Tokenizer.load(tmp_path, written=True)
    (tmp_path / "pairs.csv").write_text(f"premise,hypothesis,label\nA b.,A.,{number}\nC.,D.,0\n")
    with pytest.raises(UnmaskError, match="only 0 to 1 have names"):
        pairs.read(tmp_path / "pairs.csv", names=("no", "yes"))


@pytest.mark.parametrize("number", [-1, 20, 10**400], ids=["below", "above", "long"])
@pytest.mark.parametrize("name", ["start", "end"])
def test_ids_that_no_piece_has(tmp_path, name, number):
    huggingface.save(tmp_path, Seq2Seq(vocabulary=20, dim=8, hidden=8).build())
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "config.json", **{name: number})
    with pytest.raises(UnmaskError, match=f"its {name} must be at least 0 and below 20"):
        huggingface.load(tmp_path)


@pytest.mark.parametrize("number", [[1], {"a": 1}, "1"], ids=["list", "object", "text"])
def test_added_tokens_whose_ids_are_no_numbers(tmp_path, number):
    train_subwords(["the river is long and the film was good"] * 5, 30).save(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<sep>": number if number != "1" else "one"}))
    with pytest.raises(UnmaskError, match="added tokens are not a table"):
        Tokenizer.load(tmp_path, written=True)


@pytest.mark.parametrize("search", ["beam", [1], {"limits": "short"}], ids=str)
def test_a_search_without_fields(tmp_path, search):
    words = train_subwords(["the river is long and the film was good"] * 5, 30, kind="word")
    ids = {"vocabulary": words.size, "padding": words.pad, "start": words.start, "end": words.end}
    huggingface.save(tmp_path, Seq2Seq(dim=8, hidden=8, **ids).build(), words)
    (tmp_path / "manifest.json").unlink()
    changed(tmp_path / "config.json", unmask_task={"search": search})
    with pytest.raises(UnmaskError, match=r"has fields with names|must be"):
        Translator(tmp_path)


# ------------------------------------------------------------------------------------------------ the bending


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.safetensors", "a.bin", "a.txt.gz"])
def test_bending_is_a_function_of_the_generator_and_changes_nothing_else(name):
    import gzip

    from safetensors.torch import save

    content = b'{"a": [1, {"b": "c"}], "d": "e"}\n{"a": [], "d": "f"}\n'
    content = {"a.safetensors": save({"x": torch.ones(3)}), "a.txt.gz": gzip.compress(content)}.get(name, content)
    kept = copy.deepcopy((TOKENS, VALUES[:-1]))
    bent = [bend(name, content, [content], np.random.default_rng(i)) for i in range(300)]
    assert bent == [bend(name, content, [content], np.random.default_rng(i)) for i in range(300)]
    assert repr(kept) == repr((TOKENS, VALUES[:-1]))
    assert len({*bent}) > 200


@pytest.mark.parametrize("name", ["a.json", "a.safetensors", "a.txt.gz", "a.csv"])
def test_bytes_of_any_kind_can_be_bent(name):
    contents = [b"", b"[", b"\x1f\x8b\x08", b"\xff" * 9, b"[" * 3_000 + b"]" * 3_000]
    for number in range(300):
        content = contents[number % len(contents)]
        assert isinstance(guided.bent(name, content, contents, np.random.default_rng(number)), bytes)


def test_one_file_at_a_time_is_another(tmp_path):
    place = fuzz.Place(SUBJECTS["corpus"], tmp_path / "corpus")
    name = "corpus/tokenizer.json"
    place.replace(name, b"{")
    assert (place.folder / name).read_bytes() == b"{"
    described = json.loads((place.folder / "corpus" / "manifest.json").read_text())["files"]["tokenizer.json"]
    assert described["bytes"] == 1
    place.restore()
    assert {name: (place.folder / name).read_bytes() for name in place.names} == place.sound


def test_every_subject_is_sound(tmp_path):
    for i, (name, subject) in enumerate(SUBJECTS.items()):
        (folder := tmp_path / str(i)).mkdir()
        subject.write(folder)
        try:
            subject.read(folder)
        except UnmaskError as error:
            pytest.fail(f"{name}: {error}")
