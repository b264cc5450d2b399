"""Strategies of transfer: what each trains, at which rate and when, seen through the trainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.models.model import Model
from unmask.nn.lora import adapters
from unmask.runs.transfer import Transfer, Tuning, merged, prepare, scale, trainable
from unmask.runs.transfer.strategy import CRF
from unmask.tasks import Classification
from unmask.train.events import Evaluation
from unmask.train.optim import Optimizer, Schedule
from unmask.train.trainer import Trainer, Training
from unmask.types import Batch, Target

CONFIG = Bert(vocabulary=50, dim=16, layers=3, heads=2, hidden=32, length=16)
TASK = Classification(["a", "b", "c"])
HEAD = 16 * 3 + 3
POOLER = 16 * 16 + 16
BLOCK = 4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 2 * 2 * 16
EMBEDDING = (50 + 2 + 16) * 16 + 2 * 16
LEVELS = ("heads", "stack.blocks.2", "stack.blocks.1", "stack.blocks.0", "embedding")


def model(**changes: Any) -> Model:
    return CONFIG.replace(**changes).build(TASK.heads, seed=3)


def batch(step: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(5, 50, (6, 8), generator=generator)
    starts = torch.arange(6) * 8
    return Batch(tokens, starts=starts, targets={TASK.name: Target(starts, tokens[:, 1] % 3)})


class Rows:
    """Endless batches, each a pure function of its step."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        step = 0 if position is None else position["step"]
        while True:
            step += 1
            yield [batch(step)], {"step": step}


def trainer(of: Model, tuning: Tuning | None, out: Path, steps: int = 5, **more: Any) -> Trainer:
    config = Training(
        steps=steps,
        optimizer=Optimizer(lr=1e-2, weight_decay=0.1),
        schedule=Schedule(warmup=0, shape="constant"),
        precision="fp32",
        device="cpu",
        evaluate_every=more.pop("evaluate_every", None),
        save_every=more.pop("save_every", None),
    )
    return Trainer(of, TASK, Rows(), config, out, tuning=tuning, **more)


def weights(of: Model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in of.named_parameters()}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, p in after.items() if not torch.equal(p, before[name])}


def level(name: str) -> int:
    return next((i for i, prefix in enumerate(LEVELS) if name.startswith(prefix)), 0)


# ------------------------------------------------------------------------------------------------ what is trained


@pytest.mark.parametrize(
    ("transfer", "count"),
    [
        (Transfer(), HEAD + POOLER + 3 * BLOCK + EMBEDDING),
        (Transfer(strategy="frozen"), HEAD + POOLER),
        (Transfer(strategy="top", layers=1), HEAD + POOLER + BLOCK),
        (Transfer(strategy="top", layers=3), HEAD + POOLER + 3 * BLOCK),
        (Transfer(strategy="gradual"), HEAD + POOLER + 3 * BLOCK + EMBEDDING),
        (Transfer(strategy="lora", rank=2), HEAD + POOLER + 3 * 2 * 2 * (16 + 16)),
        (Transfer(strategy="lora", rank=4, target=("up", "down")), HEAD + POOLER + 3 * 2 * 4 * (16 + 32)),
    ],
    ids=lambda value: f"{value.strategy}-{value.layers}" if isinstance(value, Transfer) else "",
)
def test_number_of_trained_parameters(transfer: Transfer, count: int) -> None:
    of = model()
    prepare(of, transfer)
    assert trainable(of) == count


@pytest.mark.parametrize(
    ("transfer", "reach"),
    [
        (Transfer(), 4),
        (Transfer(strategy="frozen"), 0),
        (Transfer(strategy="top", layers=2), 2),
    ],
    ids=["full", "frozen", "top"],
)
def test_frozen_weights_stay_and_the_others_move(transfer: Transfer, reach: int, tmp_path: Path) -> None:
    of = model()
    before = weights(of)
    trainer(of, prepare(of, transfer), tmp_path / "run").train()
    assert moved(before, weights(of)) == {name for name in before if level(name) <= reach}


