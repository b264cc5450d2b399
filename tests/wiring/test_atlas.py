"""docs/atlas: every entry of the lectures has a section and its figure; code, commands, options and files exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pages
import pytest

from unmask.runs import recipes, supervised_recipes
from unmask.runs.lectures.contents import CHAPTERS

SPEC = importlib.util.spec_from_file_location("tools_atlas", pages.ROOT / "tools" / "atlas.py")
atlas = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(atlas)

ENTRIES = [entry for entries in CHAPTERS.values() for entry in entries]
PAGES = [f"atlas/{page.stem}" for page in atlas.pages()]
FIGURES = pages.ROOT / "docs" / "images" / "atlas"
EACH = pytest.mark.parametrize("page", PAGES)


def sections() -> dict[str, str]:
    """Name of an entry -> its section."""
    return {found[1]: found[0] for page in PAGES for found in atlas.SECTION.finditer(pages.text_of(page))}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_section_of_an_entry_is_what_make_atlas_writes(entry):
    text = sections().get(entry.name)
    assert text is not None, f'write <a id="{entry.name}"></a> and <!-- end --> into a page of the atlas'
    assert text.startswith("\n\n".join(atlas.begin(entry))), "run make atlas"
    assert text.endswith("\n\n".join(atlas.end(entry))), "run make atlas"


def test_each_entry_has_one_section():
    named = [found[1] for page in PAGES for found in atlas.SECTION.finditer(pages.text_of(page))]
    assert sorted(named) == sorted(entry.name for entry in ENTRIES)


def test_the_list_of_entries_is_what_make_atlas_writes():
    assert atlas.listed() in pages.text_of("lectures"), "run make atlas"


def test_figures_are_small_and_shown():
    shown = {name for page in PAGES for name in re.findall(r"\(\.\./images/atlas/([\w.-]+)\)", pages.text_of(page))}
    kept = {path.name: path.stat().st_size for path in FIGURES.iterdir()}
    assert shown == set(kept)
    assert max(kept.values()) < 100_000


@EACH
def test_every_section_names_its_code_and_its_test(page):
    for part in re.split(r"^### ", pages.text_of(page), flags=re.M)[1:]:
        title, body = part.partition("\n")[::2]
        assert re.search(r"```\n(unmask|python benchmarks/)|```python\n", body), title
        scripts = re.findall(r"python (benchmarks/\w+\.py)", body)
        assert all((pages.ROOT / script).is_file() for script in scripts), title
        code, tests = re.search(r"^Code: (.*?)\. Tests?: (.*)\.$", body, re.M).groups()
        assert "](../../" in code, title
        assert "](../../tests/" in tests, title


@EACH
def test_the_code_runs_and_the_commands_are_understood(page, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run_blocks(page, pages.text_of(page).count("```python\n"))
    for command in pages.commands(page):
        pages.check_command(command, "bert-tiny")


def test_every_option_that_the_pages_name_exists():
    runs = [recipes.find(name) for name in recipes.names()]
    runs += [supervised_recipes.find(name) for name in supervised_recipes.names()]
    for page, unknown in pages.options_of(PAGES, runs):
        assert not unknown, f"docs/{page}.md names {sorted(unknown)}"
