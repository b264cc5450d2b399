"""Attention by sequence boundaries: where it is used, and that it equals attention by the mask. On a CPU a stand-in
takes the place of the kernel, one sequence after the other; on a GPU, `make test-gpu` runs the kernel itself."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels import varlen as module
from unmask.kernels.varlen import Varlen
from unmask.models.bert import Bert
from unmask.models.gpt import Gpt
from unmask.models.modernbert import ModernBert
from unmask.models.transformer import Transformer
from unmask.nn import Attention, Bias, Mask, T5Bias, record_attention
from unmask.types import Batch, Target, boundaries_of

DOCUMENTS = torch.tensor([[1, 1, 2, 2, 2, 0, 0], [1, 2, 2, 2, 3, 3, 3]])
POSITIONS = torch.tensor([[0, 1, 0, 1, 2, 0, 0], [0, 0, 1, 2, 0, 1, 2]])
QUIET = {"dropout": 0.0, "attention_dropout": 0.0}
MODELS = {
    "bert": Bert(vocabulary=50, dim=32, heads=2, hidden=64, layers=2, length=16, **QUIET),
    "gpt": Gpt(vocabulary=50, dim=32, heads=2, layers=2, length=16, embedding_dropout=0.0, **QUIET),
    "modernbert": ModernBert(vocabulary=50, dim=32, heads=2, hidden=48, layers=2, length=16, local=2),
}


def weights(q: Tensor, k: Tensor, causal: bool, scale: float, left: int | None, right: int | None) -> Tensor:
    """[H, T, T] of one sequence, from [T, H, width].

    left, right  how many tokens before and after itself a token sees; None: all
    """
    scores = scale * torch.einsum("thk,shk->hts", q, k)
    apart = torch.arange(len(q)) - torch.arange(len(q))[:, None]  # of the key from the query
    hidden = (apart > 0) & causal
    hidden |= apart < -(len(q) if left is None else left)
    hidden |= apart > (len(q) if right is None else right)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


@pytest.fixture
def calls(monkeypatch):
    """What the stand-in was called with: (ends, longest, dropout, causal) each time."""
    seen: list[tuple[list[int], int, float, bool]] = []

    def forward(q, k, v, ends, ends_k, longest, longest_k, p, causal, debug, *, scale=None, **sides):
        reach = (sides.get("window_size_left"), sides.get("window_size_right"))
        assert torch.equal(ends, ends_k)
        assert (longest, debug) == (longest_k, False)
        seen.append((ends.tolist(), longest, p, causal))
        said = torch.empty_like(q)
        for begin, end in pairwise(ends.tolist()):
            here = slice(begin, end)
            said[here] = torch.einsum("hts,shk->thk", weights(q[here], k[here], causal, scale, *reach), v[here])
        none = torch.empty(0)
        return said, torch.zeros(q.shape[1], len(q)), none, none.clone(), none.clone()

    def backward(dy, q, k, v, y, lse, ends, ends_k, longest, longest_k, p, causal, rng, unused, *, scale=None, **sides):
        reach = (sides.get("window_size_left"), sides.get("window_size_right"))
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        for begin, end in pairwise(ends.tolist()):
            here = slice(begin, end)
            p_HTT = weights(q[here], k[here], causal, scale, *reach)
            dp_HTT = torch.einsum("thk,shk->hts", dy[here], v[here])
            ds_HTT = scale * p_HTT * (dp_HTT - (dp_HTT * p_HTT).sum(-1, keepdim=True))
            dq[here] = torch.einsum("hts,shk->thk", ds_HTT, k[here])
            dk[here] = torch.einsum("hts,thk->shk", ds_HTT, q[here])
            dv[here] = torch.einsum("hts,thk->shk", p_HTT, dy[here])
        return dq, dk, dv

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", forward, "CPU")
        library.impl("_flash_attention_backward", backward, "CPU")
        monkeypatch.setattr(module, "DTYPES", (torch.float32, torch.bfloat16))
        monkeypatch.setattr(module, "has_kernel", lambda device: True)
        yield seen


def batch_of(vocabulary: int = 50) -> Batch:
    tokens = torch.randint(5, vocabulary, DOCUMENTS.shape, generator=torch.Generator().manual_seed(0))
    return Batch(tokens, documents=DOCUMENTS, positions=POSITIONS)


def said_and_gradients(model: nn.Module, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """Of the places that are no padding, which nobody reads."""
    model.zero_grad()
    hidden = model(batch)
    real = hidden[DOCUMENTS > 0]
    (real * torch.linspace(-1, 1, real.shape[-1])).sum().backward()
    return real.detach(), [torch.zeros(()) if p.grad is None else p.grad.clone() for p in model.parameters()]


# ------------------------------------------------------------------------------------------------ what boundaries are


def test_boundaries_are_read_off_the_documents():
    assert boundaries_of(DOCUMENTS).tolist() == [0, 2, 5, 7, 8, 11, 14, 14, 14]  # two of the eight are empty
    assert boundaries_of(DOCUMENTS).dtype is torch.int32
    assert boundaries_of(torch.ones(1, 5, dtype=torch.int64)).tolist() == [0, 5]
    assert boundaries_of(torch.ones(2, 0, dtype=torch.int64)).tolist() == [0]
    assert [len(boundaries_of(torch.arange(n)[None])) - 1 for n in (129, 256, 257, 512, 600)] == [
        256,
        256,
        512,
        512,
        768,
    ]


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=5))
def test_boundaries_part_the_rows_where_the_document_changes_and_nowhere_else(rows):
    documents = torch.tensor(rows)
    ends = boundaries_of(documents).tolist()
    assert (ends[0], ends[-1]) == (0, documents.numel())
    assert (len(ends) - 1).bit_count() == 1
    number = torch.bucketize(torch.arange(documents.numel()), torch.tensor(ends[1:]), right=True)
    together_by_number = number[:, None] == number[None]
    flat, row = documents.flatten(), torch.arange(documents.numel()) // 6
    together = (flat[:, None] == flat[None]) & (row[:, None] == row[None])
    changes = torch.cat([torch.zeros(1, dtype=torch.long), (flat[1:] != flat[:-1]).long().cumsum(0)])
    assert torch.equal(together_by_number, together & (changes[:, None] == changes[None]))


def test_a_batch_that_moves_has_boundaries():
    target = Target(torch.tensor([1]), torch.tensor([7]))
    batch = Batch(torch.ones_like(DOCUMENTS), documents=DOCUMENTS, source=batch_of()).with_targets(mlm=target)
    known = batch.with_boundaries()
    assert torch.equal(known.boundaries, boundaries_of(DOCUMENTS))
    assert torch.equal(known.source.boundaries, known.boundaries)
    assert known.with_boundaries().boundaries is known.boundaries  # not read off twice
    assert known.rows(1, 2).boundaries is None
    assert batch.to("cpu").boundaries is None  # it stays where it is
    assert batch.to("meta").boundaries.shape == known.boundaries.shape
    assert Batch(torch.ones(1, 3, dtype=torch.long)).to("meta").boundaries is None  # a row is a sequence


@pytest.mark.parametrize(
    ("capability", "built", "allowed", "cuda", "known"),
    [
        ((9, 0), True, True, "13.0", True),
        ((8, 0), True, True, "12.6", True),
        ((7, 5), True, True, "12.6", False),
        ((9, 0), False, True, "12.6", False),
        ((9, 0), True, False, "12.6", False),
        ((9, 4), True, True, None, False),  # AMD
    ],
)
def test_which_devices_have_the_kernel(capability, built, allowed, cuda, known, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: built)
    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: allowed)
    assert module.has_kernel(torch.device("cuda:0")) is known
    assert not module.has_kernel(torch.device("cpu"))


# ------------------------------------------------------------------------------------------------ equal numbers


@pytest.mark.parametrize(("name", "causal"), [("bert", False), ("gpt", True), ("modernbert", False)])
def test_a_model_says_and_learns_the_same(name, causal, calls):
    model = MODELS[name].build().train()
    wanted, gradients = said_and_gradients(model, batch_of())
    assert not calls
    batch = batch_of().with_boundaries()
    said, learned = said_and_gradients(model, batch)
    assert calls == [(batch.boundaries.tolist(), 7, 0.0, causal)] * 2
    torch.testing.assert_close(said, wanted)
    torch.testing.assert_close(learned, gradients)


def test_a_translator_says_and_learns_the_same(calls):
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("heads", 2), ("hidden", 64))}
    page = Transformer(dim=32, vocabulary=50, encoder_layers=1, decoder_layers=2, dropout=0.0, **sizes)
    model = page.build().train()
    batch = batch_of()
    batch = Batch(batch.tokens, documents=DOCUMENTS, positions=POSITIONS, source=batch_of())
    wanted, gradients = said_and_gradients(model, batch)
    said, learned = said_and_gradients(model, batch.with_boundaries())
    assert [causal for *_, causal in calls] == [False, True, True]  # what crosses over goes by the mask
    torch.testing.assert_close(said, wanted)
    torch.testing.assert_close(learned, gradients)


def test_a_compiled_model_is_one_graph_for_any_number_of_sequences(calls):
    model = MODELS["bert"].build().eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    one = torch.ones_like(DOCUMENTS)
    for documents in (DOCUMENTS, one):
        batch = Batch(batch_of().tokens, documents=documents, positions=POSITIONS).with_boundaries()
        with torch.no_grad():
            torch.testing.assert_close(compiled(batch), model(batch))
    assert len(calls) == 8


def test_shapes_and_strides_are_those_that_pytorch_expects_of_the_kernel():
    q, k, v = (torch.empty(2, 4, 7, 16, device="meta", requires_grad=True) for _ in range(3))
    varlen = Varlen(torch.empty(9, dtype=torch.int32, device="meta"), 7, False)
    said = varlen.attend(q, k, v, scale=0.25, rate=0.1)
    assert said.shape == (2, 4, 7, 16)
    said.sum().backward()
    assert q.grad.shape == k.grad.shape == v.grad.shape == q.shape


# ------------------------------------------------------------------------------------------------ where it is taken


def masked(**more) -> Mask:
    return Mask(documents=DOCUMENTS, boundaries=boundaries_of(DOCUMENTS), **more)


def test_dropout_is_drawn_while_training_alone(calls):
    attention, x = Attention(32, 2, dropout=0.25), torch.randn(2, 7, 32)
    for training in (True, False):
        attention.train(training)(x, bias=masked().bias(7, 7))
    assert [p for _, _, p, _ in calls] == [0.25, 0.0]


@pytest.mark.parametrize(
    ("mask", "position"),
    [
        (masked(lengths=torch.tensor([7, 4])), None),
        (masked() & Mask(documents=DOCUMENTS), None),
        (masked(), T5Bias(2, 8, 16)),  # which the kernel cannot add
    ],
)
def test_where_more_is_hidden_than_other_sequences_the_mask_is_taken(mask, position, calls):
    Attention(32, 2, position=position)(torch.randn(2, 7, 32), bias=mask.bias(7, 7))
    assert not calls


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_within_each_sequence_is_that_of_the_mask(causal, calls):
    attention, x = Attention(32, 2), torch.randn(2, 7, 32)
    bias = masked(window=2, causal=causal).bias(7, 7)
    found = attention(x, bias=bias)
    assert len(calls) == 1
    torch.testing.assert_close(found, attention(x, bias=Bias(bias.tensor)))


def test_masks_that_are_joined_keep_their_boundaries():
    for mask in (masked() & Mask(causal=True), Mask(causal=True) & masked()):
        varlen = mask.bias(7, 7).varlen
        assert varlen.causal
        assert torch.equal(varlen.boundaries, boundaries_of(DOCUMENTS))


def test_where_weights_are_looked_at_they_are_made(calls):
    attention = Attention(32, 2)
    with record_attention(attention) as maps:
        attention(torch.randn(2, 7, 32), bias=masked().bias(7, 7))
    assert len(maps) == 1
    assert not calls


@pytest.mark.parametrize(
    "attention",
    [Attention(24, 2), Attention(32, 4, kv_heads=2), Attention(1_040, 2), Attention(32, 2).double()],
    ids=["width 12", "fewer heads of keys", "width 520", "float64"],
)
def test_what_the_kernel_does_not_take_goes_by_the_mask(attention, calls):
    weight = attention.query.weight
    attention(torch.randn(2, 7, weight.shape[1], dtype=weight.dtype), bias=masked().bias(7, 7))
    assert not calls


def test_boundaries_without_documents_are_refused():
    with pytest.raises(UnmaskError, match="A mask has boundaries of documents, but no documents"):
        Mask(boundaries=boundaries_of(DOCUMENTS))


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_the_kernel_says_and_learns_what_the_mask_says(name):
    model = MODELS[name].build().cuda().train()
    if not module.has_kernel(torch.device("cuda")):
        pytest.skip("this GPU, or this PyTorch, has no flash attention")
    batch = batch_of().to("cuda")
    without = Batch(batch.tokens, documents=batch.documents, positions=batch.positions)
    real, found = (DOCUMENTS > 0).cuda(), []
    for one in (batch, without):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model(one)
        hidden[real].float().square().sum().backward()
        found.append((hidden[real].float(), model.embedding.token.weight.grad.clone()))
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=0.05)
