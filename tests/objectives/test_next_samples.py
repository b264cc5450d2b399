"""The next sample of recordings, beside sums over single samples."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unmask.data import collate
from unmask.data.recordings.processor import RecordingProcessor
from unmask.models.wavenet import WaveNet
from unmask.nn.mu_law import encode
from unmask.objectives.next_samples import NextSamples, NextSamplesConfig, baselines
from unmask.types import Kind

V = 8
PAGE = WaveNet(vocabulary=V, dim=4, skip=6, dilations=(1, 2))
PROCESSOR = NextSamplesConfig(rate=8_000).processor(RecordingProcessor()).for_model(PAGE)


def recordings(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, n).astype(np.float32) for n in lengths]


class Split:
    """Recordings as a source."""

    def __init__(self, sounds: list[np.ndarray]) -> None:
        self.sounds, self.cost = sounds, np.array([len(sound) for sound in sounds])

    def at_rate(self, rate: int) -> Split:
        assert rate == 8_000
        return self

    def read(self, unit: int) -> np.ndarray:
        return self.sounds[unit]


def test_every_sample_but_the_first_is_predicted_from_those_before_it() -> None:
    sounds = recordings(12, 5, 7, 1)
    objective = NextSamples(PROCESSOR, V)
    objective.count([Split(sounds)])
    levels = [encode(torch.from_numpy(sound), V).tolist() for sound in sounds]
    counts = np.zeros((V, V))
    for of in levels:
        for last, level in pairwise(of):
            counts[last, level] += 1
    batch = collate.pack([PROCESSOR.example(sound) for sound in sounds], 13, Kind.PADDING)
    batch = objective.corrupt(batch, np.random.default_rng(0))
    model = PAGE.build(objective.heads, seed=0)
    with torch.no_grad():
        found = objective.loss(model, batch)["samples"]
    total = correct = alone = pair = 0.0
    share = (counts.sum(0) + 1) / (counts.sum() + V)
    for sound, of in zip(sounds, levels, strict=True):
        own = PROCESSOR.collate([PROCESSOR.example(sound)])
        log_p = model.answer("samples", model(own), torch.arange(len(of)), own).detach().log_softmax(-1)
        for t, level in enumerate(of[1:]):
            total -= float(log_p[t, level])
            correct += int(log_p[t].argmax()) == level
            alone -= math.log(share[level])
            pair -= math.log((counts[of[t], level] + share[level]) / (counts[of[t]].sum() + 1))
    assert found.count == 11 + 4 + 6
    wanted = {"correct": correct, "levels": alone, "pairs": pair}
    assert float(found.sum) == pytest.approx(total, abs=1e-4)
    assert {name: float(x) for name, x in found.metrics.items()} == pytest.approx(wanted, abs=1e-3)


def test_baselines_are_distributions_and_of_equal_levels_where_nothing_was_counted() -> None:
    rng = np.random.default_rng(0)
    for counts in (np.zeros((V, V)), rng.integers(0, 9, (V, V))):
        levels_V, pairs_VV = baselines(counts)
        torch.testing.assert_close(levels_V.exp().sum(), torch.tensor(1.0))
        torch.testing.assert_close(pairs_VV.exp().sum(1), torch.ones(V))
    torch.testing.assert_close(baselines(np.zeros((V, V)))[1], torch.full((V, V), -math.log(V)))


def test_what_a_run_says() -> None:
    objective = NextSamples(PROCESSOR, V)
    nats = {"loss/samples": math.log(4), "samples/levels": math.log(8), "samples/pairs": math.log(6)}
    found = nats | {"samples/correct": 0.25}
    found |= objective.derived(found, lambda: 0.0)
    [said] = objective.summary(found, {}, {})
    assert said.startswith("Held-out recordings: 2.00 bits a sample (from the last one alone: 2.58; ")
    [_, advice] = objective.summary(found | {"samples/pairs": math.log(4)}, {}, {})
    assert "train longer" in advice
    assert objective.derived({}, lambda: 0.0) == {}
    assert objective.summary({}, {}, {}) == []


def test_the_levels_are_those_of_the_model() -> None:
    config = NextSamplesConfig(levels=64)
    assert config.model_fields(PROCESSOR) == {"vocabulary": 64}
    assert config.of_model(PAGE).levels == V
    assert config.build(PROCESSOR).baselines[0].shape == (64,)
    assert not PROCESSOR.normalise
    assert NextSamples(PROCESSOR).probes(SimpleNamespace(), None, 8) == []
