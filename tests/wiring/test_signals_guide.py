"""docs/signals.md: its code runs, its commands and recipes exist, and it says that unmask is no medical device."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from unmask.cli import parser
from unmask.runs import supervised_recipes

TEXT = (Path(__file__).parents[2] / "docs" / "signals.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
def test_code_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/signals.md", "exec", dont_inherit=True), {"__name__": "page"})


def test_commands_are_valid():
    commands = re.findall(r"(?m)^unmask (.*)$", TEXT)
    assert commands
    for command in commands:
        options, _ = parser().parse_known_args(shlex.split(command, comments=True))
        if command.startswith("train "):
            assert "signals" in supervised_recipes.find(options.system).page.offers


def test_every_recipe_is_named():
    names = {name for name in supervised_recipes.names() if "signals" in supervised_recipes.find(name).page.offers}
    assert names == {name for name in re.findall(r"`([a-z-]+)`", TEXT) if name in names}
    assert "no medical device" in TEXT
