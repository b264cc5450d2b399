"""docs/export.md: its code runs, its commands are understood, and the files, inputs and outputs that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

from unmask import huggingface
from unmask.cli import parser
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface.table import as_heads
from unmask.models.bert import Bert
from unmask.serve.onnx.graph import OUTPUTS

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_are_understood():
    commands = [line for line in PAGE.splitlines() if line.startswith("unmask ")]
    assert len(commands) == 7
    for command in commands:
        options, rest = parser().parse_known_args(command.replace('"a great film"', "text").split()[1:])
        assert not rest
        assert options.model


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tokenizer = Tokenizer.train(["a great film"] * 5, 40)
    model = Bert(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=16).build(
        as_heads({"classification": 2})
    )
    huggingface.save("runs/sentiment", model, tokenizer, labels=("bad", "good"))
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(code, {})
    note, label = capsys.readouterr().out.splitlines()
    assert "write one with unmask export --model runs/sentiment." in note
    assert label in ("bad", "good")


def test_every_output_is_in_the_table():
    for outputs in OUTPUTS.values():
        assert all(f"`{name}`" in PAGE for name in outputs)
