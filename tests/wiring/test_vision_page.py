"""The pages on pictures: their code runs, and the commands, options, defaults, recipes and files in them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pages
import pytest

from unmask.models.cct import Cct
from unmask.models.deit import Deit
from unmask.models.mae import Mae
from unmask.models.resnet import ResNet
from unmask.models.swin import Swin
from unmask.models.vgg import Vgg
from unmask.models.vit import Vit
from unmask.objectives.pictures import PictureConfig
from unmask.runs import recipes, supervised_recipes
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.probing import Probing
from unmask.tasks.pictures import PictureTask
from unmask.tasks.registry import task_named

pytest.importorskip("PIL.Image")
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
MODELS = {"ViT": Vit, "DeiT": Deit, "Swin": Swin, "CCT": Cct, "ResNet": ResNet, "VGG": Vgg, "MAE": Mae}
OBJECTIVES = {
    "masked patches (SimMIM)": ("masked",),
    "masked autoencoder": ("left-out",),
    "SimCLR, CMC": ("views", "lightness-colour"),
    "rotation, jigsaw": ("rotation", "jigsaw"),
    "colourisation, super-resolution": ("colours", "super-resolution"),
}
EACH = pytest.mark.parametrize("page", BLOCKS)
TABLES = pages.tables_of(BLOCKS)


@EACH
def test_the_page_runs_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages.run_blocks(page, BLOCKS[page])
    for folder in tmp_path.iterdir():
        assert not folder.is_dir() or (folder / "preprocessor_config.json").exists()


@EACH
def test_the_commands_of_the_page_are_understood(page: str) -> None:
    found = list(pages.commands(page))
    assert found
    for command in found:
        pages.check_command(command, "simmim-tiny")


def supervised() -> set[str]:
    return {
        name
        for name in supervised_recipes.names()
        if issubclass(task_named(pages.config_named(name).task), PictureTask)
    }


def recipes_of_pictures() -> set[str]:
    learn = {name for name in recipes.names() if isinstance(recipes.find(name).objective, PictureConfig)}
    return learn | supervised()


def test_every_option_that_the_pages_name_exists() -> None:
    tasks = [FineTuning().override({"task": task}) for task in ("image-classification", "picture-embedding")]
    runs = [pages.config_named(name) for name in sorted(recipes_of_pictures())]
    for page, unknown in pages.options_of(BLOCKS, (*runs, *tasks, Probing())):
        assert not unknown, f"docs/{page}.md names {sorted(unknown)}"


@pytest.mark.parametrize(("page", "name", "rows"), TABLES, ids=[f"{page}-{name}" for page, name, _ in TABLES])
def test_the_defaults_are_those_of_the_recipe(page: str, name: str, rows: str) -> None:
    pages.check_defaults(page, name, rows)


def test_every_page_has_tables_of_options() -> None:
    assert {page for page, *_ in TABLES} == set(BLOCKS)


def test_the_table_of_recipes_is_complete() -> None:
    told = pages.recipes_told("vision")
    assert told.keys() == recipes_of_pictures()
    for name, verb in told.items():
        assert (verb == "train") == (name in supervised_recipes.names())
    named = {name for page in BLOCKS for name in re.findall(r"`([a-z-]+-(?:tiny|small|base))`", pages.text_of(page))}
    assert named == told.keys()


def test_what_models_learn_is_as_the_table_says() -> None:
    pages.check_learns("vision", {name: model() for name, model in MODELS.items()}, OBJECTIVES, "patches")


@EACH
def test_the_files_of_the_equations_exist(page: str) -> None:
    pages.check_files(page)


def test_links_to_headings_lead_somewhere() -> None:
    pages.check_links(BLOCKS)
