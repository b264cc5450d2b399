"""Verbs of the GLUE benchmark: glue submit and glue table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.options import answering_options
from unmask.cli.parser import Parser, add_group, add_hidden, add_verb

SUBMIT = "Predict the test rows of GLUE, and write the files of a submission."
TABLE = "Print the GLUE score of fine-tuned folders, on their dev rows."


def add_verbs(verbs: Any) -> None:
    glue = add_group(verbs, "glue", "submit to the GLUE benchmark, or print its table")
    _submit_options(add_verb(glue, "submit", _submit, SUBMIT))
    _table_options(add_verb(glue, "table", _table, TABLE))
    _submit_options(add_hidden(verbs, "submit", _submit))
    _table_options(add_hidden(verbs, "glue-table", _table))


def _submit_options(sub: Parser) -> None:
    sub.add_argument("--models", nargs="+", required=True, metavar="[TASK=]FOLDER", help="fine-tuned folders")
    sub.add_argument("--data", required=True, metavar="FOLDER", help="folder of GLUE, with one folder for each task")
    sub.add_argument("--out", required=True, metavar="FOLDER", help="folder for the files and submission.zip")
    answering_options(sub)


def _table_options(sub: Parser) -> None:
    sub.add_argument("results", nargs="+", metavar="[TASK=]RESULTS", help="folders, results.json, or evaluate --json")
    sub.add_argument("--wnli", action="store_true", help="include WNLI, which published averages leave out")


def _submit(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.leaderboard import submit

    where = {"device": options.device, "precision": options.precision}
    submit(options.models, Path(options.data), Path(options.out), say=print, **where)


def _table(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.leaderboard import table

    print(table(options.results, wnli=options.wnli).table)
