"""What tests of pages of documentation share: their code, commands, options, defaults, recipes, files and links."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unmask.cli import parser
from unmask.cli import words as word_vectors
from unmask.cli.parser import overrides
from unmask.generate import Sampling, Search
from unmask.objectives import registry
from unmask.runs import recipes, supervised_recipes
from unmask.runs.clustering import Iterations, LabelMaking
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.baselines import Baselines
from unmask.runs.finetuning.probing import Probing
from unmask.runs.in_context import InContext
from unmask.runs.translation import systems
from unmask.runs.word_vectors import Word2Vec
from unmask.train.optim import check_rate

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"batch": "fit.batch_size"}  # as in cli/training.py and cli/supervised.py


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def run_blocks(page: str, count: int) -> None:
    """Run the blocks of Python of a page, in order and in the same names."""
    text = text_of(page)
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == count
    names: dict[str, object] = {"__name__": page}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], f"docs/{page}.md", "exec", dont_inherit=True), names)


def commands(page: str) -> Iterator[str]:
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE):
        yield from (line for line in block.splitlines() if not language and line.startswith("unmask "))


def words_of(command: str) -> list[str]:
    """The arguments of a command of a page."""
    return shlex.split(command, comments=True)[1:]


def check_command(command: str, recipe: str) -> None:
    """A command of a page has known options, with values that its config takes.

    recipe  of a run that continues one, `pretrain --from`
    """
    verb, *_ = words = words_of(command)
    options, rest = parser().parse_known_args(words)
    if fields := overrides(rest):
        config, others = _config_of(verb, options, fields, recipe)
        changed = config.override(fields, **others)
        if hasattr(config, "training"):
            check_rate(config.training.optimizer, changed.training.optimizer, fields)


def _config_of(
    verb: str, options: argparse.Namespace, fields: dict[str, str], recipe: str
) -> tuple[Any, dict[str, str]]:
    """The config whose fields a verb passes on, and the other names of its fields, as the verb itself finds them."""
    if verb == "pretrain" and options.recipe in word_vectors.RECIPES:
        return Word2Vec(), {}
    if verb == "pretrain":
        return recipes.find(options.recipe or recipe), {"batch_size": "rows.batch"}
    if verb == "cluster":
        if options.iterations is None:
            return LabelMaking(), {}
        Iterations().override({name: fields.pop(name) for name in ("clusters", "sample", "layer") if name in fields})
        return recipes.find(options.recipe or "hubert-tiny"), {"batch_size": "rows.batch"}
    if verb == "train" and (options.start or options.system in systems.names()):
        return systems.find(options.system or next(iter(systems.names()))), {}
    if verb == "train":
        return supervised_recipes.find(options.system), OTHERS
    if verb == "show":
        return recipes.find(options.recipe), {}
    of = {"finetune": (FineTuning(), OTHERS), "probe": (Probing(), {}), "baseline": (Baselines(), {})}
    return (
        of
        | {
            "generate": (Search() if getattr(options, "search", False) else Sampling(), {}),
            "evaluate": (InContext(), {}),
        }
    )[verb]


def options_of(pages: Iterable[str], configs: Iterable[Any]) -> Iterator[tuple[str, set[str]]]:
    """Each page with the options that its text names, and that neither the commands nor these configs have."""
    fields = {place for run in configs for place in run.places()} | registry.options()
    known = _all_options(parser()) | {
        f"--{name.replace('_', '-')}" for place in fields for name in (place, last(place))
    }
    known |= {"--micro-batch", "--batch-size"}
    for page in pages:
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
        yield page, set(re.findall(r"(?<!-)(--[a-z][a-z._-]*[a-z])(?![\w-])", text)) - known


def _all_options(whole: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of all verbs below it."""
    found = set(whole._option_string_actions)
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(*map(_all_options, action.choices.values()))
    return found


def last(place: str) -> str:
    return place.rpartition(".")[2]


