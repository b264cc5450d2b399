"""The option of the library that computes the answers of an encoder."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.errors import UnmaskError


def backend_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of the library that computes the answers."""
    parser.add_argument(
        "--backend",
        type=_backend,
        default="torch",
        metavar="NAME",
        help="what computes the answers of an encoder: torch; onnx, the graph that `unmask export` wrote into the "
        "folder, by ONNX Runtime; auto, the faster of them for one text and for many, measured once and printed; or "
        "FILE.pt2 of `unmask export --format aoti`, a program that is run: name only one that you trust",
    )


def _backend(value: str) -> str | Path:
    if value in ("torch", "onnx", "auto"):
        return value
    if value.endswith(".pt2"):
        return Path(value)
    raise UnmaskError(f"--backend must be torch, onnx, auto or a file FILE.pt2, not '{value}'.")
