"""The pages on pictures: their code runs, and the commands, options, defaults, recipes and files in them exist."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from unmask.cli import parser
from unmask.cli.parser import overrides
from unmask.models.cct import Cct
from unmask.models.deit import Deit
from unmask.models.mae import Mae
from unmask.models.resnet import ResNet
from unmask.models.swin import Swin
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.objectives import registry
from unmask.objectives.pictures import PictureConfig
from unmask.runs import recipes, supervised_recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.baselines import Baselines
from unmask.runs.finetuning.probing import Probing
from unmask.train.optim import check_rate

pytest.importorskip("PIL.Image")
ROOT = Path(__file__).resolve().parents[2]
BLOCKS = {  # page -> the number of its blocks of Python
    "vision": 2,
    "vit": 1,
    "swin": 1,
    "convolutions": 1,
    "masked_pictures": 1,
    "contrastive": 1,
    "pretext": 1,
    "metric_learning": 1,
}
OTHERS = {"batch": "fit.batch_size"}  # as in cli/training.py and cli/supervised.py
MODELS = {"ViT": Vit, "DeiT": Deit, "Swin": Swin, "CCT": Cct, "ResNet": ResNet, "VGG": Vgg, "MAE": Mae}
OBJECTIVES = {
    "masked patches (SimMIM)": ("masked",),
    "masked autoencoder": ("left-out",),
    "SimCLR, CMC": ("views", "lightness-colour"),
    "rotation, jigsaw": ("rotation", "jigsaw"),
    "colourisation, super-resolution": ("colours", "super-resolution"),
}


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", BLOCKS)
def test_the_page_runs_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = text_of(page)
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == BLOCKS[page]
    names: dict[str, object] = {"__name__": page}
    for block in blocks:
        lines = "\n" * (text[: block.start()].count("\n") + 1)  # so that a traceback names the line of the page
        exec(compile(lines + block[1], f"docs/{page}.md", "exec", dont_inherit=True), names)
    for folder in tmp_path.iterdir():
        assert not folder.is_dir() or (folder / "preprocessor_config.json").exists()


def commands(page: str) -> Iterator[str]:
    for block in re.findall(r"```\n(.*?)```", text_of(page), re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("unmask "))


def config_of(verb: str, options: argparse.Namespace) -> tuple[Any, dict[str, str]]:
    """The config whose fields a verb passes on, and the other names of its fields, as the verb itself finds them."""
    if verb == "pretrain":
        return recipes.find(options.recipe or "simmim-tiny"), {"batch_size": "rows.batch"}
    if verb == "train":
        return supervised_recipes.find(options.system), OTHERS
    if verb == "show":
        return recipes.find(options.recipe), {}
    return {"finetune": (FineTuning(), OTHERS), "probe": (Probing(), {}), "baseline": (Baselines(), {})}[verb]


@pytest.mark.parametrize("page", BLOCKS)
def test_the_commands_of_the_page_are_understood(page: str) -> None:
    found = list(commands(page))
    assert found
    for command in found:
        words = shlex.split(command, comments=True)[1:]
        options, rest = parser().parse_known_args(words)
        if fields := overrides(rest):
            config, others = config_of(words[0], options)
            changed = config.override(fields, **others)
            if words[0] == "pretrain":
                check_rate(config.training.optimizer, changed.training.optimizer, fields)


def all_options(whole: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of all verbs below it."""
    found = set(whole._option_string_actions)
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(*map(all_options, action.choices.values()))
    return found


def recipes_of_pictures() -> set[str]:
    learn = {name for name in recipes.names() if isinstance(recipes.find(name).objective, PictureConfig)}
    return learn | set(supervised_recipes.names())


def test_every_option_that_the_pages_name_exists() -> None:
    tasks = [FineTuning().override({"task": task}) for task in ("image-classification", "picture-embedding")]
    runs = [config_named(name) for name in sorted(recipes_of_pictures())]
    fields = {place for run in (*runs, *tasks, Probing()) for place in run.places()} | registry.options()
    known = all_options(parser()) | {f"--{name.replace('_', '-')}" for place in fields for name in {place, last(place)}}
    known |= {"--micro-batch", "--batch-size"}
    for page in BLOCKS:
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
        named = set(re.findall(r"(--[a-z][a-z._-]*[a-z])", text))
        assert named <= known, f"docs/{page}.md names {sorted(named - known)}"


