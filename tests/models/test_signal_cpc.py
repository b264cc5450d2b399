"""CPC of records: its layers compared with those of PyTorch; no state reads what comes later; its loss and its run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unmask import huggingface
from unmask.data import collate
from unmask.data.signals import synthetic
from unmask.data.signals.processor import SignalProcessor
from unmask.errors import UnmaskError
from unmask.models.signal_cpc import SignalCpc, SignalCpcModel
from unmask.objectives.next_segments import NextSegments
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain
from unmask.train.events import Step
from unmask.train.metrics import read as read_metrics
from unmask.types import Kind

PAGE = SignalCpc(channels=(5, 6), strides=(5, 2), dim=7, layers=2, leads=2)
PROCESSOR = SignalProcessor().for_model(PAGE)
GOLDEN = Path(__file__).parents[1] / "golden" / "pretrain-cpc-signal.json"


def built(steps: int = 3) -> tuple[SignalCpcModel, NextSegments]:
    objective = NextSegments(PROCESSOR, steps=steps)
    model = PAGE.build(objective.heads, seed=0).double().eval()
    assert isinstance(model, SignalCpcModel)
    return model, objective


def records(*segments: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(10 * n + i, 2)).astype(np.float32) for i, n in enumerate(segments)]


def batch_of(found: list[np.ndarray], length: int | None = None):
    examples = [PROCESSOR.example(one) for one in found]
    batch = collate.pad(examples, Kind.PADDING) if length is None else collate.pack(examples, length, Kind.PADDING)
    return batch.map(lambda x: x.double() if x.is_floating_point() else x)


def test_segments_and_states_are_those_of_pytorch():
    model, _ = built()
    (record,) = records(9)
    x_LN = torch.from_numpy(PROCESSOR.values(record)).double().T[None]
    for layer in model.embedding.layers:
        x_LN = F.conv1d(x_LN, layer.convolution.weight, layer.convolution.bias, stride=layer.convolution.stride)
        x_LN = layer.norm(x_LN.transpose(1, 2)).relu().transpose(1, 2)
    network = nn.GRU(6, 7, 2, batch_first=True).double()
    for i, block in enumerate(model.stack.blocks):
        for name, value in block.network.kernel.named_parameters():
            getattr(network, name.replace("_l0", f"_l{i}")).data = value.data
    hidden, segments, _ = model.forward_with_frames(batch_of([record]))
    torch.testing.assert_close(segments[:, :9], x_LN.transpose(1, 2))
    torch.testing.assert_close(hidden[:, :9], network(x_LN.transpose(1, 2))[0])


def test_a_state_does_not_read_what_comes_later():
    model, _ = built()
    (record,) = records(8)
    changed = PROCESSOR.values(record).copy()
    changed[50:] += 1.0
    values = [PROCESSOR.segmented(x) for x in (PROCESSOR.values(record), changed)]
    one, two = (
        model(collate.pad([x], Kind.PADDING).map(lambda t: t.double() if t.is_floating_point() else t)) for x in values
    )
    torch.testing.assert_close(one[:, :5], two[:, :5])
    assert (one[:, 5:] != two[:, 5:]).any()


@pytest.mark.parametrize("length", [12, 20, None])
def test_the_loss_is_that_of_each_record_alone(length: int | None):
    model, objective = built()
    found = records(7, 4, 12, 3)

    def loss(some, length):
        return objective.loss(model, objective.corrupt(batch_of(some, length), np.random.default_rng(0)))[
            "next_segments"
        ]

    together, alone = loss(found, length), [loss([one], None) for one in found]
    assert together.count == sum(one.count for one in alone) == 4 + 1 + 9
    assert together.sum.item() == pytest.approx(sum(one.sum.item() for one in alone))
    assert float(together.metrics["guessing"]) == pytest.approx(4 * np.log(7) + np.log(4) + 9 * np.log(12), rel=1e-5)


def test_sizes_that_do_not_go_together_are_refused():
    with pytest.raises(UnmaskError, match="one number, at least 1, for each convolution"):
        SignalCpc(channels=(4,), strides=(5, 2))
    with pytest.raises(UnmaskError, match="one number, at least 1"):
        SignalCpc(channels=(4, 4), strides=(5, 0))


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    synthetic.write(tmp_path_factory.mktemp("hearts") / "data", rate=100, patients=6)
    return tmp_path_factory.getbasetemp() / "hearts0" / "data"


def config(**changes: object):
    small = {"channels": (8, 8), "strides": (5, 2), "dim": 16, "rate": 100}
    found = recipes.find("cpc-signal").replace(model=small, rows={"tokens": 40, "batch": 4, "heldout": 4})
    found = found.replace(objective={"rate": 100, "steps_ahead": 4})
    training = {"minutes": None, "steps": 20, "log_every": 1, "device": "cpu", "precision": "fp32"}
    return found.replace(training=training).override({name: str(value) for name, value in changes.items()})


def test_the_loss_trace_is_the_golden_one(hearts: Path, tmp_path: Path) -> None:
    """A refactoring must not change it; after a change that is meant to, delete the file and run this twice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        Pretrain(config(lr=1e-2), [hearts], tmp_path / "run").run()
    finally:
        torch.set_num_threads(threads)
    trace = [round(row["loss/next_segments"], 4) for row in read_metrics(tmp_path / "run" / "metrics.jsonl", "train")]
    assert len(trace) == 20
    assert sum(trace[-5:]) < sum(trace[:5])
    if not GOLDEN.exists():
        GOLDEN.write_text(json.dumps(trace, indent=1) + "\n")
        pytest.fail(f"there was no {GOLDEN.name}; it has been written now, look at it and run again")
    assert trace == pytest.approx(json.loads(GOLDEN.read_text()), abs=2e-4)


def test_a_stopped_run_continues_to_the_same_weights(hearts: Path, tmp_path: Path) -> None:
    def run(out: str, resume: bool = False) -> Pretrain:
        return Pretrain(config(steps=6, save_every=2), [hearts], tmp_path / out, resume=resume)

    whole = run("whole")
    (said, *_) = whole.sentences(whole.run())
    assert said.startswith("Held-out records: the next segment was told from the others of its record in")
    half = run("half")
    half.run(lambda event: event == Step(3) and half.trainer.stop("the test"))
    run("half", resume=True).run()
    one, two = (huggingface.load(tmp_path / out).model.state_dict() for out in ("whole", "half"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert any(key.startswith("heads.next_segments") for key in one)
