"""The speed run: the scores that one recipe reaches on ten million words in a fixed number of minutes.

    python benchmarks/speedrun.py --data DATA --minutes 30 --threads 4 --out speedrun.json
    python benchmarks/speedrun.py --data DATA --recipe bert-tiny --lr 2e-3 --rows.batch 64 --out tiny.json
    python benchmarks/speedrun.py --data DATA --quick

DATA holds books/, imdb/, blimp/, sst2/, cola/, mrpc/ and rte/. All other options are fields of the recipe, as listed by
`unmask pretrain RECIPE --fields`. docs/speedrun.md has the rules, and a line for every run that kept them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import ten_million
from bench import common
from bench.common import Result
from bench.table import markdown
from unmask.cli.parser import overrides
from unmask.errors import UnmaskError
from unmask.runs import recipes

TASKS = ("sst2", "cola", "mrpc", "rte")
RECIPE = "bert-mini"
FIELDS = {"sentences": "none"}  # of the default recipe, which learns from masked tokens alone
FREE = 0.01  # share by which a run may exceed its minutes, because steps are planned beforehand
HEADER = (
    *("recipe", "fields", "parameters", "steps", "tokens/s", "minutes", "masked loss", "right", "BLiMP"),
    *("SST-2", "CoLA", "MRPC", "RTE"),
)


def called(recipe: str, given: Mapping[str, str]) -> str:
    """The name of the folder of a run, from its recipe and fields."""
    fields = (f"{name}={value}" for name, value in sorted(given.items()))
    return re.sub(r"[^\w.=-]", "_", "-".join([recipe, *fields]))


def line(run: Result) -> list[str]:
    """A run as a row of the log: loss of masked tokens in nats, and their accuracy; scores x 100."""
    given = " ".join(f"--{name} {value}" for name, value in run["given"].items())
    return [
        run["recipe"],
        given and f"`{given}`",
        f"{run['parameters'] / 1e6:.1f} M",
        f"{run['steps']:,}",
        f"{run['tokens_per_second']:,.0f}",
        f"{run['seconds'] / 60:.1f}",
        f"{run['masked']['loss']:.3f}",
        f"{100 * run['masked']['correct']:.1f}",
        f"{100 * run['blimp']['accuracy']:.1f}",
        *(ten_million.percent(run["tasks"][name]) for name in TASKS),
    ]


def floor(run: Result) -> str:
    """The baselines without a model, as a sentence."""
    plain = run["masked"]["frequencies"]
    answers = ", ".join(f"{name} {100 * run['tasks'][name]['baseline']:.1f}" for name in TASKS)
    words = f"{plain['loss/mlm']:.3f} nats, {100 * plain['mlm/correct']:.1f} % right"
    return f"Word frequencies alone: {words}. One answer to all: {answers}; chance in BLiMP: 50.0."


def verdict(run: Result, options: argparse.Namespace) -> str:
    """Whether the run kept the rules of docs/speedrun.md, in a sentence."""
    if options.quick:
        return "A quick look is no entry."
    seconds = 60 * options.minutes
    if run["seconds"] > (1 + FREE) * seconds:
        return f"No entry: it took {run['seconds'] - seconds:.0f} seconds more than it had."
    if run["cores"] != run["threads"]:
        return f"An entry of {run['threads']} threads: say so beside it."
    return "An entry, if nothing else ran."


def main() -> None:
    options, given = parse()
    common.need("torch", "sklearn", "scipy")
    asked = {**ten_million.asked(options), "recipe": options.recipe, "given": given}
    facts = common.begin(options, asked)
    with ten_million.place(options) as folder:
        bench = ten_million.Bench(options, Path(folder), TASKS)
        facts["text"] = bench.facts
        found = bench.measure(called(options.recipe, given), options.recipe, given)
    if found["masked"] is None:
        raise UnmaskError(f"{options.recipe} does not predict masked tokens, which the speed run scores: use a BERT.")
    about = {key: facts["machine"][key] for key in ("cores", "threads")}
    facts["result"] = {**found, **about, "given": given}
    common.write(options.out, facts)
    table = markdown([HEADER, line(facts["result"])])
    said = [*ten_million.sentences(facts["text"], asked), floor(found), verdict(facts["result"], options)]
    print("\n" + "\n\n".join([table, *said]))


def parse() -> tuple[argparse.Namespace, dict[str, str]]:
    """The options, and the given fields of the recipe. Raises UnmaskError for a field that the recipe does not have,
    and for one that the rules fix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    ten_million.add_options(parser, minutes=30.0, folder="runs/speedrun")
    parser.add_argument("--recipe", help=f"a name from `unmask recipes` (default: {RECIPE} --sentences none)")
    options, rest = parser.parse_known_args()
    others = {"batch-size": "rows.batch", "batch_size": "rows.batch"}
    given = {others.get(name, name): value for name, value in overrides(rest).items()}
    given = {**(FIELDS if options.recipe is None else {}), **given}
    options.recipe = options.recipe or RECIPE
    config = recipes.find(options.recipe)
    changed = config.override(given)
    if changed.training.steps != config.training.steps or changed.training.minutes != config.training.minutes:
        raise UnmaskError("The length of the run is its rule: say --minutes, and leave --steps out.")
    if changed.start is not None:
        raise UnmaskError("A speed run begins with fresh weights: leave --start out.")
    return ten_million.settle(options), given


if __name__ == "__main__":
    common.command(main)
