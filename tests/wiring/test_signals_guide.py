"""docs/signals.md and docs/forecasting.md: their code runs, their commands and recipes exist, and the first says that
unmask is no medical device."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from unmask.cli import parser
from unmask.runs import supervised_recipes

DOCS = Path(__file__).parents[2] / "docs"
TEXT, FORECASTING = ((DOCS / name).read_text(encoding="utf-8") for name in ("signals.md", "forecasting.md"))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT + FORECASTING, re.DOTALL))
def test_code_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs", "exec", dont_inherit=True), {"__name__": "page"})


def test_commands_are_valid():
    commands = re.findall(r"(?m)^unmask (.*)$", TEXT + FORECASTING)
    assert commands
    for command in commands:
        options, _ = parser().parse_known_args(shlex.split(command, comments=True))
        if command.startswith("train "):
            assert "signals" in supervised_recipes.find(options.system).page.offers


def test_every_recipe_is_named():
    names = {name for name in supervised_recipes.names() if "signals" in supervised_recipes.find(name).page.offers}
    assert names == {name for name in re.findall(r"`([a-z-]+)`", TEXT) if name in names}
    assert "no medical device" in TEXT
