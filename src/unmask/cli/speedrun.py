"""The verb `speedrun`: what a recipe reaches in some minutes, as a line of a record."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from unmask.cli.help import add_field
from unmask.cli.parser import add_verb, field_options, print_fields, run_output
from unmask.errors import UnmaskError

RECORD = "runs/speedrun.jsonl"


def add_verbs(verbs: Any) -> None:
    verb = add_verb(
        verbs,
        "speedrun",
        _speedrun,
        "train a recipe for some minutes, score it, and add a line to a record",
        about="Train a recipe for some minutes, score it on masked tokens, minimal pairs and tasks of GLUE, and add a "
        "line to a record. --table prints the record.",
        fields=True,
        more="All other options are fields of the recipe (unmask pretrain RECIPE --help) or, with the prefix tuning., "
        "of fine-tuning: --tuning.lr 1e-3.",
    )
    verb.add_argument("recipe", nargs="?", metavar="RECIPE", help="a name from `unmask recipes --of pretrain`")
    data = verb.group("what goes in")
    data.add_argument("--corpus", metavar="FOLDER", help="folder that `unmask corpus build` wrote")
    data.add_argument(
        "--minimal-pairs", nargs="+", default=[], metavar="PATH", help="files or folders in the format of BLiMP"
    )
    data.add_argument("--most", type=int, default=200, metavar="N", help="pairs of each kind (default: %(default)s)")
    data.add_argument("--glue", metavar="FOLDER", help="folder with a folder for each task, as GLUE is distributed")
    data.add_argument(
        "--tasks", nargs="+", default=[], metavar="NAME", help="tasks of GLUE (default: SST-2 CoLA MRPC RTE)"
    )
    data.add_argument(
        "--rows", type=int, default=10_000, metavar="N", help="training rows of a task (default: %(default)s)"
    )
    train = verb.group("training")
    train.add_argument(
        "--minutes", type=float, default=30.0, metavar="N", help="of pre-training (default: %(default)s)"
    )
    train.add_argument("--threads", type=int, metavar="N", help="threads (default: those of PyTorch)")
    train.add_argument("--seed", type=int, default=0, metavar="N", help="of the run (default: %(default)s)")
    train.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds of fine-tuning (default: %(default)s)")
    add_field(train, "--learning-rate --lr", "X", "peak learning rate", default="of the recipe")
    add_field(train, "--tuning.optimizer.lr --tuning.lr", "X", "learning rate of fine-tuning", default=3e-4)
    add_field(train, "--tuning.epochs", "N", "passes over the rows of a task", default=3)
    out, _ = run_output(verb, "folder of the run (default: runs/speedrun/ and the name)", dry=False)
    out.add_argument("--record", default=RECORD, metavar="FILE", help=f"the record, JSON lines (default: {RECORD})")
    out.add_argument("--note", metavar="TEXT", help="what changed, in the line of the record")
    out.add_argument("--table", action="store_true", help="print the record as a table in Markdown, and stop")
    field_options(verb, values="the recipe")


def _speedrun(options: argparse.Namespace, given: dict[str, str]) -> None:
    from unmask.files import check_place
    from unmask.runs import recipes, speedrun
    from unmask.runs.speedrun import Race, SpeedRun
    from unmask.train.display import Terminal
    from unmask.train.metrics import read

    if options.table:
        if not (lines := read(Path(options.record))):
            raise UnmaskError(f"There is no run in {options.record}: unmask speedrun RECIPE --corpus FOLDER adds one.")
        print(speedrun.table(lines))
        return
    if not options.recipe:
        raise UnmaskError("Name a recipe, as in: unmask speedrun bert-mini --corpus FOLDER --minutes 30.")
    if options.fields:
        print_fields(recipes.find(options.recipe))
        print_fields(Race().tuning, speedrun.TUNING)
        return
    if not options.corpus:
        raise UnmaskError("Give --corpus FOLDER, of unmask corpus build.")
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    race = Race(
        minutes=options.minutes,
        seed=options.seed,
        pairs=tuple(map(Path, options.minimal_pairs)),
        most=options.most,
        glue=Path(options.glue) if options.glue else None,
        rows=options.rows,
        seeds=options.seeds,
    )
    if options.tasks:
        race = race.replace(tasks=tuple(options.tasks))
    name = re.sub(r"[^\w.=-]", "_", "-".join([options.recipe, *(f"{k}={v}" for k, v in sorted(given.items()))]))
    out = Path(options.out or f"runs/speedrun/{name}-{options.minutes:g}m-s{options.seed}")
    record = Path(options.record)
    check_place(record)
    read(record)  # a record that cannot be read or written is an error before the run
    run = SpeedRun(race, options.recipe, given, options.corpus, out, resume=options.resume, display=Terminal())
    if (line := run.run(note=options.note or "")) is None:
        print("Continue with the same command and --resume.")
        return
    speedrun.add(record, line)
    print(f"\n{speedrun.table([line])}\n\n{speedrun.verdict(line)} The line is in {options.record}.")
    print(f"Next: unmask speedrun --table --record {options.record}")
