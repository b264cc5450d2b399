"""The command `unmask <verb> ...`: reads the arguments, calls one function, prints one sentence on an error."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from unmask.errors import UnmaskError, unknown

if TYPE_CHECKING:
    from unmask.config import Config

DESCRIPTION = "BERT and its family: pre-train, fine-tune, evaluate, predict, on your own text and hardware."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits with status 0, 2 after an error of the user's, 130 after Ctrl-C."""
    try:
        options, rest = _parser().parse_known_args(arguments)
        options.run(options, _overrides(rest))
    except UnmaskError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("Interrupted.", 130)
    except BrokenPipeError:  # the reader of our output has gone, which is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        _fail(f"The file system refused{place}: {error.strerror or error}.", 2)


def _fail(sentence: str, status: int) -> None:
    print(f"unmask: {sentence}", file=sys.stderr)
    sys.exit(status)


# ------------------------------------------------------------------------------------------------ arguments


class _Parser(argparse.ArgumentParser):
    """Complains in one sentence, and names the nearest verb or option that exists."""

    takes_fields: bool | None = None  # passes on what it does not know, as `--name value`; None: its verbs decide

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = list(sys.argv[1:] if args is None else args)
        known, fields = self._set_aside(self.given) if self.takes_fields else (self.given, [])
        options, rest = super().parse_known_args(known, namespace)
        if rest and self.takes_fields is False:
            self.error(f"{rest[0]!r} is not understood here (a text of several words goes in quotes)")
        return options, rest + fields

    def _set_aside(self, given: list[str]) -> tuple[list[str], list[str]]:
        """What the parser knows, and fields with their values, which it would take for positional arguments."""
        known: list[str] = []
        fields: list[str] = []
        items = list(given)
        while items:
            item = items.pop(0)
            name, equals, _ = item.partition("=")
            if not item.startswith("--") or item == "--" or name in self._option_string_actions:
                known.append(item)
                continue
            fields.append(item)
            if not equals and items and not items[0].startswith("--"):
                fields.append(items.pop(0))
        return known, fields

    def error(self, message: str) -> NoReturn:
        known = {option for option in self._option_string_actions if option.startswith("--")}
        for item in self.given:
            option = item.partition("=")[0]
            if option.startswith("--") and option not in known:  # likelier the cause than what argparse misses
                raise unknown(f"option of {self.prog}:", option, known - {"--help"})
        raise UnmaskError(f"{message[0].upper()}{message[1:]}; see {self.prog} --help.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = f"value of {action.option_strings[0]}:" if action.option_strings else f"verb of {self.prog}:"
            raise unknown(kind, str(value), action.choices)


def _parser() -> argparse.ArgumentParser:
    from unmask import __version__

    parser = _Parser(prog="unmask", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    verbs = parser.add_subparsers(metavar="verb", required=True)

    def verb(name: str, run: Any, help: str, group: Any = verbs, **more: Any) -> argparse.ArgumentParser:
        sub = group.add_parser(name, help=help, description=help, allow_abbrev=False, **more)
        sub.set_defaults(run=run)
        sub.takes_fields = name in ("pretrain", "finetune", "evaluate")
        return sub

    sub = verb("quickstart", _quickstart, "Pre-train a BERT on the documentation installed with Python, and try it.")
    sub.add_argument("--minutes", type=float, default=None, help="time for pre-training")
    sub.add_argument("--out", default="runs/quickstart", help="folder for the results (default: %(default)s)")

    corpus = verbs.add_parser("corpus", help="Look at text, or turn it into a corpus.").add_subparsers(
        metavar="verb", required=True
    )
    sub = verb("check", _corpus_check, "Report what is in some text: sizes, duplicates, encodings, leakage.", corpus)
    sub.add_argument("data", nargs="+", help="files or folders")
    sub.add_argument("--against", nargs="+", default=[], help="files that must not be contained in the text")
    _text_options(sub)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = verb("build", _corpus_build, "Train a vocabulary and write the text as tokens.", corpus)
    sub.add_argument("--data", nargs="+", default=[], help="files, folders or hub:NAME (default: the embedded corpus)")
    sub.add_argument("--out", required=True, help="folder for the corpus")
    sub.add_argument("--vocabulary-size", type=int, default=8192)
    sub.add_argument("--tokenizer", help="use this tokenizer (a folder or file) instead of training one")
    sub.add_argument("--cased", action="store_true", help="keep capitals")
    sub.add_argument("--strip-accents", action="store_true", help="write é as e")
    sub.add_argument("--heldout", type=float, default=0.02, help="share of documents kept for evaluation")
    _text_options(sub)

    vocabulary = verbs.add_parser(
        "vocabulary", help="See what a vocabulary makes of some text, or extend it."
    ).add_subparsers(metavar="verb", required=True)
    sub = verb("check", _vocabulary_check, "Report how a tokenizer tears the words of some text.", vocabulary)
    sub.add_argument("--model", required=True, help="folder with a tokenizer")
    sub.add_argument("--data", nargs="+", required=True, help="files or folders")
    sub.add_argument("--reference", nargs="+", help="other text to compare with, such as general text")
    sub.add_argument("--pieces", nargs="*", type=int, default=[100, 1000], help="say what so many new ones would bring")
    _text_options(sub)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = verb("extend", _vocabulary_extend, "Add pieces, learned from some text, to a model's vocabulary.", vocabulary)
    sub.add_argument("--model", required=True, help="model folder with a WordPiece vocabulary")
    sub.add_argument("--data", nargs="+", required=True, help="files or folders of the domain")
    sub.add_argument("--pieces", type=int, required=True, help="new pieces, at most")
    sub.add_argument("--least", type=int, default=5, help="uses in the text that a new piece must have")
    sub.add_argument("--out", required=True, help="folder for the model with the larger vocabulary")
    _text_options(sub)

    sub = verb("pretrain", _pretrain, "Pre-train a model: unmask pretrain bert-mini --corpus FOLDER --out FOLDER.")
    sub.add_argument("recipe", nargs="?", help="a name from `unmask recipes`; may be left out with --from")
    sub.add_argument("--from", dest="start", help="model folder to go on from, in place of fresh weights")
    sub.add_argument(
        "--corpus", nargs="+", default=[], help="folders that `unmask corpus build` wrote; several are mixed"
    )
    sub.add_argument("--out", help="folder of the run")
    sub.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    sub.add_argument("--dry-run", action="store_true", help="print what the run would take, and stop")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")
    verb("recipes", _recipes, "List the pre-training runs that have a name.")

    sub = verb("finetune", _finetune, "Fine-tune a model on labelled rows; --fields lists every setting.")
    sub.add_argument("--out", help="folder of the run")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")
    sub = verb("evaluate", _evaluate, "Score a fine-tuned model on labelled rows.")
    sub.add_argument("--model", required=True)
    sub.add_argument("--data", required=True)
    sub.add_argument("--json", action="store_true", help="print JSON")
    sub = verb("predict", _predict, "Answer for texts, as the model was trained: hidden words, labels, tags, answers.")
    sub.add_argument("--model", required=True)
    sub.add_argument("texts", nargs="*", help="texts; without any, lines of --file or of standard input")
    sub.add_argument(
        "--file",
        help="a file with one text a line (a tab separates the two texts of a pair) or one JSON object; for questions "
        "also a SQuAD file, for choices also SWAG, ARC or DREAM",
    )
    sub.add_argument("--out", help="write {id: answer} to this file, as the scripts of SQuAD read it")
    sub.add_argument("--top", type=int, default=5, help="answers to show for each hidden word")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line")
    sub = verb("report", _report, "Write report.html into a run's folder, and open it where there is a browser.")
    sub.add_argument("folder")
    sub.add_argument("--no-open", action="store_true", help="only write it")
    return parser


def _text_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--per", choices=["blank-line", "line", "file"], default="blank-line", help="what ends a document"
    )
    parser.add_argument("--column", default="text", help="column or key of the text in JSONL, CSV, TSV and Parquet")


def _overrides(rest: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--flag` that the parser did not know: fields of a config."""
    fields: dict[str, str] = {}
    items = list(rest)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            raise UnmaskError(f"'{item}' is not understood here; give a field as --name value.")
        name, equals, value = item[2:].partition("=")
        if not equals:
            value = items.pop(0) if items and not items[0].startswith("--") else "true"
        fields[name] = value
    return fields


def _print_fields(config: Config) -> None:
    for name, value in config.places().items():
        print(f"--{name:32} {value}")


# ------------------------------------------------------------------------------------------------ verbs


def _quickstart(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.quickstart import MINUTES, quickstart

    quickstart(Path(options.out), minutes=MINUTES if options.minutes is None else options.minutes)


def _corpus_check(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.data import inspect, text

    statistics = text.TextStatistics()
    documents = text.documents(options.data, per=options.per, column=options.column, statistics=statistics)
    against = text.documents(options.against, per=options.per, column=options.column) if options.against else None
    report = inspect.check(documents, statistics, against=against)
    print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if options.json else inspect.render(report))


def _corpus_build(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.data import corpus, embedded, text
    from unmask.data.tokenizer import Tokenizer
    from unmask.train.display import progress

    def documents() -> Any:
        if not options.data:
            return embedded.documents()
        return text.documents(options.data, per=options.per, column=options.column)

    tokenizer = Tokenizer.load(options.tokenizer) if options.tokenizer else None
    with progress() as show:
        built = corpus.build(
            documents,
            Path(options.out),
            tokenizer=tokenizer,
            vocabulary_size=options.vocabulary_size,
            cased=options.cased,
            strip_accents=options.strip_accents,
            heldout=options.heldout,
            progress=show,
        )
    print(built.summary())
    model = options.tokenizer and (Path(options.tokenizer) / "config.json").is_file()
    run = f"--from {options.tokenizer}" if model else "bert-mini"
    print(f"Next: unmask pretrain {run} --corpus {options.out} --out runs/mine --minutes 30")


def _vocabulary_check(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask import adapt
    from unmask.data import fertility
    from unmask.data.tokenizer import Tokenizer

    reference = _documents(options, options.reference) if options.reference else None
    tokenizer = Tokenizer.load(options.model)
    found = adapt.check(tokenizer, _documents(options, options.data), reference, pieces=options.pieces)
    if options.json:
        print(json.dumps({name: f.to_dict() for name, f in found.items()}, indent=2, ensure_ascii=False))
    else:
        print(fertility.render(found))


def _vocabulary_extend(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask import adapt

    texts = _documents(options, options.data)
    print(adapt.extend(options.model, texts, options.pieces, options.out, least=options.least).summary())
    print(f"Next: unmask corpus build --tokenizer {options.out} --data ... --out corpora/mine")


def _documents(options: argparse.Namespace, paths: Sequence[str]) -> Any:
    """The texts of documents, as the options say how to read them."""
    from unmask.data import text

    return (document.text for document in text.documents(paths, per=options.per, column=options.column))


def _recipes(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask import recipes

    for name, line in recipes.names().items():
        print(f"{name:14} {line}")


def _pretrain(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask import recipes
    from unmask.report import run_facts

    start = options.start or overrides.pop("start", None)
    facts = run_facts(Path(options.out)) if options.resume and options.out else {}
    if options.resume and options.out and not (facts or options.recipe or start):
        raise UnmaskError(f"{options.out} holds no run to go on with; start it with a recipe and --corpus.")
    options.recipe, config = recipes.choose(options.recipe, start, facts)
    options.corpus = options.corpus or facts.get("corpora", [])
    # One of the two says how long: the one given here replaces the recipe's.
    if {"steps", "minutes", "training.steps", "training.minutes"} & set(overrides):
        config = config.override({"steps": None, "minutes": None})
    config = config.override(overrides)
    if options.fields:
        _print_fields(config)
        return
    if not options.corpus:
        raise UnmaskError("Say on what: --corpus FOLDER (make one with: unmask corpus build --data ... --out FOLDER).")
    if not options.out:
        raise UnmaskError("Say where to: --out FOLDER.")
    from unmask.pretrain import Pretrain
    from unmask.report import write_pretraining
    from unmask.train import distributed
    from unmask.train.display import Terminal, render_plan

    distributed.init(config.training.device)
    run = Pretrain(
        config, options.corpus, options.out, recipe=options.recipe, resume=options.resume, display=Terminal()
    )
    if options.dry_run:
        plan = run.plan()
        if distributed.is_main():
            print(render_plan(plan))
        return
    result = run.run()
    if distributed.is_main():
        write_pretraining(Path(options.out))
        print(run.summary(result))
        if result.stopped is not None:
            print(f"Go on with: unmask pretrain --out {options.out} --resume")


def _finetune(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.finetune import FineTuning, finetune
    from unmask.train.display import Terminal

    config = FineTuning().override(overrides)
    if options.fields:
        _print_fields(config)
        return
    if not options.out:
        raise UnmaskError("Say where to: --out FOLDER.")
    finetune(config, Path(options.out), display=Terminal())


def _evaluate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.finetune import Rows, evaluate, render_evaluation

    scores = evaluate(options.model, options.data, Rows().override(overrides))
    print(json.dumps(scores, indent=2, ensure_ascii=False) if options.json else render_evaluation(scores))


def _predict(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.serve import Predictor, answers_to, render_answer, rows_in, write_predictions

    predictor = Predictor(options.model, top=options.top)
    rows = rows_in(options.file, predictor.kind) if options.file and not options.texts else None
    found = predictor.stream(_texts(options)) if rows is None else answers_to(predictor, rows)
    if options.out:
        print(f"{write_predictions(found, options.out):,} answers are in {options.out}.")
        return
    for text, answer in found:
        print(json.dumps(answer, ensure_ascii=False) if options.json else render_answer(text, answer), flush=True)


def _texts(options: argparse.Namespace) -> Any:
    """Texts as given, else the lines of a file, else of standard input."""
    if options.texts and options.file:
        raise UnmaskError("Give texts or --file, not both.")
    if options.texts:
        yield from options.texts
        return
    if options.file and not Path(options.file).is_file():
        raise UnmaskError(f"There is no file {options.file}.")
    if not options.file and sys.stdin.isatty():
        raise UnmaskError('Give a text in quotes, --file FILE, or text on standard input: unmask predict ... "a text"')
    with Path(options.file).open("rb") if options.file else sys.stdin.buffer as source:
        for line in source:
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text.strip():
                yield text


def _report(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.report import write_report

    path = write_report(Path(options.folder))
    print(path)
    if (
        not options.no_open
        and sys.stdout.isatty()
        and (os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32"))
    ):
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
