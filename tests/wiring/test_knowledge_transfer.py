"""MobileBERT's transfer from its teacher: differences by their formulas, phases, what is frozen, what is copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models import IbBert, MobileBert
from unmask.objectives.distillation import Phases, normalised
from unmask.runs import recipes
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.pretraining.teacher import Stages, inherit_ends
from unmask.train.metrics import read as read_metrics

SMALL = {"dim": 16, "layers": 2, "heads": 2, "hidden": 16, "length": 32, "factor": 8}
LAYERS = {"states": 1.0, "attention": 1.0, "normalised_states": True}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpora") / "stories"
    rng = np.random.default_rng(0)
    names = ("cat", "dog", "bird", "horse")
    stories = [
        TextDocument(" ".join(f"The {rng.choice(names)} sees the {rng.choice(names)}." for _ in range(8)), str(i))
        for i in range(40)
    ]
    corpus.build(stories, out, vocabulary_size=60, heldout=0.1)
    return out


def config(recipe: str, **changes: object) -> Pretraining:
    training = {"minutes": None, "steps": 10, "log_every": 1, "precision": "fp32", "device": "cpu"}
    run = recipes.find(recipe).replace(training=training, rows={"batch": 4, "heldout": 8})
    run = run.replace(model={**SMALL, "bottleneck": 24 if recipe.startswith("ib") else 8})
    return run.override({"evaluate_every": 10, "sentences": "none", **changes})


@pytest.fixture(scope="module")
def teacher(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    Pretrain(config("ib-bert-tiny"), [text], out).run()
    return out


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.sampled_from([2, 3, 8]))
def test_the_difference_of_normalised_states(seed: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    mine, theirs = rng.normal(1, 2, (2, 3, width)), rng.normal(0, 1, (2, 3, width))
    wanted = np.zeros((2, 3))
    for place in np.ndindex(2, 3):
        a, b = mine[place], theirs[place]
        scaled = [(x - x.mean()) / np.sqrt(x.var() + 1e-5) for x in (a, b)]
        wanted[place] = ((scaled[0] - scaled[1]) ** 2).mean()
        wanted[place] += 50 * (a.mean() - b.mean()) ** 2 + 0.05 * abs(a.var() - b.var())
    found = normalised(torch.from_numpy(mine), torch.from_numpy(theirs)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 300), st.floats(0.01, 0.99), st.integers(1, 24))
def test_each_layer_has_its_turn_from_below(total: int, share: float, depth: int) -> None:
    phases = Phases("progressive", share)
    turns = [phases.layer(step, total, depth) for step in range(total)]
    end = max(1, round(share * total))
    assert turns[end:] == [None] * (total - end)  # all at once
    assert turns[:end] == sorted(turns[:end])
    if end >= depth:
        counts = np.bincount(turns[:end], minlength=depth)
        assert len(counts) == depth
        assert counts.max() - counts.min() <= 1
    assert not any(Phases("auxiliary", share).only_layers(step, total) for step in range(total))


def test_one_layer_is_trained_at_a_time() -> None:
    model = MobileBert(**SMALL, vocabulary=20, bottleneck=8).build(as_heads({"mlm": 0}))
    stages = Stages(model, Phases("progressive", 0.5))

    def trained(step: int) -> set[str]:
        stages.on_step(step, 8)
        names = (name for name, p in model.named_parameters() if p.requires_grad)
        return {".".join(name.split(".")[:3]) if name.startswith("stack") else name.split(".")[0] for name in names}

    assert trained(0) == trained(1) == {"embedding", "stack.blocks.0"}
    assert trained(2) == trained(3) == {"stack.blocks.1"}
    assert trained(4) == {"embedding", "stack.blocks.0", "stack.blocks.1", "heads"}


def test_a_run_learns_layers_first_and_then_predictions(text: Path, teacher: Path, tmp_path: Path) -> None:
    run = Pretrain(
        config("mobilebert-tiny", teacher=teacher, **LAYERS, transfer="progressive", transfer_share=0.4),
        [text],
        tmp_path / "a",
    )
    theirs = run.objective.teacher.state_dict()
    own = run.model.state_dict()
    ends = [name for name in own if not name.startswith("stack.")]
    assert {"embedding.transform.weight", "heads.mlm.dense.weight"} <= set(ends)
    assert all(torch.equal(own[name], theirs[name]) for name in ends)
    run.run()
    rows = read_metrics(tmp_path / "a" / "metrics.jsonl", "train")
    layers, predictions = {"loss/hidden", "loss/attention"}, {"loss/mlm", "loss/soft"}
    terms = [{name for name in row if name.startswith("loss/")} for row in rows]
    assert terms == [layers] * 4 + [predictions] * 6
    heldout = read_metrics(tmp_path / "a" / "metrics.jsonl", "heldout")
    assert all(layers | predictions <= row.keys() for row in heldout)
    assert heldout[-1]["loss/hidden"] < heldout[0]["loss/hidden"]


def test_the_loss_of_a_turn_is_that_of_its_layer(text: Path, teacher: Path, tmp_path: Path) -> None:
    run = Pretrain(
        config("mobilebert-tiny", teacher=teacher, states=1.0, transfer="progressive"), [text], tmp_path / "a"
    )
    (batch,), _ = next(run.data.batches(None))
    run.objective.on_step(2, 10)  # of 3 steps for 2 layers, the last
    found = run.objective.loss(run.model.train(), batch)
    with torch.no_grad():
        mine, theirs = (model.hidden_states(batch)[-1] for model in (run.model, run.objective.teacher))
    wanted = (mine - theirs).square().mean(-1)[batch.documents > 0].sum()
    assert found.keys() == {"hidden"}
    assert found["hidden"].sum.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_resumed_transfer_ends_where_the_whole_one_does(text: Path, teacher: Path, tmp_path: Path) -> None:
    asked = config(
        "mobilebert-tiny", teacher=teacher, **LAYERS, transfer="joint", transfer_share=0.5, evaluate_every=None
    )
    Pretrain(asked, [text], tmp_path / "whole").run()
    part = Pretrain(asked, [text], tmp_path / "part", recipe="mobilebert-tiny")
    part.run(lambda event: part.trainer.stop("a test") if getattr(event, "step", 0) == 3 else None)
    main(["pretrain", "--out", str(tmp_path / "part"), "--resume"])
    whole, again = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"transfer": "joint"}, "--transfer joint has nothing to learn from: set --states or --attention"),
        ({"states": 1.0, "transfer": "joint", "transfer_share": 1.0}, "between 0 and 1, not 1.0"),
        ({"states": 1.0, "transfer": "joint", "factor": 4}, "use its sizes, or --transfer auxiliary"),
        ({"teacher": None, "transfer": "joint"}, "--transfer needs a teacher"),
    ],
)
def test_a_transfer_that_cannot_be_is_refused(
    text: Path, teacher: Path, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UnmaskError, match=said):
        Pretrain(config("mobilebert-tiny", **{"teacher": teacher, **changes}), [text], tmp_path / "run")


def test_the_ends_are_copied_and_the_layers_are_not() -> None:
    teacher = IbBert(**SMALL, vocabulary=20, bottleneck=24).build(as_heads({"mlm": 0}), seed=1)
    student = MobileBert(**SMALL, vocabulary=20, bottleneck=8).build(as_heads({"mlm": 0, "nsp": 2}), seed=2)
    before = student.stack.blocks[0].f.leave.weight.clone()
    assert inherit_ends(student, teacher) == "New heads, which the teacher does not have: nsp."
    assert torch.equal(student.stack.blocks[0].f.leave.weight, before)
    assert torch.equal(student.heads["mlm"].dense.weight, teacher.heads["mlm"].dense.weight)
