"""Verbs that write a model, or its vectors of texts, for other programs: export, embed."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli import many
from unmask.cli.ending import suggest
from unmask.cli.help import add_field
from unmask.cli.options import ENCODING, answering_options, backend_option, encoding_option
from unmask.cli.parser import add_verb, of_rows, say, text_lines
from unmask.errors import UnmaskError, kind_of, plural

if TYPE_CHECKING:
    from unmask.serve.onnx import Exported, Score


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "export",
        _export,
        "write a model for other programs, such as ONNX Runtime",
        about="Export a model for other programs. How far the outputs of a graph or a package differ from those of the "
        "model is printed.",
        fields=True,
        more="With --data, rows take the other fields that `unmask finetune --fields` lists as rows.NAME.",
    )
    sub.add_argument("--model", required=True, metavar="FOLDER", help="a model folder")
    sub.add_argument(
        "--format",
        choices=list(_FORMATS),
        default="onnx",
        help="format to write: onnx, for ONNX Runtime; aoti, machine code for this processor, by AOTInductor; gguf, "
        "for llama.cpp",
    )
    sub.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for the files (default: onnx, compiled or gguf in the model's folder); for onnx, another folder "
        "also gets the config and the tokenizer",
    )
    sub.add_argument("--fuse", action="store_true", help="for onnx: also a graph of ONNX Runtime's own operators")
    sub.add_argument(
        "--int8", action="store_true", help="for onnx and gguf: also a file in eight bits: smaller, less exact"
    )
    sub.add_argument(
        "--data", metavar="ROWS", help="for onnx: labelled rows, to print the metrics of the model and of each graph"
    )
    add_field(sub, "--text", "NAME", "with --data: column of the text, if it does not have the usual name")
    add_field(sub, "--pair", "NAME", "with --data: column of the second text of a pair")
    add_field(sub, "--label", "NAME", "with --data: column of the label")
    add_field(sub, "--encoding", "NAME", f"with --data: {ENCODING}")

    sub = add_verb(
        verbs,
        "embed",
        _embed,
        "write the vectors of texts, pictures or recordings",
        about="Write the vectors of texts, by a sentence encoder, or of pictures or recordings.",
    )
    sub.add_argument(
        "--model",
        required=True,
        metavar="FOLDER",
        help="folder of a sentence encoder, of any other encoder of texts, or of a model of pictures or recordings",
    )
    sub.add_argument(
        "--pooling",
        choices=["mean", "cls"],
        help="of an encoder that was not trained for sentence vectors: the mean of all tokens (default), or the first",
    )
    sub.add_argument(
        "--file",
        metavar="FILE",
        help="a file with one text a line and no blank lines, or a table (TSV, CSV, JSONL, Parquet) with a text in "
        "each row (default: standard input)",
    )
    sub.add_argument("--column", metavar="NAME", help="column of the text in a table (default: text)")
    sub.add_argument(
        "--data", metavar="FOLDER", help="a folder of pictures or recordings; their names go into a file beside --out"
    )
    encoding_option(sub)
    sub.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="file for the vectors: .npy, .safetensors or .jsonl; FILE.parquet: each row of --file with its vector, in "
        "blocks after which a stopped command continues",
    )
    many.part_options(sub)
    answering_options(sub)
    backend_option(sub)


def _embed(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.serve import Predictor
    from unmask.serve.vectors import encoder_of, vectors, write_vectors

    by_row = many.writes_rows(options, "embed")
    if options.data:
        _embed_items(options)
        return
    model, note = encoder_of(options.model, options.pooling)
    if note:
        print(note, file=sys.stderr)
    where = {"device": options.device, "precision": options.precision, "backend": options.backend}
    predictor = Predictor(model, **where)
    say(predictor.settled)
    if by_row:
        many.embed(options, predictor)
        return
    lines = _lines(options.file, options.encoding, options.column)
    count, width = write_vectors(vectors(predictor, lines), options.out)
    print(f"{plural(count, 'vector')} of {width} numbers -> {options.out}")
    _say_how_to_read(options.out)


def _embed_items(options: argparse.Namespace) -> None:
    """Write the vectors of a folder of pictures or recordings, and a file with the name of the item of each row."""
    from unmask.data.files.items import visible
    from unmask.files import write_text
    from unmask.serve.backends import require_torch
    from unmask.serve.vectors import item_vectors, named_items, write_vectors

    if options.pooling:
        raise UnmaskError("--pooling is for texts: leave it out for pictures and recordings.")
    if options.column:
        raise UnmaskError("--column is for a table of texts, which --file names: leave it out with --data.")
    if options.file:
        raise UnmaskError("--file names texts and --data pictures or recordings: leave one of them out.")
    require_torch(options.backend, options.model)
    items, found = named_items(options.model, Path(options.data))
    names = Path(options.out).with_suffix(".names.txt")
    count, width = write_vectors(item_vectors(options.model, items, device=options.device), options.out)
    write_text(names, "".join(f"{visible(name)}\n" for name in found))
    print(f"{plural(count, 'vector')} of {width} numbers -> {options.out}, names -> {names}")
    _say_how_to_read(options.out)


def _say_how_to_read(out: str) -> None:
    """Print how Python reads a file of vectors, if it takes more than a look."""
    readers = {".npy": f"numpy.load({out!r})", ".safetensors": f"safetensors.numpy.load_file({out!r})['vectors']"}
    if (reader := readers.get(Path(out).suffix)) is not None:
        print(f"In Python: {reader}")


def _lines(given: str | None, encoding: str | None, column: str | None = None) -> Iterator[str]:
    """The lines of a file, else of standard input, or the texts of a table; without blank ones at the end.

    Raises UnmaskError as `text_lines` and `tables.rows` do, and for a blank text that is followed by another one.
    """
    if given and not Path(given).is_file():
        raise UnmaskError(f"There is no file {given}.")
    if not given and column:
        raise UnmaskError("--column names a column of a table: give the table with --file.")
    if not given and sys.stdin.isatty():
        raise UnmaskError("Give --file FILE, or text on standard input.")
    name, blank = given or "standard input", 0
    for number, text in _numbered(given, encoding, column):
        if not text.strip():
            blank = blank or number
        elif blank:  # a line without a vector would shift the vectors after it
            raise UnmaskError(f"Line {blank} of {name} is blank, and has no vector: remove it.")
        else:
            yield text


def _numbered(given: str | None, encoding: str | None, column: str | None) -> Iterator[tuple[int, str]]:
    """The texts of `_lines`, blank ones too, with the numbers of their lines. A file is a table if its name says so, or
    if a column is named."""
    from unmask.data.files.tables import format_by_name, guess_format, rows

    format = format_by_name(Path(given)) if given else None
    if given and column and format is None:
        format = guess_format(Path(given), encoding=encoding)
    if not given or format is None or format == "conll":
        yield from enumerate(text_lines(given, encoding), 1)
        return
    name = column or "text"
    for number, values in rows(Path(given), format, column=name, encoding=encoding):
        if not isinstance(text := values[name], str | None):
            raise UnmaskError(f"{given}:{number}: '{name}' must be text, not {kind_of(text)}.")
        yield number, text or ""


def _export(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.serve.onnx import render

    if overrides and not options.data:
        raise UnmaskError(f"--{next(iter(overrides))} sets how rows are read: add --data ROWS.")
    write, takes, use = _FORMATS[options.format]
    for name in ("fuse", "int8", "data"):
        if getattr(options, name) and name not in takes:
            raise UnmaskError(f"--{name} has no effect with --format {options.format}: leave it out.")
    found = write(options, overrides)
    print(render(found))
    if (found.folder / "config.json").is_file() and not any(found.folder.glob("*.safetensors")):
        print(
            f"ONNX Runtime and optimum open {found.folder}, which has no weights. For unmask predict --backend onnx, "
            "export into the folder of the model: leave --out out."
        )
    elif use:
        suggest(use.format(model=shlex.quote(options.model), out=shlex.quote(str(found.folder))))


def _onnx(options: argparse.Namespace, overrides: dict[str, str]) -> Exported:
    from unmask.serve.onnx import export

    score = _score(options.model, options.data, overrides) if options.data else None
    return export(options.model, options.out, fuse=options.fuse, int8=options.int8, score=score)


def _aoti(options: argparse.Namespace, _: dict[str, str]) -> Exported:
    from unmask.serve.compiled import export_compiled

    return export_compiled(options.model, options.out)


def _gguf(options: argparse.Namespace, _: dict[str, str]) -> Exported:
    from unmask.serve.gguf import export_gguf

    return export_gguf(options.model, options.out, int8=options.int8)


_FORMATS: dict[str, tuple[Callable[[argparse.Namespace, dict[str, str]], Exported], tuple[str, ...], str]] = {
    "onnx": (_onnx, ("fuse", "int8", "data"), "predict --model {model} --backend auto"),
    "aoti": (_aoti, (), "predict --model {model} --backend {out}/model.pt2"),
    "gguf": (_gguf, ("int8",), ""),
}
"""Name of a format -> what writes it, the options that it takes, and the command that uses it, if it is one of ours."""


def _score(folder: str, data: str, overrides: dict[str, str]) -> Score:
    from unmask.runs.finetuning import evaluate

    rows = of_rows(overrides)

    def score(ready: Any) -> Any:
        return evaluate(folder, data, rows, ready=ready)["metrics"]

    return score
