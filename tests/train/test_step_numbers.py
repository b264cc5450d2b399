"""Steps whose numbers went wrong: gradients that overflow, no targets, a memory of a bad step, weights of a bad run."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from train_toy import Guess, Rows, Tiny

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.kernels.processor import Settled
from unmask.models.bert import Bert
from unmask.models.transformer import Transformer
from unmask.models.transformer_xl import TransformerXl
from unmask.objectives.segments import SegmentLM
from unmask.runs.transfer import Transfer, prepare
from unmask.runs.transfer.adapter import load_adapter, save_adapter
from unmask.train.engine import Engine
from unmask.train.metrics import Meter
from unmask.train.optim import Optimizer
from unmask.types import Batch, Loss, Target

SIZES = {"dim": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}


class Grown(Guess):
    """The same losses, with gradients that many times as large; the loss itself stays as it is."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def loss(self, model, batch):
        found = super().loss(model, batch)
        return {k: Loss(x.sum.detach() + self.factor * (x.sum - x.sum.detach()), x.count) for k, x in found.items()}


def engine(objective: Guess, precision: str, clip: float | None, **more: str) -> Engine:
    optimizer = Optimizer(lr=1e-2, clip=clip)
    return Engine(Tiny(dropout=0.0), objective, optimizer, device=torch.device("cpu"), precision=precision, **more)


def step(of: Engine, batch: Batch) -> dict[str, float]:
    meter = Meter()
    of.step([batch], batch.counts, 1e-2, meter)
    return meter.read()


def weights(of: Engine) -> dict[str, torch.Tensor]:
    return copy.deepcopy(of.tensors())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("sharding", ["none", "unfused"])
