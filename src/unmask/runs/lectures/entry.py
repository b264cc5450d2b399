"""Entry: one figure, table, equation or worked example of a lecture, which can be run; its text and its page."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask import files
from unmask.errors import UnmaskError
from unmask.train.drawing import Figure, svg
from unmask.train.report import Code, Section, Table, Text, render

WIDTH = 100  # characters of a line in a terminal


@dataclass(frozen=True)
class Shown:
    """What an entry found.

    finding  one or two sentences with the numbers
    tables   shown in a terminal and on the page
    figures  shown on the page alone
    """

    finding: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


Show = Callable[[bool], Shown]
"""Computes what an entry shows; with True at the smallest size, in seconds."""


@dataclass(frozen=True)
class Entry:
    """One thing that a lecture shows.

    name     of `unmask lecture NAME`
    title    what is shown, in a few words
    about    paragraphs, with the sources
    code     file of the equation, below src/unmask
    test     file of the test that holds it, below tests
    show     computes it
    """

    name: str
    title: str
    about: Sequence[str]
    code: str
    test: str
    show: Show

    def text(self, shown: Shown) -> str:
        """What is printed in a terminal."""
        paragraphs = [textwrap.fill(one, WIDTH) for one in (*self.about, shown.finding)]
        tables = [aligned(table) for table in shown.tables]
        return "\n\n".join([self.title, *paragraphs, *tables, f"Code: {self.code}. Test: {self.test}."])

    def write(self, path: Path, shown: Shown) -> None:
        """Write a self-contained HTML page, or the figures alone into a .svg. Raises UnmaskError if the file cannot be
        written, or there is no figure."""
        if path.suffix == ".svg":
            if not shown.figures:
                raise UnmaskError(f"{self.name} has tables and no figure: write a page, --out {path.stem}.html.")
            files.write_text(path, svg(shown.figures))
            return
        sections: list[Section] = [
            Text([one.replace("`", "") for one in self.about]),
            *shown.figures,
            *shown.tables,
            Text([shown.finding], "What it shows"),
        ]
        sections.append(Code("The code of this page", self.source))
        page = render(self.title, sections, subtitle=f"Code: {self.code}. Test: {self.test}.")
        files.write_text(path, page)

    @property
    def source(self) -> str:
        """The lines of Python that compute it, without the docstring."""
        lines = inspect.getsource(self.show).splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith("def "))
        code = "\n".join(lines[begin:])
        documentation = inspect.getsource(self.show).split('"""')
        return code if len(documentation) < 3 else code.replace(f'    """{documentation[1]}"""\n', "")


def entry(title: str, *, code: str, test: str) -> Callable[[Show], Entry]:
    """Make an entry of a function: its name, with hyphens, is that of the entry, and its docstring the text."""

    def make(show: Show) -> Entry:
        paragraphs = [" ".join(one.split()) for one in inspect.cleandoc(show.__doc__ or "").split("\n\n")]
        return Entry(show.__name__.replace("_", "-"), title, paragraphs, code, test, show)

    return make


def aligned(table: Table) -> str:
    """A table as lines of text: its title, its columns, the numbers to the right."""
    cells = [[_cell(one) for one in row] for row in (table.columns, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numbers = [all(isinstance(row[i], int | float) for row in table.rows) for i in range(len(widths))]

    def line(row: Sequence[str]) -> str:
        parts = zip(row, widths, numbers, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts).rstrip()

    note = [textwrap.fill(table.note, WIDTH)] if table.note else []
    return "\n".join([table.title, line(cells[0]), "  ".join("-" * n for n in widths), *map(line, cells[1:]), *note])


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
