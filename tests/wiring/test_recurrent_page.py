"""docs/recurrent.md: its code runs, and the recipes and settings that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from unmask.generate import Sampling, Search
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.translation import systems

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recurrent.md"
FLAGS = {"data", "out", "corpus", "model", "kind", "search", "layer", "unit", "train", "dev", "task"}
FLAGS |= {"pairs", "file", "sample", "next"}


def test_the_page_runs(capsys):
    text = PAGE.read_text(encoding="utf-8")
    [block] = re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
    exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), {"__name__": "recurrent"})
    assert len(capsys.readouterr().out.splitlines()) == 2  # a text for each vector


def test_the_recipes_and_settings_that_the_page_names_exist():
    text = re.sub(r"```python\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"unmask pretrain ([a-z-]+)", text))
    named |= set(re.findall(r"`((?:rnn|gru|lstm)-lm[a-z-]*)`", text))
    assert {"lstm-lm", "lstm-autoencoder", "bilstm", "rnn-lm", "gru-lm"} <= named
    assert set(re.findall(r"unmask train ([a-z-]+)", text)) == {"vector-decoder"} <= systems.names().keys()
    runs = [recipes.find(name) for name in named]
    known = {place for one in (*runs, FineTuning(task="tagging"), Search(), Sampling()) for place in one.places()}
    for flag in set(re.findall(r"--([a-z][a-z._-]+)", text)) - FLAGS:
        assert any(flag.replace("-", "_") in (place, place.split(".")[-1]) for place in known), (
            f"--{flag} is no setting"
        )
