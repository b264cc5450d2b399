"""Span corruption: spans partition a text, and put back they restore it; rates are met; rows of pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data import collate
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.objectives import SpanCorruption, SpanCorruptionConfig
from unmask.types import Batch, Document, Example, concatenate

PAD, END, V = 0, 1, 60
SENTINELS = list(range(V + 19, V - 1, -1))  # <X> is the last id of all


def objective(**fields: object) -> SpanCorruption:
    return SpanCorruption(SENTINELS, **{"start": PAD, "end": END, "padding": PAD, **fields})


def spans_of(hidden: np.ndarray) -> int:
    return int((hidden & ~np.append(False, hidden[:-1])).sum())


def test_the_example_of_the_paper() -> None:
    """Raffel et al. 2020, figure 2."""
    words = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week"]
    ids = {word: i for i, word in enumerate(words, 2)}
    names = {i: word for word, i in ids.items()} | dict(zip(SENTINELS, ["<X>", "<Y>", "<Z>"], strict=False))
    text = np.array([ids[word] for word in words])
    hidden = np.array([word in ("for", "inviting", "last") for word in words])
    read, written = objective().hide(text, hidden)
    assert " ".join(names[i] for i in read.tolist()) == "Thank you <X> me to your party <Y> week"
    assert " ".join(names[i] for i in written.tolist()) == "<X> for inviting <Y> last <Z>"
    assert objective().restore(read, written).tolist() == text.tolist()


@given(st.integers(1, 300), st.floats(0.01, 0.99), st.floats(1, 10), st.integers(0, 1_000))
def test_what_is_cut_out_and_what_is_left_are_the_text(length: int, rate: float, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = objective(rate=rate, mean=mean)
    text = rng.integers(2, V, length)
    hidden = one.noise(length, rng)
    assert hidden.shape == (length,)
    assert hidden.any()
    assert spans_of(hidden) < len(SENTINELS)
    read, written = one.hide(text, hidden)
    spans = spans_of(hidden)
    assert len(read) == length - hidden.sum() + spans
    assert len(written) == hidden.sum() + spans + 1
    assert [t for t in read.tolist() if t in SENTINELS] == SENTINELS[:spans]
    assert [t for t in written.tolist() if t in SENTINELS] == SENTINELS[: spans + 1]
    assert one.restore(read, written).tolist() == text.tolist()


@pytest.mark.parametrize(
    ("rate", "mean", "length"), [(0.15, 3.0, 128), (0.15, 3.0, 17), (0.3, 2.0, 64), (0.5, 1.0, 30)]
)
def test_rates_and_spans_are_met(rate: float, mean: float, length: int) -> None:
    rng = np.random.default_rng(0)
    hidden = [objective(rate=rate, mean=mean).noise(length, rng) for _ in range(8_000)]
    assert np.mean(hidden) == pytest.approx(rate, abs=0.005)
    spans = np.mean([spans_of(one) for one in hidden])
    assert spans == pytest.approx(max(rate * length / mean, 1), rel=0.02)


@settings(max_examples=8, deadline=None)
@given(st.floats(1, 12), st.floats(0.1, 0.3), st.integers(0, 100))
def test_spans_are_as_long_as_a_run_asks(mean_span: float, rate: float, seed: int) -> None:
    """On long texts, with sentinels enough: hidden tokens over spans is what `--mean-span` says."""
    tokenizer = Tokenizer.train(["the film was good and the plot was bad"] * 5, 40).with_sentinels()
    found = SpanCorruptionConfig(mean_span=mean_span, rate=rate).build(tokenizer)
    assert isinstance(found, SpanCorruption)
    rng = np.random.default_rng(seed)
    hidden = [found.noise(300, rng) for _ in range(2_000)]
    mean = sum(one.sum() for one in hidden) / sum(map(spans_of, hidden))
    assert mean == pytest.approx(mean_span, rel=0.02)


def test_every_placement_is_as_likely() -> None:
    """A text of 5 tokens with 2 hidden in 2 spans has 6 placements, which come equally often; the ends are in them."""
    rng = np.random.default_rng(0)
    one = objective(rate=0.4, mean=1.0)
    found = Counter(tuple(one.noise(5, rng).tolist()) for _ in range(12_000))
    assert len(found) == 6
    assert all(sum(hidden) == 2 and spans_of(np.array(hidden)) == 2 for hidden in found)
    assert min(found.values()) > 0.94 * 2_000
    assert max(found.values()) < 1.06 * 2_000


def test_it_is_a_pure_function_of_the_generator() -> None:
    rows = Batch(collate.pack([Example(np.arange(2, 30))], 28, PAD).tokens)
    first, second, third = (objective().corrupt(rows, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tokens.equal(second.tokens)
    assert first.source.tokens.equal(second.source.tokens)
    assert not (first.tokens.shape == third.tokens.shape and first.tokens.equal(third.tokens))


def pairs(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """(read, written, asked) of every sequence, rows first."""
    found = []
    asked = np.full(batch.tokens.numel(), -1)
    asked[batch.targets["spans"].places.numpy()] = batch.targets["spans"].values.numpy()
    asked = asked.reshape(batch.tokens.shape)
    assert batch.source is not None
    for b in range(len(batch.tokens)):
        for number in range(1, int(batch.documents[b].max()) + 1):
            own, read = batch.documents[b] == number, batch.source.documents[b] == number
            assert batch.positions[b][own].tolist() == list(range(int(own.sum())))
            assert batch.source.positions[b][read].tolist() == list(range(int(read.sum())))
            found.append((batch.source.tokens[b][read].tolist(), batch.tokens[b][own].tolist(), asked[b, own].tolist()))
        assert (asked[b, (batch.documents[b] == 0).numpy()] == -1).all()
    return found


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 100))
def test_rows_of_texts_become_rows_of_pairs(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = [Document([rng.integers(2, V, n)], i) for i, n in enumerate(lengths)]
    one = objective()
    rows = collate.pack(one.sample(documents, 32, rng), 32, PAD)
    batch = one.corrupt(rows, rng)
    texts = []
    for read, written, asked in pairs(batch):
        assert read[-1] == END
        assert written == [PAD, *asked[:-1]]
        assert asked[-1] == END
        texts.append(one.restore(np.array(read[:-1]), np.array(asked[:-1])).tolist())
    assert sorted(texts) == sorted(document.sentences[0].tolist() for document in documents)
    assert batch.counts["spans"] == int((batch.documents > 0).sum())
    assert len(batch.starts) == len(lengths)


def test_batches_of_other_widths_are_joined() -> None:
    """Blocks of a stream have rows as long as their longest; those of two blocks may meet in a step."""
    one, rng = objective(), np.random.default_rng(0)
    batches = [
        one.corrupt(collate.pack([Example(np.append(rng.integers(2, V, n), END)) for n in sizes], 100, PAD), rng)
        for sizes in ([90, 20, 5, 5, 5, 5, 5, 5], [40], [9, 80])
    ]
    widths = {batch.tokens.shape[1] for batch in batches}
    assert len(widths) > 1
    whole = concatenate(batches)
    assert whole.tokens.shape[1] == max(widths)
    assert pairs(whole) == [pair for batch in batches for pair in pairs(batch)]
    assert pairs(whole.rows(0, 1)) + pairs(whole.rows(1, len(whole.tokens))) == pairs(whole)
    with pytest.raises(UnmaskError, match="only with others that have them"):
        concatenate([batches[0], Batch(batches[1].tokens)])


def test_what_a_model_leaves_out_stands_for_nothing() -> None:
    x, y, z = SENTINELS[:3]
    restored = objective().restore(np.array([5, x, 6, y, 7]), np.array([9, y, 8, 8, z, 4]))
    assert restored.tolist() == [5, 6, 8, 8, 7]


def test_word_frequencies_of_what_is_written() -> None:
    """What is to be written of many texts is what `expected` says it is."""
    rng = np.random.default_rng(0)
    one = objective()
    text = rng.integers(2, V, 64 * 2_000).reshape(-1, 64)
    counts = np.bincount(text.flatten(), minlength=V + 20).astype(float)
    found = np.zeros(V + 20)
    for row in text:
        found += np.bincount([*one.hide(row, one.noise(64, rng))[1], END], minlength=V + 20)
    expected = one.expected(counts, 64)
    assert expected.sum() == pytest.approx(found.sum(), rel=0.02)
    assert expected[2:V].sum() == pytest.approx(found[2:V].sum(), rel=0.02)


@pytest.mark.parametrize("fields", [{"rate": 0.0}, {"rate": 1.0}, {"mean": 0.5}])
def test_numbers_that_make_no_sense_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(UnmaskError, match="cannot be removed"):
        objective(**fields)
    with pytest.raises(UnmaskError, match="at least two"):
        SpanCorruption([5], start=0, end=1, padding=0)
    with pytest.raises(UnmaskError, match="20 spans cannot be told apart by 20 sentinels"):
        objective().hide(np.arange(40), np.arange(40) % 2 == 0)