def test_lora_moves_its_own_weights_and_the_head_only(tmp_path: Path) -> None:
    of = model()
    tuning = prepare(of, Transfer(strategy="lora", rank=2))
    before = weights(of)
    trainer(of, tuning, tmp_path / "run").train()
    added = {f"{name}.{part}" for name in adapters(of) for part in "AB"}
    assert len(added) == 3 * 2 * 2
    assert moved(before, weights(of)) == added | {name for name in before if level(name) == 0}


def test_what_is_frozen_runs_without_dropout_and_without_a_graph(tmp_path: Path) -> None:
    of = model(dropout=0.5, attention_dropout=0.5)
    tuning = prepare(of, Transfer(strategy="frozen"))
    expected = of.eval()(batch())
    of.train()
    tuning.on_step(0, 10)
    found = of(batch())
    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert of.heads[TASK.name].training
    seen: list[bool] = []

    def evaluate(_: object, step: int) -> Evaluation:
        seen.append(of.training or of.stack.training)
        return Evaluation({})

    trainer(of, tuning, tmp_path / "run", evaluate=evaluate, evaluate_every=2).train()
    assert not any(seen)
    assert of.heads[TASK.name].training
    of.train()
    tuning.on_step(0, 1)
    assert not of.stack.blocks[0].training, "an evaluation does not bring the dropout back"


def test_below_the_top_nothing_is_kept_for_the_backward_pass() -> None:
    of = model(dropout=0.5)
    tuning = prepare(of, Transfer(strategy="top", layers=1))
    graphs: list[bool] = []
    for block in of.stack.blocks:
        block.register_forward_hook(lambda module, args, output: graphs.append(output.requires_grad))
    of.train()
    tuning.on_step(0, 1)
    of(batch())
    assert graphs == [False, False, True]
    assert [block.training for block in of.stack.blocks] == [False, False, True]
    assert not of.embedding.training


# ------------------------------------------------------------------------------------------------ gradual


def test_gradual_thaws_from_the_top_in_equal_shares() -> None:
    of = model()
    tuning = prepare(of, Transfer(strategy="gradual"))
    of.train()
    reached = []
    for step in range(10):
        tuning.on_step(step, 10)
        trained = {level(name) for name, p in of.named_parameters() if p.requires_grad}
        frozen = {level(name) for name, p in of.named_parameters() if not p.requires_grad}
        assert trained == set(range(len(trained)))
        assert not trained & frozen
        assert [part.training for part in of.stack.blocks] == [2 - i < len(trained) - 1 for i in range(3)]
        reached.append(max(trained))
    assert reached == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@given(st.integers(1, 300), st.integers(1, 24))
