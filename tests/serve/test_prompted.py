"""Prompts of examples for a language model: their form, what is cut, and the command."""

from __future__ import annotations

import json

import pytest

from unmask import huggingface
from unmask.cli import main
from unmask.data.bitext.pairs import Bitext, Report
from unmask.data.text import byte_pairs
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models import Bert, Gpt2
from unmask.serve.prompted import Prompted

KNOWN = Bitext([f"word {i}" for i in range(9)], [f"wort {i}" for i in range(9)], Report("rows", 9), [*range(1, 10)])
SHORT = Search(limits=Limits(max_length=6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt")
    tokenizer = byte_pairs.train(["word 1 => wort 1\n"] * 5, 300)
    config = Gpt2(vocabulary=tokenizer.size, dim=16, layers=1, heads=2, hidden=32, length=40)
    huggingface.save(path, config.build(seed=0), tokenizer)
    return path


def test_a_prompt_has_examples_and_the_source(folder):
    writer = Prompted(folder, KNOWN, 2, SHORT)
    first, second, last = writer.prompt(3, "word 7").split("\n")
    assert last == "word 7 =>"
    for line in (first, second):
        source, target = line.split(" => ")
        assert (source, target) in [*KNOWN]
    assert first != second
    assert writer.prompt(3, "word 7") == Prompted(folder, KNOWN, 2, SHORT).prompt(3, "word 7")
    assert len({writer.prompt(number, "word 7") for number in range(9)}) > 1


def test_examples_without_room_are_left_out_and_counted(folder):
    writer = Prompted(folder, KNOWN, 9, SHORT)
    prompt = writer.prompt(0, "word 7")
    assert 0 < prompt.count("\n") < 9
    assert len(writer.tokenizer.ids([prompt])[0]) < 40 - 6
    answers = list(writer.stream(["word 1", "word 2"]))
    assert [answer.source for answer in answers] == ["word 1", "word 2"]
    assert not any("\n" in answer.text for answer in answers)
    assert "Prompts with fewer examples, for which the model has no room: 3." in writer.notes


def test_what_does_not_fit_is_refused(folder, tmp_path):
    with pytest.raises(UnmaskError, match="There are 9 pairs for 10 examples"):
        Prompted(folder, KNOWN, 10)
    huggingface.save(tmp_path / "bert", Bert(vocabulary=300, dim=16, layers=1, heads=2, hidden=32, length=16).build())
    with pytest.raises(UnmaskError, match="no head that predicts the next token"):
        Prompted(tmp_path / "bert", KNOWN, 1)


def test_the_command(folder, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"{s}\t{t}\n" for s, t in KNOWN))
    model = ("evaluate", "--model", str(folder), "--pairs", str(pairs), "--metric", "exact")
    main([*model, "--shots", "1", "--known", str(pairs), "--max-length", "6", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] == 9
    assert found["plain"]["nearest"]["exact"] == 100
    with pytest.raises(SystemExit):
        main([*model, "--shots", "1"])
    assert "give them with --known" in capsys.readouterr().err
