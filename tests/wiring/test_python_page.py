"""docs/python.md: its code runs, and what it names at the top of the package is there."""

from __future__ import annotations

import re

from pages import run_blocks, text_of

import unmask


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks("python", 7)
    said = capsys.readouterr().out
    assert "There is no keyword of finetune: 'epoch'; did you mean 'epochs'?" in said
    assert "(2, 2)" in said


def test_the_page_names_all_that_is_at_the_top():
    named = set(re.findall(r"`(?:unmask\.)?([A-Za-z]+)", text_of("python")))
    assert {name for name in unmask.__all__ if name not in ("__version__", "UnmaskError")} <= named
