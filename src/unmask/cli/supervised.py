"""The part of the verb `train` that trains a model from scratch on labelled rows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.ending import suggest
from unmask.cli.labelled import of_facts, print_plan
from unmask.cli.parser import print_fields
from unmask.cli.settings import Settings, print_config
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.tasks.stand_in import StandIn

CORPORA = Path("corpora")
SPLITS = {"dev": ("dev", "val", "valid", "validation"), "test": ("test",)}
"""Split -> the names of its folder beside a folder `train`."""


def train(options: argparse.Namespace, overrides: dict[str, str], file: Settings | None = None) -> None:
    """Train the model of a recipe on labelled rows; without data on those of its task."""
    from unmask.config import flatten
    from unmask.errors import Stopped
    from unmask.runs import supervised_recipes
    from unmask.runs.finetuning import begun, cross_validate, finetune
    from unmask.runs.finetuning.card import use_of
    from unmask.runs.report import run_facts
    from unmask.runs.supervised_recipes import OTHERS, overridden, timed
    from unmask.train import distributed
    from unmask.train.display import Terminal

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
        if file is not None:
            recipe_config = config
            config = file.config(of_facts, lambda: timed(recipe_config, flatten(file.facts["config"])), **OTHERS)
        changed = overridden(config, overrides)  # an unknown field is an error before data are written
        kept = options.fields or options.print_config or config.rows.train
        stand_in = None if options.data or kept else changed.kind.stand_in(changed.page)
        if options.data or stand_in is not None or not config.rows.train:
            config = config.replace(rows=_rows(options, stand_in))
        else:  # those of --config
            given = {"dev": options.dev[0] if options.dev else None, "test": options.test}
            config = config.replace(rows={split: path for split, path in given.items() if path})
        if stand_in is not None:
            minutes = 2.0 if config.fit.minutes else None
            config = config.replace(task=changed.task, options=stand_in.options, fit={"minutes": minutes})
        config = overridden(config, overrides)
        if config.rows.folds is not None and not options.test:  # those beside the training rows are left alone
            config = config.replace(rows={"test": None})
        for part in (config.options, config.transfer, config.distillation):
            part.check()
    if options.print_config:
        print_config("train", config, recipe=options.system)
        return
    if options.fields:
        print_fields(config)
        return
    if options.dry_run:
        print_plan(config)
        return
    try:
        run = cross_validate if config.rows.in_turn else finetune
        run(config, options.out, recipe=options.system, display=Terminal(), resume=options.resume)
        if not config.rows.in_turn and distributed.is_main():
            verb, inputs = use_of(config.kind)
            suggest(f"{verb} --model {options.out} {inputs}", f"serve --model {options.out}")
    except Stopped as stopped:  # `main` sets the exit status, as after every run that a signal ended
        if distributed.is_main():
            print(stopped)


def _rows(options: argparse.Namespace, stand_in: StandIn | None) -> dict[str, Any]:
    """The files of the splits: those that are given, else the folders beside a folder `train`."""
    given = {"dev": options.dev[0] if options.dev else None, "test": options.test}
    if stand_in is not None:
        from unmask.files import alone
        from unmask.train import distributed

        folder = CORPORA / stand_in.name
        if distributed.is_main():
            with alone(folder):
                if not folder.is_dir():
                    print(f"Writing {stand_in.what} to {folder}; yours go with --data.")
                stand_in.write(folder)
        distributed.barrier()
        own = {split: str(folder / name) for split, name in stand_in.rows.items()}
        return {**own, **{split: path for split, path in given.items() if path}}
    folder = Path(options.data or "")
    if (folder / "train").is_dir():
        for split, names in SPLITS.items():
            found = next((folder / name for name in names if (folder / name).is_dir()), None)
            given[split] = given[split] or found
        folder = folder / "train"
    return {"train": str(folder) if options.data else None, **given}
