"""docs/gpt.md: its code runs, and the settings and recipes that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from unmask.generate import Sampling, Search
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.in_context import InContext
from unmask.runs.pretraining import Pretraining

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpt.md"
FLAGS = {
    "rows",  # of benchmarks/in_context.py
    "data",
    "file",
    "kind",
    "cased",
    "out",
    "corpus",
    "model",
    "text",
    "per",
    "window",
    "stride",
    "as-corpus",
    "examples",
    "search",
}


def test_the_page_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "gpt"}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), names)
    assert "bits per character" in capsys.readouterr().out
    assert [answer.shape for answer in names["answers"]] == [(1, 2)] * 3  # type: ignore[attr-defined]


def test_the_settings_and_recipes_that_the_page_names_exist():
    text = re.sub(r"```python\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"--([a-z][a-z._-]+)", text)) - FLAGS
    assert {"language-model", "shots", "normalise", "minutes"} <= named
    places = {name for config in (Pretraining(), FineTuning(), Sampling(), Search(), InContext())
              for name in config.places()}  # fmt: skip
    for name in named:
        assert any(name.replace("-", "_") in (place, place.split(".")[-1]) for place in places), f"--{name}"
    told = set(re.findall(r"`(gpt2?(?:-\w+)?)`", text)) - {"gpt2"} | {"gpt2"}
    assert told <= set(recipes.names())
    assert told == {name for name in recipes.names() if name.startswith("gpt")}
