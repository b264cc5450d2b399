"""Models that read from left to right: nothing looks ahead, packing changes nothing, writing from a cache neither."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from unmask.errors import UnmaskError
from unmask.generate import Limits, Sampling, Search, generate, generate_all
from unmask.huggingface.table import as_heads
from unmask.models.causal import CausalModel, ends, left_aligned
from unmask.models.gpt import Gpt, Gpt2
from unmask.nn import Attention, Block, FeedForward, Mask, Residual, Stack, T5Bias
from unmask.types import Batch

V, END = 23, 3
PAGES = [Gpt, Gpt2]


def made(page=Gpt2, heads=None, **changes) -> CausalModel:
    config = page(vocabulary=V, dim=16, layers=2, heads=2, length=24, padding=0).replace(**changes)
    model = config.build(heads, seed=None)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0.0, 0.4, generator=generator)
    return model.double().eval()


def sequences(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(4, V, n) for n in lengths]


def test_where_sequences_begin_and_end():
    documents = torch.tensor([[1, 1, 2, 2, 2, 0], [1, 2, 2, 3, 3, 3]])
    rows, places = Batch(torch.zeros(2, 6, dtype=torch.long), documents=documents), torch.tensor([1, 2, 4, 6, 7, 11])
    assert [found.tolist() for found in ends(rows, places)] == [[0, 2, 2, 6, 7, 9], [1, 4, 4, 6, 8, 11]]
    assert [found.tolist() for found in ends(Batch(rows.tokens), places)] == [[0, 0, 0, 6, 6, 6], [5, 5, 5, 11, 11, 11]]


def next_logits(model, tokens):
    """By one forward over all of them."""
    with torch.no_grad():
        hidden = model(Batch(torch.as_tensor(tokens)[None]))
        return model.answer("next", hidden, torch.tensor([len(tokens) - 1]))[0]


@pytest.mark.parametrize("page", PAGES)
def test_a_beginning_that_leaves_no_place_is_named(page):
    whole = Batch(torch.full((2, 25), 5), documents=(torch.arange(25) < torch.tensor([[3], [25]])).long())
    with pytest.raises(UnmaskError, match=r"Prompt 1 of the batch has 25 tokens, .*shorten it"):
        generate(made(page), whole, Search(length_penalty=0.6), end=END)
    (found,) = generate(made(page), Batch(torch.full((1, 24), 5)), Search(), end=END)
    assert len(found[0].token_log_probabilities) == 1  # the last token needs no place


def greedy(model, source, most):
    tokens, written = list(source), []
    while len(written) < most:
        token = int(next_logits(model, tokens).argmax())
        written.append(token)
        tokens.append(token)
        if token == END:
            break
    return [t for t in written if t != END]


@pytest.mark.parametrize("page", PAGES)
def test_greedy_search_is_a_plain_loop_and_a_batch_is_its_rows(page):
    model = made(page)
    sources = [s.tolist() for s in sequences([3, 9, 1, 5, 9])]
    search = Search(limits=Limits(max_length=7))
    found = list(generate_all(model, sources, search, end=END, pad=0, tokens=24))
    assert [list(best.tokens) for (best,) in found] == [greedy(model, source, 7) for source in sources]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 10), min_size=2, max_size=4), st.integers(1, 4), st.integers(0, 99))
def test_a_beam_in_a_batch_is_the_same_alone(lengths, beams, seed):
    model = made()
    sources = [s.tolist() for s in sequences(lengths, seed)]
    search = Search(beam_size=beams, n_best=beams, limits=Limits(max_length=6))
    together = generate_all(model, sources, search, end=END, pad=0)
    for source, hypotheses in zip(sources, together, strict=True):
        (alone,) = generate(model, Batch(torch.tensor([source])), search, end=END)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in alone]
        for one in hypotheses:  # what it says of a text is what the model says of it
            whole = [*source, *one.tokens, *([END] if one.finished else [])]
            said = sum(
                float(next_logits(model, whole[:i]).log_softmax(-1)[whole[i]]) for i in range(len(source), len(whole))
            )
            assert one.log_probability == pytest.approx(said, abs=1e-4)


def test_samples_are_drawn_from_the_distribution_of_the_model():
    model = made()
    sampling = Sampling(samples=400, limits=Limits(max_length=1))
    source = [5, 9, 4]
    (drawn,) = generate(model, Batch(torch.tensor([source])), sampling, end=END)
    p = next_logits(model, source).softmax(-1)
    counts = torch.zeros(V).double()
    for one in drawn:
        counts[one.tokens[0] if one.tokens else END] += 1
    assert float((counts / 400 - p).abs().sum()) < 0.25


def test_a_text_ends_where_the_positions_do():
    model = made()
    search = Search(limits=Limits(min_length=98, max_length=99))
    for length in (24, 20, 1):
        ((best,),) = generate(model, Batch(torch.tensor([[5] * length])), search, end=END)
        assert len(best.tokens) + best.finished == 25 - length
    with pytest.raises(UnmaskError, match="24 positions"):
        generate(model, Batch(torch.tensor([[5] * 26])), search, end=END)


def test_what_cannot_be_gone_on_with_is_said():
    tokens = torch.tensor([[5, 6], [0, 0]])
    with pytest.raises(UnmaskError, match="Row 1 has no token"):
        made().prefill(Batch(tokens, documents=(tokens > 0).long()))
    with pytest.raises(UnmaskError, match="next"):
        made(heads=as_heads({"classification": 2})).prefill(Batch(tokens))
    with pytest.raises(UnmaskError, match="positions"):
        made()(Batch(torch.full((1, 25), 4)))


def test_what_needs_the_words_behind_is_refused():
    for name in ("mlm", "pairs"):
        with pytest.raises(UnmaskError, match=r"There is no head of a Gpt2? '(masked_token|vectors)'.*next_token"):
            made(heads=as_heads({name: 2}))


def test_rows_that_were_filled_up_at_the_left_move_there():
    tokens = torch.tensor([[0, 0, 7, 8], [4, 5, 6, 7]])
    moved, lengths = left_aligned(Batch(tokens, documents=(tokens > 0).long()))
    assert moved[0, :2].tolist() == [7, 8]
    assert lengths.tolist() == [2, 4]


def test_what_the_stack_adds_by_distance_goes_on_in_every_hypothesis():
    """Beginnings of 5 tokens, then three tokens of two hypotheses each."""
    torch.manual_seed(0)
    block = Block(Residual(Attention(8, 2)), Residual(FeedForward(8, 8)))
    stack = Stack([block, block], position=T5Bias(2, 8, 16, causal=True)).eval().requires_grad_(False)
    nn.init.normal_(stack.position.table.weight)
    x_BTD, fed_TND = torch.randn(2, 5, 8), torch.randn(3, 4, 8)
    cache = stack.begin()
    stack(x_BTD, cache=cache)
    with pytest.raises(UnmaskError, match="prompts of one length"):
        cache.fork(2, torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))
    cache.fork(2)
    for token_ND in fed_TND:
        said_BWD = stack(token_ND.view(2, 2, 8), cache=cache)
    whole = torch.cat([x_BTD.repeat_interleave(2, 0), fed_TND.transpose(0, 1)], 1)
    expected = stack(whole, mask=Mask(causal=True))[:, -1]
    torch.testing.assert_close(said_BWD.flatten(0, 1), expected, rtol=1e-5, atol=1e-5)


def test_positions_by_distance_cannot_be_forked():
    block = Block(Residual(Attention(8, 2, position=T5Bias(2))), Residual(FeedForward(8, 8)))
    stack = Stack([block])
    cache = stack.begin()
    stack(torch.zeros(2, 3, 8), cache=cache)
    cache.fork(1)
    with pytest.raises(UnmaskError, match="depends on distances"):
        cache.fork(2)
    with pytest.raises(UnmaskError, match="depends on distances"):
        cache.fork(1, torch.ones(2, 3, dtype=torch.bool))
