"""The recurrent network over segments, beside torch.nn.LSTM, and the direction in which it reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.signal_recurrent import SIZES, SignalRecurrent

PAGE = SignalRecurrent(segment=4, leads=2, dim=3, hidden=5, layers=2)


def states(page, samples):
    processor = SignalProcessor(normalise="none").for_model(page)
    with torch.no_grad():
        return page.build(seed=1).eval()(processor.collate([processor.example(samples)]))[0]


@pytest.mark.parametrize("both", [True, False])
def test_the_states_are_those_of_torch(both):
    page = PAGE.replace(bidirectional=both)
    samples_NL = np.random.default_rng(0).normal(size=(26, 2)).astype(np.float32)
    model = page.build(seed=1)
    lstm = torch.nn.LSTM(3, 5, 2, batch_first=True, bidirectional=both)
    for number, block in enumerate(model.stack.blocks):
        for name, weight in block.network.kernel.named_parameters():
            getattr(lstm, name.replace("_l0", f"_l{number}")).data.copy_(weight)
    segments_KV = torch.from_numpy(samples_NL[:24]).reshape(6, 4, 2).transpose(1, 2).flatten(1)
    with torch.no_grad():
        wanted, _ = lstm(torch.nn.functional.linear(segments_KV, model.embedding.weight, model.embedding.bias)[None])
    torch.testing.assert_close(states(page, samples_NL), wanted[0])


@pytest.mark.parametrize("both", [True, False])
def test_one_direction_sees_no_later_segment(both):
    page = PAGE.replace(bidirectional=both)
    samples_NL = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    other = samples_NL.copy()
    other[24:] += 1
    one, two = states(page, samples_NL), states(page, other)
    assert torch.equal(one[:6], two[:6]) is not both
    assert not torch.allclose(one[6:], two[6:])


def test_sizes():
    counts = [SignalRecurrent(**fields).build().parameters_total for fields in SIZES.values()]
    assert [round(count / 1e6, 1) for count in counts] == [0.2, 2.4]
    with pytest.raises(UnmaskError, match="must be at least 1"):
        SignalRecurrent(layers=0)
