"""RecurrentNetwork: causal, the same packed or single, written step by step, truncated in time, and as a folder."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import huggingface
from unmask.data import collate
from unmask.errors import UnmaskError
from unmask.generate import Limits, Sampling, Search, generate
from unmask.huggingface.table import as_heads
from unmask.models import recurrent_model
from unmask.models.recurrent import RecurrentNetwork
from unmask.nn.sequences import Sequences
from unmask.objectives import CausalLM, NextToken, SequenceAutoencoder
from unmask.types import Batch, Document, Example, Target

PAD, START, END = 0, 2, 3
CELLS = ("rnn", "lstm", "gru")


def network(**changes):
    return RecurrentNetwork(vocabulary=20, dim=8, hidden=12, layers=2, dropout=0.0).replace(**changes)


def built(heads=None, **changes):
    return network(**changes).build(heads, seed=1).eval()


def examples(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [Example(rng.integers(4, 20, n)) for n in lengths]


@pytest.mark.parametrize("side", ["left", "right"])
def test_beginnings_are_filled_up_on_either_side(side):
    model, sources = built(), [e.tokens.tolist() for e in examples([2, 5, 1])]
    rows = [[PAD] * (5 - len(s)) + s if side == "left" else s + [PAD] * (5 - len(s)) for s in sources]
    tokens = torch.tensor(rows)
    search = Search(limits=Limits(max_length=6))
    together = generate(model, Batch(tokens, documents=(tokens != PAD).long()), search, end=END)
    alone = [generate(model, Batch(torch.tensor([source])), search, end=END)[0] for source in sources]
    assert [found[0].tokens for found in together] == [found[0].tokens for found in alone]
    with pytest.raises(UnmaskError, match="Row 1 has no token to continue from"):
        model.prefill(Batch(tokens[:2], documents=torch.tensor([[1] * 5, [0] * 5])))


@pytest.mark.parametrize("tbptt", [None, 3])
def test_padding_that_is_read_or_left_out_gives_the_same_answers_and_gradients(monkeypatch, tbptt):
    batch = written([12, 2, 5, 9])
    found = []
    for most in (0, 100):
        monkeypatch.setattr(recurrent_model, "MOST_PADDED", most)
        model = built(as_heads({"next": 0, "classification": 3}), tbptt=tbptt)
        hidden = model(batch)
        model.answer("classification", hidden, batch.starts, batch).square().sum().backward(retain_graph=True)
        NextToken().score(model, hidden, batch).sum.backward()
        found.append((hidden, *(p.grad for p in model.parameters())))
    for left_out, read in zip(*found, strict=True):
        torch.testing.assert_close(read, left_out, atol=1e-5, rtol=1e-4)


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_sequences_are_found_and_come_back(rows, padding):
    """Lengths of the sequences of each row, packed as they are."""
    width = max(map(sum, rows)) + padding
    documents = torch.zeros(len(rows), width, dtype=torch.long)
    for row, lengths in zip(documents, rows, strict=True):
        place = 0
        for number, n in enumerate(lengths, 1):
            row[place : place + n] = number
            place += n
    sequences = Sequences.of(documents)
    assert sequences.lengths.tolist() == sorted((n for row in rows for n in row), reverse=True)
    x = torch.arange(1.0, documents.numel() + 1).view(*documents.shape, 1)
    unpacked = sequences.unpack(x)
    for row, n in zip(unpacked[..., 0], sequences.lengths.tolist(), strict=True):
        assert torch.equal(row[:n], torch.arange(n) + row[0])  # neighbours stay neighbours
        assert not row[n:].any()
    assert torch.equal(sequences.pack(unpacked), x * (documents > 0)[..., None])


def test_the_summary_is_the_last_state_forward_and_the_first_backward():
    """Held against torch's own network with the same weights."""
    model = built(as_heads({"classification": 3}), bidirectional=True, layers=1)
    tokens = torch.from_numpy(examples([6])[0].tokens)[None]
    _, (last, _) = model.stack.blocks[0].network.kernel(model.embedding(tokens))
    expected = model.heads["classification"](torch.cat([last[0], last[1]], -1))
    found = model.answer("classification", model(Batch(tokens)), torch.tensor([3]), Batch(tokens))
    torch.testing.assert_close(found, expected)


# ------------------------------------------------------------------------------------------------ writing


