"""T5: what is written from a cache is what a forward says, also in beams; packed, padded and single pairs are one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unmask.data.bitext.batching import collate_pairs, source_batch
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search, generate
from unmask.models.inference_transformer import writer_layout
from unmask.models.t5 import T5, T5Model
from unmask.objectives import NextToken
from unmask.types import Batch, Target

V, PAD, END = 29, 0, 1


def made(**fields: object) -> T5Model:
    config = T5(vocabulary=V, dim=16, heads=2, head_dim=6, hidden=20, encoder_layers=2, decoder_layers=2)
    model = config.replace(buckets=8, furthest=20, **fields).build(seed=None)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0.0, 0.3, generator=generator)
    return model.double().eval().requires_grad_(False)


MODELS = {"1.0": made(), "1.1": made(feedforward="gated-gelu", output="untied")}


def random_ids(lengths: list[int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, V, (n,), generator=generator).tolist() for n in lengths]


def logits(model: T5Model, batch: Batch) -> Tensor:
    return model.heads["next"](model(batch))


@settings(max_examples=12)
@given(st.sampled_from(sorted(MODELS)), st.integers(1, 3), st.integers(1, 4), st.integers(0, 1_000))
def test_what_a_beam_is_told_is_what_a_forward_says(version: str, B: int, W: int, seed: int) -> None:
    """W hypotheses of each source, which are repeated, reordered and dropped, over more places than buckets tell."""
    model = MODELS[version]
    generator = torch.Generator().manual_seed(seed)
    sources = random_ids(torch.randint(1, 25, (B,), generator=generator).tolist(), seed)
    state = model.prefill(source_batch(sources, PAD, END), W)
    owners = [b for b in range(B) for _ in range(W)]
    written, fed = [[] for _ in owners], state.first
    for step in range(24):
        said = model.decode_step(fed, state)
        if step % 5 == 0 or step > 21:
            batch = collate_pairs([sources[b] for b in owners], written, PAD, PAD, END)
            torch.testing.assert_close(said, logits(model, batch)[:, -1], rtol=1e-9, atol=1e-9)
        rows = torch.arange(len(owners)).view(-1, W)
        if step % 7 == 0 and len(rows) > 1:
            rows = rows[1:]
        rows = rows.gather(1, torch.randint(W, rows.shape, generator=generator)).flatten()
        state.select(rows)
        owners = [owners[i] for i in rows]
        fed = torch.randint(2, V, (len(owners),), generator=generator)
        written = [[*written[i], int(token)] for i, token in zip(rows.tolist(), fed, strict=True)]


@settings(max_examples=15)
@given(
    st.sampled_from(sorted(MODELS)),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=6),
)
def test_packed_padded_and_single_pairs_give_the_same(version: str, lengths: list[tuple[int, int]]) -> None:
    model = MODELS[version]
    sources, targets = ([*map(list, random_ids([pair[i] for pair in lengths], i))] for i in (0, 1))
    padded = logits(model, collate_pairs(sources, targets, PAD, PAD, END))
    packed = logits(model, packed_pairs(sources, targets))
    begin = 0
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = logits(model, collate_pairs([source], [target], PAD, PAD, END))[0]
        torch.testing.assert_close(padded[i, : len(alone)], alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(packed[0, begin : begin + len(alone)], alone, rtol=1e-9, atol=1e-9)
        begin += len(alone)
    assert packed.isfinite().all()


def packed_pairs(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    """One row that holds all pairs, with padding behind them on both sides."""

    def row(sequences: list[list[int]], padding: int) -> Batch:
        numbers = [n for n, ids in enumerate(sequences, 1) for _ in ids] + [0] * padding
        places = [t for ids in sequences for t in range(len(ids))] + list(range(padding))
        tokens = [token for ids in sequences for token in ids] + [PAD] * padding
        ids, documents, positions = (torch.tensor([values]) for values in (tokens, numbers, places))
        return Batch(ids, documents=documents, positions=positions)

    read = row([[*source, END] for source in sources], 3)
    return replace(row([[PAD, *target] for target in targets], 5), source=read)


def test_rows_of_several_sequences_need_sources_of_as_many() -> None:
    batch = collate_pairs([[2, 3], [4]], [[5], [6, 7]], PAD, PAD, END)
    assert batch.documents is not None
    odd = Batch(batch.tokens, documents=batch.documents, positions=batch.documents.cumsum(1) - 1, source=batch.source)
    with pytest.raises(UnmaskError, match="must be packed, or neither"):
        MODELS["1.0"](odd)
    with pytest.raises(UnmaskError, match="no source"):
        MODELS["1.0"](Batch(batch.tokens))


@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_writes_what_each_source_writes_alone(beam: int) -> None:
    model = MODELS["1.0"]
    sources = random_ids([5, 1, 17], 3)
    search = Search(beam_size=beam, limits=Limits(max_length=12))
    together = generate(model, source_batch(sources, PAD, END), search, end=END)
    alone = [generate(model, source_batch([source], PAD, END), search, end=END)[0] for source in sources]
    assert [[h.tokens for h in found] for found in together] == [[h.tokens for h in found] for found in alone]
    assert writer_layout(model) is model  # the layout of another model's parts is not its own


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_it_writes_in_bfloat16_what_it_writes_in_float32(version: str) -> None:
    model = MODELS[version]
    lower = writer_layout(model, "bf16")
    sources = source_batch(random_ids([5, 1, 17], 3), PAD, END)
    states = [writer.prefill(sources) for writer in (model, lower)]
    for tokens in [states[0].first, *torch.tensor([[5, 6, 7], [8, 9, 4]])]:
        exact, near = (writer.decode_step(tokens, state) for writer, state in zip((model, lower), states, strict=True))
        assert (near - exact).abs().max() < 0.05 * exact.abs().max()
        assert not torch.equal(near, exact)


def test_the_loss_of_a_batch_is_that_of_its_tokens() -> None:
    model = MODELS["1.1"]
    batch = collate_pairs([[2, 3], [4, 5, 6]], [[5], [6, 7]], PAD, PAD, END)
    loss = NextToken().loss(model, batch)["next"]
    target: Target = batch.targets["next"]
    log_p = logits(model, batch).flatten(0, 1)[target.places].float().log_softmax(-1)
    torch.testing.assert_close(loss.sum, -log_p.gather(1, target.values[:, None]).sum())
    assert loss.count == 5
