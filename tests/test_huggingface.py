"""Checkpoint folders: what is damaged, foreign or half there is refused in one sentence; what is old still opens."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

import unmask
from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import MANIFEST
from unmask.huggingface.table import as_heads
from unmask.models.albert import Albert
from unmask.models.bert import Bert, Roberta
from unmask.models.electra import Electra
from unmask.models.model import Model
from unmask.types import Batch, Head

TINY = Bert(vocabulary=40, dim=8, layers=2, heads=2, hidden=16, length=16, dropout=0.0, attention_dropout=0.0)
TEXT = ["the cat sat on the mat", "a cat and a dog sat", "the dog ran"] * 3


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.train(TEXT, 40)
    assert tokenizer.size <= 40
    return tokenizer


@pytest.fixture
def folder(tmp_path) -> Path:
    """A pre-training folder without a manifest, as others write it."""
    huggingface.save(tmp_path / "model", TINY.build(seed=1))
    (tmp_path / "model" / MANIFEST).unlink()
    return tmp_path / "model"


def weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Rewrite the tensors of a folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")


def fields(folder: Path, **changes: object) -> None:
    """Rewrite config.json; a change to `...` removes the field."""
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


def refusal(folder: Path, **options: object) -> str:
    with pytest.raises(UnmaskError) as caught:
        huggingface.load(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(one: Model, two: Model) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# ------------------------------------------------------------------------------------------------ folders


def test_a_missing_folder_and_a_file_are_no_model(tmp_path):
    assert refusal(tmp_path / "none").startswith(f"There is no model folder {tmp_path / 'none'}: unmask pretrain, ")
    (tmp_path / "file").write_text("")
    assert "There is no model folder" in refusal(tmp_path / "file")
    for name in ("model", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    assert refusal(tmp_path / "runs" / "modle").endswith("write one into --out.")  # without weights: exported
    for name in ("model", "other"):
        (tmp_path / "runs" / name / "model.safetensors").write_text("")
    assert refusal(tmp_path / "runs" / "modle").endswith(f"; did you mean {tmp_path / 'runs' / 'model'}?")
    assert refusal(tmp_path / "runs" / "base").endswith("write one into --out.")
    assert "has no config.json" in refusal(tmp_path)


def test_load_in_the_package_gives_the_model_ready_to_use(folder):
    model = unmask.load(str(folder))
    assert not model.training
    assert same(model, TINY.build(seed=1))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": ...}, "has no model_type"),
        ({"model_type": 3}, "has no model_type"),
        ({"model_type": "xlnet"}, "'xlnet'. The most similar of"),
        ({"model_type": "xlm-roberta"}, "did you mean 'roberta'?"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder = True is not supported; only False is"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"embedding_size": 128}, "this model does not implement the field embedding_size = 128"),
        ({"auto_map": {"AutoModel": "modeling.Evil"}}, "auto_map"),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"hidden_act": "swishish"}, "config.json: hidden_act must be one of"),
        ({"vocab_size": "many"}, "config.json: vocab_size must be a whole number"),
        ({"vocab_size": 40.5}, "config.json: vocab_size must be a whole number"),
        ({"num_attention_heads": None}, "config.json: num_attention_heads must be a whole number, not None"),
        ({"layer_norm_eps": None}, "config.json: layer_norm_eps must be a number, not None"),
        ({"hidden_act": None}, "config.json: hidden_act must be one of"),
        ({"is_decoder": None}, "is_decoder = None is not supported"),
        (
            {"problem_type": "nonsense"},
            "config.json: problem_type = 'nonsense' is not one of single_label_classification",
        ),
        ({"pad_token_id": -1}, "config.json: pad_token_id = -1 is negative"),
        ({"num_attention_heads": 3}, "do not divide 8"),
        ({"num_attention_heads": 0}, "config.json"),
        ({"hidden_size": -8}, "config.json"),
        ({"intermediate_size": -1}, "config.json"),
        ({"num_hidden_layers": 3}, "the weights lack 'bert.encoder.layer.2.attention.self.query.weight'"),
        ({"num_hidden_layers": 1}, "'bert.encoder.layer.1.attention.output.LayerNorm.bias' has no place"),
        ({"num_hidden_layers": -1}, "has no place"),
        ({"vocab_size": 41}, "has the shape"),
        ({"type_vocab_size": 3}, "has the shape [2, 8], but config.json asks for [3, 8]"),
        ({"id2label": [0, 1]}, "id2label"),
        ({"id2label": {"one": "a"}}, "id2label must map numbers"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label must number its 2 labels from 0"),
    ],
    ids=str,
)
def test_a_config_that_is_not_ours_is_refused(changes, sentence, folder):
    fields(folder, **changes)
    message = refusal(folder)
    assert sentence in message
    assert str(folder) in message


@pytest.mark.parametrize("content", ["", "{", "[]", '{"vocab_size": ' + "9" * 5_000 + "}", "\ufeff{}"])
def test_a_damaged_config_is_refused(content, folder):
    (folder / "config.json").write_text(content)
    assert "config.json" in refusal(folder)


GENERATION = {
    "do_sample": False,
    "eos_token_ids": 0,
    "length_penalty": 1.0,
    "max_length": 20,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}
OLD = {
    "google-2018": {
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
    },
    "transformers-2": {
        "finetuning_task": None,
        "num_labels": 2,
        "output_attentions": True,
        "output_hidden_states": False,
        "output_past": True,
        "pruned_heads": {},
        "torchscript": False,
        "use_bfloat16": False,
        "xla_device": None,
        "bos_token_id": None,
        "is_decoder": False,
        "is_encoder_decoder": False,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
        **GENERATION,
    },
    "transformers-4": {
        "_name_or_path": "somewhere/else",
        "gradient_checkpointing": False,
        "position_embedding_type": "absolute",
        "transformers_version": "4.8.2",
        "use_cache": True,
        "classifier_dropout": None,
        "torch_dtype": "float32",
        "_attn_implementation_autoset": True,
        "chunk_size_feed_forward": 0,
        "return_dict": True,
        "tokenizer_class": "BertTokenizer",
        "task_specific_params": None,
        "unknown_but_off": False,
    },
    "odd-but-harmless": {"architectures": "BertModel", "unmask_heads": [["mlm"], 3], "id2label": None},
    "odder": {"architectures": {"a": 1}, "unmask_heads": 7},
}


@pytest.mark.parametrize("name", OLD)
def test_configs_of_older_folders_open(name, folder):
    before = unmask.load(folder)
    fields(folder, **{"dtype": ..., "unmask_heads": ..., "tie_word_embeddings": ...} | OLD[name])
    assert same(unmask.load(folder), before)


# ------------------------------------------------------------------------------------------------ weights


def test_a_key_that_nobody_knows_is_refused(folder):
    weights(folder, lambda t: t.update({"bert.encoder.layer.0.adapter.weight": torch.zeros(2)}))
    assert "'bert.encoder.layer.0.adapter.weight' has no place in this model" in refusal(folder)


def test_every_missing_key_is_refused_by_name(folder):
    whole = load_file(folder / "model.safetensors")
    head = {k for k in whole if k.startswith(("cls.", "bert.pooler."))}
    assert len(head) == 9
    for key in whole:
        save_file({k: v for k, v in whole.items() if k != key}, folder / "model.safetensors")
        message = refusal(folder)
        assert key in message or (key in head and "incomplete" in message), key


def test_every_wrong_shape_is_refused(folder):
    whole = load_file(folder / "model.safetensors")
    for key, tensor in whole.items():
        longer = torch.cat([tensor, tensor[:1]])
        save_file({**whole, key: longer}, folder / "model.safetensors")
        message = refusal(folder)
        assert key in message or "incomplete" in message, key


def test_quantised_weights_are_refused(folder):
    weights(folder, lambda t: t.update({k: v.char() for k, v in t.items() if k.endswith("query.weight")}))
    assert "quantised" in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_single(dtype, folder):
    before = unmask.load(folder)
    weights(folder, lambda t: t.update({k: v.to(dtype) for k, v in t.items()}))
    for a, b in zip(unmask.load(folder).parameters(), before.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.to(dtype).float())


class Trap:
    """Unpickling this writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return open, (self.path, "w")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "bert_model.ckpt.index", "pytorch_model-00001-of-00002.bin"]
)
def test_a_pickle_is_refused_with_advice_and_never_opened(name, folder, tmp_path):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    message = refusal(folder)
    assert "pickle" in message
    assert "save_pretrained" in message
    assert not (tmp_path / "sprung").exists()


