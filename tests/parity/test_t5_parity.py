"""T5 folders against transformers: hidden states, logits, losses, gradients and dropout, both ways; the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.files import MANIFEST
from unmask.generate import Limits, Search, generate
from unmask.huggingface.config import completed, read_config
from unmask.huggingface.table import as_heads
from unmask.models.t5 import SIZES, SIZES_V11, T5, T5Model
from unmask.nn import Attention
from unmask.objectives import NextToken
from unmask.types import Batch, Target

transformers = pytest.importorskip("transformers")

V, PAD, END = 37, 0, 1
GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"vocabulary": V, "dim": 16, "heads": 3, "head_dim": 8, "hidden": 24, "encoder_layers": 2, "decoder_layers": 3}
OURS = {
    "1.0": T5().replace(**SMALL, buckets=8, furthest=20, dropout=0.0),
    "1.1": T5().replace(**SMALL, buckets=8, furthest=20, dropout=0.0, feedforward="gated-gelu", output="untied"),
}
THEIRS = {
    "vocab_size": V,
    "d_model": 16,
    "num_heads": 3,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "dropout_rate": 0.0,
    "decoder_start_token_id": PAD,
}
V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def randomise(module: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)


def theirs(version: str, **changes: object) -> transformers.T5ForConditionalGeneration:
    values = THEIRS | (V11 if version == "1.1" else {}) | changes
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**values))
    if version == "1.1":  # a new model ties its output all the same; published folders have one of its own
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    randomise(model, 7)
    return model.eval()


def stored(model: transformers.T5ForConditionalGeneration, folder: Path, version: str) -> None:
    """As the model was published: an output of its own is in the weights, whatever the library thinks of it."""
    model.save_pretrained(folder)
    if version == "1.1":
        values = json.loads((folder / "config.json").read_text()) | V11
        (folder / "config.json").write_text(json.dumps(values))
        weights = load_file(folder / "model.safetensors") | {"lm_head.weight": model.lm_head.weight.detach().clone()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def again(folder: Path) -> transformers.T5ForConditionalGeneration:
    """The folder as transformers opens it, with no complaint."""
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model


def pairs(T: int = 9) -> Batch:
    """Three sources of 30, 2 and 14 tokens, further apart than the bias tells, and what is written of them."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([30, 2, 14])
    documents = (torch.arange(30) < lengths[:, None]).long()
    sources = torch.randint(2, V, (3, 30), generator=generator)
    sources[torch.arange(3), lengths - 1] = END
    tokens = torch.randint(2, V, (3, T + 1), generator=generator)
    target = Target(torch.arange(3 * T), tokens[:, 1:].flatten())
    tokens[:, 0] = PAD
    return Batch(tokens[:, :T], targets={"next": target}, source=Batch(sources * documents, documents=documents))


