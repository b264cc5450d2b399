"""Marian folders against transformers: equal logits, losses, gradients; the same translations; odd folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask import huggingface
from unmask.data.text.subwords import train as train_subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files import MANIFEST
from unmask.generate import Blocking, Limits, Search, generate
from unmask.models import Transformer
from unmask.models.transformer_model import TransformerModel
from unmask.objectives.next_token import NextToken
from unmask.types import Batch, Target

transformers = pytest.importorskip("transformers")

V, READ = 23, 31
PAD, END = V - 1, 0
OURS = Transformer(
    vocabulary=V,
    dim=16,
    encoder_layers=2,
    decoder_layers=3,
    encoder_heads=4,
    decoder_heads=2,
    encoder_hidden=24,
    decoder_hidden=20,
    activation="silu",
    dropout=0.0,
    positions="halves",
    padding=PAD,
    start=PAD,
    end=END,
)
THEIRS = {
    "vocab_size": V,
    "decoder_vocab_size": V,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 40,
    "activation_function": "swish",
    "scale_embedding": True,
    "dropout": 0.0,
    "pad_token_id": PAD,
    "eos_token_id": END,
    "decoder_start_token_id": PAD,
    "forced_eos_token_id": END,
}


def randomise(module: torch.nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)


def theirs(kind: str = "Marian", **changes: object) -> transformers.PreTrainedModel:
    if kind == "Marian":
        model = transformers.MarianMTModel(transformers.MarianConfig(**(THEIRS | changes)))
    else:
        fields = {name: value for name, value in THEIRS.items() if name != "decoder_vocab_size"} | changes
        model = transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**fields))
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            parameter.data.normal_(0.0, 0.2, generator=generator)
    model.final_logits_bias.normal_(0.0, 0.2, generator=generator)
    return model


def again(folder: Path) -> transformers.MarianMTModel:
    """The folder as transformers opens it, with no complaint."""
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model


def pairs(read: int = V, T: int = 7) -> Batch:
    """Three sources of 6, 2 and 4 tokens, and what is written of them."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([6, 2, 4])
    documents = (torch.arange(6) < lengths[:, None]).long()
    sources = torch.randint(1, read - 1, (3, 6), generator=generator)
    sources[torch.arange(3), lengths - 1] = END
    tokens = torch.randint(1, V - 1, (3, T + 1), generator=generator)
    target = Target(torch.arange(3 * T), tokens[:, 1:].flatten())
    tokens[:, 0] = PAD
    source = Batch(torch.where(documents > 0, sources, PAD), documents=documents)
    return Batch(tokens[:, :T], targets={"next": target}, source=source)


