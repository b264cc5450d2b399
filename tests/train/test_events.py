"""A run as events: their order, who hears them, and what listeners may do."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from train_toy import TRAINING, Guess, Rows, Tiny

from unmask.train import checkpoint, metrics
from unmask.train.events import (
    Began,
    Evaluated,
    Evaluation,
    Event,
    Measured,
    Opened,
    Planned,
    Result,
    Saved,
    Step,
    listen,
)
from unmask.train.trainer import Trainer

CONFIG = TRAINING.replace(steps=3, log_every=2, evaluate_every=2, save_every=2)


def trainer(out: Path, **more: Any) -> Trainer:
    def evaluate(model: nn.Module, step: int) -> Evaluation:
        return Evaluation({"loss/mlm": 1.0 / (1 + step)}, [{"text": "[MASK]"}])

    return Trainer(Tiny(), Guess(), Rows(), CONFIG, out, evaluate=evaluate, **more)


def test_the_order_of_events(out: Path) -> None:
    events = list(trainer(out).events())
    kinds = [type(event) for event in events]
    assert kinds == [
        *(Began, Opened, Evaluated, Planned),
        *(Step, Step, Measured, Evaluated, Saved),
        *(Step, Measured, Evaluated, Saved, Result),
    ]
    assert [event.step for event in events if isinstance(event, Evaluated)] == [0, 2, 3]
    assert all(event.samples == [{"text": "[MASK]"}] for event in events if isinstance(event, Evaluated))
    assert [event.folder.is_dir() for event in events if isinstance(event, Saved)] == [True, True]
    assert events[-1] == Result(3, 3, events[-1].seconds, None, {"loss/mlm": 1 / 4})
    assert not (out / "metrics.jsonl").exists(), "nobody listened"


def test_a_resumed_run_says_where_it_goes_on(out: Path) -> None:
    part = trainer(out)
    listen(part.events(), lambda event: event == Step(1) and part.stop("the test"))
    events = list(trainer(out, resume=True).events())
    assert not any(isinstance(event, Began) for event in events)
    assert [event for event in events if isinstance(event, (Opened, Planned))] == [Opened(1), Planned(1, 3)]


def test_each_listener_hears_each_event_in_order_before_the_run_goes_on(out: Path) -> None:
    heard: list[tuple[str, Event]] = []
    result = trainer(out).train(lambda event: heard.append(("a", event)), lambda event: heard.append(("b", event)))
    assert [name for name, _ in heard] == ["a", "b"] * (len(heard) // 2)
    assert heard[0][1] is heard[1][1]
    assert heard[-1][1] is result
    rows = [event.row for name, event in heard if name == "a" and isinstance(event, (Measured, Evaluated))]
    assert metrics.read(out / "metrics.jsonl") == rows


@pytest.mark.parametrize("at", [Began(), Opened(0), Step(2), Saved])
def test_a_listener_that_raises_ends_the_run_and_leaves_the_folder_free(out: Path, at: Event | type) -> None:
    def fails(event: Event) -> None:
        if at in (event, type(event)):
            raise OSError("full")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="full"):
        trainer(out).train(fails)
    assert signal.getsignal(signal.SIGTERM) is before
    with checkpoint.Lock(out):
        pass


def test_what_listens_changes_no_weights(tmp_path: Path) -> None:
    alone, heard = trainer(tmp_path / "alone"), trainer(tmp_path / "heard")
    list(alone.events())
    heard.train(lambda event: isinstance(event, Evaluated) and event.numbers)
    pairs = zip(alone.model.parameters(), heard.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
