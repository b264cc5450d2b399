"""docs/text_to_text.md: its code runs, and its commands, settings and metrics exist."""

from __future__ import annotations

import re

import pages
import pytest

from unmask.data.bitext.forms import FORMS
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
    names = ("transformer-tiny", "seq2seq-attention")
    [(_, unknown)] = pages.options_of([PAGE], [*map(systems.find, names), Search()])
    assert not unknown
    text = pages.text_of(PAGE)
    assert set(re.findall(r"\| `(\w+)` \|", text)) == set(SCORINGS)
    assert set(re.findall(r"`--format (\w+)`, `(\w+)` or `(\w+)`", text)[0]) == set(FORMS)
