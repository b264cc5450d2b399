"""One turn in a process of its own: `python -m bench.turn [--ours] MODULE SIDE SETTINGS RESULT`.

A turn of a peer starts as plain Python. With `--ours`, the process starts as the command `unmask` does, with the same
settings for threads and memory.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {"decoding": "translate", "inference": "embed", "finetuning": "finetune"}
"""Module of this package -> the command whose settings its turns take, where that is not `pretrain`."""


def start_as_unmask(module: str) -> None:
    """Apply the settings of the command that a module measures; call it before torch is imported."""
    from unmask.cli import process

    process.start([COMMANDS.get(module, "pretrain")])


def serve(arguments: Sequence[str]) -> None:
    """Run the turn that `arguments` = [module, side, settings file, result file] names."""
    from bench import common

    module, *rest = arguments
    common.serve(importlib.import_module(f"bench.{module}").TRIALS, rest)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "--ours":
        given = given[1:]
        start_as_unmask(given[0])
    serve(given)
