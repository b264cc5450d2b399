"""The part of the verb `train` that trains a model from scratch on labelled rows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.parser import print_fields
from unmask.cli.training import OTHERS
from unmask.errors import UnmaskError

LENGTH = {"epochs", "least_steps", "fit.epochs", "fit.least_steps"}  # fields that replace the minutes of a recipe
DIGITS = Path("corpora") / "digits"
SPLITS = {"dev": ("dev", "val", "valid", "validation"), "test": ("test",)}
"""Split -> the names of its folder beside a folder `train`."""


def train(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Train the model of a recipe on labelled pictures; without data on the digits of scikit-learn."""
    from unmask.errors import Stopped
    from unmask.runs import supervised_recipes
    from unmask.runs.finetuning import begun, finetune, plan
    from unmask.runs.report import run_facts
    from unmask.train import distributed
    from unmask.train.display import Terminal, render_plan

    if options.start or options.pairs:
        raise UnmaskError(f"--from and --pairs are for translation systems, and {options.system} has new weights.")
    options.out = options.out or f"runs/{options.system}"
    if options.resume:
        config = begun(options.out)
        recipe = run_facts(Path(options.out)).get("recipe")
        if recipe != options.system:
            raise UnmaskError(f"This run is one of '{recipe}', not '{options.system}': leave the system out.")
        if options.data or options.dev or options.test or config.override(overrides, **OTHERS) != config:
            raise UnmaskError(
                f"The run in {options.out} continues with its own data and settings; leave out the others."
            )
    else:
        config = supervised_recipes.find(options.system)
        if LENGTH & {name.replace("-", "_") for name in overrides}:
            config = config.replace(fit={"minutes": None})
        digits = not (options.data or options.fields)
        config = config.replace(rows=_rows(options, digits))
        if digits:
            config = config.replace(options={"flip": 0.0}, fit={"minutes": 2.0 if config.fit.minutes else None})
        config = config.override(overrides, **OTHERS)
        for part in (config.options, config.transfer, config.distillation):
            part.check()
    if options.fields:
        print_fields(config)
        return
    if options.dry_run:
        costs = plan(config, Terminal())  # on every process
        if distributed.is_main():
            print(render_plan(costs))
        return
    try:
        finetune(config, options.out, recipe=options.system, display=Terminal(), resume=options.resume)
    except Stopped as stopped:  # `main` sets the exit status, as after every run that a signal ended
        if distributed.is_main():
            print(stopped)


def _rows(options: argparse.Namespace, digits: bool) -> dict[str, Any]:
    """The files of the splits: those that are given, else the folders beside a folder `train`."""
    given = {"dev": options.dev[0] if options.dev else None, "test": options.test}
    if digits:
        from unmask.data.pictures.digits import write
        from unmask.train import distributed

        if distributed.is_main():
            if not DIGITS.is_dir():
                print(f"Writing the digits of scikit-learn to {DIGITS}; yours go with --data.")
            write(DIGITS)
        distributed.barrier()
    folder = DIGITS if digits else Path(options.data or "")
    if (folder / "train").is_dir():
        for split, names in SPLITS.items():
            found = next((folder / name for name in names if (folder / name).is_dir()), None)
            given[split] = given[split] or found
        folder = folder / "train"
    return {"train": str(folder) if options.data or digits else None, **given}