def test_no_weights_at_all_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 64, b"not safetensors at all", pickle.dumps({"a": 1})])
def test_what_is_not_safetensors_is_refused(content, folder):
    (folder / "model.safetensors").write_bytes(content)
    assert "model.safetensors is damaged or missing" in refusal(folder)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_weights_are_refused_without_a_manifest(folder, share):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "damaged" in refusal(folder)
    path.write_bytes(whole)


def shard(folder: Path) -> dict[str, Tensor]:
    """Spread the weights of a folder over two files."""
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    place = {key: names[i % 2] for i, key in enumerate(whole)}
    for name in names:
        save_file({k: v for k, v in whole.items() if place[k] == name}, folder / name)
    index(folder, place)
    return whole


def index(folder: Path, place: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place}))


def test_a_sharded_folder_is_the_same_model(folder):
    before = unmask.load(folder)
    shard(folder)
    assert same(unmask.load(folder), before)


def test_a_sharded_folder_of_transformers_opens(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    theirs = transformers.BertForPreTraining(config)
    theirs.save_pretrained(tmp_path, max_shard_size="6KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    tensors, state = huggingface.export(unmask.load(tmp_path)), theirs.state_dict()
    assert len(tensors) > 40
    assert all(torch.equal(tensor, state[key]) for key, tensor in tensors.items())


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "..", "", "sub/file.safetensors", 3, None])
def test_an_index_cannot_leave_its_folder(name, folder, tmp_path):
    whole = shard(folder)
    save_file(whole, tmp_path / "elsewhere.safetensors")
    (folder / "sub").mkdir()
    save_file(whole, folder / "sub" / "file.safetensors")
    index(folder, dict.fromkeys(whole, name))
    assert "damaged" in refusal(folder)


