"""docs/word2vec.md: its code runs, and the verbs and settings that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.runs.word_vectors import Word2Vec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "word2vec.md"
TEXT = PAGE.read_text(encoding="utf-8")
OPTIONS = {
    "data",
    "out",
    "resume",
    "model",
    "minus",
    "fields",
    "threads",
    "edges",
    "analogies",
    "pairs",
    "groups",
    "top",
    "p",
    "q",
    "baskets",
    "seeds",
    "test",
    "wordnet",
}


def test_the_page_runs_in_order(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="training needs numba")
    monkeypatch.chdir(tmp_path)
    blocks = list(re.finditer(r"```python\n(.*?)```", TEXT, re.DOTALL))
    assert len(blocks) == 6
    names: dict[str, object] = {"__name__": "word2vec"}
    for block in blocks:
        lines = "\n" * (TEXT[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), names)


def test_the_settings_that_the_page_names_exist():
    named = set(re.findall(r"--([a-z][a-z-]+)", TEXT)) - OPTIONS
    assert {"subsample", "limit", "phrases", "tokens"} <= named
    Word2Vec().override({name: value for name, value in ((n, "1") for n in named) if name not in ("output", "tokens")})
    assert set(re.findall(r"--output (\w+)", TEXT)) == {"negative", "hierarchical", "softmax"}


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"unmask words (\w+)", TEXT))))
def test_the_verbs_that_the_page_names_exist(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["words", verb, "--help"])
    assert stopped.value.code == 0
