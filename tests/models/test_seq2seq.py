"""Recurrent encoder–decoders: token by token equals all at once, padding is neutral, and toys are learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask.errors import UnmaskError
from unmask.models.recurrent_decoder import BahdanauDecoder, InputFeedingDecoder, LuongDecoder
from unmask.models.seq2seq import SIZES, Seq2Seq
from unmask.nn import backwards
from unmask.objectives import NextToken, ScheduledSampling
from unmask.types import Batch, Head, Target

V, S, T = 13, 6, 5
WIRINGS = {
    "none": {"attention": "none", "bidirectional": False},
    "none-reversed": {"attention": "none", "bidirectional": False, "reverse": True},
    "none-both": {"attention": "none"},
    "dot": {"attention": "dot"},
    "general": {"attention": "general", "reverse": True},
    "feeding": {"attention": "general", "input_feeding": True},
    "feeding-dot": {"attention": "dot", "input_feeding": True, "bidirectional": False},
    "additive": {"attention": "additive", "tied": False},
}
wirings = pytest.mark.parametrize("wiring", list(WIRINGS))
cells = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])


def config(wiring="general", **changes) -> Seq2Seq:
    given = {"vocabulary": V, "dim": 4, "hidden": 6, "layers": 2, "scale": 0.7, **WIRINGS[wiring], **changes}
    return Seq2Seq(**given)


def built(wiring="general", **changes):
    return config(wiring, **changes).build().double().eval()


def tokens(rows, places, seed=0):
    return torch.randint(3, V, (rows, places), generator=torch.Generator().manual_seed(seed))


def padded(rows: list[list[int]]) -> Batch:
    """One sequence a row, of unequal lengths."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    documents = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return Batch(ids, documents=None if bool(documents.all()) else documents)


def sources(lengths, seed=1) -> Batch:
    return padded([[*tokens(1, size - 1, seed + i)[0].tolist(), 2] for i, size in enumerate(lengths)])


def logits(model, batch):
    return model.heads["next"](model(batch))


@wirings
def test_what_depends_on_the_source_alone_is_kept_once(wiring):
    model, source = built(wiring), sources([4, 6])
    state = model.prefill(source, 5)
    if model.config.attention == "none":
        assert state.keys is None
    else:
        assert len(state.keys.values) == 2
        kept = state.keys
        state.select(torch.tensor([1, 1, 0, 4, 3, 9, 9, 9, 9, 5]))
        assert state.keys is kept
        state.select(torch.tensor([5, 6, 7, 8, 9]))
        assert len(state.keys.values) == 1


@pytest.mark.parametrize("wiring", ["dot", "general", "feeding", "additive"])
def test_alignments_are_shares_of_the_real_tokens(wiring):
    model, source = built(wiring), sources([3, 6])
    batch = Batch(tokens(2, T), source=source)
    shares = model.alignment(batch)
    assert shares.shape == (2, T, 6)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, T, dtype=torch.double))
    assert shares[0, :, 3:].abs().sum() == 0
    assert (shares[0, :, :3] > 0).all()
    torch.testing.assert_close(model(batch), model(batch))
    with pytest.raises(UnmaskError, match="no attention"):
        built("none").alignment(batch)


