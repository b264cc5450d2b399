"""make bench --profile: where the time of a turn goes, by kinds of operations."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from bench import common, profiling, run
from bench.profiling import BETWEEN, MARK, OTHERS, Event, kind_of, profiled, sentence, shares
from bench.row import OURS, Plan, Unit
from bench.rows import ROWS
from bench.run import Places, bench
from bench.stopwatch import Stopwatch
from bench.turn import serve


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "products"),
        ("mkldnn::_linear_pointwise", "products"),
        ("aten::_softmax", "softmax"),
        ("aten::copy_", "copies"),
        ("aten::random_", "random numbers"),
        ("aten::_foreach_add_", "update"),
        ("Optimizer.step#AdamW.step", "update"),
        ("aten::view", OTHERS),
        ("_LinearBackward", BETWEEN),
    ],
)
def test_operations_are_told_by_their_names(name, kind):
    assert kind_of(name) == kind


def test_every_operation_has_one_kind():
    names = [name for listed in profiling.KINDS.values() for name in listed.split()]
    assert len(names) == len(set(names))


def test_shares_are_of_the_time_of_all_threads_between_two_marks():
    events = [
        Event("aten::mm", 1, 0.0, 90.0),  # before what counts
        Event(MARK, 1, 100.0, 1.0),
        Event("aten::mm", 1, 110.0, 40.0),
        Event("aten::copy_", 2, 110.0, 20.0),
        Event("_Function", 2, 140.0, 5.0),
        Event("aten::copy_", 3, 140.0, 9.0),  # of a thread that helps now and then
        Event(MARK, 1, 150.0, 1.0),
        Event("aten::mm", 1, 160.0, 20.0),
        Event(MARK, 1, 200.0, 1.0),
        Event("aten::mm", 1, 210.0, 90.0),  # after it
    ]
    found = shares(events, 0, 2)
    assert found == pytest.approx({BETWEEN: 120 / 200, "products": 60 / 200, "copies": 20 / 200})
    assert list(found) == [BETWEEN, "products", "copies"]
    assert shares(events, 0, 1)["products"] == pytest.approx(40 / 150)  # there it computes for a tenth of the time


def test_a_turn_that_is_looked_into_says_where_its_time_goes():
    x = torch.randn(400, 400)

    def turn():
        x.exp()
        with profiling.counted():
            beside = threading.Thread(target=lambda: [x @ x for _ in range(50)])
            beside.start()
            beside.join()
            time.sleep(0.05)
        x.softmax(0)
        return {"figure": 1.0}

    found = profiled(turn)
    assert found["figure"] == 1.0
    assert set(found["where"]) <= {"products", BETWEEN, OTHERS, "copies"}  # neither exp nor softmax
    assert found["where"]["products"] > 0.001
    assert found["where"][BETWEEN] > 0.01
    assert sum(found["where"].values()) == pytest.approx(1)


def test_the_stopwatch_counts_the_steps_that_its_figure_is_about():
    def turn():
        warm, watch = Stopwatch(), Stopwatch()
        for one in (warm, watch):
            for step in range(4):
                one.next_step()
                one.count(1, 1, 1)
                torch.randn(300, 300).softmax(0) if one is warm or step in (0, 3) else torch.ones(300, 300).exp()
        return watch.result(1, 2)

    found = profiled(turn)["where"]
    assert "sums, masks and the like" in found
    assert "softmax" not in found


def test_what_is_hardly_anything_is_not_named():
    said = sentence({"products": 0.5, OTHERS: 0.3, "copies": 0.192, "norms": 0.008})
    assert said.endswith("products 50%, copies 19%, others 31%.")


def test_a_row_says_where_the_time_of_our_side_goes(tmp_path, monkeypatch):
    small = ROWS["decode-greedy"].settings.override({"size": "tiny", "vocabulary": 200, "batch": 2, "sources": 4})
    row = replace(ROWS["decode-greedy"], sides={OURS: ()}, settings=small)
    monkeypatch.setattr(run, "find", lambda names: [row])

    def here(command, **_):
        """The turn in this process; test_bench.py has one that is begun in a fresh one."""
        serve(command[-4:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(common, "subprocess", SimpleNamespace(run=here))
    places = Places(out=tmp_path / "bench.json", table=tmp_path / "bench.md")
    bench([], {}, threads=1, pairs=1, profile=True, places=places)
    (turn,) = json.loads(places.out.read_text("utf-8"))["rows"][0]["turns"][OURS]
    assert turn["where"]["products"] > 0.01
    assert sum(turn["where"].values()) == pytest.approx(1)
    assert "decode-greedy: Where the time of unmask goes" in places.table.read_text("utf-8")


def test_a_look_that_fails_leaves_the_turns_of_other_rows_as_they_are(tmp_path):
    def turn(side, number):
        if common.PROFILED.get():
            raise ValueError
        return {"figure": 1.0}

    with pytest.raises(ValueError):
        Plan(1, 1, tmp_path, profile=True).alternate([OURS], Unit("s"), turn)
    assert not common.PROFILED.get()
