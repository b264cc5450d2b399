"""docs/t5.md: its code runs, and the settings and recipes that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unmask.objectives import registry
from unmask.runs import recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.pretraining import Pretraining
from unmask.runs.translation.config import Translation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "t5.md"
FLAGS = {"corpus", "out", "minutes", "model", "from", "pairs", "dev", "data", "resume", "tokenizer"}


def test_the_page_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "t5"}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), names)
    assert (tmp_path / "t5" / "config.json").exists()


def test_what_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(t5-[a-z0-9-]+)`", text)) | set(re.findall(r"unmask pretrain ([a-z0-9-]+)", text))
    assert named == {name for name in recipes.names() if name.startswith("t5")}
    configs = (Pretraining(), FineTuning(), Translation())
    fields = {place.rpartition(".")[2] for config in configs for place in config.places()} | registry.options()
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]*)", text)}
    assert flags - FLAGS <= fields
