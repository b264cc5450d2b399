"""ConvS2S: the equations written out, padding, gradients, writing token by token, and a task that it learns."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import nn

from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.convs2s import SIZES, ConvS2S
from unmask.nn import record_attention
from unmask.objectives.next_token import NextToken
from unmask.types import Batch, Target

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
TINY = ConvS2S(
    vocabulary=20, dim=8, encoder_widths=(8, 12), decoder_widths=(12, 12, 8), length=16, dropout=0.0, pointwise=1
)


def padded(sequences: list[list[int]]) -> Batch:
    longest = max(map(len, sequences))
    tokens = torch.tensor([s + [0] * (longest - len(s)) for s in sequences])
    documents = torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in sequences])
    return Batch(tokens, documents=documents)


def pairs(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    """[start, y1 .. yn] to read, y1 .. yn, end to say."""
    rows = padded([[TINY.start, *target] for target in targets])
    values = torch.tensor([token for target in targets for token in (*target, TINY.end)])
    places = rows.documents.flatten().nonzero().flatten()
    return Batch(
        rows.tokens, documents=rows.documents, targets={"next": Target(places, values)}, source=padded(sources)
    )


SOURCES = [[5, 6, 7, 8, 2], [9, 2], [10, 11, 12, 13, 14, 15, 2]]
TARGETS = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]


def logits(model, batch: Batch) -> torch.Tensor:
    hidden = model(batch)
    return model.heads["next"](hidden)


# ------------------------------------------------------------------------------------------------ equations


def test_the_forward_is_the_published_one():
    """Sections 3.1 to 3.4 for one row, with the library's convolution and glu."""
    model = TINY.build().eval()
    source, target = torch.tensor([SOURCES[0]]), torch.tensor([[1, 5, 6, 7]])
    root = math.sqrt(0.5)

    def glu(convolution, x, left, right):
        weight = convolution.weight.unflatten(1, (convolution.kernel, -1)).transpose(1, 2)
        return F.glu(F.conv1d(F.pad(x.mT, (left, right)), weight, convolution.bias), dim=1).mT

    e = model.source.token.weight[source] + model.source.position.table.weight[: source.shape[1]]
    g = model.target.token.weight[target] + model.target.position.table.weight[: target.shape[1]]
    x = model.encoder.input(e)
    for block in model.encoder.blocks:
        side = (block.gated.convolution.kernel - 1) // 2
        x = (block.project(x) + glu(block.gated.convolution, x, side, side)) * root
    z = model.encoder.output(x)
    x = model.decoder.input(g)
    for block in model.decoder.blocks:
        h = glu(block.gated.convolution, x, block.gated.convolution.kernel - 1, 0)
        d = (block.attention.query(h) + g) * root
        a = (d @ z.mT).softmax(-1)
        c = a @ ((z + e) * root) * math.sqrt(source.shape[1])
        x = (block.project(x) + (block.attention.output(c) + h) * root) * root
    expected = model.heads["next"](model.decoder.output(x))
    torch.testing.assert_close(logits(model, Batch(target, source=Batch(source))), expected, **CLOSE)


def test_padding_gets_no_gradient_and_gives_none():
    batch, objective = pairs(SOURCES, TARGETS), NextToken()
    model = TINY.build()
    whole = torch.autograd.grad(objective.loss(model, batch)["next"].sum, list(model.parameters()))
    parts = [objective.loss(model, pairs([s], [t]))["next"].sum for s, t in zip(SOURCES, TARGETS, strict=True)]
    torch.testing.assert_close(whole, torch.autograd.grad(sum(parts), list(model.parameters())), **CLOSE)


def test_a_source_of_nothing_but_padding_stays_finite():
    source = Batch(torch.zeros(2, 3, dtype=torch.long), documents=torch.tensor([[0, 0, 0], [1, 1, 0]]))
    assert logits(TINY.build(), Batch(torch.tensor([[1], [1]]), source=source)).isfinite().all()


# ------------------------------------------------------------------------------------------------ gradients, weights


