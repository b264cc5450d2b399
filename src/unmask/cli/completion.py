"""The verb `completion`, which prints a script that completes verbs and options in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from unmask.cli.parser import add_verb

SHELLS = {
    "bash": "unmask completion bash > ~/.local/share/bash-completion/completions/unmask",
    "zsh": "unmask completion zsh > ~/.zfunc/_unmask, with ~/.zfunc in $fpath",
    "fish": "unmask completion fish > ~/.config/fish/completions/unmask.fish",
}
"""Shell -> how its script is installed."""


def add_verbs(verbs: Any, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the verb; `parser` makes the parser of all verbs."""

    def run(options: argparse.Namespace, _: dict[str, str]) -> None:
        import shtab

        whole = parser()
        _fill(whole)
        print(shtab.complete(whole, options.shell))

    sub = add_verb(
        verbs,
        "completion",
        run,
        "print the completion script of a shell: bash, zsh or fish",
        more=f"Install it with: {'; or '.join(SHELLS.values())}.",
    )
    sub.add_argument("shell", choices=list(SHELLS), help="the shell")


def _fill(parser: Any) -> None:
    """Add the fields of --help-all to a parser and to those of its verbs, and the values that options offer."""
    if parser.more_help is not None:
        parser.more_help(parser, [], {}, True)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _fill(verb)
        elif offered := getattr(action, "offered", None):
            action.choices = list(offered())
