"""Masked segments: records of packed rows, spans, straight lines, the loss, and passes that mask every segment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.signal_transformer import SignalTransformer
from unmask.objectives.masked_segments import MaskedSegments, MaskedSegmentsConfig, lines, turns
from unmask.objectives.signals import records_of
from unmask.types import Kind, Signal

LEADS, SEGMENT, ROW = 2, 5, 24
PROCESSOR = SignalProcessor(rate=50, segment=SEGMENT, leads=LEADS)
OBJECTIVE = MaskedSegments(PROCESSOR, share=0.5, span=3)


def packed(*lengths: int, seed: int = 0):
    """Records of these numbers of segments in packed rows with masked spans."""
    rng = np.random.default_rng(seed)
    records = [rng.normal(size=(length * SEGMENT, LEADS)) for length in lengths]
    return OBJECTIVE.packed([OBJECTIVE.example(one, ROW) for one in records], ROW, rng)


@pytest.fixture(scope="module")
def model():
    page = SignalTransformer(rate=50, leads=LEADS, segment=SEGMENT, dim=16, layers=2, heads=2, hidden=16, hides=True)
    return page.build(OBJECTIVE.heads, seed=0).eval()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(4, ROW), min_size=1, max_size=9), st.integers(0, 99))
def test_records_of_packed_rows_are_runs_of_one_document(lengths, seed):
    batch = packed(*lengths, seed=seed)
    begins, counts = records_of(batch)
    documents = torch.ones_like(batch.tokens) if batch.documents is None else batch.documents
    found = []
    for row in range(len(documents)):
        for number in range(1, int(documents[row].max()) + 1):
            places = torch.nonzero(documents[row] == number)[:, 0]
            found.append((row * ROW + int(places[0]), len(places)))
    assert list(zip(begins.tolist(), counts.tolist(), strict=True)) == found
    assert sorted(counts.tolist()) == sorted(lengths)


@settings(max_examples=50, deadline=None)
@given(st.integers(4, 40), st.data())
def test_lines_join_the_visible_samples_beside_a_gap(segments, data):
    masked = sorted(data.draw(st.sets(st.integers(0, segments - 1), min_size=1, max_size=segments - 1)))
    record = np.random.default_rng(segments).normal(size=(segments, LEADS * SEGMENT)).astype(np.float32)
    found = lines(record, np.array(masked), LEADS).reshape(-1, LEADS, SEGMENT)
    times = record.reshape(segments, LEADS, SEGMENT).transpose(1, 0, 2).reshape(LEADS, -1)
    visible = [n for n in range(segments * SEGMENT) if n // SEGMENT not in masked]
    for i, segment in enumerate(masked):
        for k in range(SEGMENT):
            n = segment * SEGMENT + k
            before, after = [v for v in visible if v < n], [v for v in visible if v > n]
            for lead in range(LEADS):
                if before and after:
                    a, b = before[-1], after[0]
                    x, y = float(times[lead, a]), float(times[lead, b])
                    expected = x + (y - x) * (n - a) / (b - a)
                else:
                    expected = float(times[lead, after[0] if after else before[-1]])
                assert found[i, lead, k] == pytest.approx(expected, abs=1e-5)


def test_the_loss_is_the_mean_squared_error_of_the_masked_values(model):
    batch = packed(24, 13, 8, 24, seed=1)
    target = batch.targets["segments"]
    hidden = torch.nonzero((batch.tokens == Kind.MASK).flatten())[:, 0]
    assert torch.equal(target.places, hidden)
    rows = torch.zeros(batch.tokens.numel(), LEADS * SEGMENT).index_copy(0, batch.signal.places, batch.signal.values)
    assert torch.equal(target.values[:, 0], rows[hidden])
    with torch.no_grad():
        loss = OBJECTIVE.score(model, model(batch), batch)
        restored = model.answer("segments", model(batch), hidden, batch)
    assert float(loss.sum / loss.count) == pytest.approx(float(F.mse_loss(restored, rows[hidden])), rel=1e-5)
    for name, other in (("mean", torch.zeros_like(restored)), ("line", target.values[:, 1])):
        assert float(loss.metrics[name] / loss.count) == pytest.approx(float(F.mse_loss(other, rows[hidden])), rel=1e-5)


def test_the_model_does_not_see_masked_samples(model):
    batch = packed(24, 13, 8, seed=2)
    masked = torch.isin(batch.signal.places, batch.targets["segments"].places)
    other = batch.signal.values + 9 * masked[:, None]
    changed = replace(batch, signal=Signal(batch.signal.places, other))
    with torch.no_grad():
        assert torch.equal(model(batch), model(changed))
        assert not torch.equal(model(batch), model(replace(batch, signal=Signal(batch.signal.places, 2 * other))))


@given(st.integers(4, 300), st.integers(1, 40))
def test_each_segment_is_masked_in_two_passes_beside_visible_ones(segments, span):
    found = turns(segments, span)
    assert np.array_equal(np.bincount(np.concatenate(found), minlength=segments), np.full(segments, 2))
    assert all(len(own) < segments for own in found)


def test_errors_along_a_record_are_those_of_passes_one_by_one(model):
    record = np.random.default_rng(3).normal(size=(31 * SEGMENT + 2, LEADS))
    with torch.no_grad():
        found = OBJECTIVE.errors_along(model, record, ROW)
    values = PROCESSOR.values(record)
    expected = [list[float]() for _ in range(31)]
    for begin in (0, 31 - ROW):  # the last window ends with the record
        for hidden in turns(ROW, OBJECTIVE.span):
            example = PROCESSOR.segmented(values[begin * SEGMENT : (begin + ROW) * SEGMENT])
            own = example.signal[1]
            batch = PROCESSOR.collate([example])
            batch = replace(batch, tokens=batch.tokens.index_fill(1, torch.from_numpy(hidden), int(Kind.MASK)))
            with torch.no_grad():
                restored = model.answer("segments", model(batch), torch.from_numpy(hidden), batch).numpy()
            for segment, error in zip(hidden, ((restored - own[hidden]) ** 2).mean(1), strict=True):
                expected[begin + segment].append(float(error))
    assert np.allclose(found, [np.mean(errors) for errors in expected], rtol=1e-4)
    with pytest.raises(UnmaskError, match="has 3 segments, but at least 4 are needed"):
        OBJECTIVE.errors_along(model, record[: 3 * SEGMENT], ROW)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"share": 1.0}, "share of masked segments is between"), ({"span": 0}, "at least 1 segment")],
)
def test_fields_out_of_range(fields, said):
    with pytest.raises(UnmaskError, match=said):
        MaskedSegmentsConfig(**fields).build(PROCESSOR)
