"""Verbs of runs: quickstart, pretrain, finetune, baseline and report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.cli import data, words
from unmask.cli.declared import objective_options
from unmask.cli.parser import (
    ENCODING,
    RESUME,
    Parser,
    add_field,
    add_fields,
    add_fields_late,
    add_verb,
    carried_out,
    check_run,
    needed,
    print_fields,
)
from unmask.errors import UnmaskError

GRID = "grid."  # prefix of the fields of the search
OTHERS = {"batch": "fit.batch_size"}  # names of pre-training -> fields of fine-tuning


def add_quickstart(verbs: Any) -> None:
    sub = add_verb(
        verbs, "quickstart", _quickstart, "Pre-train a BERT on the documentation installed with Python, and try it."
    )
    sub.add_argument("--minutes", type=float, default=None, help="time for the whole tour (default: 6)")
    sub.add_argument("--out", default="runs/quickstart", metavar="FOLDER", help="folder for the results")


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "pretrain",
        _pretrain,
        "Pre-train a model: unmask pretrain bert-mini --corpus FOLDER --out FOLDER.",
        fields=True,
    )
    sub.add_argument("recipe", nargs="?", help="a name from `unmask recipes`; optional with --from")
    sub.add_argument(
        "--from", dest="start", metavar="FOLDER", help="model folder to continue from, instead of new weights"
    )
    sub.add_argument(
        "--corpus",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="folders that `unmask corpus build` wrote; several are mixed (default: the documentation installed with "
        "Python, or speech that is synthesised, which are built once in corpora/)",
    )
    sub.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="PATH",
        help="folders of pictures or recordings; for word2vec, files of texts or sequences",
    )
    sub.add_argument("--out", metavar="FOLDER", help="folder of the run (default: runs/ and the name of the recipe)")
    add_field(sub, "--minutes", "N", "minutes of training; use --steps to set steps instead")
    add_field(sub, "--steps", "N", "optimiser steps")
    add_field(sub, "--lr", "X", "peak learning rate")
    add_field(sub, "--batch-size", "N", "rows of a step")
    add_field(sub, "--precision", "NAME", "precision of matrix products: auto, fp32, bf16, or on a GPU fp16")
    add_field(sub, "--seed", "N", "seed of weights, order and masking")
    add_fields_late(sub, "what is learned", objective_options)
    sub.add_argument("--resume", action="store_true", help=RESUME)
    sub.add_argument("--dry-run", action="store_true", help="print the size, memory and time of the run, and stop")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")
    add_verb(verbs, "recipes", _recipes, "List the recipes for `unmask pretrain`.")

    sub = add_verb(
        verbs,
        "finetune",
        _finetune,
        "Fine-tune a model on labelled rows: unmask finetune --model FOLDER --train FILE --out FOLDER.",
        fields=True,
    )
    needed(add_field(sub, "--model", "FOLDER", "folder of the pre-trained model"))
    _row_fields(sub)
    sub.more_help = _finetuning_help
    needed(sub.add_argument("--out", metavar="FOLDER", help="folder of the run"))
    add_field(sub, "--lr", "X", "peak learning rate")
    add_field(sub, "--minutes", "N", "minutes of training, instead of --epochs")
    add_field(sub, "--epochs", "N", "passes over the training rows (3, but at least 200 steps)")
    add_field(sub, "--least-steps", "N", "least number of steps; small training sets take more epochs")
    add_field(sub, "--batch-size", "N", "rows of a step")
    add_field(sub, "--seeds", "N", "number of runs; the best one is kept (3 below 10,000 training rows)")
    add_field(sub, "--folds", "N", "cross-validation: each of N folds of the training rows is the test rows of a model")
    add_field(sub, "--strategy", "NAME", "how much of the model is trained: full, frozen, top, gradual, lora, …")
    sub.add_argument("--resume", action="store_true", help=RESUME)
    modes = sub.add_mutually_exclusive_group()
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
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")

    sub = add_verb(
        verbs,
        "baseline",
        _baseline,
        "Score a plain classifier on word counts, without a model: unmask baseline --train FILE.",
        fields=True,
    )
    _row_fields(sub)
    sub.more_help = _baseline_help
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")

    sub = add_verb(
        verbs,
        "probe",
        _probe,
        "Score the states of a model without training it: unmask probe --model FOLDER --train FILE.",
        fields=True,
    )
    needed(add_field(sub, "--model", "FOLDER", "folder of the pre-trained model"))
    _row_fields(sub)
    add_field(sub, "--neighbours", "K", "training rows that vote for the label of a row (20)")
    add_field(sub, "--pooling", "NAME", "state of a row: summary (default) or mean; with --layers also frames")
    sub.add_argument("--layers", action="store_true", help="score each layer, and a weighted sum of all of them")
    add_field(sub, "--leave-out", "YES", "with --layers: leave out each group, such as a speaker, in turn (--group)")
    add_field(sub, "--seeds", "N", "with --layers: random trunks, and initial weights of the sum (1)")
    sub.add_argument("--out", metavar="FOLDER", help="with --layers: folder for the scores and a report")
    sub.more_help = _baseline_help
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")


def _row_fields(sub: argparse.ArgumentParser) -> None:
    """Add the fields of labelled rows, which `finetune` and `baseline` share."""
    needed(add_field(sub, "--train", "FILE", "labelled rows to train on; with --benchmark, the folder of the data set"))
    add_field(sub, "--task", "NAME", "task that the rows are labelled for")
    add_field(sub, "--dev", "FILE", "rows that decide which model is kept (a tenth of the training rows)")
    add_field(sub, "--test", "FILE", "rows that are scored at the end")
    add_field(sub, "--encoding", "NAME", ENCODING)
    sub.epilog = f"{sub.epilog} The options of a task: unmask {sub.prog.split()[-1]} --task NAME --help."


def _finetuning_help(sub: Parser, given: Mapping[str, str]) -> None:
    _task_help(sub, given, ("rows_class", "options_class"))


def _baseline_help(sub: Parser, given: Mapping[str, str]) -> None:
    _task_help(sub, given, ("rows_class", "scoring_class"))


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
    configs = [getattr(task, one)() for one in classes]
    known = f"task that the rows are labelled for: {', '.join(TASKS)} (default: {usual_task()})"
    sub._option_string_actions["--task"].help = known
    add_fields(sub, f"fields of --task {name}", configs, leave_out=common)


def add_report(verbs: Any) -> None:
    sub = add_verb(
        verbs, "report", _report, "Write report.html into the folder of a run, and open it if there is a browser."
    )
    sub.add_argument("folder", metavar="FOLDER", help="folder of a run")
    sub.add_argument("--no-open", action="store_true", help="write the report without opening it")


def _quickstart(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.quickstart import MINUTES, quickstart

    quickstart(Path(options.out), minutes=MINUTES if options.minutes is None else options.minutes)


def _recipes(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs import recipes

    for name, line in (recipes.names() | words.RECIPES).items():
        print(f"{name:21} {line}")


def _pretrain(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.objectives import registry
    from unmask.runs import recipes
    from unmask.runs.report import run_facts
    from unmask.train import checkpoint
    from unmask.train.optim import check_rate

    if options.resume and options.recipe and not options.start:
        options.out = options.out or f"runs/{options.recipe}"
    facts = run_facts(Path(options.out)) if options.resume and options.out else {}
    if (options.recipe or facts.get("recipe")) in words.RECIPES:
        words.pretrain(options, overrides)
        return
    start = options.start or overrides.pop("start", None)
    check_run(options.out, facts, recipes.names())
    if options.resume and options.out:
        checkpoint.refuse_taken(Path(options.out), resume=True)
    options.recipe, config = recipes.choose(options.recipe, start, facts)
    if options.data and not config.objective.plain:
        raise UnmaskError(
            "--data is for word2vec, pictures and recordings; give --corpus (make one with: unmask corpus build --data "
            "...)."
        )
    options.corpus = [*options.corpus, *options.data] or facts.get("corpora", [])
    # A run has either steps or minutes: the given one replaces that of the recipe.
    if {"steps", "minutes", "training.steps", "training.minutes"} & set(overrides):
        config = config.override({"steps": None, "minutes": None})
    usual, config = config, config.override(overrides, batch_size="rows.batch")
    if config.start is not None:
        config.objective.check_changes(usual.objective, config.start)
    if not options.resume:
        check_rate(usual.training.optimizer, config.training.optimizer, overrides)
    if options.fields:
        print_fields(config)
        for name, value in registry.selected(config.objective).items():
            print(f"--{name:32} {value}")
        return
    if not options.corpus and (start or not options.recipe):
        raise UnmaskError("Give --corpus FOLDER (make one with: unmask corpus build --data ... --out FOLDER).")
    if not options.out and (start or not options.recipe):
        raise UnmaskError("Give a folder for the run: --out FOLDER.")
    options.out = options.out or f"runs/{options.recipe}"
    from unmask.runs.pretraining import Pretrain
    from unmask.train import distributed
    from unmask.train.display import Terminal

    distributed.init(config.training.device)
    if not options.corpus:
        options.corpus = [data.without_any(config, build=distributed.is_main())]
        distributed.barrier()
    run = Pretrain(
        config, options.corpus, options.out, recipe=options.recipe, resume=options.resume, display=Terminal()
    )
    carried_out(run, options, "pretrain")


def _finetune(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.errors import Stopped
    from unmask.train import distributed

    try:
        _finetuned(options, overrides)
    except Stopped as stopped:  # `main` sets the exit status, as after every run that a signal ended
        if distributed.is_main():
            print(stopped)


def _finetuned(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.runs.finetuning import FineTuning, cross_validate, finetune
    from unmask.runs.finetuning.learning_curve import curve, sizes_in
    from unmask.runs.finetuning.search import Grid, search
    from unmask.train.display import Terminal

    searches = options.search is not False  # None: --search without a number
    points = {name: overrides.pop(name) for name in list(overrides) if searches and name.startswith(GRID)}
    if searches:
        points = {**_axes(overrides, points), **points}
    config = FineTuning().override(overrides, **OTHERS)
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
    if options.advise:
        from unmask.runs.finetuning.data_report import data_report

        print(data_report(config))
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


def _axes(overrides: dict[str, str], points: dict[str, str]) -> dict[str, str]:
    """Settings given together with --search, as grid axes of one value, unless the grid sets the axis."""
    from unmask.runs.finetuning.search import Grid

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


def _report(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.report import write_report

    path = write_report(Path(options.folder))
    print(path)
    desktop = os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32")
    if desktop and sys.stdout.isatty() and not options.no_open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