@pytest.mark.parametrize("place", [None, [], "x", {}])
def test_a_damaged_index_is_refused(place, folder):
    shard(folder)
    index(folder, place)
    assert "damaged" in refusal(folder) or "lack" in refusal(folder)


def test_a_missing_shard_is_named(folder):
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors is damaged or missing" in refusal(folder)


def test_a_key_in_two_shards_must_hold_the_same_numbers(folder):
    before = unmask.load(folder)
    whole = shard(folder)
    second = folder / "model-00002-of-00002.safetensors"
    key, *_ = (key for key in whole if key not in load_file(second))
    save_file(load_file(second) | {key: whole[key]}, second)
    assert same(unmask.load(folder), before)
    save_file(load_file(second) | {key: whole[key] + 1}, second)
    message = refusal(folder)
    assert f"hold different values for '{key}'" in message
    assert "model-00001-of-00002.safetensors and model-00002-of-00002.safetensors" in message


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
        "manifest.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
        "vocab.json", "merges.txt", "words.txt", "modules.json",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_only_regular_files_are_read(name, kind, folder):
    """A pipe without a writer would be waited for without end."""
    if "-00001-" in name or "index" in name:
        shard(folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).mkdir()
    for opened in (unmask.load, huggingface.load, huggingface.config_of):
        with pytest.raises(UnmaskError, match=f"{name} cannot be read: it is not a regular file"):
            opened(folder)


def test_links_to_regular_files_are_read(folder, tmp_path):
    """As the cache of a hub lays them out."""
    before = unmask.load(folder)
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    assert same(unmask.load(folder), before)


# ------------------------------------------------------------------------------------------------ old names


def test_gamma_and_beta_of_the_oldest_folders(folder):
    before = unmask.load(folder)

    def age(tensors: dict[str, Tensor]) -> None:
        for key in [key for key in tensors if "LayerNorm" in key]:
            new = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[new] = tensors.pop(key)

    weights(folder, age)
    assert any(key.endswith(".gamma") for key in load_file(folder / "model.safetensors"))
    assert same(unmask.load(folder), before)


@pytest.mark.parametrize("old", ["gamma", "beta"])
def test_two_names_of_one_parameter_must_hold_the_same_numbers(old, folder):
    before = unmask.load(folder)
    whole = load_file(folder / "model.safetensors")
    new = "bert.embeddings.LayerNorm." + {"gamma": "weight", "beta": "bias"}[old]
    other = f"bert.embeddings.LayerNorm.{old}"
    save_file(whole | {other: whole[new].clone()}, folder / "model.safetensors")
    assert same(unmask.load(folder), before)
    save_file(whole | {other: whole[new] + 1}, folder / "model.safetensors")
    assert "two names of one parameter" in refusal(folder)


