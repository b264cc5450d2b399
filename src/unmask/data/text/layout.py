"""Layout of docstrings: extracts paragraphs from Google, NumPy, reST, Sphinx and Markdown styles, without code and
tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator

_ADMONITIONS = {"note", "warning", "caution", "tip", "important", "hint", "attention", "danger", "admonition", "topic"}
_RESULTS = {"returns", "return", "yields", "yield"}
_ENTRIES = _RESULTS | {
    "args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments", "kwargs",
    "keywords", "keyword parameters", "attributes", "public attributes", "receives", "raises", "raise", "throws",
    "warns", "shape", "input", "inputs", "output", "outputs", "options", "variables", "properties",
}  # fmt: skip
_TEXT = {
    "note", "notes", "warning", "warnings", "important", "tip", "caution", "description", "algorithm", "explanation",
    "explanation of arguments", "extended summary", "details", "remarks", "overview", "explanations",
}  # fmt: skip
_SAMPLES = {"example", "examples", "usage", "sample usage"}
_SKIPPED = {
    "see also", "seealso", "references", "reference", "bibliography", "citation", "citations", "methods", "index",
    "public methods", "functions", "list of functions", "constants", "routine listings", "todo", "todos", "links",
    "author", "authors", "history", "version history",
}  # fmt: skip
_TITLES = _ENTRIES | _TEXT | _SAMPLES | _SKIPPED

_DIRECTIVE = re.compile(r"(\s*)\.\.(?:\s+(?:([\w-]+)::)?\s*(.*))?$")
_UNDERLINE = re.compile(r"\s*([=\-~^\"'*#+`.:])\1{2,}\s*$")
_TABLE = re.compile(r"\s*(?:[=-]{2,}(?:\s+[=-]{2,})+|\+[-=+]+\+|\|.*\|)\s*$")
_TITLE = re.compile(r"\s*(?:#+\s*)?\**([A-Za-z][A-Za-z ]{2,24}?)\s*(:{0,2})\**(:{0,2})\s*$")
_FIELD = re.compile(r"\s*[:@](\w+)(?:\s+[^:]*?)?:(?:\s+|$)")
_FIELDS_WITHOUT_PROSE = {"type", "rtype", "vartype", "author", "authors", "license", "copyright", "date", "version"}
_SIGNATURE = re.compile(r"\s*[\w.]+\(.*(?:\)|->.*|,)\s*:?$")
_BULLET = re.compile(r"\s*(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-zA-Z]\)|#\.)\s+(?=\S)")
_NAME = r"[`*]{0,3}[\w.\[\]]+[`*]{0,3}"
_TYPE = r"(?:\((?:[^()]|\([^()]*\))*\)|\[[^]]*\]|<[^>]*>)"
_TYPED_NAME = re.compile(rf"\s*{_NAME}(?:\s*,\s*{_NAME})*\s*(?::(?:\s.*)?)?$")  # NumPy: "x, y : array of shape (n,)"
_NAMED = re.compile(
    rf"\s*{_NAME}(?:\s*[,/]\s*{_NAME}){{0,4}}\s*{_TYPE}?\s*(?::|--| - )(?:\s+|$)"
)  # Google: "x (int): "
_RESULT = re.compile(r"\s*(?:\(\w+\)\s+)?[\w.\[\], |`:~*()-]{1,60}?:(?:\s+|$)")
_DASHED = re.compile(r"\s*[\w.*`]+(?:\([^)]*\))?\s+--\s+")
_LABELLED = re.compile(r"\s*(?:[`*]{0,3}[a-z_][\w.]*[`*]{0,3}|Returns?|Yields?|Raises)(?:\s\([^()]*\))?:\s+(?=\S)")
_TYPED = re.compile(
    r"(?:\(`?optional`?\)[\s,]*)?`?(?:(?:unsigned )?(?:int|bool|boolean|str|string|float|list|dict|tuple)|[A-Z]\w+)"
    r"(?:\[[^:]*\])?`?:\s+(?=[A-Z])"
)
_LONGEST_TERM = 50  # characters; a longer line above an indented one is the first line of a hanging paragraph


def paragraphs(docstring: str) -> list[str]:
    """The paragraphs of a docstring, each on one line, with their inline markup.

    Code blocks, doctests, tables, signatures, titles, names and types of parameters, references, comments and
    directives without prose are dropped; list items and descriptions of parameters become paragraphs.
    """
    joined = _join(_entries(_without_blocks(inspect.cleandoc(docstring).splitlines())))
    return [paragraph[match.end() if (match := _TYPED.match(paragraph)) else 0 :] for paragraph in joined]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _title(line: str, names: Collection[str]) -> str | None:
    """The known title, in lower case, if the line is one and is marked as such by a colon or Markdown; else None."""
    match = _TITLE.match(line)
    marked = match is not None and (match[2] or match[3] or "*" in line or "#" in line)
    name = match[1].strip().lower() if match and marked else None
    return name if name in names else None


def _without_blocks(lines: list[str]) -> list[str]:
    """The lines, with each block of code, table, comment and directive replaced by a blank line."""
    out: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        text = line.strip()
        if text.startswith(("```", "~~~")):
            i = _end_of_fence(lines, i + 1, text[:3])
            out.append("")
        elif text.startswith((">>>", "In [", "$ ")) or _TABLE.match(line):
            i = _until(lines, i, lambda here: not here.strip())
            out.append("")
        elif directive := _DIRECTIVE.match(line):
            margin, name, argument = directive.groups()
            i += 1
            if name in _ADMONITIONS:
                out.extend(["", f"{margin}   {argument}" if name not in ("admonition", "topic") else ""])
            else:
                i = _end_of_block(lines, i, len(margin))
                out.append("")
        elif text.endswith("::") and not _title(line, _ENTRIES | _TEXT):
            out.extend([line.rstrip()[:-1] if text != "::" else "", ""])
            i = _end_of_block(lines, i + 1, _indent(line))
        else:
            out.append(line)
            i += 1
    return out


def _until(lines: list[str], i: int, stop: Callable[[str], bool]) -> int:
    while i < len(lines) and not stop(lines[i]):
        i += 1
    return i


def _end_of_fence(lines: list[str], i: int, fence: str) -> int:
    return _until(lines, i, lambda here: here.strip().startswith(fence)) + 1


def _end_of_block(lines: list[str], i: int, indent: int) -> int:
    """Index of the first line, starting at `i`, that is neither blank nor indented more than `indent`."""
    return _until(lines, i, lambda here: bool(here.strip()) and _indent(here) <= indent)


def _entries(lines: list[str]) -> Iterator[str]:
    """The lines without titles, skipped sections, and the names and types of parameters."""
    section, margin = "", -1  # the section of a line, and the indentation of its title
    underlined = False  # NumPy style: the section ends at the next title
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        indent = _indent(line)
        deeper = bool(below.strip()) and _indent(below) > indent
        if not line.strip() or _UNDERLINE.match(line):
            yield ""
        elif _UNDERLINE.match(below) and _indent(below) == indent and len(line) < 80:
            section, margin, underlined = line.strip().lower().rstrip(":"), indent, True
            yield ""
        elif title := _title(line, _TITLES):
            section, margin, underlined = title, indent, False
            yield ""
        else:
            if indent < margin or (indent == margin and not underlined):
                section, margin, underlined = "", -1, False
            if section not in _SKIPPED:
                yield from _entry(line, section, deeper, underlined)


def _entry(line: str, section: str, deeper: bool, underlined: bool) -> Iterator[str]:
    """One line, without the name and type at its beginning; a blank line precedes it if a paragraph begins."""
    bullet = _BULLET.match(line)
    field = _FIELD.match(line)
    if field and field[1].lower() in _FIELDS_WITHOUT_PROSE:
        yield ""
    elif field:
        yield from _begin(line, field.end())
    elif _is_signature(line) or (deeper and not bullet and _is_term(line, section, underlined)):
        yield ""
    elif section in _ENTRIES and not underlined:
        pattern = _RESULT if section in _RESULTS else _NAMED
        name = pattern.match(line, bullet.end() if bullet else 0) or bullet
        yield from _begin(line, name.end()) if name else [line]
    elif name := _DASHED.match(line) or _LABELLED.match(line, bullet.end() if bullet else 0) or bullet:
        yield from _begin(line, name.end())
    else:
        yield line


def _is_signature(line: str) -> bool:
    return _SIGNATURE.match(line) is not None and " " not in line.partition("(")[0].strip()


def _is_term(line: str, section: str, underlined: bool) -> bool:
    """Whether a line above an indented one is only a name, which the indented line describes."""
    if section in _ENTRIES and underlined:
        return True
    text = line.strip()
    known = " : " in line and _TYPED_NAME.match(line) is not None
    return known or (len(text) < _LONGEST_TERM and not text.endswith((".", "?", "!", ",")) and not _NAMED.match(line))


def _begin(line: str, end: int) -> Iterator[str]:
    """A new paragraph with the rest of the line after `end`, at its indentation."""
    yield ""
    if line[end:].strip():
        yield " " * end + line[end:]


def _join(lines: Iterable[str]) -> Iterator[str]:
    """Paragraphs: lines up to a blank one, or up to a deeper indentation after the second line or a full stop."""
    paragraph = ""
    count = indent = 0
    for line in [*lines, ""]:
        here = _indent(line)
        grown = here > indent and (count > 1 or paragraph.endswith((".", ":", "?", "!")))
        if paragraph and (not line.strip() or grown):
            yield paragraph
            paragraph, count = "", 0
        if line.strip():
            if count <= 1:
                indent = here
            torn = re.search(r"\w-$", paragraph) is not None  # a compound that was wrapped at its hyphen
            paragraph += line.strip() if torn or not paragraph else " " + line.strip()
            count += 1
