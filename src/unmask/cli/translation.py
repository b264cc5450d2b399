"""Verbs of translation: train and translate; and the function of `evaluate --pairs`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, needed, offer
from unmask.cli.options import ENCODING, answering_options, encoding_option
from unmask.cli.parser import (
    Parser,
    add_verb,
    carried_out,
    check_run,
    field_options,
    given_lines,
    print_fields,
    run_output,
    say,
    where_to_train,
)
from unmask.cli.settings import print_config
from unmask.cli.training import recipe_names, settings_for
from unmask.errors import UnmaskError


def add_training(verbs: Any) -> None:
    """Add the verb of training from new weights."""
    sub = add_verb(
        verbs,
        "train",
        _train,
        "train a translator, or a classifier of pictures, recordings, records or texts, from new weights",
        about="Train a system from new weights: unmask train NAME. A translation system learns from pairs of texts (by "
        "default dates), the others from labelled pictures (by default digits), recordings (by default synthesised "
        "words), records of sensors (by default synthesised electrocardiograms) or texts.",
        fields=True,
        more="The defaults are those of the system: unmask train NAME --help-all shows them.",
    )
    sub.more_help = _training_help
    system = sub.add_argument("system", metavar="NAME", nargs="?", help="a name from `unmask recipes --of train`")
    offer(system, lambda: recipe_names()["train"])
    data = sub.group("what goes in")
    data.add_argument(
        "--train", nargs="+", metavar="FILE", help="the training data, of pairs or of labelled rows: see below"
    )
    data.add_argument(
        "--pairs",
        nargs="+",
        default=[],
        metavar="FILE",
        help="pairs of texts: two aligned files (or .npy and texts), one table, a file of dialogues, trees or "
        "commands, hub:owner/name, or a folder of pictures with captions.tsv",
    )
    data.add_argument(
        "--data",
        metavar="FOLDER",
        help="labelled rows: a table of texts, or of pictures, recordings or records; a folder with a subfolder for "
        "each class; a folder with folders train, dev and test of this form",
    )
    data.add_argument(
        "--dev", nargs="+", default=[], metavar="FILE", help="rows for evaluation, in the same form as the others"
    )
    data.add_argument("--test", metavar="FILE", help="labelled rows that are scored at the end")
    add_field(data, "--columns", "SOURCE,TARGET", "columns of a table of pairs, if they do not have the usual names")
    add_field(data, "--encoding", "NAME", ENCODING)
    model = sub.group("the model")
    model.add_argument(
        "--from",
        dest="start",
        metavar="FOLDER",
        help="model folder to continue from, such as one of T5; needs no system",
    )
    add_field(model, "--vocabulary.size", "N", "pieces that a translation system learns", default="of the system")
    add_field(model, "--max-length", "N", "tokens of the longest text", default="of the system")
    train = sub.group("training")
    add_field(
        train, "--minutes", "N", "minutes; --steps, or --epochs for labelled rows, instead", default="of the system"
    )
    add_field(train, "--steps", "N", "optimiser steps of a translation system")
    add_field(train, "--epochs", "N", "passes over labelled rows")
    add_field(train, "--learning-rate --lr", "X", "peak learning rate", default="of the system")
    add_field(train, "--tokens", "N", "target tokens of a step of a translation system", default="of the system")
    add_field(train, "--batch-size", "N", "labelled rows of a step", default="of the system")
    add_field(train, "--seed", "N", "seed of weights and order", default=0)
    where_to_train(train)
    metric = add_field(train, "--metric", "NAME", "bleu (default), rouge, dialogue, parsing, code, questions or exact")
    offer(metric, metrics)
    run_output(sub, "folder of the run (default: runs/SYSTEM; required with --from)")
    field_options(sub, config=True)


def _training_help(sub: Parser, words: list[str], _: dict[str, str], every: bool) -> None:
    """List the fields of a system."""
    if not every:
        return
    from unmask.runs import supervised_recipes
    from unmask.runs.translation import Translation, systems

    named = next((word for word in words if word in {**systems.names(), **supervised_recipes.names()}), None)
    if named in supervised_recipes.names():
        add_fields(sub, supervised_recipes.find(str(named)))
    else:
        add_fields(sub, systems.find(named) if named else Translation())


def metrics() -> Iterable[str]:
    """The values of --metric."""
    from unmask.runs.translation.scoring import SCORINGS

    return SCORINGS


def add_answering(verbs: Any) -> None:
    """Add the verb of finished models, translate."""
    sub = add_verb(
        verbs,
        "translate",
        _translate,
        "translate lines of text, or caption pictures",
        about="Translate lines of text, or vectors, or caption pictures: unmask translate --model FOLDER < FILE.",
        fields=True,
    )
    sub.more_help = _translating_help
    sub.add_argument(
        "texts", nargs="*", help="texts, or files of pictures; without any, lines of --file or of standard input"
    )
    data = sub.group("what goes in")
    data.add_argument("--file", metavar="FILE", help="a file with one text a line, or the vectors of a .npy file")
    encoding_option(data)
    model = sub.group("the model")
    needed(model.add_argument("--model", metavar="FOLDER", help="folder that `unmask train` wrote, or a Marian folder"))
    answering_options(model)
    search = sub.group("search")
    add_field(search, "--beam-size", "N", "hypotheses that the search keeps", default="of the folder")
    add_field(search, "--n-best", "N", "translations of each text", default=1)
    add_field(search, "--length-penalty", "X", "exponent of the length that divides scores", default="of the folder")
    add_field(search, "--max-length", "N", "most tokens of a translation", default="of the folder")
    add_field(search, "--no-repeat-ngram", "N", "repeat no n-gram of N tokens")
    search.add_argument(
        "--sample", action="store_true", help="sample translations: --temperature, --top-k, --samples, …"
    )
    output = sub.group("output")
    output.add_argument(
        "--json", action="store_true", help="print one JSON object a line, with scores and probabilities"
    )
    output.add_argument("--scores", action="store_true", help="print the score before each translation")
    output.add_argument("--align", action="store_true", help="show the attention of the best translation to its source")
    field_options(sub, values="the search")


def _translating_help(sub: Parser, _: list[str], __: dict[str, str], every: bool) -> None:
    if every:
        from unmask.generate import Sampling, Search

        add_fields(sub, Search(), "search")
        add_fields(sub, Sampling(), "with --sample")


def _train(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.cli import supervised
    from unmask.config import flatten
    from unmask.runs import supervised_recipes
    from unmask.runs.recipes import timed
    from unmask.runs.report import run_facts
    from unmask.runs.translation import TrainTranslation, systems
    from unmask.runs.translation.config import Vocabulary
    from unmask.train import checkpoint
    from unmask.train.display import Terminal

    file = settings_for("train", options)
    if file is not None and not options.system:
        options.system = file.facts.get("recipe") if file.facts.get("recipe") != systems.TUNED else None
    if options.system and options.system not in supervised_recipes.names():
        systems.find(options.system)
    if options.system and not options.start:
        options.out = options.out or f"runs/{options.system}"
    facts = run_facts(Path(options.out)) if options.resume and options.out else {}
    _place_training_data(options, labelled=(options.system or facts.get("recipe")) in supervised_recipes.names())
    if (options.system or facts.get("recipe")) in supervised_recipes.names():
        options.system = options.system or facts["recipe"]
        supervised.train(options, overrides, file)
        return
    if options.data or options.test:
        raise UnmaskError("--data and --test are for labelled rows; a translation system takes --pairs.")
    check_run(options.out, facts, {*systems.names(), systems.TUNED})
    if options.resume and options.out:
        checkpoint.refuse_taken(Path(options.out), resume=True)
    start = facts["config"].get("start") if facts else options.start
    if file is not None and not start and (held := file.facts["config"].get("start", "none")) != "none":
        start = held
    if (
        options.system and facts.get("recipe") and options.system != facts["recipe"]
    ):  # a run started from Python has none
        raise UnmaskError(f"This run is one of '{facts['recipe']}', not '{options.system}': leave the system out.")
    given = [name for name in overrides if name.removeprefix("vocabulary.") in Vocabulary().places()]
    if start and given:
        raise UnmaskError(f"--{given[0]} is for a new vocabulary, but {start} has one already: leave it out.")
    name = options.system or facts.get("recipe") or (systems.TUNED if start else None)
    if not name:
        raise UnmaskError(f"Give a system: one of {', '.join(systems.names())}.")
    config = systems.choose(name, start, facts, Path(options.out) if facts else None)
    if not facts:
        held = {} if file is None else flatten(file.facts["config"])
        usual_run = config if options.pairs or start or "texts.train" in held else systems.dates(config)
        config = usual_run
        if file is not None:
            config = file.config(
                lambda facts: usual_run.replace(**facts["config"]),
                lambda: timed(usual_run, held),
                max_length="texts.longest",
            )
    texts = {key: tuple(files) for key, files in (("train", options.pairs), ("dev", options.dev)) if files}
    config = systems.overridden(config.replace(texts=texts), overrides, resumed=options.resume)
    if options.print_config:
        print_config("train", config, recipe=name)
        return
    if options.fields:
        print_fields(config)
        return
    if not options.out:
        raise UnmaskError("Give a folder for the run: --out FOLDER.")
    run = TrainTranslation(config, options.out, recipe=name, resume=options.resume, display=Terminal())
    ended = carried_out(run, options, "train")
    if ended and config.texts.embedded and not run.warnings():  # for other pairs there is `translate --align`
        _show_alignment(run)
    if ended:
        suggest(f"translate --model {options.out} < FILE", f"serve --model {options.out}")


def _place_training_data(options: argparse.Namespace, *, labelled: bool) -> None:
    """Move --train to --data for labelled rows, to --pairs for translation. Raises UnmaskError if both are given."""
    if not options.train:
        return
    other = "data" if labelled else "pairs"
    if getattr(options, other):
        raise UnmaskError(f"--train and --{other} are the same here: give one of them.")
    if labelled and len(options.train) > 1:
        raise UnmaskError(f"Give one file or folder of labelled rows, not {len(options.train)}.")
    setattr(options, other, options.train[0] if labelled else options.train)


def _show_alignment(run: Any) -> None:
    """Print the alignment of the first dev pair, if the model has attention."""
    from unmask.serve.alignment import render_alignment
    from unmask.serve.translator import Translator

    translator = Translator(run.out)
    source = run.dev.sources[0]
    try:
        print(render_alignment(translator.alignment(source, translator([source])[0])))
    except UnmaskError:  # without attention there is nothing to show
        return


def _translate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.generate import Sampling, Search
    from unmask.serve.alignment import render_alignment
    from unmask.serve.translator import Translator

    if not options.model:
        raise UnmaskError("Give a model: --model FOLDER.")
    translator = Translator(options.model, device=options.device, precision=options.precision)
    how = translator.search
    how = Sampling(limits=how.limits, blocking=how.blocking) if options.sample else how
    _check_kind(overrides, how)
    translator.search = how.override(overrides)
    if options.fields:
        print_fields(translator.search)
        if isinstance(translator.search, Search):
            print(f"score: {translator.search.formula}")
        return
    say(translator.settled)
    for answer in translator.stream(lines(options)):
        if options.json:
            print(json.dumps(answer.to_dict(), ensure_ascii=False), flush=True)
            continue
        for one in answer.translations:
            print(f"{one.score:9.4f}  {one.text}" if options.scores else one.text, flush=True)
        if not answer.translations:
            print(flush=True)  # line n of the output belongs to line n of the input
        elif options.align:
            print(render_alignment(translator.alignment(answer.source, answer.text)), flush=True)
    for note in translator.notes:
        print(note, file=sys.stderr)


def _check_kind(overrides: dict[str, str], how: Any) -> None:
    """Raises UnmaskError for a setting of sampling if the decoder searches, and for one of the search if it samples."""
    from unmask.generate import Sampling, Search

    fields, others = how.places(), (Search if isinstance(how, Sampling) else Sampling)().places()
    for name in overrides:
        if (field := name.replace("-", "_")) in others and field not in fields:
            kind = "a search: leave out one of the two" if isinstance(how, Sampling) else "sampling: add --sample"
            raise UnmaskError(f"--{name.replace('_', '-')} is for {kind}.")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The texts of the arguments, else the lines of a file, the rows of a .npy file as lines, or the lines of standard
    input; empty lines are kept."""
    from unmask.data.bitext import numbers

    file = options.file or ""
    if file.endswith(numbers.SUFFIX) and not options.texts and Path(file).is_file():
        yield from numbers.lines(Path(file))
        return
    yield from given_lines(options, "translate")
    yield from options.texts