def test_a_classifier_of_roberta_has_one_pooler(tmp_path):
    """Its own dense layer and the pooler of a bare trunk are one parameter here."""
    model = Roberta(**{n: getattr(TINY, n) for n in ("vocabulary", "dim", "layers", "heads", "hidden")}, length=16)
    huggingface.save(tmp_path, model.build(as_heads({"classification": 2})), labels=["no", "yes"])
    (tmp_path / MANIFEST).unlink()
    before = unmask.load(tmp_path)
    dense = before.state_dict()["pooler.dense.weight"]
    weights(tmp_path, lambda t: t.update({"roberta.pooler.dense.weight": dense.clone()}))
    assert same(unmask.load(tmp_path), before)
    weights(tmp_path, lambda t: t.update({"roberta.pooler.dense.weight": dense + 1}))
    assert "'classifier.dense.weight' and 'roberta.pooler.dense.weight', two names" in refusal(tmp_path)


def test_copies_of_tied_weights_and_position_ids_are_understood(folder):
    before = unmask.load(folder)

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
        tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]

    weights(folder, add)
    assert same(unmask.load(folder), before)


@pytest.mark.parametrize(
    ("page", "bias", "second"),
    [
        (Albert, "predictions.bias", "predictions.decoder.bias"),
        (Roberta, "lm_head.bias", "lm_head.decoder.bias"),
    ],
)
def test_the_bias_of_the_output_lies_where_transformers_4_looks_for_it(page, bias, second, tmp_path):
    sizes = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}
    model = page(vocabulary=20, **sizes).build(as_heads({"mlm": 0}))
    torch.nn.init.normal_(model.get_parameter("heads.mlm.bias"))
    huggingface.save(tmp_path, model)
    stored = load_file(tmp_path / "model.safetensors")
    assert torch.equal(stored[second], stored[bias])
    assert stored[bias].any()
    assert same(huggingface.load(tmp_path).model, model)


