"""Folders of encoder–decoders: their vocabularies and settings come back; what is wrong is refused in one sentence."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask import huggingface
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import MANIFEST
from unmask.models import Bert, ConvS2S, Transformer
from unmask.models.encoder_decoder import EncoderDecoder
from unmask.models.seq2seq import Seq2Seq

TRANSFORMER = Transformer(
    vocabulary=23, dim=8, encoder_layers=1, decoder_layers=2, encoder_heads=2, decoder_heads=2, encoder_hidden=12,
    decoder_hidden=10,
)  # fmt: skip
MARIAN = TRANSFORMER.replace(positions="halves")
SEQ2SEQ = Seq2Seq(vocabulary=23, dim=6, hidden=8)
CONVS2S = ConvS2S(vocabulary=23, dim=6, encoder_widths=(4, 6), decoder_widths=(6, 8), length=20)
EVERY: dict[str, Any] = {"marian": MARIAN, "seq2seq": SEQ2SEQ, "convs2s": CONVS2S}
TEXT = ["a cat sat on the mat", "two dogs ran", "the man reads a book"] * 3


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_subwords(TEXT, 20, kind="word")


def fitted(config: Any, tokenizer: Tokenizer) -> EncoderDecoder:
    """A model with the ids of a tokenizer."""
    fields = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}
    model: EncoderDecoder = config.replace(**fields).build()
    return model


def fields(folder: Path, **changes: object) -> None:
    """Rewrite config.json; a change to `...` removes the field."""
    (folder / MANIFEST).unlink(missing_ok=True)
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


def weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Rewrite the tensors of a folder."""
    (folder / MANIFEST).unlink(missing_ok=True)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")


def refusal(folder: Path) -> str:
    with pytest.raises(UnmaskError) as caught:
        huggingface.load(folder, huggingface.ENCODER_DECODER)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------ what comes back


@pytest.mark.parametrize("name", ["marian", "seq2seq"])
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_tokenizer_and_settings_come_back(kind, name, tmp_path):
    tokenizer = train_subwords(TEXT, 40, kind=kind)
    model = fitted(EVERY[name], tokenizer)
    asked = {"search": {"beam_size": 3}, "lowercase": True, "한": [1, None]}
    huggingface.save(tmp_path, model, tokenizer, settings=asked)
    loaded = huggingface.load(tmp_path)
    assert loaded.settings == asked
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    listed = json.loads((tmp_path / MANIFEST).read_text())["files"].keys()
    assert listed | {MANIFEST} == {path.name for path in tmp_path.iterdir()}


def test_a_folder_that_is_written_again_keeps_nothing_of_another_kind(tmp_path, words):
    subwords = train_subwords(TEXT, 40, kind="bpe")
    for _ in range(2):
        huggingface.save(tmp_path, fitted(SEQ2SEQ, words), words)
        assert {p.name for p in tmp_path.iterdir()} == {
            *("config.json", "model.safetensors", MANIFEST, "subwords.json")
        }
        huggingface.save(tmp_path, fitted(MARIAN, subwords), subwords)
        loaded = huggingface.load(tmp_path)
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.fingerprint == subwords.fingerprint
        assert (tmp_path / "generation_config.json").exists()


def test_weights_may_come_from_elsewhere(tmp_path):
    for i, seed in enumerate((1, 2)):
        huggingface.save(tmp_path / str(i), MARIAN.build(seed=seed))
    mean = huggingface.average([tmp_path / "0", tmp_path / "1"])
    model = huggingface.load(tmp_path / "1", weights=mean).model
    for got, a, b in zip(model.parameters(), *(MARIAN.build(seed=s).parameters() for s in (1, 2)), strict=True):
        torch.testing.assert_close(got, (a + b) / 2)


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.fixture
def folder(tmp_path) -> Path:
    huggingface.save(tmp_path / "model", SEQ2SEQ.build())
    return tmp_path / "model"