def forward(model: TransformerModel, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits [B, T, V], the loss, and gradients under the names of a Marian folder."""
    model.zero_grad()
    logits = model.heads["next"](model(batch))
    term = NextToken().loss(model, batch)["next"]
    loss = term.sum / term.count
    loss.backward()
    names = huggingface.names(model)
    return logits, loss, {names[name]: p.grad for name, p in model.named_parameters() if p.grad is not None}


def their_forward(model: transformers.MarianMTModel, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    model.zero_grad()
    source = batch.source
    assert source is not None
    mask = source.documents
    labels = batch.targets["next"].values.reshape(batch.tokens.shape)
    # Its own loss takes the last vocabulary's size, and starts its rows with decoder_start_token_id.
    said = model(input_ids=source.tokens, attention_mask=mask, labels=labels)
    loss = F.cross_entropy(said.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(said.loss, loss)
    loss.backward()
    return said.logits, loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_equal(ours: TransformerModel, other: transformers.MarianMTModel, read: int = V) -> None:
    """Logits in evaluation and training mode, the loss, and every gradient."""
    batch = pairs(read)
    for training in (False, True):
        a, b = forward(ours.train(training), batch), their_forward(other.train(training), batch)
        torch.testing.assert_close(a[0], b[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(a[1], b[1], rtol=1e-5, atol=1e-6)
        assert a[2].keys() - {"final_logits_bias"} == b[2].keys()  # theirs is not trained
        for name, gradient in b[2].items():
            torch.testing.assert_close(a[2][name], gradient, rtol=1e-4, atol=1e-5, msg=name)
    ours.eval()
    other.eval()


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


# ------------------------------------------------------------------------------------------------ both ways


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scale_embedding": False, "activation_function": "gelu_new"},
        {"activation_function": "relu", "decoder_start_token_id": 5},
        {"share_encoder_decoder_embeddings": False, "vocab_size": READ},
        {"kind": "Pegasus"},
        {"kind": "Pegasus", "scale_embedding": False, "activation_function": "relu"},
    ],
    ids=str,
)
def test_a_folder_of_transformers_is_equal_here_and_there_again(changes, tmp_path):
    other, read = theirs(**changes), int(str(changes.get("vocab_size", V)))
    other.save_pretrained(tmp_path / "theirs")
    loaded = huggingface.load(tmp_path / "theirs")
    assert not loaded.model.training
    assert loaded.tokenizer is None
    model = loaded.model
    if "decoder_start_token_id" in changes:
        assert model.config.start == 5
        model.config = model.config.replace(start=PAD)
        other.config.decoder_start_token_id = PAD
    assert_equal(model, other, read)
    huggingface.save(tmp_path / "ours", model)
    assert_equal(model, again(tmp_path / "ours"), read)
    twice = huggingface.load(tmp_path / "ours")
    assert twice.model.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twice.model.parameters(), strict=True))


@pytest.mark.parametrize(
    "changes",
    [{}, {"output_bias": True}, {"source_vocabulary": READ, "std": 0.1}, {"norm": "pre"}],
    ids=str,
)
def test_a_model_of_ours_is_equal_there_and_comes_back(changes, tmp_path):
    config = OURS.replace(**changes)
    model = config.build()
    huggingface.save(tmp_path, model)
    assert huggingface.load(tmp_path).model.config == config  # a bias of zeros, no std, no length
    randomise(model)
    huggingface.save(tmp_path, model, settings={"lowercase": True})
    assert huggingface.holds_encoder_decoder(tmp_path)
    assert not huggingface.only_here(config)
    assert_equal(model, again(tmp_path), changes.get("source_vocabulary", V))
    loaded = huggingface.load(tmp_path)
    assert loaded.model.config == config
    assert loaded.settings == {"lowercase": True}
    assert_equal(loaded.model, again(tmp_path), changes.get("source_vocabulary", V))


def test_the_keys_are_those_of_transformers(tmp_path):
    for changes in ({}, {"share_encoder_decoder_embeddings": False, "vocab_size": READ}):
        theirs(**changes).save_pretrained(tmp_path / "theirs")
        ours = huggingface.load(tmp_path / "theirs").model
        huggingface.save(tmp_path / "ours", ours)
        a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
        assert {k: v.shape for k, v in a.items()} == {k: v.shape for k, v in b.items()}
        a, b = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours"))
        assert a.keys() - {"transformers_version"} <= b.keys()
        differ = {k for k in a.keys() & b.keys() if a[k] != b[k]}
        assert differ <= {"forced_eos_token_id"}  # no last token is forced here


# ------------------------------------------------------------------------------------------------ old and odd folders


@pytest.fixture
def folder(tmp_path) -> Path:
    theirs().save_pretrained(tmp_path / "folder")
    return tmp_path / "folder"


def test_older_folders_hold_copies_computed_positions_and_forgotten_fields(folder):
    expected = huggingface.load(folder).model

    def old(tensors: dict[str, Tensor]) -> None:
        for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = tensors["model.shared.weight"]
        waves = theirs().model.encoder.embed_positions.weight.detach()
        tensors["model.encoder.embed_positions.weight"] = waves.half()
        tensors["model.decoder.embed_positions.weight"] = waves[:8]

    weights(folder, old)
    (folder / "generation_config.json").unlink()
    fields(
        folder,
        _num_labels=3,
        add_bias_logits=False,
        add_final_layer_norm=False,
        bad_words_ids=[[PAD], [4], [5, 6]],
        bos_token_id=0,
        classif_dropout=0.1,
        decoder_vocab_size=...,
        extra_pos_embeddings=V,
        force_bos_token_to_be_generated=False,
        id2label={"0": "LABEL_0"},
        max_length=30,
        normalize_before=False,
        normalize_embedding=False,
        num_beams=6,
        num_hidden_layers=2,
        share_encoder_decoder_embeddings=...,
        static_position_embeddings=True,
        tie_word_embeddings=...,
    )
    loaded = huggingface.load(folder)
    assert loaded.model.config == expected.config
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), expected.parameters(), strict=True))
    search = Search.from_dict(loaded.settings["search"])
    assert (search.beam_size, search.limits.max_length, search.blocking.forbidden) == (6, 29, (4, PAD))
    weights(folder, lambda tensors: tensors.pop("model.shared.weight"))  # a copy is as good
    again = huggingface.load(folder).model
    assert torch.equal(again.source.token.weight, expected.source.token.weight)


def positions(length: int = 40, kind: str = "exact") -> Tensor:
    """The table of positions [length, 16]: as transformers stores it, or as version 0.1 of this package stored it."""
    if kind == "exact":
        return theirs("Pegasus", max_position_embeddings=length).model.encoder.embed_positions.weight.detach()
    angle = torch.arange(length)[:, None].float() * (1.0 / 10_000.0 ** (torch.arange(0, 16, 2).float() / 16))
    return torch.cat([angle.sin(), angle.cos()], -1)


def test_positions_are_the_stored_ones(tmp_path):
    """Number for number: an angle of float32 is off by 2e-5 at the end of this table."""
    other = theirs("Pegasus", max_position_embeddings=1_024)
    other.save_pretrained(tmp_path / "theirs")
    model = huggingface.load(tmp_path / "theirs").model
    huggingface.save(tmp_path / "ours", model)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    for side in ("encoder", "decoder"):
        assert torch.equal(a[f"model.{side}.embed_positions.weight"], b[f"model.{side}.embed_positions.weight"])
    assert (positions(1_024) - positions(1_024, "0.1")).abs().max() > 1e-5


@pytest.mark.parametrize(
    ("table", "opens"),
    [
        (lambda: positions(), True),
        (lambda: positions(kind="0.1"), True),
        (lambda: positions().half(), True),
        (lambda: positions().bfloat16(), True),
        (lambda: positions().double(), True),
        (lambda: positions() + 1e-5, False),
        (lambda: positions() + 9e-3 * torch.randn(40, 16).sign(), False),
        (lambda: positions().bfloat16().float(), False),
        (lambda: (positions() + 5e-3).half(), False),
        (lambda: positions().mul(127).round().to(torch.int8), False),
    ],
)
def test_positions_may_be_rounded_by_the_type_they_are_stored_in_alone(table, opens, folder):
    """Once, any table within 1e-2 of the sinusoids was taken for them."""
    weights(folder, lambda tensors: tensors.update({"model.encoder.embed_positions.weight": table()}))
    if opens:
        huggingface.load(folder)
    else:
        assert "not sinusoids in halves" in refusal(folder)


@pytest.mark.parametrize("kind", ["Marian", "Pegasus"])
def test_positions_do_not_learn_here_nor_there(kind, tmp_path):
    """There they are a parameter, once they were read from a folder; but nothing flows back into it."""
    theirs(kind).save_pretrained(tmp_path)
    other = again(tmp_path).train()
    their_forward(other, pairs())
    assert other.model.encoder.embed_positions.weight.grad is None
    assert other.model.decoder.embed_positions.weight.grad is None
    model = huggingface.load(tmp_path).model
    assert not [name for name, _ in model.named_parameters() if "position" in name]


def test_a_trunk_alone_opens_with_the_output_that_its_vectors_make(tmp_path):
    other = theirs()
    other.final_logits_bias.zero_()
    other.model.save_pretrained(tmp_path)
    assert_equal(huggingface.load(tmp_path).model, other)


def test_half_precision_opens_in_full(tmp_path):
    theirs().bfloat16().save_pretrained(tmp_path)
    model = huggingface.load(tmp_path).model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    huggingface.save(tmp_path / "half", model.bfloat16())
    assert again(tmp_path / "half").dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "mariam"}, "did you mean 'marian'?"),
        ({"model_type": 3}, "has no model_type: it does not describe a model"),
        ({"model_type": "bert"}, "holds a model of type bert"),
        ({"normalize_before": True}, "normalize_before = True is not supported; only False is"),
        ({"static_position_embeddings": False}, "static_position_embeddings"),
        ({"encoder_layerdrop": 0.1}, "encoder_layerdrop = 0.1 is not supported"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"activation_function": "thanh"}, "activation_function must be one of"),
        ({"decoder_vocab_size": 19}, "one table of vectors cannot have vocab_size 23"),
        ({"d_model": ...}, "has the shape [16], but config.json asks for [1024]"),
        ({"d_model": None}, "config.json: d_model must be a whole number, not None"),
        ({"dropout": None}, "config.json: dropout must be a number, not None"),
        ({"pad_token_id": None}, "config.json: pad_token_id must be a whole number, not None"),
        ({"pad_token_id": V}, "the id of its padding must be at least 0 and below"),
        ({"eos_token_id": [0, 1]}, "config.json: eos_token_id must be a whole number"),
        ({"encoder_attention_heads": 3}, "do not divide 16"),
        ({"encoder_layers": 3}, "the weights lack 'model.encoder.layers.2.self_attn.q_proj.weight'"),
        ({"decoder_layers": 2}, "'model.decoder.layers.2.encoder_attn.k_proj.bias' has no place"),
        ({"vocab_size": 24, "decoder_vocab_size": 24}, "has the shape [23, 16], but config.json asks for [24, 16]"),
        ({"d_model": 15}, "config.json"),
        ({"share_encoder_decoder_embeddings": False}, "'model.shared.weight' has no place"),
        ({"quantization_config": {"bits": 8}}, "the field quantization_config"),
        ({"num_hidden_layers": 1}, "num_hidden_layers is 1, but encoder_layers is 2"),
        ({"unmask_config": {"dim": 3}}, "There is no field of unmask_config"),
        ({"unmask_config": {"length": "long"}}, "length must be a whole number or none"),
        ({"unmask_config": 3}, "unmask_config must hold fields"),
        ({"unmask_task": 3}, "unmask_task must hold settings"),
    ],
    ids=str,
)
def test_a_config_that_is_not_ours_is_refused(changes, sentence, folder):
    fields(folder, **changes)
    assert sentence in refusal(folder)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("model.decoder.layers.1.fc1.bias"), "the weights lack 'model.decoder.layers.1.fc1.bias'"),
        (lambda t: t.update({"model.encoder.layernorm.weight": torch.ones(16)}), "has no place in this model"),
        (lambda t: t.update({"lm_head.weight": torch.ones(V, 16)}), "'lm_head.weight' differs from"),
        (lambda t: t.update({"model.encoder.embed_positions.weight": torch.ones(40, 16)}), "not sinusoids in halves"),
        (lambda t: t.update({"model.encoder.embed_positions.weight": torch.ones(40)}), "not sinusoids in halves"),
        (lambda t: t.update({"final_logits_bias": torch.ones(1, 9)}), "has the shape [9]"),
        (lambda t: t.update({"model.shared.weight": torch.ones(V, 16, dtype=torch.int8)}), "quantised weights"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, sentence, folder):
    weights(folder, change)
    assert sentence in refusal(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"num_beams": "many"},
        {"early_stopping": "soon"},
        {"bad_words_ids": 3},
        {"max_length": [1]},
        {"max_length": float("inf")},
    ],
    ids=str,
)
def test_a_search_that_is_not_understood_is_refused(values, folder):
    (folder / "generation_config.json").write_text(json.dumps(values))
    message = refusal(folder)
    assert "generation_config.json" in message
    assert "not understood" in message


# ------------------------------------------------------------------------------------------------ writing


TEXT = ["A cat sat on the mat.", "Two dogs run in the park!", "the man reads a book", "Ein Hund läuft im Park."] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_subwords(TEXT, 60)


@pytest.fixture(scope="module", params=["post", "pre"])
def own(request, tokenizer) -> TransformerModel:
    """A model that has begun to write each text backwards, so that no search hangs on rounding."""
    ids = {"vocabulary": tokenizer.size, "padding": tokenizer.pad, "start": tokenizer.start, "end": tokenizer.end}
    model = OURS.replace(norm=request.param, output_bias=True, **ids).build()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    rows = [tokenizer.ids([text])[0].tolist() for text in sorted(set(TEXT))]
    width = max(map(len, rows)) + 1
    read = torch.tensor([[*row, tokenizer.end] + [tokenizer.pad] * (width - len(row) - 1) for row in rows])
    written = torch.tensor([[*row[::-1], tokenizer.end] + [tokenizer.pad] * (width - len(row) - 1) for row in rows])
    documents = torch.tensor([[1] * (len(row) + 1) + [0] * (width - len(row) - 1) for row in rows])
    tokens = torch.cat([torch.full((len(rows), 1), tokenizer.start), written[:, :-1]], 1)
    places = documents.flatten().nonzero().flatten()
    target = Target(places, written.flatten()[places])
    batch = Batch(tokens, targets={"next": target}, source=Batch(read, documents=documents))
    for _ in range(60):
        optimiser.zero_grad()
        NextToken().loss(model, batch)["next"].sum.backward()
        optimiser.step()
    return model.eval()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_transformers_translates_the_texts_alike_from_what_the_folder_says(beam_size, tokenizer, own, tmp_path):
    search = Search(
        beam_size=beam_size,
        length_penalty=0.8,
        limits=Limits(max_length=20, min_length=2),
        blocking=Blocking(forbidden=(tokenizer.pad, tokenizer.unknown), no_repeat_ngram=3),
    )
    huggingface.save(tmp_path, own, tokenizer, settings={"search": search.to_dict()})
    loaded = huggingface.load(tmp_path)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert Search.from_dict(loaded.settings["search"]) == search
    with pytest.warns(UserWarning, match="sacremoses"):
        theirs_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(theirs_tokenizer, transformers.MarianTokenizer)
    other = again(tmp_path).eval()
    texts = sorted(set(TEXT))
    written = other.generate(**theirs_tokenizer(texts, return_tensors="pt", padding=True))
    said = theirs_tokenizer.batch_decode(written, skip_special_tokens=True)
    for text, theirs_text in zip(texts, said, strict=True):
        source = torch.tensor([[*loaded.tokenizer.ids([text])[0].tolist(), tokenizer.end]])
        (best, *_), *_ = generate(loaded.model, Batch(source), search, end=tokenizer.end)
        assert loaded.tokenizer.decode(best.tokens) == theirs_text
    assert len(set(said)) > 1  # what is written depends on the source


def test_the_search_of_a_foreign_folder_is_its_own(tokenizer, own, tmp_path):
    huggingface.save(tmp_path, own, tokenizer)
    assert huggingface.load(tmp_path).settings == {}
    again(tmp_path).save_pretrained(tmp_path / "theirs")
    fields(tmp_path / "theirs", unmask_task=...)
    special = {"decoder_start_token_id": tokenizer.pad, "eos_token_id": tokenizer.end, "pad_token_id": tokenizer.pad}
    (tmp_path / "theirs" / "generation_config.json").write_text(
        json.dumps({"num_beams": 3, "length_penalty": 0.5, "max_length": 12, "early_stopping": True} | special)
    )
    search = Search.from_dict(huggingface.load(tmp_path / "theirs").settings["search"])
    assert search == Search(
        beam_size=3,
        length_penalty=0.5,
        stop="full",
        limits=Limits(max_length=11),
        blocking=Blocking(forbidden=(tokenizer.pad,)),
    )
    other = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
    source = torch.tensor([[*tokenizer.ids([TEXT[0]])[0].tolist(), tokenizer.end]])
    theirs_ids = other.generate(source, bad_words_ids=[[tokenizer.pad]])[0, 1:].tolist()
    (best, *_), *_ = generate(own, Batch(source), search, end=tokenizer.end)
    assert [t for t in best.tokens if t != tokenizer.end] == [t for t in theirs_ids if t != tokenizer.end]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"decoder_start_token_id": 5}, "its decoder_start_token_id is 5, but config.json has 22"),
        ({"eos_token_id": [0, 5]}, "its eos_token_id is"),
        ({"forced_bos_token_id": 5}, "forced_bos_token_id is not supported"),
        ({"eos_token_id": [END], "decoder_start_token_id": PAD, "forced_bos_token_id": None}, ""),
    ],
)
def test_a_search_with_other_tokens_than_the_model_is_refused(field, said, folder):
    """`generate` of transformers goes by generation_config.json where it contradicts config.json."""
    place = folder / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | field))
    if said:
        assert said in refusal(folder)
    else:
        huggingface.load(folder)


def test_each_side_may_have_a_vocabulary_of_its_own(tokenizer, tmp_path):
    target = train_subwords(["Etwas ganz anderes, mit mehr Zeichen: xyzäöü 0123456789"] * 5 + TEXT, 90)
    both = Tokenizer(tokenizer.side, target.side)
    assert tokenizer.size < target.size
    config = OURS.replace(source_vocabulary=tokenizer.size, vocabulary=target.size)
    model = config.replace(padding=both.pad, start=both.start, end=both.end).build()
    huggingface.save(tmp_path, model, both)
    loaded = huggingface.load(tmp_path)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == both.fingerprint
    assert loaded.model.config == model.config
    with pytest.raises(UnmaskError, match="entries for the source"):
        huggingface.save(tmp_path / "other", model, target)
    with pytest.warns(UserWarning, match="sacremoses"):
        there = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert there(text_target=TEXT[3]).input_ids == [*both.target.ids([TEXT[3]])[0], both.end]
    again(tmp_path)


@pytest.mark.parametrize(
    ("tokenizer", "model"),
    [
        ({"tokenizer_class": "PegasusTokenizer"}, {}),
        ({"model_max_length": 512}, {"model_type": "pegasus"}),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "pegasus"}),
    ],
)
def test_pieces_that_pegasus_numbers_are_refused_not_misread(tokenizer, model, tmp_path):
    train_subwords(["a cat sat on the mat", "two dogs ran"] * 5, 40).save(tmp_path)
    (tmp_path / "source.spm").rename(tmp_path / "spiece.model")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (tmp_path / "config.json").write_text(json.dumps(model))
    with pytest.raises(UnmaskError, match="has the ids of Pegasus"):
        Tokenizer.load(tmp_path, written=True)


def test_pieces_beside_a_pegasus_that_a_t5_numbers_are_read(tmp_path):
    train_subwords(["a cat sat on the mat", "two dogs ran"] * 5, 40).save(tmp_path)
    (tmp_path / "source.spm").rename(tmp_path / "spiece.model")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    alone = Tokenizer.load(tmp_path, written=True)
    (tmp_path / "config.json").write_text('{"model_type": "pegasus"}')
    assert Tokenizer.load(tmp_path, written=True).fingerprint == alone.fingerprint