def last(place: str) -> str:
    return place.rpartition(".")[2]


def config_named(name: str) -> Any:
    """The config of a recipe, or of a command with its options."""
    if name.startswith("finetune --task "):
        return FineTuning().override({"task": last(name.replace(" ", "."))})
    name = name.removeprefix("train ")
    return supervised_recipes.find(name) if name in supervised_recipes.names() else recipes.find(name)


TABLES = [
    (page, *match.groups())
    for page in BLOCKS
    for match in re.finditer(r"\| `([^`|]+)` \| Default \| Meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", text_of(page))
]


@pytest.mark.parametrize(("page", "name", "rows"), TABLES, ids=[f"{page}-{name}" for page, name, _ in TABLES])
def test_the_defaults_are_those_of_the_recipe(page: str, name: str, rows: str) -> None:
    config = config_named(name)
    others = {"batch_size": "rows.batch"} if name in recipes.names() else OTHERS
    lines = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \| [^|]+ \|$", rows, re.MULTILINE)
    assert len(lines) == len(rows.splitlines())
    for options, told in lines:
        for option in re.findall(r"`--([^`]+)`", options):
            if told == "none":
                assert [value for place, value in config.places().items() if last(place) == option] == [None]
            else:  # an option with the value of the recipe changes nothing
                assert config.override({option: told}, **others) == config, f"docs/{page}.md: --{option} of {name}"


def test_every_page_has_tables_of_options() -> None:
    assert {page for page, *_ in TABLES} == set(BLOCKS)


def test_the_table_of_recipes_is_complete() -> None:
    section = text_of("vision").partition("## Recipes")[2].partition("\n## ")[0]
    rows: list[tuple[str, str]] = re.findall(r"^\| (`[^|]+) \| `(train|pretrain)` \| .*\]\(.*\) \|$", section, re.M)
    told = {name: verb for names, verb in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert told.keys() == recipes_of_pictures()
    for name, verb in told.items():
        assert (verb == "train") == (name in supervised_recipes.names())
    named = {name for page in BLOCKS for name in re.findall(r"`([a-z-]+-(?:tiny|small|base))`", text_of(page))}
    assert named == told.keys()


def test_what_models_learn_is_as_the_table_says() -> None:
    text = text_of("vision")
    header = re.search(r"^\| Objective \| (.*) \|$", text, re.M)
    assert header is not None
    pages = header[1].split(" | ")
    assert set(pages) == set(MODELS)
    by_choice: Mapping[str, Any] = {
        value: kind for kind in registry.OBJECTIVES for option, value in kind.choices if option == "patches"
    }
    assert {choice for choices in OBJECTIVES.values() for choice in choices} == set(by_choice)
    for name, choices in OBJECTIVES.items():
        row = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", text, re.M)
        assert row is not None, name
        for page, told in zip(pages, row[1].split(" | "), strict=True):
            for choice in choices:
                assert by_choice[choice]().fits(MODELS[page]()) == (told == "yes"), f"{page}, {choice}"


@pytest.mark.parametrize("page", BLOCKS)
def test_the_files_of_the_equations_exist(page: str) -> None:
    table = text_of(page).partition("## Equations and files")[2]
    named = re.findall(r"`([\w/]+\.py)(?:: ([\w., ]+))?`", table)
    assert named
    for file, parts in named:
        source = (ROOT / "src" / "unmask" / file).read_text(encoding="utf-8")
        for part in filter(None, parts.split(", ")):
            assert re.search(rf"^\s*(?:class|def) {last(part)}\b", source, re.M), f"{file} has no {part}"


def heading_of(title: str) -> str:
    """The anchor of a title, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_links_to_headings_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for document in documents:
        for target, anchor in re.findall(r"\]\((?:docs/)?(\w+)\.md#([\w-]+)\)", document.read_text(encoding="utf-8")):
            if target in BLOCKS:
                titles = {heading_of(title) for title in re.findall(r"^#+ (.*)$", text_of(target), re.M)}
                assert anchor in titles, f"{document.name}: {target}.md has no heading {anchor}"