@pytest.mark.parametrize("factor", [math.inf, math.nan, 1e30])
def test_gradients_that_are_not_finite_leave_the_weights(precision, clip, sharding, factor):
    """1e30: every gradient is finite, their norm is not."""
    of = engine(Guess(), precision, clip)
    if sharding == "unfused":
        of.optimizer = Optimizer(lr=1e-2, clip=clip).build(of.model, fused=False)
    batch = Rows().whole(0)
    step(of, batch)
    before = weights(of)
    of.losses.objective = of.objective = Grown(factor)
    assert step(of, batch)["skipped"] == 1
    after = weights(of)
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("step."))
    of.losses.objective = of.objective = Guess()
    assert step(of, batch)["skipped"] == 0
    assert all(x.isfinite().all() for x in weights(of).values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gradient_that_is_large_is_clipped(precision):
    of = engine(Grown(1e12), precision, 1.0)
    assert step(of, Rows().whole(0))["skipped"] == 0
    assert all(x.isfinite().all() for x in weights(of).values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_without_a_target_is_a_step(precision):
    of = engine(Guess(), precision, 1.0)
    none = Target(torch.zeros(0).long(), torch.zeros(0).long())
    batch = replace(Rows().whole(0), targets={"mlm": none, "nsp": none})
    row = step(of, batch)
    assert row["skipped"] == 0
    assert row["gradient_norm"] == 0
    assert "loss/mlm" not in row
    assert all(x.isfinite().all() for x in weights(of).values())
    assert step(of, Rows().whole(1))["loss/mlm"] > 0


@pytest.fixture
def fp16(monkeypatch):
    """A CPU that computes in float16, as only GPUs do quickly."""
    monkeypatch.setattr("unmask.train.engine.settle", lambda precision, device: Settled(precision))


def test_fp16_takes_the_steps_of_fp32_up_to_rounding(fp16):
    full, half = engine(Guess(), "fp32", 1.0), engine(Guess(), "fp16", 1.0)
    for place in range(3):
        rows = [step(one, Rows().whole(place)) for one in (full, half)]
        assert rows[1]["loss/mlm"] == pytest.approx(rows[0]["loss/mlm"], rel=1e-2)
        assert rows[1]["gradient_norm"] == pytest.approx(rows[0]["gradient_norm"], rel=2e-2)
        assert rows[1]["loss/mlm"] != rows[0]["loss/mlm"]


def test_fp16_keeps_gradients_that_are_tiny(fp16):
    """Those below 6e-8 are 0 in float16, unless the loss is scaled."""
    norms = [
        step(engine(Grown(1e-7), precision, None), Rows().whole(0))["gradient_norm"] for precision in ("fp32", "fp16")
    ]
    assert norms[1] == pytest.approx(norms[0], rel=2e-2)


def test_the_scale_of_fp16_falls_after_an_overflow_and_is_resumed(fp16):
    of = engine(Grown(math.inf), "fp16", 1.0)
    scale, before = of.scaler.get_scale(), weights(of)
    assert step(of, Rows().whole(0))["skipped"] == 1
    assert of.scaler.get_scale() == scale / 2
    after = weights(of)
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("model."))
    other = engine(Guess(), "fp16", 1.0)
    other.load(after)
    assert other.scaler.state_dict() == of.scaler.state_dict()
    with pytest.raises(UnmaskError, match=r"use bf16 with training\.sharding"):
        engine(Guess(), "fp16", 1.0, sharding="full")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fp16_on_a_gpu_learns_as_fp32_does():
    losses = []
    for precision in ("fp32", "fp16"):
        optimizer = Optimizer(lr=1e-2, clip=1.0)
        of = Engine(Tiny(dropout=0.0), Guess(), optimizer, device=torch.device("cuda"), precision=precision)
        rows = [step(of, Rows().whole(place)) for place in range(8)]
        losses.append([row["loss/mlm"] for row in rows if not row["skipped"]])
    assert losses[1][-1] == pytest.approx(losses[0][-1], rel=0.05)
    assert losses[1][-1] < losses[1][0]


def test_an_empty_batch_is_a_step():
    of = engine(Guess(), "fp32", 1.0)
    assert step(of, Rows().whole(0).rows(0, 0))["skipped"] == 0


def test_a_memory_of_a_bad_step_is_forgotten_row_by_row():
    config = TransformerXl(vocabulary=20, dim=16, layers=2, heads=2, hidden=32, length=4, dropout=0.0)
    model, objective = config.build(as_heads({"next": 0}), seed=0).train(), SegmentLM(1, 2)

    def batch(first: int) -> Batch:
        tokens = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
        positions = (torch.arange(4) + first).expand(2, 4)
        target = Target(torch.arange(8), tokens.flatten())
        return Batch(tokens, positions=positions, targets={"next": target}, streams=torch.tensor([0, 1]))

    good = model.embedding.token.weight.data[6].clone()
    model.embedding.token.weight.data[6] = math.nan
    assert not objective.loss(model, batch(0))["next"].sum.isfinite()
    model.embedding.token.weight.data[6] = good
    assert objective.carried["0"].eq(0).all()
    assert objective.carried["1"].ne(0).any()
    assert objective.loss(model, batch(4))["next"].sum.isfinite()


# ------------------------------------------------------------------------------- weights of a run that went wrong


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, wrong):
    model = Bert(vocabulary=20, **SIZES).build(as_heads({"mlm": 0}))
    model.stack.blocks[0].feedforward.f.up.weight.data[3, 1] = wrong
    huggingface.save(tmp_path / "bert", model)
    with pytest.raises(UnmaskError, match=r"intermediate\.dense\.weight' holds numbers that are not finite"):
        huggingface.load(tmp_path / "bert")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_heads": 2, "decoder_heads": 2}
    writer = Transformer(vocabulary=20, dim=16, encoder_hidden=32, decoder_hidden=32, **sizes).build()
    next(writer.parameters()).data[2, 1] = wrong
    huggingface.save(tmp_path / "writer", writer)
    with pytest.raises(UnmaskError, match="not finite"):
        huggingface.load(tmp_path / "writer")


def test_an_adapter_that_is_not_finite_is_refused(tmp_path):
    model = Bert(vocabulary=20, **SIZES).build(as_heads({"classification": 2}))
    plain = copy.deepcopy(model)
    prepare(model, Transfer(strategy="lora", rank=2))
    next(p for name, p in model.named_parameters() if name.endswith(".B")).data[0, 0] = math.nan
    save_adapter(tmp_path, model)
    with pytest.raises(UnmaskError, match="not finite"):
        load_adapter(tmp_path, plain)


def test_weights_whose_sum_overflows_are_taken(tmp_path):
    model = Bert(vocabulary=20, **SIZES).build(as_heads({"mlm": 0}))
    model.embedding.token.weight.data.fill_(1e38)
    huggingface.save(tmp_path, model)
    assert huggingface.load(tmp_path).model.embedding.token.weight.eq(1e38).all()
