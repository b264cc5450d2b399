"""docs/text_to_text.md: its code runs, and its commands, settings and metrics exist."""

from __future__ import annotations

import re

import pages
import pytest

from unmask.data.bitext.forms import FORMS
from unmask.data.text import byte_pairs
from unmask.generate import Search
from unmask.runs.translation import systems
from unmask.runs.translation.scoring import SCORINGS

PAGE = "text_to_text"


def test_the_code_runs():
    pages.run_blocks(PAGE, 1)


@pytest.mark.parametrize("command", [*pages.commands(PAGE)])
def test_a_command_is_understood(command):
    pages.check_command(command, "t5-tiny")


def test_options_metrics_and_forms_exist():
    names = ("transformer-tiny", "seq2seq-attention", "captioner")
    [(_, unknown)] = pages.options_of([PAGE], [*map(systems.find, names), Search()])
    assert unknown <= {"--mnist"}  # of benchmarks/captioning.py
    text = pages.text_of(PAGE)
    assert set(re.findall(r"\| `(\w+)` \|", text)) == set(SCORINGS)
    assert set(re.findall(r"`--format (\w+)`, `(\w+)`, `(\w+)` or `(\w+)`", text)[0]) == set(FORMS)


def test_byte_pairs_with_capitals_give_a_tree_back():
    text = "(S (NP XX )NP (VP XX )VP . )S"
    tokenizer = byte_pairs.train([text] * 5, 400, cased=True).written()
    assert tokenizer.decode(tokenizer.ids([text])[0]) == text