def test_alignment_is_of_the_tokens_where_they_stand_though_read_from_the_end():
    """The state at a token that is read first knows of no other token: it cannot change with them."""
    model = built("dot", bidirectional=False, reverse=True)
    x = torch.randn(2, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([3, 4])
    outputs, _ = model.encoder(x, lengths)
    changed = x.clone()
    changed[0, :2], changed[1, :3] = 0, 0
    same, _ = model.encoder(changed, lengths)
    torch.testing.assert_close(same[0, 2], outputs[0, 2])
    torch.testing.assert_close(same[1, 3], outputs[1, 3])
    assert not torch.allclose(same[0, 0], outputs[0, 0])


def test_backwards_leaves_the_padding_where_it_is():
    x = torch.arange(8).view(2, 4, 1)
    assert backwards(x, torch.tensor([3, 1]))[..., 0].tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
    assert torch.equal(backwards(x, None), x.flip(1))


def test_luong_is_as_published():
    """Section 3: the attentional vector, written out for one token."""
    model = built("dot", layers=1, cell="gru", bidirectional=False)
    decoder, source, written = model.decoder, sources([4]), tokens(1, 1)
    assert type(decoder) is LuongDecoder
    states, last = model.encoder.network(model.source(source.tokens))
    h = decoder.network.cell(0).step(model.target(written)[:, 0], last.layer(0))[0][0]
    weights = torch.stack([h @ state for state in states[0]]).softmax(0)
    c = sum(w * state for w, state in zip(weights, states[0], strict=True))
    expected = torch.tanh(decoder.combine.weight @ torch.cat([c, h]))
    torch.testing.assert_close(model(Batch(written, source=source))[0, 0], expected)


def test_bahdanau_is_as_published():
    """Attention from the state before the token; its context is an input; the output is a maxout."""
    model = built("additive", layers=1, cell="gru")
    decoder, source, written = model.decoder, sources([4]), tokens(1, 1)
    assert type(decoder) is BahdanauDecoder
    states, both = model.encoder.network(model.source(source.tokens))
    first = torch.tanh(model.encoder.bridge.hidden(torch.cat([both.hidden[0], both.hidden[1]], -1)))[0]
    part = decoder.attention
    scores = [part.energy(torch.tanh(part.query(first) + part.key(state))) for state in states[0]]
    weights = torch.cat(scores).softmax(0)
    c = sum(w * state for w, state in zip(weights, states[0], strict=True))
    x = model.target(written)[0, 0]
    start = model.encoder.bridge(both).layer(0)
    torch.testing.assert_close(start.hidden[0], first)
    h = decoder.network.cell(0).step(torch.cat([x, c])[None], start)[0][0]
    t = decoder.output(torch.cat([h, x, c]))
    torch.testing.assert_close(model(Batch(written, source=source))[0, 0], torch.maximum(t[0::2], t[1::2]))


def test_input_feeding_reads_the_last_attentional_vector():
    model, source, written = built("feeding"), sources([4, 3]), tokens(2, 3)
    assert type(model.decoder) is InputFeedingDecoder
    hidden = model(Batch(written, source=source))
    state = model.prefill(source)
    for t in range(2):
        model.decode_step(written[:, t], state)
        torch.testing.assert_close(state.fed, hidden[:, t])
    state.fed = torch.zeros_like(state.fed)
    model.decode_step(written[:, 2], state)
    assert not torch.allclose(state.fed, hidden[:, 2])


def test_weights_are_shared_as_the_config_says():
    model = built("general", dim=6)
    assert model.source.token is model.target.token is model.heads["next"].token
    assert built("general", dim=6, tied=False).heads["next"].weight is not model.target.token.weight
    two = built("general", source_vocabulary=7)
    assert two.source.token.num_embeddings == 7
    assert two.parameters_total == built("general").parameters_total + 7 * 4


def test_a_seed_gives_the_same_weights_within_the_scale():
    one, two, other = config(scale=0.1).build(seed=1), config(scale=0.1).build(seed=1), config(scale=0.1).build(seed=2)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.abs().max() <= 0.1
    assert not torch.equal(one.decoder.combine.weight, other.decoder.combine.weight)
    assert one.target.token.weight[0].abs().sum() == 0


@cells
def test_gates_start_like_matrices_of_their_own_and_the_forget_gate_open(cell):
    model = config("none-both", cell=cell, scale=None, hidden=8).build()
    assert model.target.token.weight[0].abs().sum() == 0
    for network in (model.encoder.network, model.decoder.network):
        for name, parameter in network.kernel.named_parameters():
            gates = parameter.split(network.hidden)
            for i, gate in enumerate(gates):
                if gate.dim() == 2:
                    bound = (6 / sum(gate.shape)) ** 0.5
                    assert 0.6 * bound < gate.abs().max() <= bound
                else:
                    assert gate.eq(float(cell == "lstm" and i == 1 and "ih" in name)).all()


@wirings
@cells
def test_every_parameter_learns(wiring, cell):
    model = config(wiring, cell=cell).build()
    batch = Batch(tokens(2, T), source=sources([3, 6]))
    logits(model, batch).logsumexp(-1).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not still


def test_sizes_build():
    for size in ("tiny", "small"):
        assert config("feeding", **SIZES[size]).build(seed=None).parameters_total > 1e5


def test_bad_input_is_named():
    with pytest.raises(UnmaskError, match="no source"):
        built()(Batch(tokens(1, T)))
    with pytest.raises(UnmaskError, match="Row 1 of the batch has 0 tokens"):
        built()(Batch(tokens(2, T), source=Batch(tokens(2, 3), documents=torch.tensor([[1, 1, 1], [0, 0, 0]]))))
    with pytest.raises(UnmaskError, match="7 tokens is longer than the 5"):
        built(length=5)(Batch(tokens(1, T), source=sources([7])))
    with pytest.raises(UnmaskError, match="Token id 99 does not exist"):
        built().prefill(Batch(torch.tensor([[99]])))
    with pytest.raises(UnmaskError, match="evenly"):
        config(hidden=7).build()
    for wiring in ("none", "additive"):
        with pytest.raises(UnmaskError, match="Input feeding"):
            config(wiring, input_feeding=True).build()
    with pytest.raises(UnmaskError, match="did you mean 'next_token'"):
        config().build({"nxt": Head("next_tokn")})
    with pytest.raises(UnmaskError, match="attention"):
        config().replace(attention="dots")


# ------------------------------------------------------------------------------------------------ toys are learned


def digits(rng: np.random.Generator, rows: int, turn: int) -> Batch:
    """Strings of digits (ids 3 to 12) and the same, or the same reversed."""
    texts = [rng.integers(3, V, rng.integers(2, 6)).tolist() for _ in range(rows)]
    source = padded([[*text, 2] for text in texts])
    target = padded([[1, *text[::turn]] for text in texts])
    answers = padded([[*text[::turn], 2] for text in texts]).tokens
    real = torch.ones_like(answers, dtype=torch.bool) if target.documents is None else target.documents > 0
    places = real.flatten().nonzero().flatten()
    goal = Target(places, answers.flatten()[places])
    return Batch(target.tokens, documents=target.documents, source=source, targets={"next": goal})


def written(model, source: Batch, most: int) -> list[list[int]]:
    """Greedy answers."""
    state = model.prefill(source)
    token, columns = state.first, []
    for _ in range(most):
        token = model.decode_step(token, state).argmax(-1)
        columns.append(token)
    rows = torch.stack(columns, 1).tolist()
    return [row[: row.index(2)] if 2 in row else row for row in rows]


def learned(turn, steps, objective=None, **changes) -> float:
    """Share of 100 unseen strings that come out right after some steps of training."""
    model = Seq2Seq(vocabulary=V, dim=32, hidden=64, dropout=0.0, **changes).build(seed=0)
    objective = objective or NextToken()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        loss = objective.loss(model, digits(rng, 32, turn))["next"]
        optimiser.zero_grad()
        (loss.sum / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.eval()
    test = digits(np.random.default_rng(1), 100, turn)
    said = written(model, test.source, 8)
    meant = [row[1 : 1 + size] for row, size in zip(test.tokens.tolist(), (test.lengths - 1).tolist(), strict=True)]
    return float(np.mean([a == b for a, b in zip(said, meant, strict=True)]))


@pytest.mark.parametrize(("wiring", "cell"), [("general", "lstm"), ("feeding", "lstm"), ("additive", "gru")])
def test_attention_learns_to_reverse(wiring, cell):
    assert learned(-1, 120, cell=cell, **WIRINGS[wiring]) > 0.9


def test_a_fixed_vector_learns_more_slowly():
    assert 0.3 < learned(-1, 120, **WIRINGS["none"]) < learned(-1, 120, **WIRINGS["dot"])


def test_scheduled_sampling_trains():
    assert learned(1, 120, ScheduledSampling(0.2), **WIRINGS["general"]) > 0.8