def forward(model: T5Model, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits [B, T, V], the loss, and gradients under the names of a folder."""
    model.zero_grad()
    logits = model.heads["next"](model(batch))
    term = NextToken().loss(model, batch)["next"]
    loss = term.sum / term.count
    loss.backward()
    names = huggingface.names(model)
    return logits, loss, {names[name]: p.grad for name, p in model.named_parameters() if p.grad is not None}


def states_of(model: T5Model, batch: Batch) -> list[Tensor]:
    """What every layer says, first those of the encoder, then those of the decoder: its embedding, all blocks but the
    last, and what the norm makes of that."""
    found: list[Tensor] = []
    sides = ((model.source, model.encoder), (model.target, model.decoder))
    parts = [part for embedding, stack in sides for part in (embedding, *stack.blocks[:-1], stack)]
    hooks = [part.register_forward_hook(lambda _, __, said: found.append(said)) for part in parts]
    model(batch)
    for hook in hooks:
        hook.remove()
    return found


def their_forward(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor], list[Tensor]]:
    model.zero_grad()
    assert batch.source is not None
    labels = batch.targets["next"].values.reshape(batch.tokens.shape)
    inputs = {"input_ids": batch.source.tokens, "attention_mask": batch.source.documents}
    said = model(**inputs, labels=labels, output_hidden_states=True)
    said.loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return said.logits, said.loss, gradients, [*said.encoder_hidden_states, *said.decoder_hidden_states]


def assert_equal(ours: T5Model, other: nn.Module) -> None:
    """The states of every layer, logits, the loss, and every gradient, in evaluation and training mode."""
    for training in (False, True):
        assert_same(ours.train(training), other.train(training))
    ours.eval()
    other.eval()


def assert_same(ours: T5Model, other: nn.Module) -> None:
    """The same in the mode that the two are in."""
    batch = pairs()
    assert batch.source is not None
    logits, loss, gradients = forward(ours, batch)
    their_logits, their_loss, their_gradients, their_states = their_forward(other, batch)
    torch.testing.assert_close(logits, their_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss, their_loss, rtol=1e-5, atol=1e-5)
    for state, expected in zip(states_of(ours, batch), their_states, strict=True):
        real = batch.source.documents.bool() if state.shape[1] == 30 else slice(None)  # padding may become anything
        torch.testing.assert_close(state[real], expected[real], rtol=1e-5, atol=1e-5)
        assert state[real].std() > 0.05  # degenerate states would agree too
    assert gradients.keys() == their_gradients.keys()
    for name, gradient in their_gradients.items():
        error = (gradients[name] - gradient).abs().max() / gradient.abs().max()
        assert error < 1e-5, f"{name}: {error:.1e}"


@pytest.mark.parametrize("version", OURS)
def test_their_folder_computes_the_same_here(version: str, tmp_path: Path) -> None:
    other = theirs(version)
    stored(other, tmp_path, version)
    loaded = huggingface.load(tmp_path)
    assert loaded.model.config == OURS[version]
    assert isinstance(loaded.model, T5Model)
    assert_equal(loaded.model, other)


@pytest.mark.parametrize("version", OURS)
def test_our_folder_computes_the_same_there_and_comes_back(version: str, tmp_path: Path) -> None:
    model = OURS[version].replace(length=50).build(seed=3)
    randomise(model)
    huggingface.save(tmp_path / "ours", model)
    other = again(tmp_path / "ours")
    assert_equal(model, other)
    other.save_pretrained(tmp_path / "theirs")
    back = huggingface.load(tmp_path / "theirs").model
    own = huggingface.load(tmp_path / "ours").model
    assert own.config == model.config  # also what their config has no place for
    for (name, a), b, c in zip(model.named_parameters(), back.parameters(), own.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert torch.equal(a, c), name


LAYERS = [
    {"feed_forward_proj": "relu", "dense_act_fn": "gelu"},
    {"feed_forward_proj": "relu", "dense_act_fn": "gelu_new", "is_gated_act": True},
    {"feed_forward_proj": "gated-gelu"},
    {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"},
    {"feed_forward_proj": "gated-gelu", "is_gated_act": False},
    {"feed_forward_proj": "gated-gelu_python"},
    {"feed_forward_proj": "gated-swish"},
    {"feed_forward_proj": "gelu_pytorch_tanh"},
    {"feed_forward_proj": ...},
    {"feed_forward_proj": ..., "dense_act_fn": "silu", "is_gated_act": True},
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_feed_forward_layer_is_the_one_that_transformers_makes_of_the_fields(layer: dict, tmp_path: Path) -> None:
    """`dense_act_fn` and `is_gated_act` go before `feed_forward_proj`; it once went before them, which was off by 1."""
    config = transformers.T5Config(**THEIRS, **{k: v for k, v in layer.items() if v is not ...})
    other = transformers.T5ForConditionalGeneration(config)
    randomise(other, 7)
    other.save_pretrained(tmp_path / "theirs")
    place = tmp_path / "theirs" / "config.json"
    values = {k: v for k, v in json.loads(place.read_text()).items() if k not in ("dense_act_fn", "is_gated_act")}
    place.write_text(json.dumps({k: v for k, v in (values | layer).items() if v is not ...}))
    assert_same(huggingface.load(tmp_path / "theirs").model.eval(), again(tmp_path / "theirs").eval())
    model = huggingface.load(tmp_path / "theirs").model
    huggingface.save(tmp_path / "ours", model)
    assert_same(model, again(tmp_path / "ours").eval())
    assert huggingface.load(tmp_path / "ours").model.config == model.config


def test_a_tied_output_that_is_not_scaled_stays_so(tmp_path: Path) -> None:
    """What version 5 of the library makes of a new model that is meant to have an output of its own."""
    other = transformers.T5ForConditionalGeneration(transformers.T5Config(**THEIRS, **V11))
    randomise(other)
    other.save_pretrained(tmp_path / "theirs")
    model = huggingface.load(tmp_path / "theirs").model
    assert model.config.output == "tied"
    assert_equal(model, other)
    huggingface.save(tmp_path / "ours", model)
    assert_equal(model, again(tmp_path / "ours"))


@pytest.mark.parametrize("version", OURS)
def test_dropout_stands_where_theirs_does(version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a dropout that draws nothing but scales, numbers are equal only where the sites are the same."""
    other = theirs(version, dropout_rate=0.5)
    stored(other, tmp_path, version)
    model = huggingface.load(tmp_path).model.train()
    calls: list[str] = []

    def scaled(kind: str):
        def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
            calls.extend([kind] * (p > 0))
            return x * 0.5 if training and p else x

        return dropout

    monkeypatch.setattr("unmask.nn.dropout.dropout", scaled("ours"))
    monkeypatch.setattr("unmask.nn.attention.dropout", scaled("ours"))
    monkeypatch.setattr(F, "dropout", scaled("theirs"))
    other.config._attn_implementation = "eager"
    other.train()
    for side in (other.encoder, other.decoder):
        side.config._attn_implementation = "eager"
    assert_same(model, other)
    assert calls.count("ours") == 3 * calls.count("theirs") > 0  # of ours logits, loss and states are computed apart
    assert not torch.allclose(forward(model, pairs())[0], forward(model.eval(), pairs())[0], atol=1e-2)


@pytest.mark.parametrize("version", OURS)
@pytest.mark.parametrize("beam", [1, 4])
def test_the_same_texts_are_written(version: str, beam: int, tmp_path: Path) -> None:
    model = OURS[version].replace(encoder_layers=3).build(seed=1)  # their cache wants as many layers on both sides
    randomise(model, 4)
    search = Search(beam_size=beam, limits=Limits(max_length=25))
    settings = {"search": {**search.to_dict(), "blocking": {"forbidden": [PAD]}}}
    huggingface.save(tmp_path, model.eval(), settings=settings)
    other, source = again(tmp_path), pairs().source
    assert source is not None
    texts = other.generate(source.tokens, attention_mask=source.documents)
    assert other.generation_config.num_beams == beam
    ours = generate(model, source, search.replace(blocking={"forbidden": (PAD,)}), end=END)
    for found, expected in zip(ours, texts.tolist(), strict=True):
        written = [token for token in expected[1:] if token != PAD]
        assert list(found[0].tokens) == [token for token in written if token != END]
    assert len({tuple(text) for text in texts.tolist()}) > 1


def test_published_sizes_have_their_published_parameters() -> None:
    counts = {"small": 60_506_624, "base": 222_903_552, "large": 737_668_096}
    for size, count in counts.items():
        with torch.device("meta"):
            assert T5().replace(**SIZES[size]).build(seed=None).parameters_total == count
    with torch.device("meta"):
        assert T5().replace(**SIZES_V11["small"]).build(seed=None).parameters_total == 76_961_152
        assert T5().replace(**SIZES_V11["base"]).build(seed=None).parameters_total == 247_577_856


@pytest.mark.parametrize("size", ["small", "base", "large", "3b", "11b"])
def test_a_published_config_is_read(size: str, tmp_path: Path) -> None:
    """As google-t5 wrote it, with what is beside the numbers."""
    config = T5().replace(**SIZES[size])
    values = {
        "architectures": ["T5WithLMHeadModel"],
        "d_ff": config.hidden,
        "d_kv": config.head_dim,
        "d_model": config.dim,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.1,
        "eos_token_id": 1,
        "feed_forward_proj": "relu",
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "t5",
        "n_positions": 512,
        "num_heads": config.heads,
        "num_layers": config.encoder_layers,
        "output_past": True,
        "pad_token_id": 0,
        "relative_attention_num_buckets": 32,
        "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
        "vocab_size": 32128,
    }
    table = huggingface.TABLES["t5"]
    found = read_config(table, values, tmp_path)
    assert completed(table, found, values, {}, tmp_path) == (table, config)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"d_kv": None}, "config.json: d_kv must be a whole number, not None"),
        ({"dropout_rate": None}, "config.json: dropout_rate must be a number, not None"),
        ({"feed_forward_proj": None}, "config.json: feed_forward_proj must be text, not None"),
        ({"feed_forward_proj": "gated-geluu"}, "did you mean 'gelu'"),
        ({"feed_forward_proj": "gate-gelu"}, "gated-gelu"),
        ({"dense_act_fn": "gelu_neu"}, "gelu_new"),
        ({"is_gated_act": None}, "config.json: is_gated_act must be true or false, not None"),
        ({"rotary": True}, "the field rotary"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder = False is not supported"),
        ({"unmask_config": {"lenth": 3}}, "length"),
        ({"pad_token_id": 10_000}, "the id of its padding must be at least 0 and below"),
        ({"d_model": "wide"}, "config.json: d_model must be a whole number"),
    ],
)
def test_a_config_that_asks_for_something_else_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    huggingface.save(tmp_path, OURS["1.0"].build())
    (tmp_path / MANIFEST).unlink()
    values = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UnmaskError, match=said):
        huggingface.load(tmp_path)


