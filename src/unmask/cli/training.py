"""Verbs of runs: quickstart, pretrain, recipes and report."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from unmask.cli import data, words
from unmask.cli.ending import suggest
from unmask.cli.help import add_field, add_fields, offer
from unmask.cli.parser import (
    Parser,
    add_hidden,
    add_verb,
    carried_out,
    check_run,
    field_options,
    print_fields,
    run_output,
    where_to_train,
)
from unmask.cli.settings import Settings, print_config, settings_of
from unmask.errors import UnmaskError


def add_quickstart(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "quickstart",
        _quickstart,
        "a first BERT in minutes, from the documentation installed with Python",
        about="Pre-train a BERT on the documentation installed with Python, and try it.",
    )
    sub.add_argument("--minutes", type=float, default=None, help="time for the whole tour (default: 6)")
    sub.add_argument("--out", default="runs/quickstart", metavar="FOLDER", help="folder for the results")


def add_verbs(verbs: Any) -> None:
    _add_pretrain(verbs)
    add_verb(verbs, "recipes", _recipes, "list the runs that pretrain and train know by name").add_argument(
        "--of", choices=["pretrain", "train"], help="list those of one verb (default: of both)"
    )
    add_hidden(verbs, "systems", _systems)


def _add_pretrain(verbs: Any) -> None:
    sub = add_verb(
        verbs,
        "pretrain",
        _pretrain,
        "train a model on unlabelled text, pictures, recordings or records",
        about="Pre-train a model: unmask pretrain bert-mini --corpus FOLDER --out FOLDER. The defaults are those of "
        "the recipe: unmask pretrain RECIPE --help-all shows them.",
        fields=True,
        more="Options of the objectives (what is masked, how pictures are changed): unmask pretrain RECIPE --help.",
    )
    sub.more_help = _pretraining_help
    recipe = sub.add_argument("recipe", nargs="?", help="a name from `unmask recipes`; optional with --from")
    offer(recipe, lambda: recipe_names()["pretrain"])
    data = sub.group("what goes in")
    data.add_argument(
        "--corpus",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="folders that `unmask corpus build` wrote, or addresses such as s3://bucket/corpus; several are mixed "
        "(default: the documentation installed with "
        "Python, or speech that is synthesised, which are built once in corpora/)",
    )
    data.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="PATH",
        help="texts, pictures, recordings or records; texts become a corpus beside --out, read by --per, --column and "
        "--encoding as in unmask corpus build",
    )
    model = sub.group("the model")
    model.add_argument(
        "--from", dest="start", metavar="FOLDER", help="model folder to continue from, instead of new weights"
    )
    add_field(model, "--max-length", "N", "tokens of a row (default: as many as the model has positions)")
    add_field(model, "--teacher", "FOLDER", "a larger model to learn from (distillation)")
    train = sub.group("training")
    add_field(train, "--minutes", "N", "minutes of training; --steps sets steps instead", default="of the recipe")
    add_field(train, "--steps", "N", "optimiser steps, instead of --minutes")
    add_field(train, "--learning-rate --lr", "X", "peak learning rate", default="of the recipe")
    add_field(train, "--batch-size", "N", "rows of a step", default="of the recipe")
    add_field(train, "--seed", "N", "seed of weights, order and masking", default=0)
    where_to_train(train)
    run_output(sub, "folder of the run (default: runs/ and the name of the recipe)")
    field_options(sub, config=True)


def _pretraining_help(sub: Parser, given_words: list[str], given: dict[str, str], every: bool) -> None:
    """List the fields of a recipe, and with `every` also those of other objectives. Loads PyTorch if it does so."""
    if not every and all(word.startswith("-") for word in given_words):
        return
    from unmask.objectives import registry
    from unmask.runs import recipes
    from unmask.runs.pretraining import Pretraining

    named = next((word for word in given_words if word in recipes.names()), None)
    if set(words.RECIPES) & set(given_words):
        from unmask.runs.word_vectors import Word2Vec

        add_fields(sub, Word2Vec(), "word2vec")
        return
    config = recipes.find(named) if named else Pretraining()
    objective = config.objective
    if named:
        sub.description = f"{named}: {recipes.names()[named].rstrip('.')}. It learns {objective.learned}."
    add_fields(sub, objective, f"what is learned: {objective.learned}")
    if every:
        chosen = registry.selected(objective)
        choices = sub.group("choose the objective")
        for option, values in registry.values().items():
            known = {value: text for value, text in values.items() if value != "false"}
            text = "; ".join(f"{value}: {line[:1].lower()}{line[1:].rstrip('.')}" for value, line in known.items())
            add_field(choices, f"--{option}", "NAME", text, default=chosen.get(option), choices=list(known))
        for kind in registry.CHOOSABLE:
            other = kind()
            add_fields(sub, other, f"to learn {other.learned} ({' '.join(f'--{o} {v}' for o, v in kind.choices)})")
        add_fields(sub, config, leave_out=[place for place in config.places() if place.startswith("objective.")])


def add_report(verbs: Any) -> None:
    sub = add_verb(
        verbs, "report", _report, "write report.html into the folder of a run, and open it if there is a browser"
    )
    sub.add_argument("folder", metavar="FOLDER", help="folder of a run")
    sub.add_argument("--no-open", action="store_true", help="write the report without opening it")


def _quickstart(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.quickstart import MINUTES, quickstart

    quickstart(Path(options.out), minutes=MINUTES if options.minutes is None else options.minutes)


def recipe_names() -> dict[str, dict[str, str]]:
    """Verb -> name of a recipe -> what it is."""
    from unmask.runs import recipes, supervised_recipes
    from unmask.runs.translation import systems

    return {
        "pretrain": recipes.names() | words.RECIPES,
        "train": systems.names() | supervised_recipes.names(),
    }


def settings_for(verb: str, options: argparse.Namespace) -> Settings | None:
    """The settings of --config, as `settings_of`. Raises UnmaskError for those of another verb, by their recipe."""
    from unmask.runs.finetuning.run import RECIPE

    file = settings_of(options)
    recipe = None if file is None else file.facts.get("recipe")
    known = {**recipe_names(), "finetune": {RECIPE: ""}} if recipe else {}
    owner = next((one for one, names in known.items() if recipe in names), verb)
    if file is not None and owner != verb:
        raise UnmaskError(
            f"{file.path} has the settings of unmask {owner}: give them to unmask {owner} --config {file.path}."
        )
    return file


def _recipes(options: argparse.Namespace, _: dict[str, str]) -> None:
    shown = {verb: names for verb, names in recipe_names().items() if options.of in (None, verb)}
    width = max(len(name) for names in shown.values() for name in names) + 1
    for verb, names in shown.items():
        if len(shown) > 1:
            print(f"{'' if verb == 'pretrain' else chr(10)}unmask {verb} NAME")
        for name, line in names.items():
            print(f"{name:{width}} {line}")


def _systems(options: argparse.Namespace, given: dict[str, str]) -> None:
    options.of = "train"
    _recipes(options, given)


def _pretrain(options: argparse.Namespace, overrides: dict[str, str]) -> None:
    from unmask.objectives import registry
    from unmask.runs import recipes
    from unmask.runs.report import run_facts
    from unmask.train import checkpoint

    file = settings_for("pretrain", options)
    if file is not None and not options.recipe:
        options.recipe = file.facts.get("recipe")
    if options.resume and options.recipe and not options.start:
        options.out = options.out or f"runs/{options.recipe}"
    facts = run_facts(Path(options.out)) if options.resume and options.out else {}
    if (options.recipe or facts.get("recipe")) in words.RECIPES:
        words.pretrain(options, overrides, file)
        return
    start = options.start or overrides.pop("start", None)
    check_run(options.out, facts, recipes.names())
    if options.resume and options.out:
        checkpoint.refuse_taken(Path(options.out), resume=True)
    if file is not None and file.whole:
        facts = file.facts
    with file.named() if file is not None else nullcontext():
        options.recipe, config = recipes.choose(options.recipe, start, facts)
    if file is not None and not file.whole:
        config = file.config(
            config.resumed, lambda: recipes.timed(config, file.facts["config"]), batch_size="rows.batch"
        )
        facts = file.facts
    texts, how = list[str](), dict[str, str]()
    if options.data and not config.objective.plain:
        texts, options.data = options.data, []
        how = {name: overrides.pop(name) for name in data.READING if name in overrides}
    options.corpus = [*options.corpus, *options.data] or ([] if texts else facts.get("corpora", []))
    config = recipes.overridden(config, overrides, resumed=options.resume)
    if options.fields:
        print_fields(config)
        for name, value in registry.selected(config.objective).items():
            print(f"--{name:32} {value}")
        return
    if options.print_config:
        facts = {"recipe": options.recipe, "model": type(config.model).__name__}
        print_config("pretrain", config, **facts, **({"corpora": options.corpus} if options.corpus else {}))
        return
    if not (options.corpus or texts) and (start or not options.recipe):
        raise UnmaskError("Give --corpus FOLDER, of unmask corpus build, or the texts themselves: --data PATH.")
    if not options.out and (start or not options.recipe):
        raise UnmaskError("Give a folder for the run: --out FOLDER.")
    options.out = options.out or f"runs/{options.recipe}"
    from unmask.runs import cards
    from unmask.runs.pretraining import Pretrain
    from unmask.train import distributed
    from unmask.train.display import Terminal

    distributed.init(config.training.device)
    build = distributed.is_main()
    if texts:
        checkpoint.refuse_taken(Path(options.out), resume=options.resume)
        kind = config.model.token_kind
        options.corpus.append(data.texts_corpus(texts, options.out, kind, config.start, how, build=build))
    elif not options.corpus:
        options.corpus = [data.without_any(config, build=build)]
    distributed.barrier()
    run = Pretrain(
        config, options.corpus, options.out, recipe=options.recipe, resume=options.resume, display=Terminal()
    )
    if carried_out(run, options, "pretrain"):
        used = cards.masked(config.objective.command, run.processor)
        first = [f"{used[0]} --model {options.out} {used[1]}"] if used else []
        suggest(*first, f"finetune --model {options.out} --train FILE --out FOLDER", f"serve --model {options.out}")


def _report(options: argparse.Namespace, _: dict[str, str]) -> None:
    from unmask.runs.report import write_report

    path = write_report(Path(options.folder))
    print(path)
    desktop = os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32")
    if desktop and sys.stdout.isatty() and not options.no_open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