def test_gradual_starts_with_the_heads_and_never_freezes_again(total: int, layers: int) -> None:
    tuning = Tuning.__new__(Tuning)
    tuning.transfer, tuning.layers, tuning.deepest = Transfer(strategy="gradual"), layers, layers + 1
    found = [tuning.reach(step, total) for step in range(total)]
    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] == min(layers + 1, (total - 1) * (layers + 2) // total)
    if total >= layers + 2:
        assert set(found) == set(range(layers + 2)), "every level has its share"


def test_gradual_moves_each_level_when_its_time_comes(tmp_path: Path) -> None:
    of = model()
    tuning = prepare(of, Transfer(strategy="gradual"))
    seen = [weights(of)]

    def evaluate(_: object, step: int) -> Evaluation:
        if step:
            seen.append(weights(of))
        return Evaluation({})

    trainer(of, tuning, tmp_path / "run", evaluate=evaluate, evaluate_every=1).train()
    for step in range(5):
        assert {level(name) for name in moved(seen[step], seen[step + 1])} == set(range(step + 1))


def test_a_resumed_gradual_run_is_the_same_run(tmp_path: Path) -> None:
    def run(name: str, stop: int | None, resume: bool) -> dict[str, torch.Tensor]:
        of = model()
        tuning = prepare(of, Transfer(strategy="gradual", layer_decay=0.8))

        def evaluate(_: object, step: int) -> Evaluation:
            if step == stop:
                running.stop("as told")
            return Evaluation({})

        running = trainer(
            of, tuning, tmp_path / name, 10, evaluate=evaluate, evaluate_every=1, save_every=100, resume=resume
        )
        running.train()
        return weights(of)

    whole = run("whole", None, False)
    stopped = run("parts", 5, False)
    again = run("parts", None, True)
    assert moved(whole, stopped)
    assert not moved(whole, again)


# ------------------------------------------------------------------------------------------------ rates


def test_the_factor_falls_from_layer_to_layer() -> None:
    found = scale(model(), Transfer(layer_decay=0.5))
    expected = {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125}
    assert found == {name: expected[level(name)] for name in found}
    assert "pooler.dense.weight" in found
    assert set(scale(model(), Transfer()).values()) == {1.0}


def test_masked_words_tied_to_the_embedding_have_its_factor() -> None:
    of = CONFIG.build(as_heads({"mlm": 0}))
    found = scale(of, Transfer(layer_decay=0.5))
    assert found["embedding.token.weight"] == 0.125
    assert found["heads.mlm.bias"] == 1.0


def test_transitions_between_tags_move_faster_than_the_rest() -> None:
    found = scale(CONFIG.build(as_heads({"tagging": 3, "crf": 3})), Transfer(layer_decay=0.5))
    assert {factor for name, factor in found.items() if ".crf." in name} == {CRF}
    assert found["heads.tagging.output.weight"] == 1.0


def test_the_first_update_is_as_long_as_the_factor_says(tmp_path: Path) -> None:
    of = model(dropout=0.0, attention_dropout=0.0)
    before = weights(of)
    transfer = Transfer(layer_decay=0.5)
    run = trainer(of, prepare(of, transfer), tmp_path / "run", steps=1)
    run.engine.config = run.engine.config.replace(clip=None)
    for group in run.engine.optimizer.param_groups:
        group["weight_decay"], group["eps"] = 0.0, 1e-30
    run.train()
    for name, p in weights(of).items():
        steps = (p - before[name]).abs()
        if steps.count_nonzero():  # Adam's first step is the learning rate itself, wherever there is a gradient
            assert steps.median().item() in (0.0, pytest.approx(1e-2 * scale(of, transfer)[name], rel=1e-2)), name


def test_adapters_take_the_factor_of_their_layer() -> None:
    of = model()
    tuning = prepare(of, Transfer(strategy="lora", layer_decay=0.5))
    found = {name: tuning.scale(name) for name, p in of.named_parameters() if p.requires_grad}
    assert found["stack.blocks.0.attention.f.query.A"] == 0.25
    assert found["stack.blocks.2.attention.f.value.B"] == 1.0


# ------------------------------------------------------------------------------------------------ new weights


def test_only_the_top_starts_anew_and_no_two_parts_alike() -> None:
    of = model()
    before = weights(of)
    prepare(of, Transfer(reinitialise=2), seed=3)
    after = weights(of)
    anew = {name for name in before if level(name) in (1, 2) or name.startswith("pooler")}
    matrices = {name for name in anew if before[name].ndim > 1}
    assert moved(before, after) == matrices, "biases and norms start at 0 and 1 in both"
    top, below = (after[f"stack.blocks.{i}.attention.f.query.weight"] for i in (2, 1))
    assert not torch.equal(top, below)
    assert 0.015 < top.std() < 0.02
    with torch.no_grad():
        for name in anew:
            of.get_parameter(name).fill_(7.0)
    prepare(of, Transfer(reinitialise=2), seed=3)
    assert not moved(after, weights(of)), "everything of these layers, and the same with the same seed"
    prepare(of, Transfer(reinitialise=2), seed=4)
    assert moved(after, weights(of)) == matrices


# ------------------------------------------------------------------------------------------------ adapters


def loss(of: Model) -> torch.Tensor:
    return TASK.loss(of, batch())[TASK.name].sum


def test_a_run_with_adapters_starts_at_the_loss_of_the_model() -> None:
    of = model().eval()
    before = loss(of)
    prepare(of, Transfer(strategy="lora"))
    assert torch.equal(loss(of), before)


def test_merged_answers_as_unmerged_and_is_plain(tmp_path: Path) -> None:
    of = model()
    names = [name for name, _ in of.named_parameters()]
    trainer(of, prepare(of, Transfer(strategy="lora", rank=2, lora_dropout=0.1)), tmp_path / "run").train()
    of.eval()
    expected, kept = of(batch()), weights(of)
    plain = merged(of)
    torch.testing.assert_close(plain(batch()), expected, atol=1e-5, rtol=1e-5)
    assert [name for name, _ in plain.named_parameters()] == names
    assert all(p.requires_grad for p in plain.parameters())
    assert not adapters(plain)
    assert len(adapters(of)) == 6
    with torch.no_grad():
        for p in plain.parameters():
            p.zero_()
    assert not moved(kept, weights(of)), "the copy shares nothing"
    base = model()
    assert merged(base) is base


def test_two_seeds_give_two_starts() -> None:
    a, b, c = (model() for _ in range(3))
    for of, seed in ((a, 0), (b, 0), (c, 1)):
        prepare(of, Transfer(strategy="lora"), seed)
    assert not moved(weights(a), weights(b))
    assert {name.rpartition(".")[2] for name in moved(weights(a), weights(c))} == {"A"}


# ------------------------------------------------------------------------------------------------ bad values


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        (Transfer(strategy="top", layers=4), "The model has 3 layers: train 1 to 3 of them, not 4"),
        (Transfer(strategy="top", layers=0), "train 1 to 3 of them, not 0"),
        (Transfer(layer_decay=0.0), "layer decay must be above 0"),
        (Transfer(layer_decay=1.5), "at most 1, not 1.5"),
        (Transfer(reinitialise=4), "4 of them cannot be re-initialised"),
        (Transfer(strategy="frozen", reinitialise=1), "'frozen' never trains: re-initialise at most 0"),
        (Transfer(strategy="lora", reinitialise=1), "'lora' never trains"),
        (Transfer(strategy="top", layers=1, reinitialise=2), "re-initialise at most 1"),
        (Transfer(strategy="lora", target=("qurey",)), "did you mean 'query'"),
        (Transfer(strategy="lora", target=()), "at least one linear layer"),
        (Transfer(strategy="lora", alpha=0.0), "alpha of LoRA must be above 0"),
        (Transfer(strategy="lora", lora_dropout=1.0), "dropout at least 0 and below 1"),
    ],
    ids=lambda value: "" if isinstance(value, Transfer) else value[:20],
)
def test_numbers_that_do_not_fit_are_one_sentence_and_change_nothing(transfer: Transfer, message: str) -> None:
    of = model()
    before, flags = weights(of), [p.requires_grad for p in of.parameters()]
    with pytest.raises(UnmaskError, match=message):
        prepare(of, transfer)
    assert not moved(before, weights(of))
    assert [p.requires_grad for p in of.parameters()] == flags


def test_it_is_a_config_like_any_other() -> None:
    transfer = Transfer(strategy="lora", target=("query", "key"), layer_decay=0.9)
    assert Transfer.from_dict(transfer.to_dict()) == transfer
    assert Transfer().override({"strategy": "top", "target": "up,down"}).target == ("up", "down")
    assert copy.deepcopy(transfer) == transfer
