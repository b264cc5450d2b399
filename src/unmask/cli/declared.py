"""Options of objectives for the help of a verb, read off the source of their configs: help does not wait for PyTorch.

A config says in its docstring what each field means, and in `choices` which options choose it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

OBJECTIVES = Path(__file__).parents[1] / "objectives"
NOTHING = "nothing"  # is learned by what is a part of objectives alone


@dataclass
class Declared:
    """A config as its source has it: with what it takes over from its bases."""

    doc: str = ""
    learned: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    fields: dict[str, str] = field(default_factory=dict)  # name -> its type
    help: dict[str, str] = field(default_factory=dict)


def objective_options(folder: Path = OBJECTIVES) -> dict[str, str]:
    """Option that chooses an objective, or sets a field of one -> what it does."""
    configs: dict[str, Declared] = {}
    classes = [node for path in sorted(folder.glob("*.py")) for node in _classes(path)]
    while classes:  # bases first, in whatever file they stand
        names = {node.name for node in classes}
        ready = [node for node in classes if not names & {base.id for base in node.bases if isinstance(base, ast.Name)}]
        configs |= {node.name: _declared(node, configs) for node in ready}
        classes = [node for node in classes if node not in ready]
    chosen = [config for config in configs.values() if config.choices]
    found: dict[str, list[str]] = {}
    for config in chosen:
        line = config.doc.split("\n\n")[0].rstrip(".")
        for option, value in config.choices:
            if value != "false":
                found.setdefault(option, []).append(f"{value}: {line[:1].lower()}{line[1:]}")
    options = {option: "; ".join(values) for option, values in found.items()}
    for config in chosen:
        for name, text in config.help.items():
            if name not in options:
                takers = (other.learned for other in chosen if name in _names(other, configs))
                *first, last = dict.fromkeys(learned for learned in takers if learned != NOTHING)
                either = f"{', '.join(first)} or {last}" if first else last
                options[name] = f"{text} (for {either})"
    return options


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.decorator_list:
            yield node


def _declared(node: ast.ClassDef, known: dict[str, Declared]) -> Declared:
    bases = [known[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in known]
    doc = ast.get_docstring(node) or ""
    made = Declared(" ".join(doc.split("\n\n")[0].split()))
    for base in bases:
        made.learned, made.choices = base.learned, base.choices
        made.fields, made.help = {**base.fields}, {**base.help}
    made.help |= _documented(doc)
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            kind = ast.unparse(part.annotation)
            made.fields |= {} if kind.startswith("ClassVar") else {part.target.id: kind}
        if isinstance(part, (ast.Assign, ast.AnnAssign)) and part.value is not None:
            name = ast.unparse(part.target if isinstance(part, ast.AnnAssign) else part.targets[0])
            if name in ("choices", "learned"):
                setattr(made, name, ast.literal_eval(part.value))
    made.help = {name: text for name, text in made.help.items() if name in made.fields}
    return made


def _names(config: Declared, known: dict[str, Declared]) -> set[str]:
    """The names of all fields, those of parts included."""
    parts = (known[kind] for kind in config.fields.values() if kind in known)
    return config.fields.keys() | {name for part in parts for name in _names(part, known)}


def _documented(doc: str) -> dict[str, str]:
    """Name -> what a docstring says of it, where it lists names in a column."""
    found: dict[str, str] = {}
    name = ""
    for line in _after_the_first_paragraph(doc.split("\n")):
        head, _, text = line.partition("  ")
        if head and text and " " not in head:
            name = head
            found[name] = text.strip()
        elif name and line.startswith(" "):
            found[name] += f" {line.strip()}"
        else:
            name = ""
    return found


def _after_the_first_paragraph(lines: Iterable[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        if not line:
            yield from rest
