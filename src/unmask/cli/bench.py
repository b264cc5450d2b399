"""The verb that measures: bench, and the hidden one by which it begins a turn of its own side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from unmask.cli.parser import add_verb, print_fields

PAIRS = 5


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "bench",
        _bench,
        "Measure speed beside transformers, sentence-transformers, ONNX Runtime and CTranslate2, turn by turn.",
        fields=True,
        more="Settings of the rows are set as --NAME VALUE; --fields lists them all.",
    )
    sub.add_argument(
        "rows", nargs="*", metavar="ROW", help="rows, or families of them (pretrain, decode); default: all"
    )
    sub.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every process (default: all cores)")
    sub.add_argument("--pairs", type=int, default=PAIRS, help="turns of each side (default: %(default)s)")
    sub.add_argument("--quick", action="store_true", help="the smallest sizes, one turn: does everything run?")
    sub.add_argument("--profile", action="store_true", help="say where the time of unmask goes, in a turn more")
    sub.add_argument("--out", type=Path, metavar="FILE.json", help="write every turn")
    sub.add_argument("--table", type=Path, metavar="FILE.md", help="write the table")
    sub.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw how many times as fast (.svg or .png)")
    sub.add_argument("--list", action="store_true", help="list the rows with their goals, and stop")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")

    turn = verbs.add_parser("bench-turn", allow_abbrev=False)  # not for people: no help
    turn.add_argument("arguments", nargs=4)
    turn.set_defaults(run=_turn)
    turn.takes_fields = False


def _bench(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.bench import Places, bench
    from unmask.bench.rows import find

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
    places = Places(options.out, options.table, options.plot)
    bench(
        options.rows,
        overrides,
        threads=options.threads,
        pairs=options.pairs,
        quick=options.quick,
        profile=options.profile,
        places=places,
    )


def _turn(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.bench.common import serve_room

    serve_room(options.arguments)
