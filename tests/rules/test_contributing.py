"""The sketches of CONTRIBUTING.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unmask import huggingface

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setitem(huggingface.TABLES, "unmask-rope", huggingface.TABLES["bert"])  # deleted after the test
    del huggingface.TABLES["unmask-rope"]


@pytest.mark.usefixtures("tables")
def test_the_sketches_run_in_order():
    text = PAGE.read_text(encoding="utf-8")
    blocks = [(m.start(), m[1]) for m in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) >= 6
    assert sum("assert " in code for _, code in blocks) >= 3  # each of the three is shown to work
    names: dict[str, object] = {"__name__": "contributing"}
    for start, code in blocks:
        lines = "\n" * (text[:start].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + code, str(PAGE), "exec", dont_inherit=True), names)
