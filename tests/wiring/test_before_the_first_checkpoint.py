"""A run of any kind that dies before its first checkpoint begins again, by --resume, with what it was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.data.text import corpus
from unmask.data.text.reading import TextDocument
from unmask.train.events import Evaluation
from unmask.train.metrics import TIMED
from unmask.train.trainer import Trainer


class Killed(BaseException):
    """A death that no code prepares for: nothing is saved."""


NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
PRETRAIN = ["pretrain", "bert-tiny", "--dim", "16", "--layers", "1", "--heads", "2", "--hidden", "32", "--length", "32"]
PRETRAIN += ["--batch-size", "4", "--heldout", "4", "--log-every", "1", "--corpus", "corpus"]
TRAIN = ["train", "seq2seq-attention", "--dim", "8", "--model.hidden", "8", "--model.layers", "1", "--tokens", "64"]
TRAIN += ["--vocabulary.kind", "word", "--vocabulary.size", "40", "--scored", "2", "--pairs", "pairs.tsv"]
RUNS = {"pretrain": PRETRAIN, "train": TRAIN}
FOUND = {"bleu": 0.0, "perplexity": 9.0, "next/nll": 2.2}  # by an evaluation
FEW = ["--steps", "3", "--save-every", "3", "--lr", "1e-2", "--device", "cpu", "--precision", "fp32"]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("room")
    texts = [TextDocument(f"The {a} and the {b} go on. They are {b}. " * 4, a + b) for a in NUMBERS for b in NUMBERS]
    corpus.build(texts, folder / "corpus", vocabulary_size=80, heldout=0.1)
    pairs = [f"{a} {b} {a}\t{b} {a}" for a in NUMBERS for b in NUMBERS]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    return folder


@pytest.fixture(autouse=True)
def within(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(room)


def trace(folder: Path) -> list[object]:
    """The rows of a run, without what the clock says, and its weights."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    untimed = [{name: value for name, value in row.items() if name not in TIMED} for row in rows]
    return [untimed, (folder / "model.safetensors").read_bytes()]


def dies(self: Trainer, *given: object) -> bool:
    """In place of the second step."""
    if self.step == 1:
        raise Killed
    return first(self, *given)


first: Callable[..., bool] = Trainer._one_step


@pytest.mark.parametrize("verb", RUNS)
def test_a_run_begins_again_with_its_own_settings(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*RUNS[verb], *FEW, "--out", str(tmp_path / "whole")])
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one_step", dies)
        with pytest.raises(Killed):
            main([*RUNS[verb], *FEW, "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run" / "checkpoints").exists()
    capsys.readouterr()
    main([verb, "--out", str(tmp_path / "run"), "--resume"])
    said = " ".join(capsys.readouterr().out.split())
    assert "has no checkpoint yet: the run begins from the start, with its settings." in said
    assert "3 of 3 steps" in said
    assert trace(tmp_path / "run") == trace(tmp_path / "whole")


def test_a_run_that_began_with_other_texts_does_not_begin_again(
    room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one_step", dies)
        with pytest.raises(Killed):
            main([*PRETRAIN, *FEW, "--out", str(tmp_path / "run")])
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts | {"checksums": ["other"]}))
    with pytest.raises(SystemExit):
        main(["pretrain", "--out", str(tmp_path / "run"), "--resume"])
    assert "began with other texts than those in" in capsys.readouterr().err


def test_what_is_killed_from_outside_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    """SIGKILL as soon as the settings are there."""
    out, settings = tmp_path / "run", tmp_path / "run" / "run.json"
    given = [*PRETRAIN, *FEW, "--out", str(out)]
    command = [sys.executable, "-m", "unmask", *given]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not settings.exists():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    main(["pretrain", "--out", str(out), "--resume"])
    main([*PRETRAIN, *FEW, "--out", str(tmp_path / "whole")])
    assert trace(out) == trace(tmp_path / "whole")


def test_a_command_that_torchrun_starts_again_may_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the same command each time, the first one included."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    main([*PRETRAIN, *FEW, "--out", str(tmp_path / "run"), "--resume"])
    assert "3 of 3 steps" in capsys.readouterr().out


@pytest.mark.parametrize("verb", RUNS)
def test_a_signal_ends_a_run_with_the_command_that_goes_on(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a shell wants the name of the folder in quotes; nothing is evaluated after the signal."""
    out, evaluated = tmp_path / "a run", []

    def signalled(self: Trainer, *given: object) -> bool:
        if self.step == 1:
            signal.raise_signal(signal.SIGTERM)
        return first(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one_step", signalled)
        patch.setattr(Trainer, "_evaluation", lambda self: evaluated.append(self.step) or Evaluation(FOUND))
        with pytest.raises(SystemExit) as end:
            main([*RUNS[verb], *FEW, "--evaluate-every", "1", "--out", str(out)])
    assert end.value.code == 128 + signal.SIGTERM
    assert f"Continue with: unmask {verb} --out '{out}' --resume\n" in capsys.readouterr().out
    assert evaluated == [0, 1]
    main([verb, "--out", str(out), "--resume"])
    assert "3 of 3 steps" in capsys.readouterr().out
