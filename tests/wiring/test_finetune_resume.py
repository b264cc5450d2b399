"""Fine-tuning that was killed goes on where it was, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from finetune_toy import Spy, Stopper, arguments, fields

from unmask.cli import main
from unmask.errors import Stopped, UnmaskError
from unmask.runs.finetuning import FineTuning, begun, finetune
from unmask.runs.finetuning.report import render_result
from unmask.tasks import Task
from unmask.train import metrics
from unmask.train.metrics import TIMED
from unmask.visualize import runs

TRACES = ("results.json", "metrics.jsonl", "config.json", "tokenizer.json", "seeds/0/metrics.jsonl")


def config(place, **more):
    return FineTuning().override({**fields(*place), "seeds": 2, "evaluations": 2, **more})


def trace(folder):
    """All that a run computed: its files without what the clock says, and the bytes of its weights."""
    found = {name: (folder / name).read_text() for name in TRACES}
    for name in found:
        if name.endswith("metrics.jsonl"):
            rows = [json.loads(line) for line in found[name].splitlines()]
            found[name] = [{k: v for k, v in row.items() if k not in TIMED} for row in rows]
    return {**found, "weights": (folder / "model.safetensors").read_bytes()}


@pytest.fixture(scope="module")
def whole(place, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    finetune(config(place), out)
    return out


def test_a_dev_score_says_of_how_many_evaluations_it_is_the_best(whole):
    results = json.loads((whole / "results.json").read_text())
    for run in results["seeds"]:
        rows = metrics.read(whole / "seeds" / str(run["seed"]) / "metrics.jsonl", "heldout")
        values = [row["accuracy"] for row in rows if row["step"]]
        assert (run["evaluations"], run["last"]) == (len(values), values[-1]) == (8, values[-1])
        begins = f"The dev scores of seed {run['seed']} are of the best of 8 evaluations, at step {run['step']}"
        is_last = rows[-1]["step"] == run["step"]
        said = f"{begins} (the last one)." if is_last else f"{begins} (the last: accuracy {values[-1]:.4f})."
        assert said in render_result(results)
        assert said in (whole / "report.html").read_text()
        run |= {"step": rows[-1]["step"], "precision": "bf16"}
        assert f"evaluations, at step {run['step']} (the last one)." in render_result(results)
        run["step"] = 1
        assert f"at step 1 (the last: accuracy {values[-1]:.4f} in bf16)." in render_result(results)
        del run["evaluations"]
    assert "the best of" not in render_result(results)  # of a folder from before this was counted


class Killed(BaseException):
    """A death that no code prepares for: nothing is saved, no result is written."""


@pytest.mark.parametrize("dies", [(0, 0), (0, 5), (1, 0), (1, 16)])
def test_a_run_that_dies_at_any_step_ends_as_if_it_had_not(dies, place, whole, tmp_path):
    out, (seed, step) = tmp_path / "run", dies

    class Deadly(Spy):
        def show(self, row):
            if row["step"] == step and (not seed or "Seed 1:" in self.notes):
                raise Killed

    with pytest.raises(Killed):
        finetune(config(place), out, display=Deadly())
    with pytest.raises(UnmaskError, match="--resume"):
        finetune(config(place), out)
    assert begun(out) == config(place)
    finetune(begun(out), out, resume=True)
    assert trace(out) == trace(whole)
    assert not list(out.rglob("checkpoints"))
    assert not list(out.rglob(".*"))


def test_a_run_that_began_when_rows_were_held_out_at_random_keeps_its_dev_rows(place, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        finetune(config(place, dev="none"), out, display=Stopper("Seed 0:"))
    known = begun(out)
    facts = json.loads((out / "run.json").read_text())
    assert facts["config"]["rows"].pop("stratify")
    (out / "run.json").write_text(json.dumps(facts))
    assert begun(out) == known.replace(rows={"stratify": False})
    said = Spy()
    finetune(begun(out), out, display=said, resume=True)
    assert any("held out instead, at random" in note for note in said.notes)


def test_a_signal_ends_a_run_that_can_go_on(place, whole, tmp_path, monkeypatch):
    """It evaluates nothing more, for whoever sent the signal does not wait long."""
    out, display, late = tmp_path / "a run", Stopper("Seed 0:"), []
    answer_all = Task.answer_all

    def watched(self, *given):
        late.append(display.done)
        return answer_all(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "answer_all", watched)
        with pytest.raises(Stopped, match="Stopped by SIGTERM in seed 0") as stopped:
            finetune(config(place), out, display=display)
    assert not any(late)
    assert str(stopped.value).endswith(f"; continue with: unmask finetune --out '{out}' --resume")
    assert runs.run(out / "seeds" / "0")["state"] in ("running", "stopped")
    finetune(begun(out), out, resume=True)
    assert runs.run(out)["state"] == "finished"
    assert trace(out)["weights"] == trace(whole)["weights"]


def test_a_signal_ends_an_evaluation_that_is_made_when_the_run_goes_on(place, whole, tmp_path, monkeypatch):
    """Here of the second epoch: it is the fourth one, with that before the first step and two in each epoch."""
    answer_all, calls, after = Task.answer_all, [], []

    def signalled(self, *given):
        calls.append(1)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGTERM)
            after.append(1)
        return answer_all(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "answer_all", signalled)
        with pytest.raises(Stopped, match="Stopped by SIGTERM in seed 0"):
            finetune(config(place), tmp_path / "run")
    assert (len(calls), after) == (5, [])
    finetune(begun(tmp_path / "run"), tmp_path / "run", resume=True)
    assert trace(tmp_path / "run") == trace(whole)


def test_a_run_that_dies_while_it_tidies_has_ended(place, whole, tmp_path, monkeypatch):
    def die(folder):
        raise Killed

    monkeypatch.setattr("unmask.runs.finetuning.run._clear", die)
    with pytest.raises(Killed):
        finetune(config(place), tmp_path / "run")
    with pytest.raises(UnmaskError, match="has ended; its scores are in"):
        begun(tmp_path / "run")
    assert trace(tmp_path / "run") == trace(whole)


@pytest.mark.parametrize("start", [1, 2])
def test_a_second_start_survives(start, place, tmp_path, monkeypatch):
    """The first try is taken for collapsed; the run dies in it, or in the second start."""
    asked, asks = config(place, seeds=1, epochs=3), []

    def collapsed_once(self, answers, rows):
        asks.append(1)
        return len(asks) == 1

    monkeypatch.setattr("unmask.tasks.classification.Classification.is_collapsed", collapsed_once)
    finetune(asked, tmp_path / "whole")
    asks.clear()

    class Deadly(Spy):
        starts = 0

        def start(self, step, total):
            self.starts += 1

        def show(self, row):
            if self.starts == start and row["step"] == 10:
                raise Killed

    with pytest.raises(Killed):
        finetune(asked, tmp_path / "run", display=Deadly())
    assert len(asks) == start - 1
    finetune(begun(tmp_path / "run"), tmp_path / "run", resume=True)
    assert len(asks) == 2
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_early_stopping_is_not_forgotten(place, tmp_path):
    asked = config(place, patience=1, epochs=12, evaluations=4, lr=3e-2)
    finetune(asked, tmp_path / "whole")
    seeds = json.loads((tmp_path / "whole/results.json").read_text())["seeds"]
    assert seeds[0]["stopped"].startswith("no gain")

    class Deadly(Spy):
        def note(self, text):
            super().note(text)
            if text == "Seed 1:":
                raise Killed

    with pytest.raises(Killed):
        finetune(asked, tmp_path / "run", display=Deadly())
    finetune(begun(tmp_path / "run"), tmp_path / "run", resume=True)
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_what_cannot_go_on_is_one_sentence(place, whole, tmp_path, capsys):
    with pytest.raises(UnmaskError, match="has ended; its scores are in"):
        begun(whole)
    with pytest.raises(UnmaskError, match=r"There is nothing to resume in .*; omit --resume"):
        begun(tmp_path)
    (tmp_path / "run.json").write_text('{"recipe": "bert-mini", "config": {}}')
    with pytest.raises(UnmaskError, match="not fine-tuning; continue it with the verb"):
        begun(tmp_path)
    out = tmp_path / "cut"
    with pytest.raises(Stopped):
        finetune(config(place, seeds=1), out, display=Stopper())
    with pytest.raises(SystemExit):
        main(["finetune", "--out", str(out), "--resume", "--lr", "1"])
    assert "continues with its own settings" in capsys.readouterr().err
    main(["finetune", "--out", str(out), "--resume"])
    assert (out / "results.json").exists()
    assert not (out / ".lock").exists()


def test_a_killed_process_is_gone_on_with(place, whole, tmp_path):
    """SIGKILL from outside, at the moment that the first checkpoint of the second seed appears."""
    out = tmp_path / "run"
    given = arguments(*place, seeds=2, evaluations=2)
    command = [sys.executable, "-m", "unmask", "finetune", "--out", str(out)]
    process = subprocess.Popen([*command, *given], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list(out.glob("seeds/1/checkpoints/step-*")):
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "results.json").exists()
    main(["finetune", "--out", str(out), "--resume"])
    assert trace(out) == trace(whole)
