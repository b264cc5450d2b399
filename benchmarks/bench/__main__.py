"""The command line of the benchmark, as `make bench` runs it: `python -m bench`, with `benchmarks/` in PYTHONPATH."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from bench import common
from bench.rows import find
from bench.run import Places, bench
from unmask.cli.parser import Parser, local_models, overrides, print_fields

PAIRS = 5
DESCRIPTION = "Compare speed with transformers, sentence-transformers, ONNX Runtime and CTranslate2, taking turns."
MORE = 'Run it by make bench ARGS="ROW --quick". Settings of the rows are set as --NAME VALUE; --fields lists them all.'


def parser() -> Parser:
    found = Parser(prog="bench", description=DESCRIPTION, epilog=MORE)
    found.takes_fields = True
    found.add_argument(
        "rows", nargs="*", metavar="ROW", help="rows, or families of them (pretrain, decode); default: all"
    )
    found.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every process (default: all cores)")
    found.add_argument("--pairs", type=int, default=PAIRS, help="turns of each side (default: %(default)s)")
    found.add_argument("--quick", action="store_true", help="the smallest sizes, one turn: does everything run?")
    found.add_argument(
        "--profile", action="store_true", help="one more turn of unmask, with the time of each operation"
    )
    found.add_argument("--out", type=Path, metavar="FILE.json", help="write every turn")
    found.add_argument("--table", type=Path, metavar="FILE.md", help="write the table")
    found.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw how many times as fast (.svg or .png)")
    found.add_argument("--list", action="store_true", help="list the rows with their goals, and stop")
    found.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or list, the rows that the arguments name. Raises UnmaskError for arguments that make no sense."""
    options, rest = parser().parse_known_args(arguments)
    fields = overrides(rest)
    if options.list:
        for row in find(options.rows):
            goals = "; ".join(f"{goal.says}{f' beside {peer}' if peer else ''}" for peer, goal in row.goals.items())
            print(f"{row.name:16} {row.says}{f'. Goal: {goals}' if goals else ''}")
        return
    if options.fields:
        for row in find(options.rows):
            print(f"{row.name}:")
            print_fields(row.settings)
        return
    local_models(argparse.Namespace(), fields)
    bench(
        options.rows,
        fields,
        threads=options.threads,
        pairs=options.pairs,
        quick=options.quick,
        profile=options.profile,
        places=Places(options.out, options.table, options.plot),
    )


if __name__ == "__main__":
    common.command(main)
