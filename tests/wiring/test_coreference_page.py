"""docs/coreference.md: its code runs, its commands, defaults and links exist."""

from __future__ import annotations

import pages
import pytest

PAGE = "coreference"


def test_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run_blocks(PAGE, 1)
    assert {path.name for path in (tmp_path / "stories").iterdir()} == {"train.conll", "dev.conll"}


@pytest.mark.parametrize("command", list(pages.commands(PAGE)))
def test_commands_are_understood(command):
    pages.check_command(command, "bert-tiny")


def test_the_table_states_the_defaults():
    ((page, name, rows),) = pages.tables_of([PAGE])
    pages.check_defaults(page, name, rows)


def test_links_exist():
    pages.check_links([PAGE])
