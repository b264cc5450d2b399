"""Writes what the site is built from into a folder: docs/, the pages that are no files of docs/, and the configuration.

    python tools/site/pages.py build/site      # then: zensical build --strict -f build/site/site.yml

In the navigation of site.yml, an entry with a star stands for pages that are found or written here:

    "*commands"    one page for each verb of the command line, from its parser
    "*python"      one page for each folder of the package; mkdocstrings puts the docstrings in place
    "*decisions"   docs/decisions, in their order
    "*FILE.md"     a document outside docs/

In a repository, a link from a document leads to a file of the source. On the site it leads to a page with that file.
All that is written is plain Markdown, so that another generator can take over.
"""

from __future__ import annotations

import argparse
import html
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from unmask.cli import parser

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/README.md")
DECISIONS = ROOT / "docs" / "decisions"
MOVED = {path: path.lower().replace("/readme", "-scripts") for path in OUTSIDE} | {
    "README.md": "index.md",
    "docs/decisions": "decisions/index.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".py": "python", ".js": "javascript", ".md": "markdown", ".toml": "toml", ".html": "html", ".css": "css"}

Pages = dict[str, str]
"""Place of a page on the site -> its Markdown."""


def main(folder: Path) -> None:
    """Write the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "pages")
    shutil.copy(HERE / "style.css", folder / "pages")
    for place, text in (documents() | commands() | python()).items():
        page = folder / "pages" / place
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    (folder / "site.yml").write_text(settings(), encoding="utf-8")


def settings() -> str:
    """The configuration, with paths that do not depend on its place and the whole navigation."""
    decisions = [f"decisions/{path.name}" for path in sorted(DECISIONS.glob("*.md"))]
    decisions.insert(0, "decisions/index.md")
    starred = {"commands": command_entries(), "python": python_entries(), "decisions": decisions} | MOVED
    text = (HERE / "site.yml").read_text(encoding="utf-8").replace("ROOT", ROOT.as_posix())
    return re.sub(r'"\*(.+)"', lambda match: json.dumps(starred[match[1]]), text)


# ---------------------------------------------------------------------------------------------------- documents


def documents() -> Pages:
    """The documents, with the links that leave docs/ moved, and a page for each file that these lead to."""
    paths = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    pages: Pages = {}
    sources: set[str] = set()
    for origin in [*paths, *OUTSIDE]:
        text, led = _moved(origin, (ROOT / origin).read_text(encoding="utf-8"))
        pages[_place(origin)] = text
        sources |= {path for path in led if _place(path).startswith("source/")}
    pages |= {_place(path): _source(path) for path in sources}
    listed = [
        f"- [{text.partition(chr(10))[0].lstrip('# ')}]({posixpath.basename(place)})\n"
        for place, text in sorted(pages.items())
        if place.startswith("decisions/")
    ]
    return pages | {"decisions/index.md": "# Decisions\n\n" + "".join(listed)}


def _moved(origin: str, text: str) -> tuple[str, list[str]]:
    """A document with its links as they are on the site, and the paths in the repository to which they lead."""
    led: list[str] = []

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[1]))
        if path.startswith("..") or not (ROOT / path).exists():
            return match[0]
        led.append(path)
        return posixpath.relpath(_place(path), posixpath.dirname(_place(origin)) or ".") + (match[2] or "")

    return LINK.sub(moved, text), led


def _place(path: str) -> str:
    """Where a file of the repository lies on the site."""
    return MOVED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md")


def _source(path: str) -> str:
    """A page with a file of the repository, or with the names in a folder; the search leaves it out."""
    full = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    if full.is_dir():
        names = sorted(one.name + "/" * one.is_dir() for one in full.iterdir() if one.name != "__pycache__")
        return head + "".join(f"- `{name}`\n" for name in names)
    text, language = full.read_text(encoding="utf-8"), LANGUAGES.get(full.suffix, "text")
    return f'{head}~~~~~~~~ {{ .{language} linenums="1" }}\n{text}\n~~~~~~~~\n'


# --------------------------------------------------------------------------------------------- the command line


def _verbs(above: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The verbs that a parser lists, each with its sentence and followed by its own verbs."""
    for group in above._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                for listed in action._choices_actions:
                    verb = action.choices[listed.dest]
                    yield listed.help or "", verb
                    yield from _verbs(verb)


def _name(verb: argparse.ArgumentParser) -> str:
    return "-".join(verb.prog.split()[1:])


def command_entries() -> list[Any]:
    """The navigation of the verbs."""
    verbs = [{verb.prog.partition(" ")[2]: f"reference/commands/{_name(verb)}.md"} for _, verb in _verbs(parser())]
    return ["reference/commands/index.md", *verbs]


def commands() -> Pages:
    """A page for each verb, and one that lists them."""
    whole = parser()
    rows = [f"| [`{verb.prog}`]({_name(verb)}.md) | {_cell(sentence)} |\n" for sentence, verb in _verbs(whole)]
    index = f"# The command line\n\n{html.escape(whole.description or '')}\n\n| Verb | |\n|---|---|\n{''.join(rows)}"
    pages = {"index": index} | {_name(verb): _command(verb) for _, verb in _verbs(whole)}
    return {f"reference/commands/{name}.md": text for name, text in pages.items()}


def _command(verb: argparse.ArgumentParser) -> str:
    """The page of a verb: what it does, its usage, its options in their groups."""
    most = "--help-all" if "--help-all" in verb._option_string_actions else "--help"
    with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
        verb.parse_known_args([most])  # completes the list of options
    usage = shown.getvalue().partition("\n\n")[0]
    page = [f"# `{verb.prog}`\n\n{html.escape(verb.description or '', quote=False)}\n\n~~~~ text\n{usage}\n~~~~\n"]
    for group in verb._action_groups:
        actions = [one for one in group._group_actions if one.help != argparse.SUPPRESS and one.dest != "help"]
        rows = [row for action in actions for row in _rows(verb, action)]
        if rows:
            title = (group.title or "options").capitalize()
            about = f"{html.escape(group.description, quote=False)}\n\n" if group.description else ""
            page.append(f"\n## {title}\n\n{about}| Option | Meaning | Default |\n|---|---|---|\n" + "".join(rows))
    return "".join(page) + (f"\n{html.escape(verb.epilog, quote=False)}\n" if verb.epilog else "")


def _rows(verb: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    if isinstance(action, argparse._SubParsersAction):
        for listed in action._choices_actions:
            yield f"| [`{listed.dest}`]({_name(action.choices[listed.dest])}.md) | {_cell(listed.help or '')} | |\n"
        return
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    shown = ", ".join(f"`{f'{option} {value}'.strip()}`" for option in action.option_strings) or f"`{value}`"
    text = (action.help or "") % {**vars(action), "prog": verb.prog}
    if action.choices is not None:
        text += f" One of: {', '.join(map(str, action.choices))}."
    told = re.fullmatch(r"(.*?) \(default: (.*)\)(.*)", text, re.DOTALL)
    default, unsaid = action.default, (None, False, argparse.SUPPRESS, [], ())
    usual = "" if default in unsaid or not action.option_strings else str(default)
    text, usual = (told[1] + told[3], told[2]) if told else (text, usual)
    yield f"| {shown} | {_cell(text)} | {_cell(usual)} |\n"


def _cell(text: str) -> str:
    return re.sub(r"([|*_])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


# ------------------------------------------------------------------------------------------------------- Python


def _folders() -> list[Path]:
    """The folders of the package, without the command line, each before those in it."""
    found = sorted(path.parent for path in (ROOT / "src" / "unmask").rglob("__init__.py"))
    return [path for path in found if "cli" not in path.parts]


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def python_entries() -> list[Any]:
    """The navigation of the package."""
    return [{_module(folder): f"reference/python/{_module(folder)}.md"} for folder in _folders()]


def python() -> Pages:
    """A page for each folder of the package, with its modules; names that are handed on stay with their module."""
    pages = {}
    for folder in _folders():
        modules = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
        page = [f"# `{_module(folder)}`\n\n::: {_module(folder)}\n    options:\n      members: {_own(folder)}\n"]
        page += [
            f"\n## `{path.stem}`\n\n::: {_module(path)}\n    options:\n      heading_level: 3\n" for path in modules
        ]
        pages[f"reference/python/{_module(folder)}.md"] = "".join(page)
    return pages


def _own(folder: Path) -> str:
    return "true" if folder == ROOT / "src" / "unmask" else "false"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