def test_weights_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    huggingface.save(tmp_path, OURS["1.0"].build())
    (tmp_path / MANIFEST).unlink()
    weights = load_file(tmp_path / "model.safetensors")
    place = tmp_path / "model.safetensors"
    save_file(weights | {"encoder.embed_tokens.weight": weights["shared.weight"] + 1}, place)
    with pytest.raises(UnmaskError, match="ties the two"):
        huggingface.load(tmp_path)
    save_file({k: v for k, v in weights.items() if "relative" not in k}, place)
    with pytest.raises(UnmaskError, match=r"lack '.*relative_attention_bias"):
        huggingface.load(tmp_path)
    save_file(weights | {"lm_head.weight": weights["shared.weight"] + 1}, place)
    with pytest.raises(UnmaskError, match="scaled but not tied"):
        huggingface.load(tmp_path)
    copies = {f"{side}.embed_tokens.weight": weights["shared.weight"].clone() for side in ("encoder", "decoder")}
    save_file(weights | copies | {"lm_head.weight": weights["shared.weight"].clone()}, place)
    assert huggingface.load(tmp_path).model.config == OURS["1.0"]


def test_what_there_is_no_part_for_is_refused() -> None:
    with pytest.raises(UnmaskError, match="head of a T5"):
        T5().replace(**SMALL).build(as_heads({"mlm": 0}))
    with pytest.raises(UnmaskError, match="no pooler"):
        T5().replace(**SMALL).build(pooler=True)


@pytest.mark.parametrize("version", OURS)
def test_the_tree_of_parameters_is_the_golden_one(version: str) -> None:
    """The names of our own and of the folder are what files are read by: a change breaks every folder."""
    model = OURS[version].build(seed=0)
    names = huggingface.names(model)
    tree = {name: [names[name], list(p.shape)] for name, p in model.named_parameters()}
    assert tree == json.loads((GOLDEN / f"tree-t5-{version}.json").read_text())


def test_a_new_model_says_nothing_much() -> None:
    """Logits of variance 1 or so, so that the first loss is about that of knowing nothing."""
    for version in OURS:
        model = OURS[version].replace(dim=64, head_dim=32).build(seed=0).eval()
        loss = NextToken().loss(model, pairs())["next"]
        assert float(loss.sum.detach()) / loss.count < 1.3 * torch.tensor(float(V)).log()
        queries = [part.query.weight.std() for part in model.modules() if isinstance(part, Attention)]
        assert all(abs(float(std) * (64 * 32) ** 0.5 - 1) < 0.1 for std in queries)
