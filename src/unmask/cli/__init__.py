"""The command `unmask <verb> ...`: reads the arguments, calls one function, prints one sentence on an error."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from unmask.cli import (
    answering,
    bench,
    cluster,
    completion,
    data,
    export,
    generation,
    labelled,
    lecture,
    process,
    push,
    serve,
    show,
    speedrun,
    training,
    translation,
    words,
)
from unmask.cli.ending import remark
from unmask.cli.parser import Parser, add_verb, local_models, overrides
from unmask.cli.terminal import harmless_streams
from unmask.errors import NoField, UnmaskError
from unmask.train.interrupt import Interrupt

__all__ = ["main", "parser"]

DESCRIPTION = (
    "BERT and its family: pre-train, fine-tune, evaluate, predict and look inside, on your own text and hardware."
)

MORE = "The options of a verb: unmask VERB --help. All of them, with their defaults: unmask VERB --help-all."

SECTIONS = {
    "start here": ("quickstart", "recipes", "completion", "help"),
    "prepare data": ("corpus", "vocabulary", "cluster"),
    "train": ("pretrain", "finetune", "train"),
    "use a model": ("predict", "embed", "translate", "generate", "words"),
    "measure": ("evaluate", "baseline", "probe", "glue", "speedrun", "bench"),
    "look inside": ("show", "report", "lecture"),
    "serve and share": ("serve", "export", "push"),
}
"""What a person wants -> the verbs that do it, in the order of the help."""

STOPPED = 128
"""Exit status after a signal, less the number of the signal: the convention of shells and schedulers."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. The exit status is 0, 2 after an error, or 128 plus the number of a signal: 130 after Ctrl-C,
    143 after SIGTERM, also when the run was saved first and can be resumed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        process.start(given)
    else:
        process.share_the_machine()
    Interrupt.heard = 0
    with harmless_streams():
        _run(given)


def _run(given: list[str]) -> None:
    try:
        options, rest = parser().parse_known_args(given)
        fields = overrides(rest)
        local_models(options, fields)
        remark(options, fields)
        try:
            options.run(options, fields)
        except NoField as error:
            raise options.parser.instead(error) from None
        if Interrupt.heard:  # or `unmask train … && unmask evaluate …` would continue with half a run
            sys.exit(STOPPED + Interrupt.heard)
    except UnmaskError as error:
        _fail(str(error), STOPPED + Interrupt.heard if Interrupt.heard else 2)
    except KeyboardInterrupt:
        _fail("Interrupted.", STOPPED + signal.SIGINT)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does: no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        place = f" for {error.filename}" if error.filename else ""
        _fail(f"The operating system reports an error{place}: {error.strerror or error}.", 2)


def _fail(sentence: str, status: int) -> None:
    # Names from files may hold control characters of a terminal.
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in sentence)
    print(f"unmask: {shown}", file=sys.stderr)
    sys.exit(status)


def parser() -> Parser:
    """The parser of all verbs, in the order in which people use them."""
    from unmask import __version__

    whole = Parser(prog="unmask", description=DESCRIPTION, epilog=MORE)
    whole.add_argument("--version", action="version", version=f"unmask {__version__}")
    verbs = whole.add_subparsers(metavar="verb", required=True)
    whole.sections = SECTIONS
    for add in (
        training.add_quickstart,
        data.add_verbs,
        cluster.add_verbs,
        training.add_verbs,
        labelled.add_verbs,
        translation.add_training,
        answering.add_verbs,
        translation.add_answering,
        generation.add_verbs,
        generation.add_older,
        words.add_verbs,
        show.add_verbs,
        lecture.add_verbs,
        export.add_verbs,
        push.add_verbs,
        serve.add_verbs,
        speedrun.add_verbs,
        bench.add_verbs,
        training.add_report,
    ):
        add(verbs)
    completion.add_verbs(verbs, parser)
    add_verb(verbs, "help", _help, "show this, or the help of a verb: unmask help corpus build").add_argument(
        "verbs", nargs="*", metavar="verb", help="a verb, followed by one of its own verbs if it has any"
    )
    return whole


def _help(options: argparse.Namespace, _: dict[str, str]) -> None:
    parser().parse_args([*options.verbs, "--help"])
