"""The Transformer: equal to torch.nn part by part and to Marian of transformers; writing equals teacher forcing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.huggingface.average import average
from unmask.models.transformer import SIZES, Transformer
from unmask.models.transformer_model import TransformerModel
from unmask.nn import Block, Mask, ScaledToken, Sinusoidal, SinusoidalHalves, Stack
from unmask.objectives.next_token import NextToken
from unmask.types import Batch, Head, Target

V, D, H, HIDDEN = 23, 16, 4, 24
SMALL = Transformer(
    vocabulary=V,
    dim=D,
    encoder_layers=2,
    decoder_layers=3,
    encoder_heads=H,
    decoder_heads=H,
    encoder_hidden=HIDDEN,
    decoder_hidden=HIDDEN,
    dropout=0.0,
)
LENGTHS = (6, 2, 4)


def randomise(module: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0.0, 0.2, generator=generator)


def sources(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> Batch:
    tokens = torch.randint(3, V, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    documents = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return Batch(tokens * documents, documents=documents)


def pairs(T: int = 5, lengths: tuple[int, ...] = LENGTHS) -> Batch:
    tokens = torch.randint(3, V, (len(lengths), T), generator=torch.Generator().manual_seed(1))
    tokens[:, 0] = SMALL.start
    places = torch.arange(tokens.numel())
    return Batch(tokens, targets={"next": Target(places, tokens.roll(-1, 1).flatten())}, source=sources(lengths))


def logits(model: TransformerModel, batch: Batch) -> Tensor:
    """[B, T, V]."""
    places = torch.arange(batch.tokens.numel())
    return model.answer("next", model(batch), places).unflatten(0, batch.tokens.shape)


def same(a: Tensor, b: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# torch.nn.Transformer


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    for i, part in enumerate((ours.query, ours.key, ours.value)):
        part.weight.copy_(theirs.in_proj_weight.chunk(3)[i])
        part.bias.copy_(theirs.in_proj_bias.chunk(3)[i])
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_block(ours: Block, theirs: nn.Module) -> None:
    """Weights of a torch.nn.TransformerEncoderLayer or DecoderLayer."""
    with torch.no_grad():
        copy_attention(ours.attention.f, theirs.self_attn)
        norms = [ours.attention, ours.feedforward]
        if ours.cross is not None:
            copy_attention(ours.cross.f, theirs.multihead_attn)
            norms.insert(1, ours.cross)
        ours.feedforward.f.up.load_state_dict(theirs.linear1.state_dict())
        ours.feedforward.f.down.load_state_dict(theirs.linear2.state_dict())
        for i, residual in enumerate(norms):
            norm = residual.after if isinstance(residual.after, nn.LayerNorm) else residual.before
            norm.load_state_dict(getattr(theirs, f"norm{i + 1}").state_dict())


def copy_stack(ours: Stack, theirs: nn.Module) -> None:
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        copy_block(block, layer)
    if isinstance(ours.norm, nn.LayerNorm):
        ours.norm.load_state_dict(theirs.norm.state_dict())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_torch_part_by_part(norm: str, activation: str) -> None:
    config = SMALL.replace(norm=norm, activation=activation)
    theirs = nn.Transformer(D, H, 2, 3, HIDDEN, 0.0, activation, batch_first=True, norm_first=norm == "pre").train()
    if norm == "post":  # torch puts a norm after the last post-norm block as well, which the paper does not have
        theirs.encoder.norm = theirs.decoder.norm = None
    randomise(theirs)
    encoder, decoder = config.encoder(), config.decoder()
    copy_stack(encoder, theirs.encoder)
    copy_stack(decoder, theirs.decoder)
    x = torch.randn(3, 6, D, generator=torch.Generator().manual_seed(3), requires_grad=True)
    y = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(4), requires_grad=True)
    padding = Mask(lengths=torch.tensor(LENGTHS))
    hidden = torch.arange(6) >= torch.tensor(LENGTHS)[:, None]
    future = nn.Transformer.generate_square_subsequent_mask(5).isinf()

    same(encoder.blocks[0](x), theirs.encoder.layers[0](x))
    same(decoder.blocks[0](y, memory_BSD=x), theirs.decoder.layers[0](y, x))
    real = ~hidden
    same(encoder(x, mask=padding)[real], theirs.encoder(x, src_key_padding_mask=hidden)[real])
    ours = decoder(y, mask=Mask(causal=True), memory=encoder(x, mask=padding), memory_mask=padding)
    said = theirs(x, y, tgt_mask=future, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    same(ours, said)
    weight = torch.randn_like(said)
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), (x, y)),
        torch.autograd.grad((said * weight).sum(), (x, y)),
        strict=True,
    ):
        same(a, b, 1e-4)


# Marian


MARIAN = {"dim": "d_model", "vocabulary": "vocab_size", "length": "max_position_embeddings"} | {
    f"{side}_{ours}": f"{side}_{theirs}"
    for side in ("encoder", "decoder")
    for ours, theirs in {"layers": "layers", "heads": "attention_heads", "hidden": "ffn_dim"}.items()
}
PARTS = {
    "attention.f.query": "self_attn.q_proj",
    "attention.f.key": "self_attn.k_proj",
    "attention.f.value": "self_attn.v_proj",
    "attention.f.output": "self_attn.out_proj",
    "attention.after": "self_attn_layer_norm",
    "cross.f.query": "encoder_attn.q_proj",
    "cross.f.key": "encoder_attn.k_proj",
    "cross.f.value": "encoder_attn.v_proj",
    "cross.f.output": "encoder_attn.out_proj",
    "cross.after": "encoder_attn_layer_norm",
    "feedforward.f.up": "fc1",
    "feedforward.f.down": "fc2",
    "feedforward.after": "final_layer_norm",
}


def marian_name(ours: str) -> str:
    if ours.endswith("token.weight"):
        return "model.shared.weight" if ours.startswith("source") else "model.decoder.embed_tokens.weight"
    side, _, layer, part = ours.split(".", 3)
    part, _, kind = part.rpartition(".")
    return f"model.{side}.layers.{layer}.{PARTS[part]}.{kind}"


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_equals_marian(shared: bool, activation: str) -> None:
    from transformers import MarianConfig, MarianMTModel

    config = SMALL.replace(
        length=40, positions="halves", activation=activation, output_bias=True, decoder_heads=2, encoder_hidden=20
    ).replace(padding=V - 1, start=V - 1, end=0, source_vocabulary=None if shared else V)
    fields = {theirs: getattr(config, ours) for ours, theirs in MARIAN.items()}
    theirs = MarianMTModel(
        MarianConfig(
            **fields,
            decoder_vocab_size=V,
            activation_function={"silu": "swish"}.get(activation, activation),
            scale_embedding=True,
            share_encoder_decoder_embeddings=shared,
            pad_token_id=V - 1,
            eos_token_id=0,
            decoder_start_token_id=V - 1,
            dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
        )
    )
    if not shared:
        theirs.model.encoder.embed_tokens = nn.Embedding(V, D, V - 1)
    ours = config.build(seed=None)
    parameters = dict(ours.named_parameters())
    randomise(ours)
    bias = parameters.pop("heads.next.bias")
    mine = dict(theirs.named_parameters())
    if not shared:
        mine["model.shared.weight"] = theirs.model.encoder.embed_tokens.weight
        mine["model.decoder.embed_tokens.weight"] = theirs.model.decoder.embed_tokens.weight
    with torch.no_grad():
        theirs.final_logits_bias.copy_(bias[None])
        for name, p in parameters.items():
            mine[marian_name(name)].copy_(p)
    if not shared:
        theirs.lm_head.weight = theirs.model.decoder.embed_tokens.weight
    batch = pairs(9)
    tokens = batch.tokens.clone()
    tokens[:, 0] = config.start
    batch = Batch(tokens, targets=batch.targets, source=batch.source)
    assert batch.source is not None
    assert batch.source.documents is not None
    for training in (False, True):
        ours.train(training).zero_grad()
        theirs.train(training).zero_grad()
        said = theirs(
            input_ids=batch.source.tokens, attention_mask=batch.source.documents, decoder_input_ids=batch.tokens
        ).logits
        same(logits(ours, batch), said, 1e-4)
        term = NextToken().loss(ours, batch)["next"]
        loss = term.sum / term.count
        wanted = F.cross_entropy(said.flatten(0, 1), batch.targets["next"].values)
        same(loss, wanted)
        loss.backward()
        wanted.backward()
        for name, p in parameters.items():
            assert p.grad is not None
            same(p.grad, mine[marian_name(name)].grad, 1e-4)


# Writing


def test_a_loss_goes_down_and_reaches_every_parameter() -> None:
    model = SMALL.replace(dropout=0.1, attention_dropout=0.1, hidden_dropout=0.1, output_bias=True).build().train()
    torch.manual_seed(0)  # of dropout
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    batch = pairs()
    losses = []
    for _ in range(30):
        loss = NextToken(label_smoothing=0.1).loss(model, batch)["next"].sum
        optimiser.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            assert p.grad is not None, name
            if not name.endswith("key.bias"):  # adds the same to all scores of a query, which softmax does not see
                assert p.grad.any(), name
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


# The page


def test_sizes_are_as_published() -> None:
    def count(name: str, vocabulary: int) -> int:
        with torch.device("meta"):
            return Transformer(vocabulary=vocabulary, **SIZES[name]).build(seed=None).parameters_total

    assert 62e6 < count("base", 37_000) < 66e6  # 65 million (table 3)
    assert 205e6 < count("big", 37_000) < 215e6  # 213 million
    assert round(count("tiny", 10_000) / 1e5) == 65
    assert round(count("small", 10_000) / 1e5) == 99


def test_one_table_serves_source_target_and_output_unless_the_source_has_its_own() -> None:
    model = SMALL.build()
    assert model.source.token is model.target.token is model.heads["next"].token
    apart = SMALL.replace(source_vocabulary=11).build()
    assert apart.source.token.num_embeddings == 11
    assert apart.target.token.num_embeddings == V
    assert apart.heads["next"].token is apart.target.token
    assert SMALL.build(seed=3).state_dict()["source.token.weight"].equal(SMALL.build(seed=3).source.token.weight)
    vectors = SMALL.replace(vocabulary=4_000).build().source.token.weight
    assert abs(vectors.std().item() - D**-0.5) < 0.01
    assert not vectors[SMALL.padding].any()
    assert abs(SMALL.replace(vocabulary=4_000, std=0.02).build().source.token.weight.std().item() - 0.02) < 1e-3


def test_the_order_of_sinusoids_is_a_part() -> None:
    x = torch.zeros(1, 9, D)
    waves, halves = Sinusoidal(D).embed(x), SinusoidalHalves(D).embed(x)
    same(torch.cat([waves[..., 0::2], waves[..., 1::2]], -1), halves)
    token = ScaledToken(V, D)
    same(token(torch.tensor([[4]]))[0, 0], 4 * token.weight[4])


def test_what_does_not_fit_is_refused() -> None:
    model = SMALL.replace(length=6).build().eval()
    with pytest.raises(UnmaskError, match="no source"):
        model(Batch(torch.ones(1, 2, dtype=torch.int64)))
    with pytest.raises(UnmaskError, match="7 tokens does not fit this model, which has 6 positions"):
        model(pairs(7))
    with pytest.raises(UnmaskError, match="7 tokens does not fit"):
        model.prefill(sources((7,)))
    state = model.prefill(sources((3,)))
    for _ in range(6):
        model.decode_step(state.first, state)
    with pytest.raises(UnmaskError, match="7 tokens does not fit"):
        model.decode_step(state.first, state)
    with pytest.raises(UnmaskError, match="next"):
        SMALL.build({"nxt": Head("next_tokn")})


# Averages


def test_an_average_is_the_mean_of_the_checkpoints(tmp_path: Path) -> None:
    folders = []
    for i, value in enumerate((1.0, 2.0, 6.0)):
        folders.append(tmp_path / f"step-{i}")
        folders[-1].mkdir()
        half = torch.full((3,), value, dtype=torch.bfloat16)
        save_file({"a": torch.full((2,), value), "b": half, "n": torch.tensor([7])}, folders[-1] / "model.safetensors")
    mean = average(folders)
    assert mean["a"].tolist() == [3.0, 3.0]
    assert mean["a"].dtype is torch.float32
    assert mean["b"].tolist() == [3.0] * 3
    assert mean["b"].dtype is torch.bfloat16
    assert mean["n"].tolist() == [7]
    assert average(folders[1:2])["a"].tolist() == [2.0, 2.0]
    for wrong, sentence in (
        ({"a": torch.ones(2), "b": torch.ones(3)}, "'n' is in only one of"),
        ({"a": torch.ones(3), "b": torch.ones(3), "n": torch.tensor([7])}, r"'a' has the shape \[3\]"),
        ({"a": torch.ones(2), "b": torch.ones(3), "n": torch.tensor([8])}, "'n' holds integers"),
    ):
        save_file(wrong, folders[-1] / "model.safetensors")
        with pytest.raises(UnmaskError, match=sentence):
            average(folders)
    with pytest.raises(UnmaskError, match="no checkpoint"):
        average([])
