"""docs/transformer_xl.md and docs/elmo.md: their code runs, and the recipes and settings that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unmask.models.elmo import SIZES
from unmask.runs import recipes

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMED = {"transformer_xl": "transformer-xl-tiny", "elmo": "elmo-tiny"}


@pytest.mark.parametrize("name", NAMED)
def test_the_page_runs_in_order(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert blocks
    names: dict[str, object] = {"__name__": name}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], f"docs/{name}.md", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_page_names_exists(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"unmask pretrain ([\w-]+)", text))
    assert NAMED[name] in named
    assert named <= recipes.names().keys()
    assert {"small", "medium"} <= SIZES.keys()


def test_the_fields_that_the_pages_set_exist() -> None:
    recipes.find("elmo-tiny").override({"words": "100"})
    recipes.find("transformer-xl-tiny").override({"memory": "8", "rows.tokens": "8", "written": "segments"})
