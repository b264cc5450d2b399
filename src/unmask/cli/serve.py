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
from unmask.errors import UnmaskError, needs, plural

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
    model.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that answer, with the models in memory once"
    )
    model.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="compute threads of each worker (default: those of PyTorch, shared by the workers)",
    )
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

    threads = _threads_each(options)
    access = _access(options)
    folders = options.model or [_newest()]
    if isinstance(options.backend, Path) and len(folders) > 1:
        raise UnmaskError(f"{options.backend} holds one model: give one --model, or leave --backend out.")
    how = {"device": options.device, "precision": options.precision, "backend": options.backend}
    pool = Pool(folders, loaded=options.loaded, top=options.top, vectors=read_vectors, **how)
    served = pool.get()  # load now, so that a bad folder fails at the start and the first request does not wait
    if answers := served.predictor or served.translator:
        say(answers.settled)
    app = build(pool, settings, access)
    where = (options.host, options.port, lambda address: _begun(address, pool))
    if options.workers == 1:
        from unmask.serve.http import server

        server.run(app, *where)
        return
    from unmask.serve.http import workers

    for name in pool.names()[1 : options.loaded]:
        pool.get(name)  # a model that a worker loads would be in memory once for each of them
    each = plural(threads, "compute thread")
    print(f"{options.workers} workers, each with {each}; the limits are for each of them.", file=sys.stderr)
    workers.run(app, *where, workers=options.workers, compute_threads=threads)


def _threads_each(options: argparse.Namespace) -> int:
    """The compute threads of each worker. For several, sets one thread for this process, which loads the models: a
    process with compute threads cannot be copied.

    Raises UnmaskError for numbers below 1, and for workers that cannot share the models.
    """
    import torch

    for name in ("workers", "threads"):
        if (given := getattr(options, name)) is not None and given < 1:
            raise UnmaskError(f"--{name} must be at least 1, not {given}.")
    if options.workers > 1 and (sys.platform != "linux" or options.device != "cpu" or options.backend != "torch"):
        raise UnmaskError(
            "Several workers share models that PyTorch computes on the CPU under Linux: leave --device and --backend "
            "out, or start a service for each device, without --workers."
        )
    threads: int = options.threads or max(1, torch.get_num_threads() // options.workers)
    if options.threads or options.workers > 1:
        torch.set_num_threads(threads if options.workers == 1 else 1)
    return threads


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