@pytest.mark.parametrize("key", ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_an_untied_decoder_is_refused(key, folder):
    original = {"weight": "bert.embeddings.word_embeddings.weight", "bias": "cls.predictions.bias"}[key.split(".")[-1]]
    weights(folder, lambda t: t.update({key: t[original] + 1}))
    message = refusal(folder)
    assert key in message
    assert "ties the two" in message


def test_a_bare_trunk_opens_with_and_without_prefix(folder):
    def strip(tensors: dict[str, Tensor]) -> None:
        for key in list(tensors):
            tensor = tensors.pop(key)
            if key.startswith("bert."):
                tensors[key.removeprefix("bert.")] = tensor

    whole = unmask.load(folder)
    weights(folder, strip)
    bare = huggingface.load(folder)
    assert not bare.notice
    assert not bare.model.heads
    assert bare.model.pooler is not None
    assert all(torch.equal(v, whole.state_dict()[k]) for k, v in bare.model.state_dict().items())
    weights(folder, lambda t: t.update({f"bert.{k}": t.pop(k) for k in list(t)}))
    assert same(unmask.load(folder), bare.model)


# ------------------------------------------------------------------------------------------------ heads


def classifier(path: Path, outputs: int = 3, head: str = "classification", **options: object) -> Model:
    model = TINY.build(as_heads({head: outputs}), seed=2)
    huggingface.save(path, model, **options)
    return model


def test_other_heads_are_announced_as_new_and_dropped(folder):
    loaded = huggingface.load(folder, heads=as_heads({"classification": 3}))
    assert (loaded.new, loaded.dropped) == (("classification",), ("mlm", "nsp"))
    assert (
        loaded.notice
        == "New parts, with random weights: classification. Parts of the folder that are left out: mlm, nsp."
    )
    assert torch.equal(loaded.model.pooler.dense.weight, TINY.build(seed=1).pooler.dense.weight)
    assert huggingface.load(folder).notice == ""
    assert (
        huggingface.load(folder, heads=as_heads({"mlm": 0})).notice
        == "Parts of the folder that are left out: nsp, pooler."
    )


def test_a_new_head_follows_its_seed(folder):
    one, two, other = (huggingface.load(folder, heads=as_heads({"tagging": 5}), seed=seed).model for seed in (1, 1, 2))
    assert same(one, two)
    assert not torch.equal(one.heads["tagging"].output.weight, other.heads["tagging"].output.weight)
    assert torch.equal(one.embedding.token.weight, other.embedding.token.weight)
    assert not one.heads["tagging"].output.bias.any()


@pytest.mark.parametrize("config", [TINY, Electra(dim=16, heads=2, hidden=32, layers=1, vocabulary=64, length=16)])
def test_a_new_head_answers_as_widely_as_its_trunk(tmp_path, config):
    huggingface.save(tmp_path, config.build({}))
    heads = huggingface.load(tmp_path, heads=as_heads({"classification": 5, "tagging": 3})).model.heads
    for weight in (heads["classification"].output.weight, heads["tagging"].output.weight):
        assert math.isclose(weight.square().mean().sqrt(), config.dim**-0.5, rel_tol=1e-5)


def test_new_parts_do_not_start_from_the_same_numbers(tmp_path):
    huggingface.save(tmp_path, TINY.build(as_heads({"mlm": 0})))
    loaded = huggingface.load(tmp_path, heads=as_heads({"classification": 3}), seed=4)
    assert loaded.new == ("classification", "pooler")
    head, pooler = loaded.model.heads["classification"].output.weight, loaded.model.pooler.dense.weight
    assert not torch.isin(head, pooler).any()


def test_a_head_of_the_same_size_is_kept_with_its_labels(tmp_path):
    model = classifier(tmp_path, labels=["bad", "fair", "good"])
    for heads in (None, as_heads({"classification": 3})):
        loaded = huggingface.load(tmp_path, heads=heads)
        assert same(loaded.model, model)
        assert loaded.labels == ("bad", "fair", "good")
        assert not loaded.notice


def test_a_head_of_another_size_is_replaced_and_said_so(tmp_path):
    model = classifier(tmp_path, labels=["bad", "fair", "good"])
    loaded = huggingface.load(tmp_path, heads=as_heads({"classification": 5}))
    assert (
        loaded.notice
        == "New parts, with random weights: classification. Parts of the folder that are left out: classification."
    )
    assert loaded.labels == ()
    assert loaded.model.heads["classification"].output.weight.shape == (5, 8)
    assert torch.equal(loaded.model.pooler.dense.weight, model.pooler.dense.weight)
    huggingface.save(tmp_path, loaded.model)
    assert huggingface.load(tmp_path).labels == tuple(f"LABEL_{i}" for i in range(5))


def test_a_trunk_gets_heads_and_loses_them(folder):
    assert huggingface.load(folder, heads={}).dropped == ("mlm", "nsp", "pooler")
    trunk = huggingface.load(folder, heads={}).model
    huggingface.save(folder, trunk)
    loaded = huggingface.load(folder, heads=as_heads({"classification": 2}))
    assert loaded.new == ("classification", "pooler")
    assert not loaded.dropped


def test_half_a_head_is_refused_whoever_asks(tmp_path):
    classifier(tmp_path)
    (tmp_path / MANIFEST).unlink()
    weights(tmp_path, lambda t: t.pop("classifier.bias"))
    for heads in (None, as_heads({"classification": 3})):
        assert "the weights lack 'classifier.bias'" in refusal(tmp_path, heads=heads)


def test_labels_that_do_not_fit_the_head_are_refused(tmp_path):
    classifier(tmp_path, labels=["bad", "fair", "good"])
    (tmp_path / MANIFEST).unlink()
    fields(tmp_path, id2label={"0": "bad", "1": "good"})
    assert "names 2 labels, but the weights have 3" in refusal(tmp_path)
    fields(tmp_path, id2label={str(i): f"class {i}" for i in range(11)})
    assert "names 11 labels" in refusal(tmp_path)


def test_labels_are_in_the_order_of_their_numbers(tmp_path):
    names = [f"class {i}" for i in range(12)]
    classifier(tmp_path, 12, "tagging", labels=names)
    assert huggingface.load(tmp_path).labels == tuple(names)


def test_an_unknown_kind_of_head_is_refused_with_the_nearest(folder):
    assert "did you mean 'token'?" in refusal(folder, heads={"tagging": Head("tokens", 3)})


@pytest.mark.parametrize(
    ("beside", "architecture"), [({}, "BertModel"), ({"mlm": Head("masked_token")}, "BertForMaskedLM")]
)
def test_heads_that_no_table_names_lie_under_their_own_names(beside, architecture, tmp_path):
    model = TINY.build({**beside, "length": Head("sequence", 5, pretraining=True)}, seed=2)
    huggingface.save(tmp_path, model, labels=())
    loaded = huggingface.load(tmp_path)
    assert same(loaded.model, model)
    assert loaded.model.of_sequences == ["length"]
    assert transformers.AutoModel.from_pretrained(tmp_path).config.architectures == [architecture]
    huggingface.save(tmp_path / "again", loaded.model)
    names = ("config.json", "model.safetensors")
    assert all((tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names)


@pytest.mark.parametrize("fields", [[], {"kind": "token"}, {"kind": "token", "outputs": "two", "pretraining": False}])
def test_what_is_said_of_such_a_head_is_checked(fields, tmp_path):
    huggingface.save(tmp_path, TINY.build({"length": Head("sequence", 5)}, seed=2))
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / MANIFEST).unlink()
    (tmp_path / "config.json").write_text(json.dumps(values | {"unmask_own_heads": {"length": fields}}))
    assert "unmask_own_heads" in refusal(tmp_path)


# ------------------------------------------------------------------------------------------------ saving


@pytest.fixture(scope="session")
def sealed(tmp_path_factory, tokenizer) -> Path:
    path = tmp_path_factory.mktemp("sealed")
    huggingface.save(path, TINY.build(seed=1), tokenizer)
    return path


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", MANIFEST]
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_of_a_saved_folder_is_detected(sealed, name, data):
    whole = (sealed / name).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    (sealed / name).write_bytes(changed)
    try:
        if not (name == MANIFEST and whole[place] in b" \n" and changed[place] in b" \t\r\n"):
            refusal(sealed)
    finally:
        (sealed / name).write_bytes(whole)


def test_a_saved_folder_is_whole_and_comes_back(sealed, tokenizer):
    listed = json.loads((sealed / MANIFEST).read_text())["files"]
    assert sorted([*listed, MANIFEST]) == sorted(os.listdir(sealed))
    loaded = huggingface.load(sealed)
    assert same(loaded.model, TINY.build(seed=1))
    assert loaded.model.config == TINY
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert json.loads((sealed / "tokenizer_config.json").read_text())["model_max_length"] == 16


def test_saving_again_seals_the_folder_anew(tmp_path, tokenizer):
    huggingface.save(tmp_path, TINY.build(seed=1), tokenizer)
    huggingface.save(tmp_path, TINY.build(seed=2), tokenizer)
    assert same(unmask.load(tmp_path), TINY.build(seed=2))


def test_a_wrong_number_of_labels_writes_nothing(tmp_path):
    with pytest.raises(UnmaskError, match="3 outputs, but there are 2 label names"):
        classifier(tmp_path / "new", labels=["a", "b"])
    assert not (tmp_path / "new").exists()


def test_a_full_disk_leaves_the_old_folder(tmp_path):
    resource = pytest.importorskip("resource")
    huggingface.save(tmp_path, TINY.build(seed=1))
    before = sorted(os.listdir(tmp_path))
    model = TINY.build(seed=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))  # a file that cannot grow, as on a full disk
    try:
        with pytest.raises(UnmaskError, match=r"model\.safetensors could not be written"):
            huggingface.save(tmp_path, model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(tmp_path)) == before
    assert same(unmask.load(tmp_path), TINY.build(seed=1))


