"""The verb that hands a finished model to other programs: export."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from unmask.cli.parser import add_verb
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.onnx import Score


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "export",
        _export,
        "Write a model folder for other programs, and say how far its answers are from those of the model.",
        fields=True,
    )
    sub.add_argument("--model", required=True)
    sub.add_argument("--format", choices=["onnx"], default="onnx", help="what is written: onnx, for ONNX Runtime")
    sub.add_argument("--out", required=True, help="folder for the graph, the config and the tokenizer")
    sub.add_argument("--fuse", action="store_true", help="also write a graph of ONNX Runtime's own operators")
    sub.add_argument("--int8", action="store_true", help="also write one in eight bits: smaller, faster, less exact")
    sub.add_argument("--data", metavar="ROWS", help="labelled rows: print the metrics of the model and of each graph")


def _export(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.onnx import export, render

    if overrides and not options.data:
        raise UnmaskError(f"--{next(iter(overrides))} says how rows are read, and there are none: give --data ROWS.")
    score = _score(options.model, options.data, overrides) if options.data else None
    print(render(export(options.model, options.out, fuse=options.fuse, int8=options.int8, score=score)))


def _score(folder: str, data: str, overrides: dict[str, str]) -> Score:
    from unmask.finetune import Rows, evaluate

    rows = Rows().override(overrides)

    def score(ready: Any) -> Any:
        return evaluate(folder, data, rows, ready=ready)["metrics"]

    return score
