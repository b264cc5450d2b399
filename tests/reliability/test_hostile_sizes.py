"""A config.json that asks for more than its weights hold is refused before any of that memory is taken."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
import torch
import zstandard
from torch import nn

from unmask import huggingface
from unmask.cli import main
from unmask.data.files.lines import lines
from unmask.data.files.tables import read_table
from unmask.data.labelled import glue
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import sizes
from unmask.huggingface.table import as_heads
from unmask.models.albert import Albert
from unmask.models.bert import Bert
from unmask.models.elmo import Elmo
from unmask.models.mobilebert import MobileBert
from unmask.models.resnet import ResNet
from unmask.models.transformer import Transformer
from unmask.serve.predictor import Predictor

ELMO = {"characters": 4, "widths": (1,), "filters": (4,), "dim": 8, "layers": 1, "hidden": 16, "task": 4}
SIZE = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}


@pytest.fixture
def folder(tmp_path):
    tokenizer = Tokenizer.train(["the river is long"] * 5, 60)
    huggingface.save(tmp_path, Bert(vocabulary=tokenizer.size, **SIZE).build(), tokenizer)
    (tmp_path / "manifest.json").unlink()
    return tmp_path


def change(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    "fields",
    [
        {"vocab_size": 10**12},
        {"hidden_size": 10**6},
        {"hidden_size": 2**40, "num_attention_heads": 2**20},
        {"intermediate_size": 10**9},
        {"max_position_embeddings": 10**10},
        {"num_hidden_layers": 10**6},
        {"num_hidden_layers": 90_000},
        {"num_hidden_layers": 10**18},
        {"num_attention_heads": 0},
        {"hidden_size": -16},
    ],
)
def test_absurd_sizes_take_no_memory(fields, folder):
    change(folder, **fields)
    tracemalloc.start()
    with pytest.raises(UnmaskError, match=r"config\.json") as error:
        huggingface.load(folder)
    assert "\n" not in str(error.value)
    assert tracemalloc.get_traced_memory()[1] < 1 << 29
    tracemalloc.stop()


def test_layers_that_share_their_weights_are_counted(tmp_path):
    huggingface.save(tmp_path, Albert(vocabulary=20, **SIZE).build(as_heads({"mlm": 0})))
    (tmp_path / "manifest.json").unlink()
    huggingface.load(tmp_path)
    change(tmp_path, num_hidden_layers=10**9)
    with pytest.raises(UnmaskError, match="asks for 1,000,000,000 "):
        huggingface.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "field", "asked"),
    [
        (MobileBert(vocabulary=20, **SIZE, factor=8, bottleneck=16), "num_feedforward_networks", 10**400),
        (Elmo(**ELMO), "highways", 10**9),
        (Elmo(**ELMO), "filters", [1] * 2_001),
        (ResNet(size=8, dim=1, widths=(1, 1), depths=(1, 1), block="basic"), "depths", [1, 10**9]),
    ],
    ids=["feedforwards", "highways", "filters", "depths"],
)
def test_whatever_repeats_a_part_is_counted(tmp_path, config, field, asked):
    huggingface.save(tmp_path, config.build({}))
    (tmp_path / "manifest.json").unlink()
    huggingface.load(tmp_path)
    change(tmp_path, **{field: asked})
    with pytest.raises(UnmaskError, match="the limit is 2,000"):
        huggingface.load(tmp_path)


def test_writers_are_counted_too(tmp_path):
    model = Transformer(vocabulary=20).build()
    huggingface.save(tmp_path, model)
    (tmp_path / "manifest.json").unlink()
    values = json.loads((tmp_path / "config.json").read_text())
    for name, value in values.items():
        if type(value) is int and value > 8:
            (tmp_path / "config.json").write_text(json.dumps({**values, name: 10**11}))
            with pytest.raises(UnmaskError, match=r"config\.json|shape"):
                huggingface.load(tmp_path)


def test_what_fits_is_built_once_with_memory(tmp_path):
    built = []

    def make():
        built.append(nn.Linear(3, 3))
        return built[-1]

    assert sizes.build(make, {}, [torch.zeros(9)], tmp_path).weight.device.type == "cpu"
    assert [layer.weight.device.type for layer in built] == ["meta", "cpu"]
    with pytest.raises(UnmaskError, match="hold 0 numbers"):
        sizes.build(lambda: nn.Linear(1 << 14, 1 << 13), {}, [], tmp_path)
    nn.Linear(1 << 14, 1 << 13, device="meta")  # the count ended with the building


def test_ids_beyond_all_vocabularies_are_refused(folder):
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"]["huge"] = 2**31
    (folder / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(UnmaskError, match="largest id is 2,147,483,648"):
        Tokenizer.load(folder)


def test_a_table_of_a_million_columns_is_refused(tmp_path):
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(10**6)) + "\n")
    with pytest.raises(UnmaskError, match="has 1,000,000 columns"):
        read_table(tmp_path / "wide.csv", "csv")


def test_names_cannot_speak_to_a_terminal(folder, capsys):
    change(folder, **{"a\nb\x1b[2J": 3})
    with pytest.raises(UnmaskError) as error:
        huggingface.load(folder)
    assert str(error.value).isprintable()
    with pytest.raises(SystemExit):
        main(["predict", "--model", "no\x1b[2Jwhere", "a text"])
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "manifest.json", "tokenizer_config.json"])
def test_a_file_that_is_read_whole_is_bounded(name, folder):
    with open(folder / name, "ab") as file:
        file.truncate(1 << 32)
    with pytest.raises(UnmaskError, match=rf"{name} has more than 67,108,864 bytes"):
        Predictor(folder)


def test_vocabularies_are_bounded(tmp_path):
    for name in ("vocab.txt", "spiece.model", "tokenizer.json"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(1 << 32)
        with pytest.raises(UnmaskError, match=f"{name} has more than"):
            Tokenizer.load(tmp_path, written=name != "vocab.txt")
        (tmp_path / name).unlink()


def test_what_a_small_file_may_become_is_bounded(tmp_path):
    with gzip.open(tmp_path / "train_5500.label", "wb", compresslevel=1) as file:
        file.write(b"LOC:city " + bytes(1 << 25))
    (tmp_path / "train_5500.label").rename(tmp_path / "train_0.label.gz")
    with pytest.raises(UnmaskError, match="more than 16,777,216 bytes"):
        glue._questions(tmp_path / "train_0.label.gz", fine=False)


def test_a_little_of_zstandard_is_unfolded_at_a_time(tmp_path):
    path = tmp_path / "bomb.txt.zst"
    path.write_bytes(zstandard.compress(b"a" * (1 << 28), 1))
    tracemalloc.start()
    with pytest.raises(UnmaskError, match="longer than 16,777,216 characters"):
        list(lines(path))
    assert tracemalloc.get_traced_memory()[1] < 160 << 20
    tracemalloc.stop()


def test_token_vectors_wider_than_the_states_are_refused():
    with pytest.raises(UnmaskError, match="of 32 numbers are wider than hidden states of 16"):
        MobileBert(vocabulary=20, **SIZE, factor=32).build()
