"""What is printed: lines and a live picture, durations and sizes."""

from __future__ import annotations

import io
from typing import Any

import pytest

from unmask.train import display

ROW = {
    "step": 50,
    "seconds": 5.0,
    "split": "train",
    "loss/mlm": 5.25,
    "mlm/correct": 0.286,
    "gradient_norm": 1.5,
    "skipped": 0,
    "lr": 1e-3,
    "tokens_per_second": 12345.6,
    "waiting": 0.0123,
}
PLAN = {
    "parameters": 110_000_000,
    "trainable": 100_000_000,
    "parts": {"embedding": 24_000_000, "stack": 86_000_000},
    "device": "cpu",
    "precision": "bf16",
    "ranks": 2,
    "steps": 1000,
    "tokens_per_step": 4096,
    "seconds_per_step": 1.5,
    "seconds": 1500.0,
    "memory_bytes": {"weights": 440_000_000, "total": 2_000_000_000},
    "disk_bytes": 3_500_000_000,
}


def test_lines_hold_the_numbers_and_do_not_flood() -> None:
    lines: list[str] = []
    shown = display.Lines(lines.append)
    shown.start(0, 100)
    shown.show(ROW)
    shown.show({**ROW, "step": 51})  # too soon after the last one
    shown.show({"step": 51, "split": "heldout", "loss/mlm": 5.0})
    shown.show({**ROW, "step": 100, "skipped": 2, "loss/nsp": None})
    shown.note("Saved.")
    shown.close()
    assert lines[0] == "Training 100 steps."
    shown.start(0, 1)
    assert lines.pop() == "Training 1 step."
    start = "step 50 of 100  mlm loss 5.250  mlm correct 28.6 %  gradient norm 1.5  lr 1.00e-03  tokens/s 12,346"
    start += "  waiting for data 1.2 %"
    assert lines[1].startswith(start)
    assert lines[1].endswith("left")
    assert lines[2] == "step 51 of 100  held out:  mlm loss 5.000"
    assert "skipped steps 2" in lines[3]
    assert "nsp loss –" in lines[3]
    assert lines[4:] == ["Saved."]


def test_a_display_forgets_the_run_before() -> None:
    from rich.console import Console

    first = {"step": 0, "split": "heldout", "loss/mlm": 5.0}
    lines: list[str] = []
    file = io.StringIO()
    for shown in (display.Lines(lines.append), display.Live(Console(file=file, force_terminal=True, width=90))):
        shown.start(0, 100)
        shown.show(ROW)
        shown.close()
        file.seek(file.truncate(0))
        shown.show(first)  # evaluated before the number of steps of the next run is known
        shown.start(0, 7)
        shown.close()
    assert lines[-2:] == ["step 0  held out:  mlm loss 5.000", "Training 7 steps."]
    assert "step 0 of 7" in file.getvalue()
    assert "5.000" in file.getvalue()
    assert "5.250" not in file.getvalue()


def test_without_a_terminal_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = display.Terminal()
    terminal.note("[bold]hello[/bold]")
    terminal.start(5, 10)
    terminal.close()
    assert capsys.readouterr().out == "[bold]hello[/bold]\nTraining from step 5 to 10.\n"


def test_the_live_picture_holds_both_splits() -> None:
    from rich.console import Console

    file = io.StringIO()
    live = display.Live(Console(file=file, force_terminal=True, width=90, highlight=False))
    live.note("Resuming [from] step 0.")
    live.start(0, 100)
    live.show(ROW)
    live.show({"step": 50, "split": "heldout", "loss/mlm": 4.75})
    live.close()
    live.close()
    printed = file.getvalue()
    for text in (
        "Resuming [from] step 0.",
        "step 50 of 100",
        "50 %",
        "mlm loss",
        "5.250",
        "4.750",
        "28.6 %",
        "held out",
    ):
        assert text in printed


def test_the_plan_is_readable() -> None:
    text = display.render_plan(PLAN)
    for part in ("110,000,000", "embedding 24.0 M", "10,000,000 of them frozen", "bf16 on 2 processes", "4.1 M in all"):
        assert part in text
    assert " a step (4.27 hours of sound), " in display.render_plan({**PLAN, "amount": "4.27 hours of sound"})
    assert display.render_plan({**PLAN, "note": "Computed in bf16."}).endswith("\nprecision   Computed in bf16.")
    for part in ("about 2.0 GB (weights 440 MB)", "up to 3.5 GB", "1.5 s a step, 25:00 in all"):
        assert part in text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.7, "1:00"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert display.duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(12, "12 B"), (1234, "1.2 kB"), (440e6, "440 MB"), (999_999, "1.0 MB")])
def test_sizes(number: float, text: str) -> None:
    assert display.size(number) == text


def test_progress_prints_the_first_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    with display.progress() as show:
        for i in range(5):
            show("documents", i + 1, 5)
        show("documents", 5, 5)
        show("other", 3, None)
    assert capsys.readouterr().out.splitlines() == ["documents: 1 of 5", "documents: 5 of 5", "other: 3"]


def test_progress_bars_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out: Any = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    with display.progress() as show:
        show("documents", 3, 5)
        show("documents", 5, 5)
    assert "documents" in out.getvalue()
