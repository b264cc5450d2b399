"""Verbs of labelled rows: finetune, baseline and probe."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, needed, offer
from unmask.cli.options import ENCODING
from unmask.cli.parser import DRY, Parser, add_verb, field_options, print_fields, run_output, where_to_train
from unmask.cli.settings import print_config
from unmask.cli.training import settings_for
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.runs.finetuning import FineTuning

GRID = "grid."  # prefix of the fields of the search


def add_verbs(verbs: Any) -> None:
    _add_finetune(verbs)
    _add_baseline(verbs)
    _add_probe(verbs)


def _add_finetune(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "finetune",
        _finetune,
        "train a pre-trained model further, on labelled rows",
        about="Fine-tune a model on labelled rows: unmask finetune --model FOLDER --train FILE --out FOLDER.",
        fields=True,
        more="The options of a task: unmask finetune --task NAME --help.",
    )
    _row_fields(sub)
    sub.more_help = _finetuning_help
    model = sub.group("the model")
    needed(add_field(model, "--model", "FOLDER", "folder of the pre-trained model, or a name on the Hugging Face hub"))
    add_field(
        model,
        "--strategy",
        "NAME",
        "how much of the model is trained",
        default="auto",
        choices=("auto", "full", "frozen", "top", "upper", "gradual", "lora"),
    )
    train = sub.group("training")
    add_field(train, "--epochs", "N", "passes over the training rows", default="3, but at least 200 steps")
    add_field(train, "--minutes", "N", "minutes of training, instead of --epochs")
    add_field(train, "--least-steps", "N", "least number of steps; small training sets take more epochs")
    add_field(train, "--learning-rate --lr", "X", "peak learning rate", default="5e-05; higher for a narrow model")
    add_field(train, "--batch-size", "N", "rows of a step", default=32)
    add_field(train, "--seeds", "N", "number of runs; the best one is kept", default="3 below 10,000 training rows")
    add_field(train, "--seed", "N", "the first seed: of the new head, the order of rows and dropout", default=0)
    add_field(train, "--folds", "N", "cross-validation: each of N folds of the training rows is tested by a model")
    where_to_train(train)
    group, out = run_output(sub, "folder of the run", dry=False, further=False)
    needed(out)
    modes = group.add_mutually_exclusive_group()
    modes.add_argument(
        "--search",
        nargs="?",
        type=int,
        default=False,
        metavar="N",
        help="try the 18 settings published for BERT, or N of them, and run the seeds with the setting that scores "
        "best on the dev rows; --grid.lr 1e-3,5e-4 sets other values",
    )
    modes.add_argument(
        "--curve",
        metavar="N,N,...",
        help="print the learning curve at these numbers of rows, such as 100,300,1000,all; keeps no model",
    )
    modes.add_argument(
        "--advise", action="store_true", help="print a data report and advise a strategy; trains nothing"
    )
    modes.add_argument("--dry-run", **DRY)
    field_options(sub, config=True)


def _add_baseline(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "baseline",
        _baseline,
        "score a plain classifier on word counts, to compare with",
        about="Score a plain classifier on word counts, without a model: unmask baseline --train FILE.",
        fields=True,
        more="The options of a task: unmask baseline --task NAME --help.",
    )
    _row_fields(sub)
    sub.more_help = _baseline_help
    sub.group("output").add_argument("--json", action="store_true", help="print JSON")
    field_options(sub)


def _add_probe(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "probe",
        _probe,
        "score the states of a model, and of its layers, without training it",
        about="Score the states of a model without training it: unmask probe --model FOLDER --train FILE.",
        fields=True,
        more="The options of a task: unmask probe --task NAME --help.",
    )
    _row_fields(sub)
    model = sub.group("the model")
    needed(add_field(model, "--model", "FOLDER", "folder of the pre-trained model"))
    add_field(model, "--pooling", "NAME", "state of a row: summary (default) or mean; with --layers also frames")
    add_field(model, "--neighbours", "K", "training rows that vote for the label of a row", default=20)
    layers = sub.group("layers")
    layers.add_argument("--layers", action="store_true", help="score each layer, and a weighted sum of all of them")
    add_field(layers, "--leave-out", "YES", "with --layers: leave out each group, such as a speaker, in turn (--group)")
    add_field(layers, "--seeds", "N", "with --layers: random trunks, and initial weights of the sum", default=1)
    output = sub.group("output")
    output.add_argument("--out", metavar="FOLDER", help="with --layers: folder for the scores and a report")
    sub.more_help = _baseline_help
    output.add_argument("--json", action="store_true", help="print JSON")
    field_options(sub)


def _row_fields(sub: Parser) -> None:
    """Add the fields of labelled rows, which `finetune`, `baseline` and `probe` share."""
    rows = sub.group("what goes in")
    needed(add_field(rows, "--train", "FILE", "labelled rows to train on; with --benchmark its folder"))
    task = add_field(
        rows, "--task", "NAME", "task that the rows are labelled for", default="one label for a text or a pair"
    )
    offer(task, _tasks)
    add_field(rows, "--dev", "FILE", "rows that decide which model is kept", default="a tenth of the training rows")
    add_field(rows, "--test", "FILE", "rows that are scored at the end")
    add_field(rows, "--text", "NAME", "column of the text, if it does not have a usual name")
    add_field(rows, "--label", "NAME", "column of the label, likewise")
    benchmark = add_field(
        rows, "--benchmark", "NAME", "the public data set that the folder of --train holds, such as sst-2"
    )
    offer(benchmark, benchmarks)
    add_field(rows, "--max-length", "N", "tokens of the longest row", default="of the task")
    add_field(rows, "--encoding", "NAME", ENCODING)


def _tasks() -> Iterable[str]:
    from unmask.tasks import TASKS

    return TASKS


def benchmarks() -> Iterable[str]:
    """The values of --benchmark."""
    from unmask.data.labelled.glue import BENCHMARKS

    return BENCHMARKS


def prompted() -> Iterable[str]:
    """The tasks that a language model answers from a prompt."""
    from unmask.tasks import TASKS

    return [name for name, kind in TASKS.items() if kind.prompting is not None]


def _finetuning_help(sub: Parser, _: list[str], given: dict[str, str], every: bool) -> None:
    _task_help(sub, given, ("rows_class", "options_class"))
    if every:
        from unmask.runs.finetuning import FineTuning

        add_fields(sub, FineTuning())


def _baseline_help(sub: Parser, _: list[str], given: dict[str, str], every: bool) -> None:
    _task_help(sub, given, ("rows_class", "scoring_class"))
    if every:
        from unmask.runs.finetuning.baselines import Baselines

        add_fields(sub, Baselines())


def _task_help(sub: Parser, given: Mapping[str, str], classes: Sequence[str]) -> None:
    """List the fields of the given task. Without a task, help does not load PyTorch, which tasks import."""
    name = given.get("task")
    if name is None:
        return
    from unmask.tasks import TASKS, task_named, task_on
    from unmask.tasks.registry import usual_task
    from unmask.tasks.rows import Rows

    name = task_on(name, Path(given["train"]) if "train" in given else None)
    task, common = task_named(name), set(Rows().places())
    known = f"task that the rows are labelled for: {', '.join(TASKS)} (default: {usual_task()})"
    sub._option_string_actions["--task"].help = known
    configs = [getattr(task, one)() for one in classes]
    for option in ("text", "label"):
        if not any(option in config.places() for config in configs):
            sub.hide(f"--{option}")
    for config in configs:
        add_fields(sub, config, f"--task {name}", leave_out=common)


def _finetune(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.errors import Stopped
    from unmask.train import distributed

    try:
        _finetuned(options, overrides)
    except Stopped as stopped:  # `main` sets the exit status, as after every run that a signal ended
        if distributed.is_main():
            print(stopped)


def _finetuned(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.finetuning import RECIPE, FineTuning, cross_validate, finetune
    from unmask.runs.finetuning.card import use_of
    from unmask.runs.finetuning.learning_curve import curve, sizes_in
    from unmask.runs.finetuning.search import Grid, search
    from unmask.runs.supervised_recipes import OTHERS, overridden
    from unmask.train import distributed
    from unmask.train.display import Terminal

    searches = options.search is not False  # None: --search without a number
    points = {name: overrides.pop(name) for name in list(overrides) if searches and name.startswith(GRID)}
    if searches:
        points = {**_axes(overrides, points), **points}
    file = settings_for("finetune", options)
    config = FineTuning() if file is None else file.config(of_facts, FineTuning, **OTHERS)
    config = overridden(config, overrides)
    grid = Grid.of(config.transfer).override(
        points, **{name.replace("-", "_"): name.removeprefix(GRID) for name in points}
    )
    limit = options.search if searches else None
    sizes = None if options.curve is None else sizes_in(options.curve)
    if options.resume and options.out:
        config, grid, limit, sizes = _begun(options, overrides, points)
        searches = grid is not None
    else:
        for part in (config.options, config.transfer, config.distillation):
            part.check()
    if options.fields:
        print_fields(config)
        if grid is not None and searches:
            print_fields(grid, GRID)
        return
    if options.print_config:
        print_config("finetune", config, recipe=RECIPE)
        return
    if options.advise:
        from unmask.runs.finetuning.data_report import data_report

        print(data_report(config))
        return
    if options.dry_run:
        print_plan(config)
        return
    if not options.out:
        raise UnmaskError("Give a folder for the run: --out FOLDER.")
    if sizes is not None:
        curve(config, Path(options.out), sizes, display=Terminal())
    elif searches:
        search(config, Path(options.out), grid=grid, limit=limit, display=Terminal())
    else:
        run = cross_validate if config.rows.in_turn else finetune
        run(config, Path(options.out), display=Terminal(), resume=options.resume)
        if not config.rows.in_turn and distributed.is_main():
            compare = _references(config, Path(options.out))
            verb, inputs = use_of(config.kind)
            suggest(*compare, f"{verb} --model {options.out} {inputs}", f"serve --model {options.out}")


def _references(config: FineTuning, out: Path) -> list[str]:
    """The command that scores plain references on the rows of a run, to compare with a model that has hardly learned;
    empty for other models."""
    from unmask.runs.report import weakness

    if weakness(out) is None:
        return []
    rows = config.rows
    given = {name: getattr(rows, name) for name in ("train", "dev", "benchmark", *rows.columns())}
    files = [f"--{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None]
    return [" ".join(["baseline", "--task", config.task, *files])]


def print_plan(config: FineTuning) -> None:
    """Print what --dry-run prints: the plan of one seed, or of the first fold."""
    from unmask.runs.finetuning import plan
    from unmask.train import distributed
    from unmask.train.display import Terminal, render_plan

    costs = plan(config.replace(rows={"fold": 1}) if config.rows.in_turn else config, Terminal())  # on every process
    if distributed.is_main():
        print(render_plan(costs))


def of_facts(facts: Mapping[str, Any]) -> Any:
    """The config in run.json of a run on labelled rows."""
    from unmask.runs.finetuning import FineTuning

    return FineTuning.of_run(facts["config"])


def _axes(overrides: dict[str, str], points: dict[str, str]) -> dict[str, str]:
    """Settings given together with --search, as grid axes of one value, unless the grid sets the axis."""
    from unmask.runs.finetuning.search import Grid
    from unmask.runs.supervised_recipes import OTHERS

    named = {name.removeprefix(GRID).replace("-", "_") for name in points}
    fields = {name: OTHERS.get(name, name).replace("-", "_").rsplit(".", 1)[-1] for name in overrides}
    return {GRID + axis: overrides[name] for name, axis in fields.items() if axis in vars(Grid()) and axis not in named}


def _begun(
    options: argparse.Namespace, overrides: dict[str, str], points: dict[str, str]
) -> tuple[Any, Any, int | None, Any]:
    """The settings of the run in --out: its config, the grid and limit of a search, and the sizes of a learning curve.

    Raises UnmaskError if there is nothing to resume, and if the given settings differ from those of the run.
    """
    from unmask.runs import finetuning
    from unmask.runs.finetuning import learning_curve, search
    from unmask.runs.supervised_recipes import OTHERS
    from unmask.train import checkpoint

    out, grid, limit, sizes = Path(options.out), None, None, None
    checkpoint.require_begun(out, (checkpoint.RUN, search.NAME, learning_curve.NAME))
    if (out / search.NAME).is_file():
        config, grid, limit = search.begun(out)
    elif (out / learning_curve.NAME).is_file():
        config, sizes = learning_curve.begun(out)
    else:
        config = finetuning.begun(out)
    others = {name.replace("-", "_"): name.removeprefix(GRID) for name in points}
    if (
        config.override(overrides, **OTHERS) != config
        or (options.search is not False and (grid is None or grid.override(points, **others) != grid))
        or options.search not in (False, None, limit)
        or (options.curve is not None and learning_curve.sizes_in(options.curve) != sizes)
    ):
        raise UnmaskError(f"The run in {out} continues with its own settings; leave out the others.")
    return config, grid, limit, sizes


def _baseline(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.finetuning.baselines import Baselines, baselines, render

    config = Baselines().override(overrides)
    if options.fields:
        print_fields(config)
        return
    notes: list[str] = []
    found = baselines(config, say=notes.append if options.json else print)
    print(json.dumps({**found, "notes": notes}, indent=2, ensure_ascii=False) if options.json else render(found))
    suggest(_learning(config, "FOLDER"), beside=True)


def _probe(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.finetuning import layer_probing
    from unmask.runs.finetuning.probing import Probing, probe, render

    config = Probing().override(overrides)
    if options.fields:
        print_fields(config)
        return
    if not options.layers and (options.out or config.leave_out or config.seeds > 1):
        raise UnmaskError("--out, --leave-out and --seeds are for --layers: add it, or leave them out.")
    score, shown = (layer_probing.probe_layers, layer_probing.render_layers) if options.layers else (probe, render)
    notes: list[str] = []
    found = score(config, notes.append if options.json else print)
    print(json.dumps({**found, "notes": notes}, indent=2, ensure_ascii=False) if options.json else shown(found))
    if options.out:
        layer_probing.keep(found, Path(options.out))
        print(f"The report is {options.out}/report.html.", file=sys.stderr)
    suggest(_learning(config, config.model), beside=True)


def _learning(config: Any, model: object) -> str:
    """The command that trains a model on the rows of a config."""
    benchmark = f" --benchmark {config.rows.benchmark}" if config.rows.benchmark else ""
    return f"finetune --task {config.task} --model {model} --train {config.rows.train}{benchmark} --out FOLDER"