def config_named(name: str) -> Any:
    """The config of a recipe, or of a command with its options."""
    if name == "cluster":
        return LabelMaking()
    if name.startswith("finetune --task "):
        return FineTuning().override({"task": last(name.replace(" ", "."))})
    name = name.removeprefix("train ")
    return supervised_recipes.find(name) if name in supervised_recipes.names() else recipes.find(name)


def tables_of(pages: Iterable[str]) -> list[tuple[str, str, str]]:
    """(page, name of a config, rows) of each table of options with their defaults."""
    return [
        (page, *match.groups())  # type: ignore[misc]
        for page in pages
        for match in re.finditer(r"\| `([^`|]+)` \| Default \| Meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", text_of(page))
    ]


def check_defaults(page: str, name: str, rows: str) -> None:
    """An option with the default that a table states changes nothing."""
    config = config_named(name)
    others = {"batch_size": "rows.batch"} if name in recipes.names() else OTHERS
    lines = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \| [^|]+ \|$", rows, re.MULTILINE)
    assert len(lines) == len(rows.splitlines())
    for options, values in lines:
        named = re.findall(r"`--([^`]+)`", options)
        several = values.split(", ")
        for option, told in zip(named, several if len(several) == len(named) else [values] * len(named), strict=True):
            if told == "none":
                assert [value for place, value in config.places().items() if last(place) == option] == [None]
            else:
                assert config.override({option: told}, **others) == config, f"docs/{page}.md: --{option} of {name}"


def recipes_told(page: str) -> dict[str, str]:
    """Recipe -> "train" or "pretrain", by the table of recipes of a page."""
    section = text_of(page).partition("## Recipes")[2].partition("\n## ")[0]
    rows: list[tuple[str, str]] = re.findall(r"^\| (`[^|]+) \| `(train|pretrain)` \| .*\]\(.*\) \|$", section, re.M)
    return {name: verb for names, verb in rows for name in re.findall(r"`([\w-]+)`", names)}


def check_files(page: str) -> None:
    """The files and their parts in the table of equations exist."""
    table = text_of(page).partition("## Equations and files")[2]
    named = re.findall(r"`([\w/]+\.py)(?:: ([\w., ]+))?`", table)
    assert named
    for file, parts in named:
        source = (ROOT / "src" / "unmask" / file).read_text(encoding="utf-8")
        for part in filter(None, parts.split(", ")):
            assert re.search(rf"^\s*(?:class|def) {last(part)}\b", source, re.M), f"{file} has no {part}"


def check_learns(page: str, models: dict[str, Any], objectives: dict[str, tuple[str, ...]], option: str) -> None:
    """The table of what models learn by which objective says what the objectives say.

    models      name in the header -> config
    objectives  name of a row -> the values of `option` that choose its objectives
    """
    text = text_of(page)
    header = re.search(r"^\| Objective \| (.*) \|$", text, re.M)
    assert header is not None
    names = header[1].split(" | ")
    assert set(names) == set(models)
    by_choice = {value: kind for kind in registry.OBJECTIVES for other, value in kind.choices if other == option}
    assert {choice for choices in objectives.values() for choice in choices} == set(by_choice)
    for objective, choices in objectives.items():
        row = re.search(rf"^\| {re.escape(objective)} \| (.*) \|$", text, re.M)
        assert row is not None, objective
        for name, told in zip(names, row[1].split(" | "), strict=True):
            for choice in choices:
                assert by_choice[choice]().fits(models[name]) == (told == "yes"), f"{name}, {choice}"


def check_links(pages: Iterable[str]) -> None:
    """Links of all documents to headings of these pages lead to one."""
    titles = {page: {_anchor(title) for title in re.findall(r"^#+ (.*)$", text_of(page), re.M)} for page in pages}
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, anchor in re.findall(
            r"\]\((?:docs/|\.\./)?(\w+)\.md#([\w-]+)\)", document.read_text(encoding="utf-8")
        ):
            assert target not in titles or anchor in titles[target], (
                f"{document.name}: {target}.md has no heading {anchor}"
            )


def _anchor(title: str) -> str:
    """The anchor of a title, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
