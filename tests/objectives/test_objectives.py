"""Masked words, next sentence and sentence order: rates, labels, lengths, and the loss they give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.collate import pack
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.objectives import (
    Joint,
    MaskedLM,
    MaskedLMConfig,
    NextSentence,
    NextSentenceConfig,
    SentenceOrder,
    SentenceOrderConfig,
)
from unmask.objectives.language_modeling import spans
from unmask.objectives.sequences import runs
from unmask.types import Batch, Document, Example

CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 500


def join(first, second=None, length=None):
    """[CLS] a [SEP] (b [SEP]), as a tokenizer does it."""
    parts = [[CLS], first, [SEP]] + ([second, [SEP]] if second is not None else [])
    segments = [0] * (len(first) + 2) + ([1] * (len(second) + 1) if second is not None else [])
    tokens = np.concatenate([np.asarray(p, dtype=np.int64) for p in parts])
    assert length is None or len(tokens) <= length
    return tokens, np.array(segments)


def masked(**changes):
    values = {"mask": MASK, "specials": range(5), "vocabulary": VOCABULARY, "join": join} | changes
    return MaskedLM(**values)


def documents(count, rng, sentences=12):
    """Documents whose every token tells which document and sentence it came from."""
    out = []
    for d in range(count):
        lengths = rng.integers(3, 20, size=sentences)
        out.append(Document([rng.integers(5, VOCABULARY, size=n).astype(np.int32) for n in lengths], d))
    return out


def test_masking_keeps_the_published_rates():
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(5, VOCABULARY, size=(4_000, 64)))
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    batch = masked().corrupt(Batch(tokens), rng)
    places, values = batch.targets["mlm"].places, batch.targets["mlm"].values
    seen = batch.tokens.flatten()[places]
    ordinary = 4_000 * 62
    assert abs(len(places) / ordinary - 0.15) < 0.001
    assert torch.equal(values, tokens.flatten()[places])
    assert abs(float((seen == MASK).float().mean()) - 0.8) < 0.005
    # A random token is the original one 1 time in 495.
    assert abs(float((seen == values).float().mean()) - 0.1 - 0.1 / 495) < 0.005
    changed = seen[(seen != MASK) & (seen != values)]
    assert changed.min() >= 5
    untouched = torch.ones(tokens.numel(), dtype=torch.bool)
    untouched[places] = False
    assert torch.equal(batch.tokens.flatten()[untouched], tokens.flatten()[untouched])


def test_masking_is_dynamic_and_a_function_of_the_generator():
    tokens = torch.from_numpy(np.random.default_rng(0).integers(5, VOCABULARY, size=(8, 32)))
    one, two, other = (masked().corrupt(Batch(tokens), np.random.default_rng(s)) for s in (1, 1, 2))
    assert torch.equal(one.tokens, two.tokens)
    assert not torch.equal(one.targets["mlm"].places, other.targets["mlm"].places)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.booleans(), st.integers(0, 2**32 - 1))
def test_specials_and_padding_are_never_targets(lengths, whole, seed):
    rng = np.random.default_rng(seed)
    continuation = np.arange(VOCABULARY) % 2 == 1 if whole else None
    examples = [Example(*join(rng.integers(5, VOCABULARY, size=n))) for n in lengths]
    batch = pack(examples, 32, 0)
    after = masked(continuation=continuation).corrupt(batch, rng)
    places = after.targets["mlm"].places
    flat = batch.tokens.flatten()
    assert (flat[places] >= 5).all()
    assert (places.diff() > 0).all()
    assert ((after.tokens.flatten() != flat).nonzero().flatten()[:, None] == places).any(1).all()
    if not whole:  # at least one in each sequence, and the share within one of its expectation
        begins = batch.starts.tolist()
        for begin, example in zip(begins, examples, strict=True):
            n = len(example.tokens)
            count = int(((places >= begin) & (places < begin + n)).sum())
            assert count >= 1
            assert abs(count - max(1.0, 0.15 * (n - 2))) < 1


def test_whole_words_are_hidden_together_at_the_same_rate():
    rng = np.random.default_rng(3)
    continuation = np.zeros(VOCABULARY, dtype=bool)
    continuation[250:] = True
    tokens = torch.from_numpy(rng.integers(5, VOCABULARY, size=(3_000, 60)))
    tokens[:, 0] = CLS
    batch = masked(continuation=continuation).corrupt(Batch(tokens), rng)
    chosen = torch.zeros(tokens.shape, dtype=torch.bool).flatten()
    chosen[batch.targets["mlm"].places] = True
    chosen = chosen.view(tokens.shape)
    follows = torch.from_numpy(continuation)[tokens]
    follows[:, 1] = False  # after [CLS] a word begins whatever the piece
    assert (chosen[:, 1:] == chosen[:, :-1])[follows[:, 1:]].all()
    assert abs(float(chosen.sum()) / (3_000 * 59) - 0.15) < 0.005


def test_spans_are_hidden_together_at_the_same_rate_and_end_at_special_tokens():
    rng = np.random.default_rng(3)
    tokens = torch.from_numpy(rng.integers(5, VOCABULARY, size=(2_000, 122)))
    tokens[:, 0] = tokens[:, 61] = CLS
    batch = masked(span=10).corrupt(Batch(tokens), rng)
    chosen = np.zeros(tokens.numel() + 1, dtype=int)
    chosen[batch.targets["mlm"].places] = 1
    edges = np.diff(chosen, prepend=0)
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    assert abs(chosen.sum() / (2_000 * 120) - 0.15) < 0.005
    assert not chosen[:-1].reshape(2_000, 122)[:, [0, 61]].any()
    alone = masked().corrupt(Batch(tokens), np.random.default_rng(4)).targets["mlm"].places
    assert lengths.mean() > 3.0 > 2.0 > len(alone) / (np.diff(alone) != 1).sum()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_spans_cover_every_word_once_and_are_no_longer_than_they_may_be(lengths, longest, seed):
    stretch = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    begins = spans(stretch, longest, np.random.default_rng(seed))
    sizes = np.diff(begins, append=len(stretch))
    assert begins[0] == 0
    assert (sizes <= longest).all()
    assert set(np.flatnonzero(np.diff(stretch, prepend=0))) <= set(begins.tolist())


def test_lengths_of_spans_are_those_of_spanbert():
    begins = spans(np.ones(200_000, dtype=int), 10, np.random.default_rng(0))
    sizes = np.diff(begins)
    share = np.array([0.2 * 0.8 ** (n - 1) for n in range(1, 10)] + [0.8**9])
    np.testing.assert_allclose(np.bincount(sizes, minlength=11)[1:] / len(sizes), share, atol=0.01)


def test_a_span_of_nothing_is_refused():
    with pytest.raises(UnmaskError, match="at least 1"):
        masked(span=0)


@pytest.mark.parametrize("rate", [-0.15, 0.0, 1.0, 15.0])
def test_a_share_that_hides_nothing_or_everything_is_refused(rate):
    """15 was meant as percent, and hid every token."""
    with pytest.raises(UnmaskError, match=f"A share of {rate} of the tokens cannot be masked: --rate"):
        masked(rate=rate)


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 25))
def test_runs_lose_no_token_and_keep_the_limit(lengths, limit):
    counter, sentences = 0, []
    for n in lengths:
        sentences.append(np.arange(counter, counter + n))
        counter += n
    out = runs(sentences, limit)
    assert all(0 < len(run) <= limit for run in out)
    assert np.concatenate([np.arange(0), *out]).tolist() == list(range(counter))


def test_next_sentence_pairs_are_the_published_ones():
    rng = np.random.default_rng(0)
    docs = documents(60, rng)
    examples = [e for seed in range(30) for e in NextSentence(join).sample(docs, 64, np.random.default_rng(seed))]
    labels = np.array([e.targets["nsp"][1][0] for e in examples])
    # The true continuation is next half the time, less the pairs of which one sentence was left.
    assert 0.40 < (labels == 0).mean() < 0.52
    assert all(len(e.tokens) <= 64 for e in examples)
    assert np.mean([len(e.tokens) == 64 for e in examples]) > 0.5
    for example in examples:
        assert example.targets["nsp"][0].tolist() == [0]
        assert (example.tokens == SEP).sum() == 2
        assert example.segments.max() == 1


def test_a_true_pair_reads_on_and_a_random_one_comes_from_elsewhere():
    docs = [Document([np.arange(5 + 40 * d + 4 * i, 9 + 40 * d + 4 * i) for i in range(10)], d) for d in range(8)]
    for example in NextSentence(join, short=0.0).sample(docs, 128, np.random.default_rng(0)):
        body = example.tokens[example.tokens >= 5]
        second = example.tokens[(example.segments == 1) & (example.tokens >= 5)]
        if example.targets["nsp"][1][0] == 0:
            assert (np.diff(body) == 1).all()
        else:
            first = example.tokens[(example.segments == 0) & (example.tokens >= 5)]
            assert (first[0] - 5) // 40 != (second[0] - 5) // 40


def test_next_sentence_draws_no_pair_from_a_single_piece():
    assert NextSentence(join).sample([Document([np.arange(5, 9)] * 4, 0)], 32, np.random.default_rng(0)) == []


@pytest.mark.parametrize("kind", [NextSentenceConfig, SentenceOrderConfig])
def test_documents_of_one_sentence_are_counted_and_said(kind, tmp_path):
    """Counted by hand: of the documents below, the first `alone` have one sentence."""

    def split(alone, longer):
        texts = [f"A short text {i}." for i in range(alone)]
        texts += [f"First part {i} here. Then the second part {i}." for i in range(longer)]
        folder = tmp_path / f"{alone}-{longer}"
        documents = [TextDocument(text, str(i)) for i, text in enumerate(texts)]
        return corpus.build(documents, folder, vocabulary_size=60, heldout=0.0).split("train")

    mixed = split(3, 9)
    assert (mixed.single, mixed.documents) == (3, 12)
    (said,) = kind().check_data([mixed])
    assert said.startswith("3 of 12 documents have one sentence")
    assert "--sentences none" in said
    assert kind().check_data([split(1, 11)]) == []
    assert MaskedLMConfig(sentences=kind()).check_data([mixed]) == [said]
    assert kind().check_data([split(6, 0)])[0].startswith("6 of 6 documents")


def test_pieces_of_a_document_that_fills_a_block_stand_in_for_other_documents():
    """A book beside a few short texts gives many blocks of its own pieces alone, whose text is learned from as well."""
    book = [Document([np.arange(5 + 40 * p + 4 * i, 9 + 40 * p + 4 * i) for i in range(10)], 7) for p in range(6)]
    examples = NextSentence(join, short=0.0).sample(book, 32, np.random.default_rng(0))
    assert {(token - 5) // 40 for e in examples for token in e.tokens[e.tokens >= 5].tolist()} == set(range(6))
    for example in examples:
        first, second = (example.tokens[(example.segments == part) & (example.tokens >= 5)][0] for part in (0, 1))
        assert ((first - 5) // 40 == (second - 5) // 40) == (example.targets["nsp"][1][0] == 0)


def test_sentence_order_swaps_half_of_the_pairs():
    docs = [Document([np.arange(5 + 40 * d + 4 * i, 9 + 40 * d + 4 * i) for i in range(10)], d) for d in range(12)]
    examples = [e for s in range(40) for e in SentenceOrder(join).sample(docs, 32, np.random.default_rng(s))]
    pairs = [e for e in examples if e.targets]
    swapped = np.mean([e.targets["sop"][1][0] for e in pairs])
    assert 0.45 < swapped < 0.55
    for example in pairs:
        first = example.tokens[(example.segments == 0) & (example.tokens >= 5)]
        second = example.tokens[(example.segments == 1) & (example.tokens >= 5)]
        assert (first[0] > second[0]) == bool(example.targets["sop"][1][0])
    assert all(len(e.tokens) <= 32 for e in examples)


def tiny(heads):
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    config = Bert(vocabulary=VOCABULARY, dim=16, layers=2, heads=2, hidden=32, length=64, **rates)
    model = config.build(heads)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(parameter.numel()))
    return model


def test_joint_losses_are_sums_that_a_plain_forward_confirms():
    rng = np.random.default_rng(0)
    objective = Joint(NextSentence(join), masked())
    model = tiny(objective.heads)
    batch = objective.corrupt(pack(objective.sample(documents(6, rng), 48, rng), 48, 0), rng)
    losses = objective.loss(model, batch)
    assert set(losses) == {"nsp", "mlm"} == set(objective.weights)
    logits = model.heads["mlm"](model(batch)).flatten(0, 1)
    target = torch.full((logits.shape[0],), -100)
    target[batch.targets["mlm"].places] = batch.targets["mlm"].values
    torch.testing.assert_close(losses["mlm"].sum, F.cross_entropy(logits, target, reduction="sum"))
    assert {k: loss.count for k, loss in losses.items()} == batch.counts
    assert losses["nsp"].count == len(batch.starts)


def test_a_term_without_a_target_is_nothing_and_leaves_no_parameter_without_a_gradient():
    """A sharded model sends the gradients of all processes together: they must be of the same parameters."""
    rng = np.random.default_rng(0)
    objective = Joint(SentenceOrder(join), masked())
    model = tiny(objective.heads)
    alone = [Document([document.sentences[0]], document.index) for document in documents(6, rng)]
    batch = objective.corrupt(pack(objective.sample(alone, 48, rng), 48, 0), rng)
    assert set(batch.targets) == {"mlm"}
    losses = objective.loss(model, batch)
    assert (losses["sop"].count, losses["sop"].sum.item()) == (0, 0.0)
    sum(loss.sum for loss in losses.values()).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    assert missing == []
    assert all(p.grad.count_nonzero() == 0 for p in model.heads["sop"].parameters())
    assert losses["mlm"].sum.item() == pytest.approx(masked().loss(model, batch)["mlm"].sum.item())


def test_packed_and_alone_give_the_same_loss():
    rng = np.random.default_rng(0)
    objective = Joint(NextSentence(join, short=0.8), masked())
    model = tiny(objective.heads)
    examples = objective.sample(documents(6, rng), 48, rng)
    packed = objective.corrupt(pack(examples, 48, 0), rng)
    assert packed.tokens.shape[0] < len(examples)
    losses, alone = objective.loss(model, packed), {"nsp": 0.0, "mlm": 0.0}
    flat, target = packed.tokens.flatten(), packed.targets["mlm"]
    for example, begin in zip(examples, packed.starts.tolist(), strict=True):
        end = begin + len(example.tokens)
        inside = (target.places >= begin) & (target.places < end)
        tokens, segments = flat[begin:end][None], torch.from_numpy(example.segments)[None]
        batch = Batch(tokens, segments=segments, starts=torch.zeros(1, dtype=torch.long))
        mlm = type(target)(target.places[inside] - begin, target.values[inside])
        nsp = type(target)(torch.zeros(1, dtype=torch.long), torch.from_numpy(example.targets["nsp"][1]))
        for name, loss in objective.loss(model, batch.with_targets(mlm=mlm, nsp=nsp)).items():
            alone[name] += loss.sum.item()
    for name, loss in losses.items():
        assert loss.sum.item() == pytest.approx(alone[name], rel=1e-5)
