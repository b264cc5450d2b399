"""The verb `lecture`: what the lectures show, run by name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.parser import add_verb
from unmask.errors import UnmaskError


def add_verbs(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "lecture",
        _lecture,
        "figures, tables and worked examples of lectures, by name",
        about="Figures, tables and worked examples of lectures on these systems: list them, or run one by name.",
    )
    verb.add_argument("name", nargs="?", metavar="NAME", help="an entry; without it, all are listed")
    verb.add_argument(
        "--out", metavar="FILE", help="FILE.html: a page; FILE.svg: its figures; with --all a folder of pages"
    )
    verb.add_argument("--all", action="store_true", help="run every entry, one after the other")
    verb.add_argument("--quick", action="store_true", help="run at the smallest size, in seconds")


def _lecture(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.lectures.contents import CHAPTERS, find

    if options.name and options.all:
        raise UnmaskError("Name one entry, or run every one with --all, not both.")
    if not options.name and not options.all:
        if options.out or options.quick:
            raise UnmaskError("--out and --quick need the name of an entry, or --all.")
        for chapter, entries in CHAPTERS.items():
            print(f"{chapter}\n" + "\n".join(f"  {entry.name:18}{entry.title}" for entry in entries))
        print("\nNext: unmask lecture NAME, with --out x.html for a page with the figures.")
        return
    out = Path(options.out) if options.out else None
    if options.name and out is not None and out.suffix not in (".html", ".svg"):
        raise UnmaskError(f"--out must end in .html or .svg, unlike '{out.name}'.")
    chosen = [find(options.name)] if options.name else [one for entries in CHAPTERS.values() for one in entries]
    for number, entry in enumerate(chosen):
        shown = entry.show(options.quick)
        print(("\n\n" if number else "") + entry.text(shown))
        if out is not None:
            path = out if options.name else out / f"{entry.name}.html"
            path.parent.mkdir(parents=True, exist_ok=True)
            entry.write(path, shown)
            print(f"\n{entry.name} -> {path}")
