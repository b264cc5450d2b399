"""Options that several verbs share: how text is read, where a finished model runs, what computes its answers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from unmask.cli.help import offer
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.data.text.reading import InputFile, TextStatistics

BACKENDS = ("torch", "onnx", "auto")
PER = ("blank-line", "line", "file")
ENCODING = "encoding of files that are not UTF-8 and have no byte order mark: cp1252, euc-kr, …"


USUAL: dict[str, Any] = {"kind": "wordpiece", "vocabulary_size": 8192, "cased": False, "strip_accents": False}
"""How a vocabulary is learned by default."""

HELDOUT = 0.02  # share of documents that are held out by default
MUCH = 64_000_000  # bytes of text; with less, more processes do not save the time of their start
MOST_WORKERS = 4  # each needs 250 MB, and one process reads the text and writes the tokens of all
SHOWN = 10  # most files named in the list of those that were not read exactly as they are


def workers_for(files: Sequence[InputFile]) -> int:
    """The number of processes that cut the text of some files into tokens, by its size and the cores."""
    from unmask.data.cores import cores

    return min(cores(), MOST_WORKERS) if sum(file.size for file in files) >= MUCH else 1


def corpus_options(parser: argparse.ArgumentParser, *, data: str, out: str, part: str) -> None:
    """Add the options of what texts become, a corpus or a vocabulary, with the help of --data, --out and --part."""
    data_options(parser, data)
    parser.add_argument("--out", required=True, metavar="FOLDER", help=out)
    parser.add_argument("--part", metavar="I/N", help=part)
    vocabulary_options(parser)
    text_options(parser)


def data_options(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the data, with or without --data; `options.data` and `options.paths` are two lists."""
    parser.add_argument("paths", nargs="*", metavar="DATA", help="as --data")
    parser.add_argument("--data", nargs="+", default=[], metavar="FILE", help=help)


def vocabulary_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a new vocabulary, and the share of documents that it is not learned from."""
    parser.add_argument(
        "--vocabulary-size", type=int, metavar="N", help=f"pieces to learn (default: {USUAL['vocabulary_size']})"
    )
    parser.add_argument(
        "--kind",
        choices=["wordpiece", "bpe", "word", "character", "spelled"],
        help=f"what a token is (default: {USUAL['kind']})",
    )
    parser.add_argument("--cased", action="store_true", default=None, help="keep capitals")
    parser.add_argument("--strip-accents", action="store_true", default=None, help="write é as e")
    parser.add_argument(
        "--heldout", type=float, metavar="SHARE", help="share of documents kept for evaluation (default: 0.02)"
    )


def vocabulary_settings(options: argparse.Namespace, tokenizer: str | None = None) -> dict[str, Any]:
    """The given values of USUAL, and the default ones. Raises UnmaskError for a given one beside a tokenizer."""
    given = {name: value for name in USUAL if (value := getattr(options, name)) is not None}
    if tokenizer and given:
        raise UnmaskError(
            f"--{next(iter(given)).replace('_', '-')} is for a new vocabulary, but {tokenizer} has one already: leave "
            "it out."
        )
    return USUAL | given


def print_losses(statistics: TextStatistics, file: TextIO | None = None) -> None:
    """Print which files were not read exactly as they are, by default to standard output."""
    for line in statistics.losses(SHOWN):
        print(f"  {line}", file=file)


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