def test_it_continues_texts_greedily_by_beam_and_by_chance():
    model = built()
    prefixes = Batch(torch.tensor([[START, 5, 6], [START, 7, PAD]]), documents=torch.tensor([[1, 1, 1], [1, 1, 0]]))
    limits = Limits(max_length=6)
    greedy = [h[0].tokens for h in generate(model, prefixes, Search(beam_size=1, limits=limits), end=END)]
    tokens = [START, 5, 6]
    for said in greedy[0]:
        place = torch.tensor([len(tokens) - 1])
        assert model.answer("next", model(Batch(torch.tensor([tokens]))), place).argmax() == said
        tokens.append(said)
    assert greedy == [h[0].tokens for h in generate(model, prefixes, Search(beam_size=1, limits=limits), end=END)]
    alone = generate(model, Batch(torch.tensor([[START, 7]])), Search(beam_size=3, limits=limits), end=END)
    assert alone[0][0].tokens == generate(model, prefixes, Search(beam_size=3, limits=limits), end=END)[1][0].tokens
    drawn = Sampling(samples=3, limits=limits)
    first, second = (generate(model, prefixes, drawn, end=END) for _ in range(2))
    assert [[h.tokens for h in row] for row in first] == [[h.tokens for h in row] for row in second]


# ------------------------------------------------------------------------------------------------ truncation


def gradients(model, batch):
    model.zero_grad()
    NextToken().loss(model, batch)["next"].sum.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def written(lengths):
    def example(e):
        return Example(e.tokens[:-1], targets={"next": (np.arange(len(e.tokens) - 1), e.tokens[1:])})

    return collate.pad([example(e) for e in examples(lengths)], PAD)


def test_a_window_that_covers_all_gives_the_full_gradient_and_a_short_one_does_not():
    batch = written([12, 5, 9])
    full, covering, short = (gradients(built(tbptt=n), batch) for n in (None, 16, 2))
    for name in full:
        torch.testing.assert_close(covering[name], full[name])
    assert not torch.allclose(
        short["stack.blocks.0.network.kernel.weight_hh_l0"],
        full["stack.blocks.0.network.kernel.weight_hh_l0"],
        rtol=1e-3,
    )


@pytest.mark.parametrize("cell", CELLS)
def test_the_state_goes_on_through_the_windows_but_not_its_gradient(cell):
    batch = Batch(torch.from_numpy(np.stack([e.tokens for e in examples([10, 10])])))
    long, cut = built(cell=cell), built(cell=cell, tbptt=4)
    torch.testing.assert_close(cut(batch), long(batch))
    # What is said at place 8, the first of the third window, depends on tokens 0 … 8 and is blamed on 8 alone.
    vectors = cut.embedding(batch.tokens).detach().requires_grad_()
    cut.read(vectors)[:, 8].sum().backward()
    assert not vectors.grad[:, :8].any()
    assert vectors.grad[:, 8].any()


@pytest.mark.parametrize("cell", CELLS)
def test_the_last_state_of_sequences_that_end_in_different_windows(cell):
    long, cut = built(cell=cell), built(cell=cell, tbptt=4)
    x = torch.randn(4, 11, 8, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([11, 8, 3, 1])
    (outputs, expected), (found_outputs, found) = (model.stack(x, lengths_N=lengths) for model in (long, cut))
    torch.testing.assert_close(found_outputs, outputs)
    torch.testing.assert_close(found.hidden, expected.hidden)
    if expected.cell is not None:
        torch.testing.assert_close(found.cell, expected.cell)


def test_the_truncated_gradient_is_that_of_windows_trained_one_by_one():
    """As the textbook has it: run a window, detach the state, run the next; the gradients add up."""
    model = built(tbptt=4)
    tokens = torch.from_numpy(np.stack([e.tokens for e in examples([13, 13])]))
    target = Target(torch.arange(24), tokens[:, 1:].reshape(-1))
    found = gradients(model, Batch(tokens[:, :-1], targets={"next": target}))
    model.zero_grad()
    state = None
    for begin in range(0, 12, 4):
        outputs, state = model.stack(model.embedding(tokens[:, begin : begin + 4]), state)
        state = state.detach()
        logits = model.heads["next"](outputs).flatten(0, 1)
        torch.nn.functional.cross_entropy(
            logits, tokens[:, begin + 1 : begin + 5].reshape(-1), reduction="sum"
        ).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, found[name], atol=1e-5, rtol=1e-4)


