"""The loop: sums divided once, exact resume, skipped steps, signals, budgets of time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from train_toy import TRAINING, Guess, Rows, Tiny, assert_close_rows

from unmask.errors import UnmaskError
from unmask.kernels import processor
from unmask.train import checkpoint, metrics
from unmask.train.calibrate import affordable
from unmask.train.events import Evaluation, Result
from unmask.train.trainer import MOST_SKIPPED, Trainer, Training


def train(
    out: Path, config: Training = TRAINING, data: Any = None, *, dropout: float = 0.1, display: Any = None, **more: Any
) -> tuple[Tiny, Result]:
    model = Tiny(dropout=dropout)
    result = Trainer(model, Guess(), data or Rows(), config, out, **more).train(display=display)
    return model, result


def trace(out: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in metrics.TIMED} for row in metrics.read(out / "metrics.jsonl")]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


class Notes:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def start(self, step: int, total: int) -> None: ...
    def show(self, row: dict[str, Any]) -> None: ...
    def close(self) -> None: ...
    def note(self, text: str) -> None:
        self.notes.append(text)


def stopping_at(step: int) -> dict[str, Any]:
    """Arguments that end a run at `step` as a signal would."""

    class Stopping(Rows):
        def batches(self, position: dict[str, Any] | None) -> Any:
            for micro, after in super().batches(position):
                if after["step"] == step:
                    signal.raise_signal(signal.SIGTERM)
                yield micro, after

    return {"data": Stopping()}


def test_it_learns_and_writes_what_it_promises(out: Path) -> None:
    model, result = train(out, TRAINING.replace(steps=60))
    rows = metrics.read(out / "metrics.jsonl", "train")
    assert result == Result(60, 60, result.seconds, None, {})
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert rows[-1]["loss/mlm"] < 0.7 * rows[0]["loss/mlm"]
    assert {"loss/mlm", "loss/nsp", "mlm/correct", "nsp/correct", "lr", "gradient_norm", "skipped"} <= set(rows[0])
    assert rows[0]["tokens_per_second"] > 0
    assert 0 <= rows[-1]["mlm/correct"] <= 1
    assert checkpoint.steps(out / "checkpoints") == [60]
    assert model.output.weight is model.embedding.weight


def test_a_run_does_not_go_on_to_fewer_steps_than_it_has_done(out: Path) -> None:
    train(out, **stopping_at(5))
    before = sorted(out.rglob("*"))
    with pytest.raises(UnmaskError, match="has done 5 steps already, more than the 3 of --steps"):
        train(out, TRAINING.replace(steps=3), resume=True)
    assert sorted(out.rglob("*")) == before
    assert train(out, TRAINING.replace(steps=5), resume=True)[1].step == 5


def test_an_objective_is_told_the_step_also_where_a_run_goes_on(out: Path) -> None:
    class Told(Guess):
        def on_step(self, step: int, total: int) -> None:
            told.append((step, total))

    told = list[tuple[int, int]]()
    Trainer(Tiny(), Told(), stopping_at(5)["data"], TRAINING, out).train()
    Trainer(Tiny(), Told(), Rows(), TRAINING, out, resume=True).train()
    assert told == [(step, 12) for step in range(12)]


@pytest.mark.parametrize(
    ("at", "algorithm"), [(1, "adamw"), (5, "adamw"), (11, "adamw"), (5, "adafactor"), (5, "muon")]
)
def test_resume_is_bit_exact_at_any_step(tmp_path: Path, at: int, algorithm: str) -> None:
    """With dropout on, and stopped in the middle of a window of metrics."""
    config = TRAINING.replace(log_every=4, optimizer={"algorithm": algorithm})
    whole, _ = train(tmp_path / "whole", config)
    _, cut = train(tmp_path / "cut", config, **stopping_at(at))
    assert (cut.step, cut.total, cut.stopped) == (at, 12, "SIGTERM")
    resumed, result = train(tmp_path / "cut", config, resume=True)
    assert result.step == 12
    assert same(whole, resumed)
    assert trace(tmp_path / "whole") == trace(tmp_path / "cut")
    assert not same(whole, train(tmp_path / "other", config.replace(seed=1))[0]), "dropout must matter for this test"


def test_a_model_that_comes_in_evaluation_mode_is_trained_with_dropout(tmp_path):
    as_loaded = Tiny(dropout=0.5).eval()
    fresh = Tiny(dropout=0.5)
    for name, model in (("loaded", as_loaded), ("fresh", fresh)):
        Trainer(model, Guess(), Rows(), TRAINING, tmp_path / name).train()
    assert same(as_loaded, fresh)


@pytest.mark.parametrize(
    ("first", "then"),
    [("adamw", "adafactor"), ("adafactor", "adamw"), ("adamw", "muon"), ("muon", "adamw"), ("adafactor", "muon")],
)
def test_the_state_of_another_optimizer_is_refused(tmp_path: Path, first: str, then: str) -> None:
    train(tmp_path, TRAINING.replace(optimizer={"algorithm": first}), **stopping_at(5))
    with pytest.raises(UnmaskError, match="of another optimizer; use the same settings"):
        train(tmp_path, TRAINING.replace(optimizer={"algorithm": then}), resume=True)


@pytest.mark.parametrize("algorithm", ["adafactor", "muon"])
def test_what_needs_whole_matrices_is_not_sharded(tmp_path: Path, algorithm: str) -> None:
    with pytest.raises(UnmaskError, match=f"{algorithm.capitalize()} needs whole rows and columns"):
        train(tmp_path, TRAINING.replace(optimizer={"algorithm": algorithm}, sharding="full"))


def test_resume_of_a_finished_run_changes_nothing(out: Path) -> None:
    model, _ = train(out)
    display = Notes()
    again, result = train(out, resume=True, display=display)
    assert result.step == 12
    assert same(model, again)
    assert display.notes[-1].startswith("This run has ended: it has done all of its 12 steps. To train further, ")
    assert len(trace(out)) == 12


def test_a_run_can_be_made_longer(out: Path) -> None:
    train(out)
    display = Notes()
    _, result = train(out, TRAINING.replace(steps=15, optimizer={"lr": 0.02}), resume=True, display=display)
    assert (result.step, result.total) == (15, 15)
    changes = ["Continuing with optimizer.lr 0.02; it was 0.03.", "Continuing with steps 15; it was 12."]
    assert display.notes == [*changes, "Resuming from step 12."]
    assert [row["step"] for row in trace(out)] == list(range(1, 16))


def test_accumulated_micro_batches_equal_one_batch(tmp_path: Path) -> None:
    one, _ = train(tmp_path / "one", dropout=0.0)
    four, _ = train(tmp_path / "four", data=Rows(micro=4), dropout=0.0)
    for a, b in zip(one.parameters(), four.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert_close_rows(trace(tmp_path / "one"), trace(tmp_path / "four"))


def test_ragged_micro_batches_are_divided_by_the_total_once(out: Path) -> None:
    """The first update equals the gradient of (all mlm losses / their number + 0.5 * likewise for nsp)."""
    config = TRAINING.replace(steps=1, optimizer={"clip": None, "weight_decay": 0.0})
    model = Tiny(dropout=0.0)
    micro = next(Rows(micro=4).batches(None))[0]
    assert len({batch.counts["mlm"] for batch in micro}) > 2, "the test needs ragged batches"
    terms = [Guess().loss(model, batch) for batch in micro]
    loss = sum(t["mlm"].sum for t in terms) / sum(t["mlm"].count for t in terms)
    loss = loss + 0.5 * sum(t["nsp"].sum for t in terms) / sum(t["nsp"].count for t in terms)
    expected = torch.nn.utils.get_total_norm(torch.autograd.grad(loss, list(model.parameters())))
    train(out, config, Rows(micro=4), dropout=0.0)
    assert trace(out)[0]["gradient_norm"] == pytest.approx(expected.item(), rel=1e-5)


def test_a_step_without_a_finite_loss_leaves_no_trace_but_a_count(tmp_path: Path) -> None:
    class Without(Rows):
        """The same rows without the two bad ones."""

        def batches(self, position: dict[str, Any] | None) -> Any:
            return (pair for i, pair in enumerate(super().batches(position)) if i not in (3, 4))

    constant = TRAINING.replace(schedule={"shape": "constant", "warmup": 0})
    bad, result = train(tmp_path / "bad", constant, Rows(poison={3, 4}), dropout=0.0)
    good, _ = train(tmp_path / "good", constant.replace(steps=10), Without(), dropout=0.0)
    assert result.step == 12
    assert same(bad, good)
    rows = trace(tmp_path / "bad")
    assert [row["skipped"] for row in rows] == [0, 0, 0, 1, 2, *[2] * 7]
    assert "loss/mlm" not in rows[3]
    assert all(row["loss/mlm"] > 0 for row in rows[5:])


def test_losses_that_stay_bad_stop_the_run_with_the_last_checkpoint_intact(out: Path) -> None:
    config = TRAINING.replace(steps=100, save_every=5)
    with pytest.raises(UnmaskError, match=r"not finite for 20 steps in a row, up to step 27.*step 25 is intact"):
        train(out, config, Rows(poison=range(7, 100)))
    found = checkpoint.latest(out / "checkpoints")
    assert found is not None
    assert found.step == 25
    assert all(torch.isfinite(x).all() for x in found.tensors().values())
    with pytest.raises(UnmaskError, match="not finite"):  # the count goes on where it was
        train(out, config, Rows(poison=range(7, 28)), resume=True)
    assert checkpoint.steps(out / "checkpoints")[-1] == 25
    assert MOST_SKIPPED == 20


def test_time_budget_measures_first_and_leaves_no_trace(tmp_path: Path) -> None:
    timed, result = train(tmp_path / "timed", TRAINING.replace(steps=12, minutes=5.0))
    plain, _ = train(tmp_path / "plain")
    assert result.total == 12
    assert same(timed, plain)
    assert trace(tmp_path / "timed") == trace(tmp_path / "plain")


def test_time_budget_is_kept_and_its_steps_survive_a_resume(out: Path) -> None:
    config = TRAINING.replace(steps=None, minutes=0.04, log_every=50)
    _, result = train(out, config, **stopping_at(3))  # the signal may come during the measurement
    assert result.step in (1, 2, 3)
    assert result.total > result.step
    _, resumed = train(out, config, resume=True)
    assert resumed.step == resumed.total == result.total
    assert trace(out)[-1]["lr"] == pytest.approx(
        TRAINING.optimizer.lr * TRAINING.schedule.at(result.total - 1, result.total)
    )


def test_evaluations_take_a_fifth_of_the_minutes_and_a_resumed_run_keeps_them(out: Path) -> None:
    calls, notes = list[int](), Notes()

    def slow(model: nn.Module, step: int) -> Evaluation:
        time.sleep(0.05)
        return Evaluation({"loss/mlm": 1.0})

    def counted(model: nn.Module, step: int) -> Evaluation:
        calls.append(step)
        return Evaluation({"loss/mlm": 1.0})

    config = TRAINING.replace(steps=None, minutes=0.01, evaluate_every=0.1)
    _, result = train(out, config, evaluate=slow, display=notes, **stopping_at(3))
    assert any("in place of 10 leave" in note for note in notes.notes)
    found = checkpoint.latest(out / "checkpoints")
    assert found is not None
    every = found.state["evaluate_every"]
    assert every is None or every >= 0.4  # 0.2 * 0.6 s / 0.05 s is 2.4 evaluations, or fewer where they are slower
    train(out, config, evaluate=counted, resume=True)
    between = result.total + 1 if every is None else round(every * result.total)
    left = range(result.step + 1, result.total + 1)
    assert calls == [step for step in left if step % between == 0 or step == result.total]


@pytest.mark.parametrize(
    ("seconds", "interval", "minutes", "expected"),
    [
        (1.0, 0.2, 1.0, 0.2),  # 5 s of 60
        (3.0, 0.2, 1.0, 0.25),  # 4 of 3 s are 12 s, a fifth of the minute
        (30.0, 0.2, 1.0, None),  # once, at the end
        (30.0, 0.2, None, 0.2),
        (30.0, 100, 1.0, 100),
        (30.0, None, 1.0, None),
    ],
)
def test_affordable_evaluations(
    seconds: float, interval: float | None, minutes: float | None, expected: float | None
) -> None:
    found, notes = affordable(seconds, interval, minutes)
    assert found == expected
    assert bool(notes) == (expected != interval)
    assert all((" 1 in place of 5 leaves more" in note) == (expected is None) for note in notes)


def test_plan_writes_nothing_and_changes_nothing(tmp_path: Path) -> None:
    plain, _ = train(tmp_path / "plain")
    model = Tiny()
    trainer = Trainer(model, Guess(), Rows(), TRAINING, tmp_path / "planned")
    plan = trainer.plan()
    assert not (tmp_path / "planned").exists()
    assert plan["parameters"] == sum(p.numel() for p in model.parameters()) == sum(plan["parts"].values())
    assert (plan["steps"], plan["tokens_per_step"], plan["precision"]) == (12, 48, "fp32")
    assert plan["memory_bytes"]["optimizer"] == 2 * plan["memory_bytes"]["gradients"]
    assert plan["seconds"] == pytest.approx(12 * plan["seconds_per_step"])
    trainer.train()
    assert same(plain, model)


def test_evaluation_is_recorded_and_does_not_disturb(tmp_path: Path) -> None:
    calls = []

    def evaluate(model: nn.Module, step: int) -> Evaluation:
        assert not model.training
        assert not torch.is_grad_enabled()
        torch.rand(3)
        calls.append(step)
        return Evaluation({"loss/mlm": 1.0 / (1 + step)})

    config = TRAINING.replace(evaluate_every=5)
    evaluated, result = train(tmp_path / "evaluated", config, evaluate=evaluate)
    plain, _ = train(tmp_path / "plain")
    assert calls == [0, 5, 10, 12]
    assert result.heldout == {"loss/mlm": 1 / 13}
    assert [row["step"] for row in metrics.read(tmp_path / "evaluated" / "metrics.jsonl", "heldout")] == calls
    assert same(evaluated, plain)
    assert evaluated.training


def test_stop_from_an_evaluation_saves_and_can_be_resumed(out: Path) -> None:
    def evaluate(model: nn.Module, step: int) -> Evaluation:
        if step == 4:
            trainer.stop("no gain in three evaluations")
        return Evaluation({})

    trainer = Trainer(Tiny(), Guess(), Rows(), TRAINING.replace(evaluate_every=2), out, evaluate=evaluate)
    result = trainer.train()
    assert (result.step, result.stopped) == (4, "no gain in three evaluations")
    assert checkpoint.steps(out / "checkpoints") == [4]


@pytest.mark.parametrize("at", [4, 12])
def test_an_evaluation_that_a_signal_put_off_is_made_when_the_run_goes_on(tmp_path: Path, at: int) -> None:
    calls: list[int] = []

    def evaluate(model: nn.Module, step: int) -> Evaluation:
        calls.append(step)
        return Evaluation({"weights": float(next(model.parameters()).sum())})

    config, out = TRAINING.replace(evaluate_every=4), tmp_path / "cut"
    _, whole = train(tmp_path / "whole", config, evaluate=evaluate)
    calls.clear()
    _, cut = train(out, config, evaluate=evaluate, **stopping_at(at))
    assert (cut.step, calls[-1]) == (at, at - 4)  # to save comes first
    for _ in range(2):  # once is enough
        _, result = train(out, config, evaluate=evaluate, resume=True)
        assert result.heldout == whole.heldout
    assert calls == [0, 4, 8, 12]
    assert trace(out) == trace(tmp_path / "whole")


def test_the_files_of_the_model_are_part_of_every_checkpoint(out: Path) -> None:
    def save(folder: Path) -> None:
        (folder / "config.json").write_text("{}")

    train(out, TRAINING.replace(save_every=4, keep=2), save=save)
    assert checkpoint.steps(out / "checkpoints") == [8, 12]
    for step in (8, 12):
        folder = out / "checkpoints" / f"step-{step:08d}"
        names = {p.name for p in folder.iterdir()}
        assert names == {"config.json", "manifest.json", "optimizer.safetensors", "state.json"}


def test_a_save_that_fails_leaves_the_last_good_checkpoint(out: Path) -> None:
    def save(folder: Path) -> None:
        (folder / "config.json").write_text("{")
        if len(checkpoint.steps(folder.parent)) == 1:
            raise OSError(28, "No space left on device")

    with pytest.raises(UnmaskError, match=r"step 8 .*No space left on device; the previous one, step 4, is intact"):
        train(out, TRAINING.replace(save_every=4), save=save)
    assert [p.name for p in (out / "checkpoints").iterdir()] == ["step-00000004"]
    whole, _ = train(out.with_name("whole"), TRAINING)
    resumed, _ = train(out, TRAINING.replace(save_every=4), resume=True)
    assert same(whole, resumed)


def test_a_checkpoint_whose_removal_fails_once_goes_with_the_run(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, refused = Path.rename, []

    def once(path: Path, target: Path) -> Path:
        if path.name == "step-00000004" and not refused:
            refused.append(path)
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", once)
    train(out, TRAINING.replace(save_every=4, keep=2))
    assert len(refused) == 1
    assert checkpoint.steps(out / "checkpoints") == [8, 12]


def test_an_old_checkpoint_that_could_not_be_removed_goes_with_the_next_start(out: Path) -> None:
    config = TRAINING.replace(save_every=4, keep=2)
    train(out, config)
    folder = out / "checkpoints"
    shutil.copytree(checkpoint.folder_of(folder, 8), checkpoint.folder_of(folder, 4))
    found = []

    class Looking(Notes):
        def note(self, text: str) -> None:
            found.append((text, checkpoint.steps(folder)))

    train(out, config, resume=True, display=Looking())
    assert ("Resuming from step 12.", [8, 12]) in found  # at once, and not only when the run ends


def test_a_damaged_checkpoint_falls_back_and_says_so(tmp_path: Path) -> None:
    whole, _ = train(tmp_path / "whole", TRAINING.replace(save_every=4))
    config, display = TRAINING.replace(save_every=4), Notes()
    train(tmp_path / "cut", config, **stopping_at(10))
    path = tmp_path / "cut" / "checkpoints" / "step-00000010" / "optimizer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    resumed, _ = train(tmp_path / "cut", config, resume=True, display=display)
    assert "is damaged" in display.notes[0]
    assert display.notes[-1] == "Resuming from step 8."
    assert same(whole, resumed)
    assert checkpoint.steps(tmp_path / "cut" / "checkpoints") == [8, 12]
    assert (tmp_path / "cut" / "checkpoints" / "damaged-step-00000010").exists()


def test_bad_input_is_one_sentence(tmp_path: Path, out: Path) -> None:
    with pytest.raises(UnmaskError, match="length of the training is missing"):
        train(out, TRAINING.replace(steps=None))
    with pytest.raises(UnmaskError, match="above 0"):
        train(out, TRAINING.replace(steps=0))
    with pytest.raises(UnmaskError, match="of --log-every must be above 0"):
        train(out, TRAINING.replace(log_every=0))
    with pytest.raises(UnmaskError, match="There is no device 'gpu'"):
        train(out, TRAINING.replace(device="gpu"))
    train(out)
    with pytest.raises(UnmaskError, match="holds a run already"):
        train(out)
    with pytest.raises(UnmaskError, match="another model"):
        Trainer(nn.Linear(2, 2), Guess(), Rows(), TRAINING, out, resume=True).train()
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="cannot be written"):
        train(tmp_path / "file")
    with checkpoint.Lock(out), pytest.raises(UnmaskError, match=f"process {os.getpid()}"):
        train(out, resume=True)


def test_data_that_ends_too_early_is_an_error(out: Path) -> None:
    class Short(Rows):
        def batches(self, position: dict[str, Any] | None) -> Any:
            return (pair for pair, _ in zip(super().batches(position), range(5), strict=False))

    with pytest.raises(UnmaskError, match="ended at step 5 of 12"):
        train(out, data=Short())


def test_a_loss_term_without_a_weight_or_with_another_count_is_an_error(out: Path) -> None:
    class Unweighted(Guess):
        def __init__(self) -> None:
            self.weights = {"mlm": 1.0}

    with pytest.raises(UnmaskError, match="no weight for its loss term 'nsp'"):
        Trainer(Tiny(), Unweighted(), Rows(), TRAINING, out).train()


def test_recomputed_activations_give_the_same_weights(tmp_path: Path) -> None:
    plain, _ = train(tmp_path / "plain")
    again, _ = train(tmp_path / "again", TRAINING.replace(recompute=True))
    assert same(plain, again)


def test_bf16_keeps_weights_in_fp32(out: Path) -> None:
    model, _ = train(out, TRAINING.replace(steps=60, precision="bf16"))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    rows = trace(out)
    assert rows[-1]["loss/mlm"] < 0.8 * rows[0]["loss/mlm"]


@pytest.mark.usefixtures("by_processor")
@pytest.mark.parametrize(("asked", "said"), [("fp32", ""), ("auto", "Computed in fp32"), ("bf16", "This cpu imitates")])
def test_what_is_computed_is_said(out: Path, asked: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "abilities", lambda: {"architecture": "x86_64"})
    display = Notes()
    trainer = Trainer(Tiny(), Guess(), Rows(), TRAINING.replace(steps=1, precision=asked), out)
    plan = trainer.plan()
    assert plan["precision"] == ("bf16" if asked == "bf16" else "fp32")
    trainer.train(display=display)
    assert display.notes == [note for note in [plan["note"]] if note]
    assert plan["note"].startswith(said)


def test_a_signal_finishes_the_step_saves_and_leaves(out: Path) -> None:
    """A process with a run for each signal: the first run leaves the second one its handlers."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from train_toy import TRAINING, Guess, Rows, Tiny\n"
        "from unmask.train.trainer import Trainer\n"
        "for out in sys.argv[2:]:\n"
        "    result = Trainer(Tiny(), Guess(), Rows(), TRAINING.replace(steps=100_000), out).train()\n"
        "    print(result.step, result.stopped)\n"
    )
    signals = (signal.SIGTERM, signal.SIGINT)
    folders = [out / number.name for number in signals]
    command = [sys.executable, "-c", script, str(Path(__file__).parent), *map(str, folders)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    for number, folder in zip(signals, folders, strict=True):
        log = folder / "metrics.jsonl"
        while not (log.exists() and log.read_bytes().count(b"\n") > 3) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    for number, folder, line in zip(signals, folders, printed.splitlines(), strict=True):
        step, stopped = line.split()
        assert stopped == number.name
        found = checkpoint.latest(folder / "checkpoints")
        assert found is not None
        assert found.step == int(step)


def test_what_a_killed_run_left_is_removed(out: Path) -> None:
    left = out / "checkpoints" / ".tmp-step-00000005"
    left.mkdir(parents=True)
    train(out)
    assert not left.exists()


def test_handlers_are_put_back(out: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    train(out)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
