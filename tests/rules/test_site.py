"""What the site is built from: every page is in the navigation, every link leads to a page, every option is told."""

from __future__ import annotations

import argparse
import importlib.util
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from unmask.cli import parser

ROOT = Path(__file__).resolve().parents[2]


@cache
def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", ROOT / "tools" / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verbs(above: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in above._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in (listed.dest for listed in action._choices_actions):
                yield action.choices[name]
                yield from verbs(action.choices[name])


def test_every_document_is_in_the_navigation():
    settings = script("pages").settings()
    navigation = settings[settings.index("\nnav:") :]
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert len(documents) > 80
    assert not [name for name in documents if not re.search(rf'[ "]{re.escape(name)}["\n]', navigation)]
    assert "*" not in re.sub(r"#.*", "", navigation)


def test_every_link_of_a_document_leads_to_a_page_or_a_file():
    pages = script("pages").documents()
    files = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.*")}
    found = 0
    for place, text in pages.items():
        if not place.startswith("source/"):
            for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)):
                found += 1
                led = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
                assert led in pages.keys() | files, (place, target)
    assert found > 500


def test_a_page_of_the_source_holds_the_file():
    bert = (ROOT / "src" / "unmask" / "models" / "bert.py").read_text(encoding="utf-8")
    pages = script("pages").documents()
    assert bert in pages["source/src/unmask/models/bert.py.md"]
    assert "exclude: true" in pages["source/src/unmask/models/bert.py.md"]  # the search is for documents


def test_the_page_of_a_verb_tells_every_option_of_its_help():
    pages, found = script("pages").commands(), list(verbs(parser()))
    assert len(pages) == len(found) + 1 > 40
    for verb in found:
        page = pages[f"reference/commands/{'-'.join(verb.prog.split()[1:])}.md"]
        options = set(re.findall(r"^  (--[a-z][\w-]*)", verb.format_help(), re.MULTILINE))
        assert not {option for option in options if f"`{option}" not in page}, verb.prog
        assert f"`{verb.prog}`" in pages["reference/commands/index.md"]


def test_wrong_links_of_built_pages_are_named():
    finish = script("finish")
    page = """<h1 id="top">x</h1> <a href="#top">1</a> <a href="other.html#there">2</a> <a href="./">3</a>
    <a href="other.html#missing">4</a> <a href="gone.html">5</a> <a href="https://example.org/x">6</a>
    <a href="http:///x">7</a> <script src="https://example.org/x.js"></script> <img alt="a > b" src="../in/a.png">"""
    pages = {"in/index.html": finish.tags(page), "in/other.html": finish.tags('<p id="there">')}
    assert sorted(finish.problems(pages, {*pages, "in/a.png"})) == [
        "in/index.html: gone.html leads nowhere",
        "in/index.html: http:///x is no address",
        "in/index.html: loads https://example.org/x.js",
        "in/index.html: other.html#missing has no such anchor",
    ]


def test_versions_are_laid_side_by_side(tmp_path: Path, monkeypatch):
    finish = script("finish")
    for version in ("0.9.0", "0.10.0", "0.9.0"):  # the last one is built again
        monkeypatch.setattr(finish, "__version__", version)
        (tmp_path / "html").mkdir()
        (tmp_path / "html" / "index.html").write_text(version, encoding="utf-8")
        finish.lay(tmp_path / "html", tmp_path / "site")
    assert re.findall(r'"version": "(.*?)"', (tmp_path / "site" / "versions.json").read_text()) == ["0.10.0", "0.9.0"]
    assert "url=0.10.0/" in (tmp_path / "site" / "index.html").read_text()