def evaluate(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Carry out `unmask evaluate --pairs`."""
    from unmask.config import typed
    from unmask.runs.translation import evaluate_pairs, render_scores
    from unmask.runs.translation.evaluation import turns_of
    from unmask.runs.translation.texts import read_pairs

    columns = typed(options.columns, tuple[str, str] | None, "--columns")
    turns = turns_of(options.model) if options.turns is None else options.turns
    read = {"columns": columns, "encoding": options.encoding, "turns": turns}
    known = read_pairs(options.known, **read) if options.known else None
    writer = _writer(options, overrides, known)
    how = {"known": known, "metric": options.metric or "bleu", "out": options.out, "force": options.force}
    found = evaluate_pairs(writer, options.pairs, **read, **how)
    print(json.dumps(found, indent=2, ensure_ascii=False) if options.json else render_scores(found))


def _writer(options: argparse.Namespace, overrides: dict[str, str], known: Any) -> Any:
    """The model that writes: with --shots a language model, and `known` pairs in its prompt."""
    from unmask.runs.translation.evaluation import writer
    from unmask.serve.continuation import searching
    from unmask.serve.prompted import Prompted

    if options.shots is not None:
        if known is None:
            raise UnmaskError("A prompt needs pairs for its examples: give them with --known.")
        return Prompted(options.model, known, options.shots, searching().override(overrides))
    translator = writer(options.model, device=options.device, precision=options.precision)
    translator.search = translator.search.override(overrides)
    say(translator.settled)
    return translator
