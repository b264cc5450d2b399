"""docs/lineage.md: its excerpts are lines of the source, its counts are those of the code, its recipes exist."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from unmask.runs import recipes

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
EXCERPTS = re.findall(r"<!-- from: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)


def dedented(source: str, excerpt: str) -> bool:
    """Whether the lines of an excerpt stand together in a source, at whatever depth."""
    wanted = excerpt.splitlines()
    lines = source.splitlines()
    windows = (lines[i : i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
    return any(textwrap.dedent("\n".join(window)).splitlines() == wanted for window in windows)


@pytest.mark.parametrize(("place", "excerpt"), EXCERPTS)
def test_an_excerpt_is_as_the_source_has_it(place: str, excerpt: str) -> None:
    assert dedented((ROOT / place).read_text(encoding="utf-8"), excerpt), f"{place} has no such lines:\n{excerpt}"


def test_every_page_is_quoted() -> None:
    shared = {"src/unmask/models/transformer.py"}  # the wiring of T5
    pages = set(re.findall(r"\]\(\.\./(src/[\w/]+\.py)\)", PAGE)) - shared
    parts = {  # of systems whose page only puts them together
        "src/unmask/models/elmo.py": "src/unmask/nn/bidirectional_lm.py",
    }
    assert len(pages) == 11
    assert {parts.get(page, page) for page in pages} <= {place for place, _ in EXCERPTS}


def test_the_counts_are_those_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"(?<!-->\n)```python\n(.*?)```", PAGE, re.DOTALL)
    (block,) = [block for block in blocks if "print(" in block]
    exec(compile(block, "docs/lineage.md", "exec", dont_inherit=True), {"__name__": "lineage"})
    printed = capsys.readouterr().out.splitlines()
    table = re.search(r"\| model \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE)
    assert table is not None
    assert table[1].splitlines() == printed


def test_the_recipes_that_the_page_names_exist() -> None:
    rows = re.findall(r"^\| \*\*.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert len(rows) == 12
    assert named
    assert set(named) <= set(recipes.names())