# ------------------------------------------------------------------------------------------------ what is learned


def documents(lists):
    return [Document([np.array(s) for s in sentences], i) for i, sentences in enumerate(lists)]


def test_every_token_of_a_document_is_guessed_once():
    rng = np.random.default_rng(0)
    found = CausalLM(START, END).sample(documents([[[5, 6, 7], [8, 9]], [[4]]]), 4, rng)
    assert [e.tokens.tolist() for e in found] == [[START, 5, 6, 7], [8, 9], [START, 4]]
    assert [e.targets["next"][1].tolist() for e in found] == [[5, 6, 7, 8], [9, END], [4, END]]


def test_the_autoencoder_reads_then_writes_the_same():
    (found,) = SequenceAutoencoder(START, END, short=0.0).sample(documents([[[5, 6, 7]]]), 12, np.random.default_rng(0))
    assert found.tokens.tolist() == [START, 5, 6, 7, END, 5, 6, 7]
    places, values = found.targets["next"]
    assert places.tolist() == [4, 5, 6, 7]
    assert values.tolist() == [5, 6, 7, END]


def train(model, objective, batches, lr=5e-3):
    optimizer = torch.optim.Adam(model.parameters(), lr)
    model.train()
    for batch in batches:
        loss = objective.loss(model, batch)["next"]
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    return loss.sum.item() / loss.count


def test_a_language_model_beats_the_unigram_entropy():
    """Cyclic text: each token follows from the one before, while all are equally frequent."""
    objective, rng = CausalLM(START, END), np.random.default_rng(0)
    texts = [[[4 + (begin + i) % 8 for i in range(20)]] for begin in range(8)]
    batch = collate.pack(objective.sample(documents(texts), 24, rng), 24, PAD)
    assert train(built(), objective, [batch] * 80, lr=2e-2) < 0.5 * math.log(8)


def test_an_autoencoder_learns_to_write_what_it_read():
    objective, rng = SequenceAutoencoder(START, END, short=0.0), np.random.default_rng(0)

    def batch():
        texts = [[rng.integers(4, 8, 3).tolist()] for _ in range(64)]
        return collate.pack(objective.sample(documents(texts), 8, rng), 8, PAD)

    model = built(hidden=48, dim=16, layers=1)
    loss = train(model, objective, (batch() for _ in range(250)), lr=1e-2)
    assert loss < 0.1 * math.log(4)
    prefix = Batch(torch.tensor([[START, 6, 4, 7, END]]))
    (said,) = generate(model, prefix, Search(beam_size=1, limits=Limits(max_length=6)), end=END)
    assert said[0].tokens[:3] == [6, 4, 7]


# ------------------------------------------------------------------------------------------------ folders


def test_a_folder_takes_another_head_and_says_what_is_new(tmp_path):
    huggingface.save(tmp_path, built())
    loaded = huggingface.load(tmp_path, heads=as_heads({"classification": 3}), seed=5)
    assert loaded.new == ("classification",)
    assert loaded.dropped == ("next",)
    first, second = (huggingface.load(tmp_path, heads=as_heads({"tagging": 3}), seed=s).model for s in (5, 5))
    assert torch.equal(first.heads["tagging"].output.weight, second.heads["tagging"].output.weight)


@pytest.mark.parametrize(
    ("heads", "changes", "sentence"),
    [
        (as_heads({"next": 0}), {"bidirectional": True}, "has seen the next token"),
        (as_heads({"mlm": 0}), {"bidirectional": True, "tbptt": 4}, "leave out tbptt"),
        (None, {"tbptt": 0}, "at least one token"),
    ],
)
def test_parts_that_do_not_go_together_are_named(heads, changes, sentence):
    with pytest.raises(UnmaskError, match=sentence):
        network(**changes).build(heads)


def test_a_sequence_that_is_too_long_is_named():
    model = built(length=4)
    model(collate.pack(examples([4, 3]), 8, PAD))  # rows may be longer than sequences
    with pytest.raises(UnmaskError, match="5 tokens is longer than the 4"):
        model(collate.pack(examples([5]), 8, PAD))


def test_a_model_without_the_head_cannot_write():
    with pytest.raises(UnmaskError, match="'next'"):
        built(as_heads({"tagging": 3})).prefill(Batch(torch.tensor([[START]])))
