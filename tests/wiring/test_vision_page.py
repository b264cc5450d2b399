"""docs/vision.md: its code runs, and the options and recipes that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unmask.objectives import registry
from unmask.runs import recipes
from unmask.tasks import TASKS

pytest.importorskip("PIL.Image")
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "vision.md"


def test_the_page_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {"__name__": "vision"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    assert (tmp_path / "vit" / "preprocessor_config.json").exists()


def test_what_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"simmim-[a-z]+(?:-[a-z]+)*", text)) == {
        name for name in recipes.names() if name.startswith("simmim")
    }
    for name, default in re.findall(r"\| `--([a-z]+)` \| ([\d.]+) \|", text):
        assert registry.takes(name)
        assert getattr(recipes.find("simmim-tiny").objective, name) == float(default)
    assert {"picture", "label"} <= set(TASKS["image-classification"].rows_class.columns())
    for files, _ in re.findall(r"`((?:models|nn|objectives|data)/[a-z_/]+\.py)(: [A-Za-z_., ]+)?`", text):
        assert (ROOT / "src" / "unmask" / files).is_file()
