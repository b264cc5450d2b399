"""The processor of signals: segments hold all samples in order, files bring it back, damaged records are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.mina import Mina


@given(samples=st.integers(1, 90), segment=st.integers(1, 12), leads=st.integers(1, 3), normalise=st.sampled_from("rn"))
def test_segments_are_the_samples_in_order(samples, segment, leads, normalise):
    scaling = {"r": "record", "n": "none"}[normalise]
    processor = SignalProcessor(segment=segment, leads=leads, normalise=scaling)
    item = np.random.default_rng(0).normal(3, 2, (samples, leads))
    if samples < segment:
        with pytest.raises(UnmaskError, match="needs at least"):
            processor.example(item)
        return
    example = processor.example(item)
    places, values = example.signal
    kept = item[: samples // segment * segment]
    if scaling == "record":
        kept = (kept - kept.mean(0)) / np.sqrt(kept.var(0) + 1e-7)
    assert len(example.tokens) == len(places) == samples // segment == processor.segments(samples)
    for place in range(len(places)):
        wanted = [kept[place * segment + s, lead] for lead in range(leads) for s in range(segment)]
        np.testing.assert_allclose(values[place], wanted, atol=1e-4)
        region = processor.describe(item, place)
        assert region.unit == "seconds"
        np.testing.assert_allclose(
            (region.begin[0], region.end[0]), (place * segment / 300, (place + 1) * segment / 300)
        )
    with pytest.raises(UnmaskError, match="no segment"):
        processor.describe(item, len(places))


def test_a_flat_lead_becomes_zeros():
    values = SignalProcessor(segment=5, leads=2).values(np.array([[7.0, i] for i in range(10)]))
    assert not values[:, 0].any()
    np.testing.assert_allclose(values[:, 1].std(), 1, atol=1e-4)


def test_records_that_cannot_be_read():
    processor = SignalProcessor(segment=5)
    for item, message in (
        (np.zeros(10), r"array \[samples, 1\]"),
        (np.zeros((10, 2)), "has 2 leads, but the model reads 1: choose by --lead"),
        (np.full((10, 1), np.nan), "no numbers"),
    ):
        with pytest.raises(UnmaskError, match=message):
            processor.example(item)
    with pytest.raises(UnmaskError, match="scaling"):
        SignalProcessor(normalise="lead")


@given(
    rate=st.integers(1, 2_000), segment=st.integers(1, 500), leads=st.integers(1, 12), normalise=st.sampled_from("rn")
)
def test_a_file_brings_it_back(tmp_path_factory, rate, segment, leads, normalise):
    folder = tmp_path_factory.mktemp("processor")
    scaling = {"r": "record", "n": "none"}[normalise]
    processor = SignalProcessor(rate=rate, segment=segment, leads=leads, normalise=scaling)
    assert processor.save(folder) == ["preprocessor_config.json"]
    assert SignalProcessor.load(folder) == processor


@pytest.mark.parametrize("wrong", [{"sampling_rate": 0}, {"segment": "x"}, {"feature_size": 0}, {"do_normalize": 1}])
def test_damaged_files(tmp_path, wrong):
    SignalProcessor().save(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    with pytest.raises(UnmaskError, match=next(iter(wrong)).split("_")[0]):
        SignalProcessor.load(tmp_path)


def test_a_model_decides_rate_segments_and_leads():
    found = SignalProcessor(normalise="none").for_model(Mina(rate=250, segment=40, leads=2))
    assert found == SignalProcessor(rate=250, segment=40, leads=2, normalise="none")
