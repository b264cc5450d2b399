"""Faults injected for real, in short: SIGKILL while a checkpoint is written, writes refused, bytes flipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "reliability"


@pytest.mark.parametrize(
    "command",
    [
        ["kill.py", "--kills", "2", "--jobs", "pretrain", "corpus"],
        ["fuzz.py", "--minutes", "0.03", "--subjects", "csv", "SQuAD", "tokenizer.json", "corpus", "adapter"],
        pytest.param(["fuzz.py", "--minutes", "3"], marks=pytest.mark.slow),
        pytest.param(["kill.py", "--kills", "8"], marks=pytest.mark.slow),
        pytest.param(["kill.py", "--kills", "6", "--jobs", "pretrain-ranks"], marks=pytest.mark.slow),
        pytest.param(["kill.py", "--kills", "3", "--jobs", "pretrain-elastic"], marks=pytest.mark.slow),
        pytest.param(["nodes.py", "--steps", "100"], marks=pytest.mark.slow),
        pytest.param(["storage.py", "--sample", "4", "--bytes", "9"], marks=pytest.mark.slow),
        pytest.param(["hostile.py"], marks=pytest.mark.slow),
        pytest.param(["service.py", "--seconds", "3"], marks=pytest.mark.slow),
    ],
    ids=lambda command: " ".join(command),
)
def test_nothing_is_lost(command):
    ran = subprocess.run([sys.executable, str(SCRIPTS / command[0]), *command[1:]], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout
