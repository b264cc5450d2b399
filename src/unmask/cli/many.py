"""Answers for very many rows: the options of `predict` and `embed` for parts of a file, and the two commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError, plural

if TYPE_CHECKING:
    from unmask.serve.answering import Answering
    from unmask.serve.many.asked import Asked
    from unmask.serve.predictor import Predictor

_FORMS = {"predict": (".parquet", ".jsonl"), "embed": (".parquet",)}
"""Verb -> the suffixes of files with a row for each row of --file."""

_OF_ANSWERS = ("column", "top", "no_answer", "beams", "lm", "lm_weight", "word_bonus", "rate", "lead", "json")
_OF_VECTORS = ("pooling", "column")
_OF_ALL = ("device", "precision", "backend", "encoding")


def part_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of files with a row for each row."""
    parser.add_argument(
        "--part",
        metavar="I/N",
        help="answer the I-th of N parts of --file, such as 2/8, and write it to a file of its own; N processes, on "
        "any machines, answer all of it, and their files one after another are the whole",
    )
    parser.add_argument(
        "--on-error",
        choices=["stop", "skip"],
        help="for a row that cannot be read or answered: stop (default), or skip: the row keeps its place, without an "
        "answer, and its column 'error' says why",
    )


def writes_rows(options: argparse.Namespace, verb: str, *more: str) -> bool:
    """Whether --out names a file with a row for each row of --file; `more` are further options that need one. Raises
    UnmaskError for options that do not go together."""
    forms = " or ".join(f"FILE{suffix}" for suffix in _FORMS[verb])
    if options.out is None or Path(options.out).suffix not in _FORMS[verb]:
        for name in ("part", "on_error", *more):
            if getattr(options, name) is not None:
                raise UnmaskError(f"--{name.replace('_', '-')} is for a file with all rows: add --out {forms}.")
        return False
    if options.part is not None:
        from unmask.serve.many.answers import Part

        Part.read(options.part)  # before the model is opened
    for name in ("texts", "data", "na_prob_file"):
        if getattr(options, name, None):
            raise UnmaskError(f"--out {forms} holds the rows of --file: leave the other input and --na-prob-file out.")
    if not options.file:
        raise UnmaskError(f"--out {forms} holds the rows of a file: add --file FILE.")
    return True


def refuse_table(file: str | None) -> None:
    """Raises UnmaskError for a Parquet file where lines are read."""
    from unmask.data.files.tables import format_by_name

    if file and format_by_name(Path(file)) == "parquet":
        raise UnmaskError(
            f"The rows of {file} are not lines: add --out FILE.parquet, which holds them with the answers."
        )


def predict(options: argparse.Namespace, predictor: Answering) -> None:
    """`predict` of the rows of a file. Raises UnmaskError for a file whose rows are not lines."""
    from unmask.data.files.tables import format_by_name
    from unmask.serve.many.asked import Predictions

    lines = format_by_name(Path(options.file)) in ("jsonl", "parquet")
    if not lines and predictor.rows_in(options.file, options.encoding) is not None:
        raise UnmaskError(
            f"The rows of {options.file} are not lines: leave --out out and keep what --json prints, or write the rows "
            "as JSON lines."
        )

    if not lines and options.column:
        raise UnmaskError(f"--column names a column, but {options.file} has lines of text: leave it out.")
    _answer(options, Predictions(predictor, options.column), _OF_ANSWERS)


def embed(options: argparse.Namespace, predictor: Predictor) -> None:
    """`embed` of the rows of a file. Raises UnmaskError for a table that would be read as lines."""
    from unmask.data.files.tables import format_by_name
    from unmask.serve.many.asked import Vectors

    form = format_by_name(Path(options.file))
    if form not in ("parquet", "jsonl") and (form or options.column):
        raise UnmaskError(f"For --out FILE.parquet, {options.file} must be Parquet, JSON lines or lines of text.")
    _answer(options, Vectors(predictor, options.column or "text"), _OF_VECTORS)


def _answer(options: argparse.Namespace, asked: Asked, own: tuple[str, ...]) -> None:
    from unmask.serve.many.answers import Part, answer_file
    from unmask.serve.many.source import source_of

    how: dict[str, Any] = {name: getattr(options, name) for name in (*_OF_ALL, *own)}
    how["backend"] = str(how["backend"])
    found = answer_file(
        asked,
        source_of(options.file, options.encoding),
        options.out,
        model=options.model,
        options=how,
        part=None if options.part is None else Part.read(options.part),
        skip=options.on_error == "skip",
    )
    if found.continued:
        print(f"Continued after {plural(found.continued, 'row')} that were answered before.", file=sys.stderr)
    if found.tally.errors:
        without = plural(found.tally.errors, "row has", "rows have")
        print(f"{without} no answer; the column 'error' says why.", file=sys.stderr)
    print(f"{plural(found.tally.rows, asked.name)} -> {found.out}")
