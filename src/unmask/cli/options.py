"""Options that several verbs share: how text is read, where a finished model runs, what computes its answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unmask.cli.help import offer
from unmask.errors import UnmaskError

BACKENDS = ("torch", "onnx", "auto")
PER = ("blank-line", "line", "file")
ENCODING = "encoding of files that are not UTF-8 and have no byte order mark: cp1252, euc-kr, …"


def text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of reading text from files."""
    parser.add_argument("--per", choices=PER, default="blank-line", help="what ends a document")
    parser.add_argument(
        "--column", default="text", metavar="NAME", help="column or key of the text in JSONL, CSV, TSV and Parquet"
    )
    encoding_option(parser)


def encoding_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of the encoding of files."""
    parser.add_argument("--encoding", metavar="NAME", help=ENCODING)


def reading(options: argparse.Namespace) -> dict[str, Any]:
    """The values of `text_options`, as arguments of `data.text.reading.documents`."""
    return {name: getattr(options, name) for name in ("per", "column", "encoding")}


def answering_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the device and the precision of a finished model."""
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where the model runs: cpu, cuda, cuda:1")
    parser.add_argument(
        "--precision",
        choices=["auto", "fp32", "bf16", "fp16"],
        default="auto",
        help="bf16 multiplies in bfloat16: several times as fast on devices that support it, with nearly the same "
        "results; auto (default) uses it where it is known to be faster, and prints so; fp16 is for GPUs without it",
    )


def backend_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of the library that computes the answers."""
    backend = parser.add_argument(
        "--backend",
        type=_backend,
        default="torch",
        metavar="NAME",
        help="what computes the answers of an encoder: torch; onnx, the graph that `unmask export` wrote into the "
        "folder, by ONNX Runtime; auto, the faster of them for one text and for many, measured once and printed; or "
        "FILE.pt2 of `unmask export --format aoti`, a program that is run: name only one that you trust",
    )
    offer(backend, lambda: BACKENDS)


def _backend(value: str) -> str | Path:
    if value in BACKENDS:
        return value
    if value.endswith(".pt2"):
        return Path(value)
    raise UnmaskError(f"--backend must be torch, onnx, auto or a file FILE.pt2, not '{value}'.")