@pytest.mark.parametrize("layers", [1, 3])
def test_the_encoder_gets_its_share_of_the_gradient_and_the_vectors_theirs_whole(layers):
    """Section 3.4: the gradient of z is divided by twice the layers that attend; e gets its own as it is."""
    source, upstream = (
        Batch(torch.tensor([SOURCES[2]])),
        torch.randn(1, 7, 8, generator=torch.Generator().manual_seed(0)),
    )
    model = TINY.replace(decoder_widths=(12,) * layers).build()
    (model.encode(source).values * upstream).sum().backward()
    got = model.source.position.table.weight.grad[:7], model.encoder.output.bias.grad

    e = model.source(source.tokens).detach().requires_grad_()
    through_z = torch.autograd.grad((model.encoder(e) * upstream * 0.5**0.5).sum(), e)[0][0]
    torch.testing.assert_close(got[0], through_z / (2 * layers) + upstream[0] * 0.5**0.5, **CLOSE)
    torch.testing.assert_close(got[1], upstream.sum((0, 1)) * 0.5**0.5 / (2 * layers), **CLOSE)


def test_weights_start_as_published():
    config = ConvS2S(vocabulary=500, dim=128, encoder_widths=(128, 128), decoder_widths=(128,), dropout=0.2)
    model = config.build(seed=1)
    stds = {
        model.source.token: 0.1,
        model.target.position.table: 0.1,
        model.encoder.input: math.sqrt(0.8 / 128),
        model.encoder.output: math.sqrt(1 / 128),
        model.encoder.blocks[1].gated.convolution: math.sqrt(4 * 0.8 / 384),
        model.decoder.blocks[0].attention.query: math.sqrt(1 / 128),
        model.heads["next"]: math.sqrt(0.8 / 128),
    }
    for part, std in stds.items():
        assert float(part.weight.detach().std()) == pytest.approx(std, rel=0.03)
    assert all(part.bias.eq(0).all() for part in model.modules() if isinstance(part, nn.Linear))
    again, other = config.build(seed=1), config.build(seed=2)
    assert torch.equal(again.encoder.output.weight, model.encoder.output.weight)
    assert not torch.equal(other.encoder.output.weight, model.encoder.output.weight)


def test_the_variance_stays_through_twenty_layers():
    """What the scales and the initialisation are for (sections 3.4 and 3.5); vectors start small, so gates at 1/2."""
    config = ConvS2S(vocabulary=10, dim=64, encoder_widths=(64,) * 20, decoder_widths=(64,), dropout=0.0)
    e = 0.1 * torch.randn(4, 20, 64, generator=torch.Generator().manual_seed(0))
    assert 0.07 < float(config.build().encoder(e).detach().std()) < 0.14


@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_tables_are_as_many_as_tied_says(tied):
    model = TINY.replace(tied=tied).build()
    tables = sum(p.numel() for p in model.parameters() if p.shape == (20, 8))
    assert tables == {"none": 3, "output": 2, "all": 1}[tied] * 160
    assert logits(model, pairs(SOURCES, TARGETS)).shape == (3, 6, 20)


def test_weights_go_through_safetensors():
    model, other = TINY.build(seed=1), TINY.build(seed=2)
    other.load_state_dict(load(save(model.state_dict())))
    batch = pairs(SOURCES, TARGETS)
    assert torch.equal(logits(model, batch), logits(other, batch))
    assert ConvS2S.from_dict(TINY.to_dict()) == TINY


# ------------------------------------------------------------------------------------------------ attention


def test_attention_is_recorded_for_every_layer():
    model, batch = TINY.build().eval(), pairs(SOURCES, TARGETS)
    with record_attention(model) as maps:
        recorded = logits(model, batch)
    assert [m.name for m in maps] == [f"decoder.blocks.{i}.attention" for i in range(3)]
    for _, weights in maps:
        assert weights.shape == (3, 1, 6, 7)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 6))
        assert weights[1, :, :, 2:].eq(0).all()
        assert weights[1, :, :, :2].gt(0).all()
    assert torch.equal(recorded, logits(model, batch))


# ------------------------------------------------------------------------------------------------ writing


