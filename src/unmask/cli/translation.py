"""Verbs of translation: train, systems and translate; and the function of `evaluate --pairs`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unmask.cli.parser import (
    ENCODING,
    RESUME,
    add_field,
    add_verb,
    answering_options,
    carried_out,
    check_run,
    encoding_option,
    given_lines,
    needed,
    print_fields,
    say,
)
from unmask.errors import UnmaskError

TUNED = "tuned"  # recipe of a run with --from and no system


def add_training(verbs: Any) -> None:
    """Add the verbs of training."""
    sub = add_verb(
        verbs,
        "train",
        _train,
        "Train a translation system on pairs of texts (by default on dates), or a classifier on labelled pictures (by "
        "default on digits), recordings (by default on synthesised words) or records of sensors (by default on "
        "synthesised electrocardiograms), from new weights: unmask train NAME.",
        fields=True,
    )
    sub.add_argument("system", metavar="NAME", nargs="?", help="a name of `unmask systems`")
    sub.add_argument(
        "--from",
        dest="start",
        metavar="FOLDER",
        help="model folder to continue from, such as one of T5; needs no system",
    )
    sub.add_argument(
        "--pairs",
        nargs="+",
        metavar="FILE",
        help="two aligned files (or .npy and texts), one table, a file of dialogues, trees or commands, "
        "hub:owner/name, or a folder of pictures with captions.tsv",
    )
    sub.add_argument(
        "--data",
        metavar="FOLDER",
        help="labelled rows: a table of texts, or of pictures, recordings or records; a folder with a subfolder for "
        "each class; a folder with folders train, dev and test of this form",
    )
    sub.add_argument("--dev", nargs="+", metavar="FILE", help="rows for evaluation, in the same form as the others")
    sub.add_argument("--test", metavar="FILE", help="labelled rows that are scored at the end")
    sub.add_argument("--out", metavar="FOLDER", help="folder of the run (default: runs/SYSTEM; required with --from)")
    add_field(sub, "--minutes", "N", "minutes of training; use --steps, or --epochs for labelled rows, instead")
    add_field(sub, "--steps", "N", "optimiser steps of a translation system")
    add_field(sub, "--lr", "X", "peak learning rate")
    add_field(sub, "--tokens", "N", "target tokens of a step")
    add_field(sub, "--vocabulary.size", "N", "pieces to learn")
    add_field(sub, "--metric", "NAME", "bleu (default), rouge, dialogue, parsing, code, questions or exact")
    add_field(sub, "--columns", "SOURCE,TARGET", "columns of a table, if they do not have the usual names")
    add_field(sub, "--encoding", "NAME", ENCODING)
    sub.add_argument("--resume", action="store_true", help=RESUME)
    sub.add_argument("--dry-run", action="store_true", help="print the size, memory and time of the run, and stop")
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")
    add_verb(verbs, "systems", _systems, "List the systems for `unmask train`.")


def add_answering(verbs: Any) -> None:
    """Add the verb of finished models, translate."""
    sub = add_verb(
        verbs,
        "translate",
        _translate,
        "Translate lines of text, or vectors, or caption pictures: unmask translate --model FOLDER < FILE.",
        fields=True,
    )
    needed(sub.add_argument("--model", metavar="FOLDER", help="folder that `unmask train` wrote, or a Marian folder"))
    sub.add_argument(
        "texts", nargs="*", help="texts, or files of pictures; without any, lines of --file or of standard input"
    )
    sub.add_argument("--file", metavar="FILE", help="a file with one text a line, or the vectors of a .npy file")
    encoding_option(sub)
    add_field(sub, "--beam-size", "N", "hypotheses that the search keeps")
    add_field(sub, "--n-best", "N", "translations of each text")
    add_field(sub, "--length-penalty", "X", "exponent of the length that divides scores")
    add_field(sub, "--no-repeat-ngram", "N", "repeat no n-gram of N tokens")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line, with scores and probabilities")
    sub.add_argument("--sample", action="store_true", help="sample translations: --temperature, --top-k, --samples, …")
    sub.add_argument("--scores", action="store_true", help="print the score before each translation")
    sub.add_argument("--align", action="store_true", help="show the attention of the best translation to its source")
    answering_options(sub)
    sub.add_argument("--fields", action="store_true", help="list the fields that --NAME VALUE can set, and stop")


def _systems(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs import supervised_recipes
    from unmask.runs.translation import systems

    for name, line in (systems.names() | supervised_recipes.names()).items():
        print(f"{name:20} {line}")


def _train(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.cli import supervised
    from unmask.runs import supervised_recipes
    from unmask.runs.report import run_facts
    from unmask.runs.translation import TrainTranslation, origin, systems
    from unmask.runs.translation.config import Vocabulary
    from unmask.train import checkpoint
    from unmask.train.display import Terminal
    from unmask.train.optim import check_rate

    if options.system and options.system not in supervised_recipes.names():
        systems.find(options.system)
    if options.system and not options.start:
        options.out = options.out or f"runs/{options.system}"
    facts = run_facts(Path(options.out)) if options.resume and options.out else {}
    if (options.system or facts.get("recipe")) in supervised_recipes.names():
        options.system = options.system or facts["recipe"]
        supervised.train(options, overrides)
        return
    if options.data or options.test:
        raise UnmaskError("--data and --test are for labelled rows; a translation system takes --pairs.")
    check_run(options.out, facts, {*systems.names(), TUNED})
    if options.resume and options.out:
        checkpoint.refuse_taken(Path(options.out), resume=True)
    start = facts["config"].get("start") if facts else options.start
    if (
        options.system and facts.get("recipe") and options.system != facts["recipe"]
    ):  # a run started from Python has none
        raise UnmaskError(f"This run is one of '{facts['recipe']}', not '{options.system}': leave the system out.")
    given = [name for name in overrides if name.removeprefix("vocabulary.") in Vocabulary().places()]
    if start and given:
        raise UnmaskError(f"--{given[0]} is for a new vocabulary, but {start} has one already: leave it out.")
    if facts and start:  # the newest checkpoint has the same kind of model, even if the folder no longer exists
        newest = checkpoint.latest(Path(options.out) / "checkpoints")
        start = str(newest.folder) if newest else start
    name = options.system or facts.get("recipe") or (TUNED if start else None)
    if not name:
        raise UnmaskError(f"Give a system: one of {', '.join(systems.names())}.")
    if start:
        config = systems.tuned(start) if name == TUNED else origin.starting_from(systems.find(name), start)
    else:
        config = systems.find(name)
    if facts:
        config = config.replace(**facts["config"])
    elif not options.pairs and not start:
        config = systems.dates(config)
    texts = {key: tuple(files) for key, files in (("train", options.pairs), ("dev", options.dev)) if files}
    if {"steps", "minutes", "training.steps", "training.minutes"} & set(overrides):
        config = config.override({"training.steps": None, "training.minutes": None})
    usual, config = config.training.optimizer, config.replace(texts=texts).override(overrides)
    if not options.resume:
        check_rate(usual, config.training.optimizer, overrides)
    if options.fields:
        print_fields(config)
        return
    if not options.out:
        raise UnmaskError("Give a folder for the run: --out FOLDER.")
    run = TrainTranslation(config, options.out, recipe=name, resume=options.resume, display=Terminal())
    ended = carried_out(run, options, "train")
    if ended and config.texts.embedded and not run.warnings():  # for other pairs there is `translate --align`
        _show_alignment(run)


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
    from unmask.serve.continuation import searching
    from unmask.serve.prompted import Prompted
    from unmask.serve.translator import Translator

    if options.shots is not None:
        if known is None:
            raise UnmaskError("A prompt needs pairs for its examples: give them with --known.")
        return Prompted(options.model, known, options.shots, searching().override(overrides))
    translator = Translator(options.model, device=options.device, precision=options.precision)
    translator.search = translator.search.override(overrides)
    say(translator.settled)
    return translator
