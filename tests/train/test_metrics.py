"""Sums of metrics, and the file that survives a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.train.metrics import Clock, Meter, Writer, read


def rows(*steps: int) -> list[dict]:
    return [{"step": s, "split": "train", "loss/mlm": 1.0 / (1 + s)} for s in steps]


def fill(folder: Path, *steps: int) -> Path:
    writer = Writer(folder)
    for row in rows(*steps):
        writer.write(row)
    writer.close()
    return folder / "metrics.jsonl"


def test_rows_come_back_and_each_is_there_at_once(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for i, row in enumerate(rows(1, 2, 3), 1):
        writer.write(row)
        assert len(read(writer.path)) == i
    writer.close()
    assert read(writer.path) == rows(1, 2, 3)
    assert read(writer.path, "heldout") == []
    assert read(tmp_path / "absent.jsonl") == []


def test_a_resumed_run_drops_rows_beyond_its_step(tmp_path: Path) -> None:
    path = fill(tmp_path, 10, 20, 30)
    writer = Writer(tmp_path, 20)
    writer.write(rows(25)[0])
    writer.close()
    assert [row["step"] for row in read(path)] == [10, 20, 25]


@pytest.mark.parametrize("kept", range(1, 40))
def test_a_torn_last_line_is_mended(tmp_path: Path, kept: int) -> None:
    path = fill(tmp_path, 10, 20)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + kept])
    assert [row["step"] for row in read(path)] == [10]
    writer = Writer(tmp_path, 20)
    writer.write(rows(21)[0])
    writer.close()
    assert [row["step"] for row in read(path)] == [10, 21]


def test_damage_elsewhere_names_the_line(tmp_path: Path) -> None:
    path = fill(tmp_path, 1, 2, 3)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-3], lines[2], ""]))
    with pytest.raises(UnmaskError, match=r"metrics\.jsonl, line 2 is not valid JSON"):
        read(path)
    path.write_text("[1]\n{}\n")
    with pytest.raises(UnmaskError, match="line 1 must hold a JSON object"):
        read(path)


def test_what_json_cannot_say_is_null(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write({"step": 1, "a": float("nan"), "b": float("inf")})
    writer.close()
    strict = json.loads(writer.path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert strict == {"step": 1, "a": None, "b": None}


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnmaskError, match="could not be written"):
        Writer(tmp_path / "file")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.file.close()
    writer.file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(UnmaskError, match="No space left on device"):
        writer.write({"step": 1})
    writer.close()


def test_the_meter_divides_sums_by_their_own_counts() -> None:
    meter = Meter()
    for loss, correct, count, norm, skip in [(6.0, 1.0, 2, 1.0, 0.0), (9.0, 2.0, 3, 3.0, 0.0), (5e9, 0.0, 7, 9e9, 1.0)]:
        values = torch.tensor([loss, correct, norm, skip])
        meter.add(["loss/mlm", "mlm/correct", "gradient_norm"], values, {"steps": 1, "count/mlm": count})
    assert meter.read() == {"loss/mlm": 3.0, "mlm/correct": 0.6, "gradient_norm": 2.0, "skipped": 1}
    assert meter.skipped_in_a_row == 1
    assert meter.read() == {"skipped": 1}


def test_the_meter_does_not_care_when_it_is_drained() -> None:
    values = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))
    values[:, 2] = 0
    meters = [Meter(), Meter()]
    for i, row in enumerate(values):
        for meter in meters:
            meter.add(["loss/a", "a/right"] if i % 7 else ["loss/b", "b/right"], row, {"count/a": 2, "count/b": 3})
        if i % 3 == 0:
            meters[0].drain()
        if i == 20:
            state = json.loads(json.dumps(meters[0].state()))
            meters[0] = Meter()
            meters[0].load(state)
    assert meters[0].read() == meters[1].read()


def test_the_clock_leaves_pauses_out_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(earlier=7.0)
    clock.tokens = 50
    now[0] += 2
    with clock.paused():
        now[0] += 10
    with clock.waiting():
        now[0] += 0.5
    assert clock.rates() == {"tokens_per_second": 20, "waiting": 0.2}
    now[0] += 1
    assert clock.rates() == {"tokens_per_second": 0, "waiting": 0}
    assert clock.seconds() == 20.5