def test_what_depends_on_the_source_alone_is_kept_once():
    width, model = 3, TINY.build().eval()
    state = model.prefill(padded(SOURCES), width)
    kept = state.memory.keys.data_ptr()
    for rows in ([0, 0, 1, 5, 4, 3, 8, 8, 8], [3, 4, 3, 6, 7, 6], [1, 1, 1]):  # exchanged; then sources finish
        model.decode_step(state.first, state)
        if len(rows) == 9:
            assert state.memory.keys.data_ptr() == kept  # nobody copied it
        state.select(torch.tensor(rows))
        assert len(state.memory.keys) * width == len(rows)  # one of each source, whatever the width


def test_what_is_kept_does_not_grow():
    model = TINY.build().eval()
    state = model.prefill(padded(SOURCES), 2)
    sizes = set()
    for _ in range(8):
        model.decode_step(torch.full((6,), 5), state)
        sizes.add(tuple(window.past.shape for window in state.windows))
    assert sizes == {((6, 2, 12), (6, 2, 12), (6, 0, 12))}


def test_writing_follows_training():
    """Weights that are kept between tokens are those of now."""
    model, source = TINY.build().eval(), padded(SOURCES)
    before = model.decode_step((state := model.prefill(source)).first, state)
    NextToken().loss(model, pairs(SOURCES, TARGETS))["next"].sum.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    after = model.decode_step((state := model.prefill(source)).first, state)
    forced = logits(model, Batch(torch.ones(3, 1, dtype=torch.long), source=source))[:, 0]
    torch.testing.assert_close(after, forced.detach(), **CLOSE)
    assert not torch.allclose(before, after)


# ------------------------------------------------------------------------------------------------ learning


def test_a_tiny_model_learns_to_reverse_digits():
    draw = torch.Generator().manual_seed(0)
    config = ConvS2S(vocabulary=13, dim=32, encoder_widths=(32,) * 2, decoder_widths=(32,) * 2, length=12, dropout=0.0)
    model, objective = config.build(), NextToken()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def batch(size: int) -> Batch:
        digits = [
            torch.randint(3, 13, (int(torch.randint(2, 7, (), generator=draw)),), generator=draw).tolist()
            for _ in range(size)
        ]
        return pairs([[*d, 2] for d in digits], [d[::-1] for d in digits])

    for _ in range(300):
        optimizer.zero_grad()
        term = objective.loss(model, batch(32))["next"]
        (term.sum / term.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    term = objective.loss(model, batch(200))["next"]
    assert float(term.metrics["correct"]) / term.count > 0.95


# ------------------------------------------------------------------------------------------------ sizes, bad input


def test_small_is_small():
    assert 8e6 < ConvS2S(vocabulary=8_000, **SIZES["small"]).build(seed=None).parameters_total < 15e6
    assert len(SIZES["big"]["encoder_widths"]) == 15


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: TINY.build(as_heads({"mlm": 0})), "There is no head of a ConvS2S 'masked_token'"),
        (lambda: TINY.replace(kernel=4).build(), "odd, not 4"),
        (lambda: TINY.replace(pointwise=3).build(), "3 of 2 layers cannot be pointwise"),
        (lambda: TINY.replace(decoder_widths=()).build(), "at least one layer"),
        (lambda: TINY.replace(tied="all", source_vocabulary=30).build(), "Two vocabularies cannot share"),
        (lambda: TINY.replace(tied="output", output_dim=4).build(), "output_dim cannot be 4"),
        (lambda: TINY.build()(Batch(torch.tensor([[1]]))), "this batch has no source"),
        (lambda: TINY.build()(pairs([[5] * 17], [[5]])), "17 tokens does not fit this model, which has 16"),
        (lambda: TINY.build()(pairs([[5]], [[5] * 16])), "17 tokens does not fit"),
        (lambda: TINY.build()(pairs([[20]], [[5]])), "Token id 20 does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(use, says):
    with pytest.raises(UnmaskError, match=says):
        use()


def test_writing_beyond_the_positions_is_refused():
    model = TINY.build().eval()
    state = model.prefill(padded(SOURCES))
    for _ in range(16):
        model.decode_step(state.first, state)
    with pytest.raises(UnmaskError, match="17 tokens does not fit"):
        model.decode_step(state.first, state)
