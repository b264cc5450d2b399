"""docs/translation.md: its code runs, and the settings that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from unmask.generate import Sampling, Search
from unmask.runs.translation import Translation, systems

PAGE = Path(__file__).resolve().parents[2] / "docs" / "translation.md"
FLAGS = {"pairs", "dev", "out", "resume", "fields", "dry-run", "model", "file", "json", "scores", "align", "force"}
FLAGS |= {"sample", "of"}


def test_the_page_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == 3
    names: dict[str, object] = {"__name__": "translation"}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], str(PAGE), "exec", dont_inherit=True), names)
    assert 0 <= names["scores"]["scores"]["bleu"]["value"] <= 100  # type: ignore[index]
    translator = names["Translator"]("runs/few", names["search"].override({"max_length": 2}))  # type: ignore[operator, attr-defined]
    zebra, *_ = translator.stream(["a zebra runs .", "dog " * 600, ""])
    assert zebra.to_dict()["unknown"] == 1
    assert translator.notes[:2] == [  # the table of policies; the third is on translations that did not end
        "Sources with more than 511 tokens, whose ends were not read: 1.",
        "Sources with characters or words that the vocabulary lacks, read as <unk>: 1.",
    ]


def test_the_settings_that_the_page_names_exist():
    text = re.sub(r"```python\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"--([a-z][a-z._-]+)", text)) - FLAGS
    assert {"length-penalty", "minutes", "ratio"} <= named
    runs = [Translation(model=systems.find(name).model) for name in ("transformer-tiny", "seq2seq-attention")]
    known = {place for one in (*runs, Search(), Sampling()) for place in one.places()}
    for name in named:
        assert any(name.replace("-", "_") in (p, p.split(".")[-1]) for p in known), f"--{name} is no setting"


def test_the_systems_that_the_page_names_are_those_that_there_are():
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|.*\| (?:own form|Marian|Pegasus) \|$", page, re.MULTILINE)
    named = []
    for row in rows:
        first, *others = re.findall(r"`([\w-]+)`", row)
        named += [first, *(first.rsplit("-", 1)[0] + other for other in others)]
    assert sorted(named) == sorted(systems.names())
