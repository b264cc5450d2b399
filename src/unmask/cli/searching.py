"""Options of the search for transcripts, which predict and evaluate share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.tasks.transcripts import Searching

NEED_LM = ("lm_weight", "word_bonus")


def search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--beams", type=int, metavar="N", help="for recordings: search the best transcript with N beams (16 with --lm)"
    )
    parser.add_argument(
        "--lm",
        metavar="PLACE",
        help="for recordings: a language model for the search: an ARPA file, a file of sentences whose words are "
        "counted, or the folder of a language model",
    )
    parser.add_argument("--lm-weight", type=float, metavar="W", help="with --lm: its weight (default: 0.5)")
    parser.add_argument("--word-bonus", type=float, metavar="X", help="with --lm: added for each word (default: 1)")


def searching(options: argparse.Namespace) -> Searching | None:
    """The search that the options ask for; None: they ask for none. Raises UnmaskError for options that have no effect,
    and for a language model that cannot be read."""
    for name in NEED_LM:
        if options.lm is None and getattr(options, name) is not None:
            raise UnmaskError(f"--{name.replace('_', '-')} is for --lm: give a language model, or leave it out.")
    if options.beams is None and options.lm is None:
        return None
    from unmask.serve.language import language_model
    from unmask.tasks.transcripts import Searching

    names = {"beams": "beams", "lm_weight": "weight", "word_bonus": "bonus"}
    given = {field: value for name, field in names.items() if (value := getattr(options, name)) is not None}
    return Searching(**given, language=None if options.lm is None else language_model(options.lm))
