"""The verb `serve`, which answers over HTTP with a JSON API and a page."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from unmask.cli.help import add_fields
from unmask.cli.options import answering_options, backend_option
from unmask.cli.parser import Parser, add_verb, field_options, print_fields, say
from unmask.cli.words import vectors_of
from unmask.errors import UnmaskError, needs

RUNS = Path("runs")


def add_verbs(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "serve",
        _serve,
        "answer over HTTP: a JSON API and a page",
        about="Answer over HTTP: a JSON API, and a page for the browser.",
        fields=True,
        more="Limits are set as --NAME VALUE; --help-all lists them.",
    )
    sub.more_help = _serving_help
    model = sub.group("the model")
    model.add_argument(
        "--model",
        nargs="+",
        metavar="[NAME=]FOLDER",
        help="model folders, or word vectors; without any, the newest run in runs/",
    )
    model.add_argument("--loaded", type=int, default=4, help="most models in memory at a time")
    model.add_argument("--top", type=int, default=5, help="predictions for each masked token")
    answering_options(model)
    backend_option(model)
    where = sub.group("the address, and who may use it")
    where.add_argument(
        "--host", default="127.0.0.1", metavar="NAME", help="address to listen on (default: %(default)s, this machine)"
    )
    where.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one")
    where.add_argument("--api-key-file", metavar="FILE", help="file with keys, one a line; every request must send one")
    where.add_argument(
        "--allow-origin", nargs="+", default=(), metavar="ORIGIN", help="origins of other pages that may read answers"
    )
    where.add_argument(
        "--allow-host", nargs="+", default=(), metavar="NAME", help="further host names that requests may use"
    )
    where.add_argument(
        "--training-data",
        action=argparse.BooleanOptionalAction,
        help="whether clients see dev rows, texts of the corpus, and runs (default: with keys, or on this machine)",
    )
    field_options(sub, values="the limits")


def _serving_help(sub: Parser, _: list[str], __: dict[str, str], every: bool) -> None:
    if every:
        from unmask.serve.http.settings import Settings

        add_fields(sub, Settings(), "limits")


def _serve(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    if not all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn")):
        raise needs("The service needs starlette and uvicorn", "serve")
    from unmask.serve.http.settings import Settings

    settings = Settings().override(overrides)
    if options.fields:
        print_fields(settings)
        return
    from unmask.serve.http.app import build
    from unmask.serve.http.pool import Pool
    from unmask.serve.http.server import run

    access = _access(options)
    folders = options.model or [_newest()]
    if isinstance(options.backend, Path) and len(folders) > 1:
        raise UnmaskError(f"{options.backend} holds one model: give one --model, or leave --backend out.")
    where = {"device": options.device, "precision": options.precision, "backend": options.backend}
    pool = Pool(folders, loaded=options.loaded, top=options.top, vectors=read_vectors, **where)
    served = pool.get()  # load now, so that a bad folder fails at the start and the first request does not wait
    if answers := served.predictor or served.translator:
        say(answers.settled)
    run(build(pool, settings, access), options.host, options.port, lambda address: _begun(address, pool))


def read_vectors(place: Path) -> Any:
    """Read word vectors from a folder or a file, for the pool."""
    from unmask.visualize.words import Vectors

    found = vectors_of(place)
    return Vectors(found.words, found.matrix)


def _access(options: argparse.Namespace) -> Any:
    """Who may send requests. Prints a warning if everybody in the network may."""
    from unmask.serve.http.settings import LOOPBACK, Access, is_loopback, read_keys

    keys = read_keys(Path(options.api_key_file)) if options.api_key_file else ()
    local = is_loopback(options.host)
    if not local and not keys:
        print(
            f"unmask: Anyone who reaches {options.host} can use these models; require a key with --api-key-file FILE.",
            file=sys.stderr,
        )
    named = tuple(name.lower() for name in options.allow_host)
    hosts = (*LOOPBACK, options.host.lower(), *named) if local else named
    data = local or bool(keys) if options.training_data is None else options.training_data
    return Access(keys, tuple(options.allow_origin), hosts, data)


def _begun(address: str, pool: Any) -> None:
    print(f"{', '.join(pool.names())} at {address} (Ctrl-C to stop)", flush=True)


def _newest() -> Path:
    """The folder of the newest model in runs/. Raises UnmaskError if there is none."""
    folders = {place.parent for place in RUNS.glob("**/model.safetensors") if "checkpoints" not in place.parts}
    # A folder inside a model's folder is a part of that model.
    found = [folder for folder in folders if (folder / "config.json").is_file() and folder.parent not in folders]
    if not found:
        raise UnmaskError(f"There is no model in {RUNS}/: give one with --model FOLDER.")
    newest = max(found, key=lambda folder: (folder / "model.safetensors").stat().st_mtime)
    print(f"The newest run is {newest}.", file=sys.stderr)
    return newest
