"""docs/documents.md: its commands are understood, and every option that it names exists."""

from __future__ import annotations

import pages

from unmask.runs import supervised_recipes
from unmask.runs.finetuning.baselines import Baselines

NAMES = ("han", "bilstm-classifier", "bilstm-tagger", "bilstm-two-tasks")


def test_the_commands_of_the_page_are_understood():
    found = list(pages.commands("documents"))
    assert found
    for command in found:
        pages.check_command(command, "lstm-lm")


def test_every_recipe_of_texts_and_every_option_is_on_the_page():
    text = pages.text_of("documents")
    assert all(f"unmask train {name}" in text for name in NAMES)
    runs = [*map(supervised_recipes.find, NAMES), Baselines()]
    for page, unknown in pages.options_of(["documents"], runs):
        assert not unknown, f"docs/{page}.md names {sorted(unknown)}"
