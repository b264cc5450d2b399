"""The atlas (docs/atlas): `make atlas` runs the entries of `unmask lecture`, and writes their figures and sections."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from unmask.runs.lectures.contents import CHAPTERS
from unmask.runs.lectures.entry import Entry, Shown, aligned

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES = DOCS / "images" / "atlas"
SECTION = re.compile(r'<a id="([\w-]+)"></a>\n.*?<!-- end -->', re.DOTALL)  # of an entry, which `make atlas` writes
LIST = re.compile(r"<!-- entries -->\n.*?<!-- end -->", re.DOTALL)


def main(names: list[str]) -> None:
    """Write the sections of the entries of these names, of all without one, and the list of docs/lectures.md."""
    entries = {entry.name: entry for chapter in CHAPTERS.values() for entry in chapter}
    shown = {name: entries[name].show(False) for name in names or entries}
    for name, one in shown.items():
        if one.figures:
            entries[name].write(FIGURES / f"{name}.svg", one)
    for page in pages():
        text = page.read_text(encoding="utf-8")
        made = SECTION.sub(lambda old: section(entries[old[1]], shown[old[1]]) if old[1] in shown else old[0], text)
        page.write_text(made, encoding="utf-8")
    page = DOCS / "lectures.md"
    made = LIST.sub(lambda _: listed(), page.read_text(encoding="utf-8"))
    page.write_text(made, encoding="utf-8")


def pages() -> list[Path]:
    return sorted((DOCS / "atlas").glob("*.md"))


def section(entry: Entry, shown: Shown) -> str:
    """The section of an entry: what it shows, its command, what it found, its figures and its tables."""
    picture = [f"![{entry.title}](../images/atlas/{entry.name}.svg)"] if shown.figures else []
    tables = [f"```text\n{aligned(table)}\n```" for table in shown.tables]
    return "\n\n".join([*begin(entry), shown.finding, *picture, *tables, *end(entry)])


def begin(entry: Entry) -> list[str]:
    """The first paragraphs of a section, which do not depend on what was found."""
    head = f'<a id="{entry.name}"></a>\n\n### {entry.title}'
    return [head, *entry.about, f"```\nunmask lecture {entry.name}\n```"]


def end(entry: Entry) -> list[str]:
    """The last paragraphs of a section."""
    code, test = f"[`{entry.code}`](../../src/unmask/{entry.code})", f"[`{entry.test}`](../../tests/{entry.test})"
    return [f"Code: {code}. Test: {test}.", "<!-- end -->"]


def listed() -> str:
    """All entries with links to their sections, page by page, in the order of the lectures."""
    titles = {entry.name: entry.title for chapter in CHAPTERS.values() for entry in chapter}
    parts = ["<!-- entries -->"]
    for text, name in sorted((page.read_text(encoding="utf-8"), page.name) for page in pages()):
        rows = [f"| [`{one}`](atlas/{name}#{one}) | {titles[one]} |" for one in SECTION.findall(text)]
        title = text.partition("\n")[0].removeprefix("# ")
        parts += [f"### {title}", "\n".join(["| entry | shows |", "|---|---|", *rows])]
    return "\n\n".join([*parts, "<!-- end -->"])


if __name__ == "__main__":
    main(sys.argv[1:])