def test_a_model_that_no_table_describes_is_not_saved(tmp_path):
    class Mine(Bert):
        pass

    with pytest.raises(UnmaskError, match="no Hugging Face table for Mine"):
        huggingface.save(tmp_path / "new", Mine(vocabulary=8, dim=4, layers=1, heads=1, hidden=4, length=4).build())
    assert not (tmp_path / "new").exists()


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(folder):
    big = Tokenizer.train([f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"] * 3, 120)
    assert big.size > 40
    big.save(folder)
    message = refusal(folder)
    assert f"has {big.size} entries, but the model has only 40" in message


def test_a_damaged_tokenizer_is_refused(folder, tokenizer):
    tokenizer.save(folder)
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer.json" in refusal(folder)


def test_regression_is_named_as_transformers_names_it(tmp_path):
    classifier(tmp_path, 1, "regression")
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["BertForSequenceClassification"]
    assert values["problem_type"] == "regression"


def test_loading_draws_nothing_from_the_global_generator(folder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = huggingface.load(folder, heads=as_heads({"tagging": 2})).model
    torch.manual_seed(6)
    two = huggingface.load(folder, heads=as_heads({"tagging": 2})).model
    assert same(one, two)
    assert expected.shape == (3,)


def test_a_loaded_model_answers(folder):
    model = unmask.load(folder)
    batch = Batch(torch.arange(12).reshape(2, 6))
    with torch.no_grad():
        hidden = model(batch)
        assert hidden.shape == (2, 6, 8)
        assert model.answer("mlm", hidden, torch.tensor([0, 7])).shape == (2, 40)
        assert model.answer("nsp", hidden, torch.tensor([0, 6])).shape == (2, 2)
