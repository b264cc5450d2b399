"""The verb bench, which explains where the benchmarks are."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, NoReturn

from unmask.cli.parser import add_verb
from unmask.errors import UnmaskError


class Moved(argparse.Action):
    """Refuses every argument before anything is read or downloaded, and repeats the arguments in their order."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        words = shlex.join(vars(parser)["given"])
        command = f"make bench ARGS={shlex.quote(words)}" if words else "make bench"
        raise UnmaskError(f"Benchmarks are not a part of the package: run `{command}` in a checkout of unmask.")


def add_verbs(verbs: Any) -> None:
    help = "print how to run the benchmarks, which are in a checkout of unmask"
    sub = add_verb(verbs, "bench", _refuse, help, fields=True, more="It takes the arguments of `make bench`.")
    sub.add_argument("words", nargs="*", action=Moved, metavar="ARG", help="rows and options of `make bench`")


def _refuse(options: argparse.Namespace, _: dict[str, str]) -> None:
    raise AssertionError("the arguments were refused while they were parsed")