def test_what_is_no_folder_of_an_encoder_decoder_is_refused(tmp_path):
    assert refusal(tmp_path / "none").startswith(f"There is no model folder {tmp_path / 'none'}: unmask pretrain, ")
    assert "has no config.json" in refusal(tmp_path)
    huggingface.save(tmp_path / "bert", Bert(vocabulary=9, dim=4, layers=1, heads=1, hidden=4, length=4).build())
    assert not huggingface.holds_encoder_decoder(tmp_path / "bert")
    assert "holds a model of type bert, but an encoder–decoder is required" in refusal(tmp_path / "bert")
    (tmp_path / "config.json").write_text("{")
    assert "not valid JSON" in refusal(tmp_path)
    with pytest.raises(UnmaskError, match="not valid JSON"):
        huggingface.holds_encoder_decoder(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": ...}, "has no model_type"),
        ({"model_type": ["marian"]}, "has no model_type"),
        ({"model_type": "unmask-seq2sec"}, "did you mean 'unmask-seq2seq'?"),
        ({"model_type": "unmask-transformer"}, "There is no field of Transformer 'hidden'"),
        ({"hiden": 8}, "There is no field of Seq2Seq 'hiden'; did you mean 'hidden'?"),
        ({"hidden": "wide"}, "Seq2Seq.hidden must be a whole number, not 'wide'"),
        ({"hidden": 7}, "describes a model that cannot be built: Two directions cannot share 7"),
        ({"hidden": 10}, "has the shape"),
        ({"hidden": -2}, "describes a model that cannot be built"),
        ({"layers": 2}, "the weights lack 'encoder.network."),
        ({"layers": 0}, "config.json"),
        ({"attention": "none"}, "has no place in this model"),
        ({"padding": 23}, "the id of its padding must be at least 0 and below"),
        ({"unmask_task": [1]}, "unmask_task must hold settings"),
    ],
    ids=str,
)
def test_a_config_that_does_not_describe_the_weights_is_refused(changes, sentence, folder):
    fields(folder, **changes)
    message = refusal(folder)
    assert sentence in message
    assert str(folder) in message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("source.token.weight"), "the weights lack 'source.token.weight'"),
        (lambda t: t.update(extra=torch.ones(1)), "'extra' has no place in this model"),
        (lambda t: t.update({"source.token.weight": torch.ones(23, 5)}), "[23, 5], but config.json asks for [23, 6]"),
        (lambda t: t.update({"source.token.weight": torch.ones(23, 6, dtype=torch.int8)}), "quantised weights"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, sentence, folder):
    weights(folder, change)
    assert sentence in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_byte_is_noticed(name, folder):
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 1
    (folder / name).write_bytes(content)
    assert "does not match its checksum" in refusal(folder)
    (folder / MANIFEST).unlink()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert str(folder / name) in refusal(folder)


def test_a_pickle_is_never_opened(folder):
    (folder / MANIFEST).unlink()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "unmask never opens one" in refusal(folder)


def test_a_tokenizer_of_another_model_is_refused(words, tmp_path):
    model = fitted(SEQ2SEQ, words)
    huggingface.save(tmp_path / "right", model, words)
    for changes, sentence in (
        ({"vocabulary": words.size - 1, "padding": 0, "start": 0}, f"has {words.size} entries for the source"),
        ({"source_vocabulary": words.size + 3, "vocabulary": 5, "padding": 4, "start": 4}, "entries for the target"),
        ({"padding": 3}, "for the padding, but the model has 3"),
        ({"end": 3}, "has the id 0 for the end, but the model has 3"),
    ):
        other = model.config.replace(**changes).build()
        with pytest.raises(UnmaskError, match=sentence):
            huggingface.save(tmp_path / "wrong", other, words)
        assert not (tmp_path / "wrong").exists()
    fields(tmp_path / "right", end=3)
    assert "has the id 0 for the end, but the model has 3" in refusal(tmp_path / "right")
    larger = model.config.replace(vocabulary=words.size + 5).build()  # rows to spare are no fault
    huggingface.save(tmp_path / "right", larger, words)
    assert huggingface.load(tmp_path / "right").tokenizer is not None


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="could not be written"):
        huggingface.save(tmp_path / "file" / "model", SEQ2SEQ.build())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats(-2, 2) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.parametrize("name", ["marian", "seq2seq", "convs2s"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_field_may_hold_anything(data, name, tmp_path):
    huggingface.save(tmp_path, EVERY[name].build())
    known = sorted(json.loads((tmp_path / "config.json").read_text()))
    fields(tmp_path, **{data.draw(st.sampled_from(known)): data.draw(json_values)})
    with contextlib.suppress(UnmaskError):  # and nothing else
        huggingface.load(tmp_path)
