"""What trackers receive of a run, and that their errors never end it; test_real_trackers.py has the real clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unmask.errors import Missing, UnmaskError
from unmask.runs.finetuning import Fit
from unmask.train import trackers
from unmask.train.events import Evaluated, Measured, Opened
from unmask.train.trackers import About, Tracker, Tracking, installed
from unmask.train.trainer import Training


class Spy(Tracker):
    """A client that remembers its calls in `said`, and fails in the methods of `broken`."""

    package, broken = "json", ()

    def __init__(self) -> None:
        self.said: list[tuple] = []

    @staticmethod
    def missing() -> Missing:
        return Missing("json is missing")

    def _say(self, *call) -> None:
        self.said.append(call)
        if call[0] in self.broken:
            raise ConnectionError("no answer\nfrom the server")

    def start(self, about, step, known):
        self._say("start", about.name, dict(about.settings()), step, known)
        return "its-name"

    def log(self, numbers, step):
        self._say("log", dict(numbers), step)

    def finish(self, scores, step, ok):
        self._say("finish", dict(scores), step, ok)


@pytest.fixture
def spied(monkeypatch, tmp_path):
    """(function that tracks some events by the spy, its notes)"""
    notes: list[str] = []

    def track(*events, broken=(), scores=None, part="", error=None):
        monkeypatch.setattr(Spy, "broken", broken)
        monkeypatch.setitem(trackers.TRACKERS, "wandb", Spy)
        about = About(tmp_path / "runs" / "mine", part, lambda: {"fit.lr": 0.1})
        with Tracking(("wandb",), about, notes.append) as tracking:
            spy = tracking.trackers["wandb"]
            for event in events:
                tracking(event)
            tracking.scores = scores or {}
            if error is not None:
                error.spy = spy
                raise error
        return spy.said

    return track, notes


EVENTS = (
    Opened(0),
    Measured(1, 2.0, {"lr": 0.1, "loss/mlm": 3.0, "broken": float("nan")}),
    Evaluated(1, 2.5, {"f1": 0.5, "table": [1]}),
)


def test_a_tracker_receives_settings_numbers_and_scores(spied):
    track, notes = spied
    assert track(*EVENTS, scores={"dev/f1": 0.6}, part="seed 3") == [
        ("start", "runs/mine seed 3", {"fit.lr": 0.1}, 0, None),
        ("log", {"train/lr": 0.1, "train/loss/mlm": 3.0}, 1),
        ("log", {"heldout/f1": 0.5}, 1),
        ("finish", {"final/dev/f1": 0.6}, 1, True),
    ]
    assert not notes


def test_a_resumed_run_continues_under_its_name(spied, tmp_path):
    track, _ = spied
    track(*EVENTS, part="seed 0")
    track(*EVENTS, part="seed 1")
    assert json.loads((tmp_path / "runs" / "mine" / trackers.FILE).read_text()).keys() == {"seed 0", "seed 1"}
    assert track(Opened(5), part="seed 1")[0][-2:] == (5, "its-name")
    assert track(Opened(0), part="seed 1")[0][-2:] == (0, None)


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_an_error_of_a_tracker_is_one_sentence(spied, method):
    track, notes = spied
    track(*EVENTS, EVENTS[-1], broken=(method,))
    assert notes == ["wandb receives no more of this run, which goes on: no answer"]


def test_an_error_of_the_run_ends_that_of_the_tracker(spied):
    track, _ = spied
    with pytest.raises(UnmaskError, match="full disk") as failed:
        track(*EVENTS, error=UnmaskError("full disk"))
    assert failed.value.spy.said[-1] == ("finish", {}, 1, False)


def test_a_damaged_file_of_names_does_not_end_the_run(spied, tmp_path):
    track, notes = spied
    track(*EVENTS)
    (tmp_path / "runs" / "mine" / trackers.FILE).write_text("{")
    assert track(Opened(5))[0][-2:] == (5, None)
    assert len(notes) == 1
    assert "is not valid JSON" in notes[0]


def test_weights_that_begin_again_are_another_run(spied):
    track, _ = spied
    calls = [call[0] for call in track(*EVENTS, *EVENTS)]
    assert calls == ["start", "log", "log", "finish", "start", "log", "log", "finish"]


def test_a_missing_package_and_an_unknown_name_are_errors(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    for name in trackers.TRACKERS:
        with pytest.raises(Missing, match=rf"needs the package {name}.*pip install 'unmask\[{name}\]'"):
            installed((name,))
    with pytest.raises(Missing):
        Fit(track=("wandb",)).check()
    with pytest.raises(UnmaskError, match="did you mean 'mlflow'"):
        Training().override({"track": "wandb,mlfow"})


def test_tensorboard_has_the_numbers_of_each_step(tmp_path: Path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Tracking(("tensorboard",), About(tmp_path, "seed 0", lambda: {"lr": 0.1}), print) as tracking:
        for event in EVENTS:
            tracking(event)
        tracking.scores = {"dev/f1": 0.75}
    found = reading.EventAccumulator(str(tmp_path / "tensorboard" / "seed-0"))
    found.Reload()
    assert [(one.step, one.value) for one in found.Scalars("train/loss/mlm")] == [(1, 3.0)]
    assert [(one.step, one.value) for one in found.Scalars("final/dev/f1")] == [(1, 0.75)]
    assert "settings/text_summary" in found.Tags()["tensors"]
