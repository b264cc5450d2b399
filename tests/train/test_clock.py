"""The clock of the machine is set back, and stands still: budgets, metrics, locks and checkpoints do not mind."""

from __future__ import annotations

import ast
import itertools
import json
import os
import time
from pathlib import Path

import pytest
from train_toy import TRAINING, Guess, Rows, Tiny

import unmask
from unmask.errors import UnmaskError
from unmask.train import checkpoint
from unmask.train.trainer import Trainer
from unmask.visualize import runs

SOURCE = Path(unmask.__file__).parent
MAY_ASK = {
    "visualize/runs.py",  # how long ago a file was written: both are times of the same clock
    "runs/speedrun.py",  # the date of a line of the record, which nothing reads
}


@pytest.fixture
def backwards(monkeypatch):
    """A clock that goes back by a day whenever someone looks at it."""
    days = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1e9 - 86_400 * next(days))


def trained(out: Path, **changes: object):
    return Trainer(Tiny(dropout=0.0), Guess(), Rows(), TRAINING.replace(**changes), out).train()


def test_a_budget_of_minutes_is_of_time_that_passes(tmp_path, backwards):
    began = time.monotonic()
    result = trained(tmp_path, steps=None, minutes=0.02, log_every=5)
    assert result.step == result.total > 1
    assert 0 < result.seconds <= time.monotonic() - began
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds)
    assert all(row["tokens_per_second"] > 0 for row in rows)


def test_locks_and_checkpoints_go_by_steps_and_holders(tmp_path, backwards):
    trained(tmp_path, steps=6, save_every=2)
    for i, folder in enumerate(sorted((tmp_path / "checkpoints").glob("step-*"))):
        os.utime(folder, (2e9 - i, 2e9 - i))  # the newest has the oldest time, in the future
    assert checkpoint.latest(tmp_path / "checkpoints").step == 6
    with checkpoint.Lock(tmp_path):
        os.utime(tmp_path / checkpoint.LOCK, (0, 0))
        with pytest.raises(UnmaskError, match="Another run"), checkpoint.Lock(tmp_path):
            pass
    os.utime(tmp_path / checkpoint.LOCK, (4e9, 4e9))
    with checkpoint.Lock(tmp_path):
        pass


def test_a_run_of_the_future_is_no_running_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    written = path.stat().st_mtime
    states = [runs.run(tmp_path, now=written + later)["state"] for later in (10, 1_000, -10, -86_400)]
    assert states == ["running", "stopped", "running", "stopped"]


def test_nothing_else_asks_what_time_it_is():
    """`time.monotonic` and `time.perf_counter` measure how long something took; no clock sets them."""
    asked = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "datetime.now", "time.time_ns"):
                asked.add(path.relative_to(SOURCE).as_posix())
    assert asked <= MAY_ASK
