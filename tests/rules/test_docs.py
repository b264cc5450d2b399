"""The code in the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_code_that_the_readme_marks_runs():
    marked = re.findall(r"<!-- runs: tests/rules/test_docs\.py -->\n```python\n(.*?)```", README.read_text(), re.S)
    assert len(marked) == 1
    names: dict[str, object] = {}
    exec(marked[0], names)
    assert names["y"].shape == (3, 10, 64)
    assert bool(names["y"].isfinite().all())
