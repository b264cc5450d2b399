"""A task owns what is its own: all of them keep the same contract, and nothing above them knows their names."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.huggingface.table import PUBLISHED
from unmask.runs.evaluation import evaluate
from unmask.runs.finetuning import FineTuning
from unmask.runs.finetuning.baselines import Baselines
from unmask.runs.finetuning.search import differing
from unmask.tasks import TASKS
from unmask.tasks.config import scored_rows, without_usual
from unmask.tasks.registry import taking
from unmask.tasks.rows import Rows

SOURCE = Path(__file__).resolve().parents[2] / "src" / "unmask"
BELOW = {"bench", "nn", "models", "data", "train", "objectives", "generate", "huggingface", "metrics", "visualize"}
"""Rooms that may not know of tasks: what they call by the same names are heads, files and words; and what measures one
of them beside its peers."""
ELSEWHERE = {"embedding", "roles"}
"""Also parts of models, and keys of answers."""

OF_0_1 = {
    "rows": {
        **dict.fromkeys(("train", "dev", "test", "benchmark", "text", "pair", "label", "negative", "predicate")),
        **dict.fromkeys(("several", "format", "encoding", "most", "length")),
        **{"skip": False, "allow_overlap": False, "stratify": True},
    },
    "options": {
        **{"long": "truncate", "balance": "none", "gamma": 2.0, "scheme": "auto", "crf": False, "stride": 128},
        **{"longest_answer": 30, "characters": False, "pooling": "mean", "normalise": False, "loss": None},
    },
}
"""Rows and options of a run of version 0.1, which kept the fields of all tasks."""


def own_files():
    """Files that hold a task, or nothing but what is one's own."""
    return {Path(__import__(task.__module__, fromlist="_").__file__) for task in TASKS.values()}


def above():
    """Files that may know of tasks, but for those that are tasks and the registry's line."""
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room not in BELOW and path not in own_files() and path != SOURCE / "tasks" / "__init__.py":
            yield path


def names_in(text, names, classes):
    """(line, name) of each name of a task, or import of its class, in code."""
    for node in ast.walk(ast.parse(text)):
        said = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
        if said or (isinstance(node, ast.Name) and node.id in classes):
            yield node.lineno, node.value if said else node.id
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, one.name) for one in node.names if one.name in classes)


def test_nothing_above_names_a_task():
    kinds = {head.kind for head in PUBLISHED.values()}
    names = {name for task in TASKS.values() for name in (task.task_name, task.name)} - kinds - ELSEWHERE
    classes = {task.__name__ for task in TASKS.values()} - {"Embedding"}  # the module of nn
    found = {str(path.relative_to(SOURCE)): list(names_in(path.read_text(), names, classes)) for path in above()}
    assert not {path: lines for path, lines in found.items() if lines}
    assert list(names_in("if task == 'tagging': Tagging", names, classes)) == [(1, "tagging"), (1, "Tagging")]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_says_what_the_house_asks_of_it(name):
    task = TASKS[name]
    assert task.task_name == name
    assert task.rows_are
    assert task.references_are
    assert task.panel
    assert task.gives
    assert issubclass(task.options_class, task.scoring_class)
    for config in (task.rows_class, task.options_class):
        said = config.field_help()
        assert not [field.name for field in fields(config) if not said[field.name]]


@pytest.mark.parametrize("name", TASKS)
def test_a_field_that_means_nothing_to_a_task_cannot_be_written(name):
    known = {field for task in TASKS.values() for config in (task.rows_class, task.options_class)
             for field in config().places()}  # fmt: skip
    for field in known:
        takers = taking(field)
        if name in takers:
            continue
        with pytest.raises(UnmaskError) as error:
            FineTuning().override({"task": name, field.replace("_", "-"): "1"})
        assert str(error.value) == (
            f"--{field.replace('_', '-')} is for --task {' or '.join(takers)}; {name} has no use for it."
        )


@pytest.mark.parametrize("name", TASKS)
def test_a_config_follows_its_task_and_comes_back(name):
    config = FineTuning().override({"task": name, "train": "a.tsv", "lr": "1e-3"})
    assert type(config.rows) is TASKS[name].rows_class
    assert type(config.options) is TASKS[name].options_class
    assert FineTuning.from_dict(config.to_dict()) == config
    assert FineTuning(task=name, rows=Rows(train=Path("a.tsv"))).rows == config.rows
    assert Baselines().override({"task": name, "train": "a.tsv"}).rows == config.rows


@pytest.mark.parametrize("name", TASKS)
def test_a_run_of_version_0_1_opens(name):
    values = {"task": name, **OF_0_1}
    config = FineTuning.of_run(values)
    new = FineTuning(task=name)
    assert config == replace(new, options=new.options.continuing(None))
    places = {f"{part}.{field}": value for part in OF_0_1 for field, value in OF_0_1[part].items()}
    wanted = {field: value for field, value in config.places().items() if field in places}
    assert differing({**places, "task": name}, {**wanted, "task": name}, config) == ""
    assert without_usual({"rows.predicate": "3"}, FineTuning()) == {"rows.predicate": "3"}
    with pytest.raises(UnmaskError, match="--predicate is for --task roles"):
        FineTuning.of_run({"task": "classification", "rows": {"predicate": "3"}})


def test_a_run_that_is_older_than_shares_of_classes_goes_on_without():
    older = {name: value for name, value in OF_0_1["rows"].items() if name != "stratify"}
    assert FineTuning.of_run({"task": "classification", "rows": older}).to_dict()["rows"]["stratify"] is False


def test_rows_that_are_scored_have_the_fields_of_their_task():
    assert scored_rows(TASKS["roles"], {"predicate": "3"}).to_dict()["predicate"] == "3"
    with pytest.raises(UnmaskError, match="--several is for --task multilabel; regression has no use for it"):
        scored_rows(TASKS["regression"], {"several": "|"})
    with pytest.raises(UnmaskError, match="There is no field 'crf'"):
        scored_rows(TASKS["tagging"], {"crf": "yes"})
    with pytest.raises(UnmaskError, match="There is no"):
        evaluate("nowhere", "nothing")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("verb", ["finetune", "baseline"])
def test_the_help_of_a_task_lists_its_fields_and_no_others(verb, name, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--task", name, "--help"])
    shown = capsys.readouterr().out
    task, common = TASKS[name], set(Rows().places())
    options = task.options_class if verb == "finetune" else task.scoring_class
    wanted = {*task.rows_class().places(), *options().places()} - common
    assert (f"--task {name}:" in shown) is bool(wanted)
    listed = {option.replace("-", "_") for option in re.findall(r"(?m)^  --([\w-]+)", shown)}
    every = {
        field for one in TASKS.values() for kind in (one.rows_class, one.options_class) for field in kind().places()
    }
    assert listed & every - common == wanted


@pytest.mark.parametrize("name", TASKS)
def test_what_may_be_asked_is_said_where_it_is_something_else(name):
    form = TASKS[name].form
    wanted = r"Text 3 must be a string, a pair of strings, or an object (with|such as)|a question"
    with pytest.raises(UnmaskError, match=wanted):
        form.as_row(7, 3)
    with pytest.raises(UnmaskError, match="Text 2 is a JSON object without a known key; it must be "):
        form.from_line('{"strange": 1}', 2)
    with pytest.raises(UnmaskError, match="Text 1"):
        form.as_row({}, 1)
    with pytest.raises(UnmaskError, match=r"Text 1 is (empty|a text, and this model reads pictures)"):
        form.as_row(" ", 1)
