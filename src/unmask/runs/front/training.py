"""`unmask.pretrain`, `unmask.finetune` and `unmask.train`: the runs of the command line, from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.files.corpora import format_of
from unmask.data.files.remote import is_address
from unmask.data.text import corpus as text_corpus
from unmask.data.text import reading
from unmask.data.text.kinds import KINDS
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.runs import recipes, supervised_recipes
from unmask.runs.finetuning import FineTuning, cross_validate
from unmask.runs.finetuning import run as finetuning
from unmask.runs.finetuning.report import render_result
from unmask.runs.front.given import (
    PAIR,
    TEXT,
    Paths,
    Rows,
    beside,
    check_name,
    corpus_place,
    file_of,
    folder_of,
    is_path,
    main_first,
    paths_in,
)
from unmask.runs.front.replacing import refuse_taken, replacing
from unmask.runs.front.results import Trained
from unmask.runs.front.settings import changes_of, of_tasks
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.report import run_facts, write_report
from unmask.runs.run import Run
from unmask.runs.supervised_recipes import OTHERS
from unmask.runs.translation import TrainTranslation, systems
from unmask.train import checkpoint, distributed
from unmask.train.display import Audience, Display
from unmask.train.events import Listener
from unmask.train.notebook import usual

READ, BUILD = ("per", "column", "encoding"), ("vocabulary_size", "cased", "strip_accents", "heldout")
"""Options of a corpus: how texts are read, and how they become tokens."""

Settings = dict[str, Any]


def pretrain(
    recipe: str | None = None,
    data: Rows | Iterable[str] | Sequence[Paths] = (),
    *,
    start: Paths | None = None,
    out: Paths | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    track: str | Sequence[str] | None = None,
    corpus: Mapping[str, Any] | None = None,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> Trained:
    """Pre-train a model, as `unmask pretrain` does, and write its folder.

    >>> run = unmask.pretrain("bert-tiny", texts, out="runs/mine", steps=1_000)      # doctest: +SKIP
    >>> unmask.Predictor(run.folder)("The [MASK] was late.")                         # doctest: +SKIP

    recipe     a name of `unmask recipes`; optional with `start`
    data       texts; files or folders of text; or folders of corpora, which `unmask corpus build` wrote, or the address
               of one, such as s3://bucket/corpus. For recipes of pictures, recordings and signals, their folders. Texts
               and files become a corpus beside `out`
    start      model folder, or name on the Hub, to continue from
    out        folder of the run (default: runs/ and the name of the recipe)
    steps, minutes  length of the run, in place of that of the recipe
    track      trackers: tensorboard, wandb, mlflow, trackio
    corpus     how texts and files become a corpus: vocabulary_size, cased, strip_accents, heldout, and for files per,
               column, encoding
    listeners  functions that receive every event of the run (`unmask.train.events`)
    quiet      show no progress
    resume     continue the interrupted run in `out`
    overwrite  replace the run that `out` holds, unless `resume` continues it; the old one is deleted at the end
    fields     any field that `unmask pretrain RECIPE --fields` lists; a dotted name has `__` for the dot, or is a key
               of **{"rows.first": 32}

    Raises UnmaskError for an unknown field (naming the nearest), and for settings and data that do not fit.
    """
    given: Settings = {"steps": steps, "minutes": minutes, "learning_rate": learning_rate, "batch_size": batch_size}
    given |= {"seed": seed, "device": device, "precision": precision, "track": track}
    check_name(recipe, "pretrain", "recipe")
    folder = Path(out or f"runs/{recipe}")
    if out is None and recipe is None:
        raise UnmaskError("Give a recipe, or a folder for the run: out='runs/mine'.")
    facts = run_facts(folder) if resume else {}
    if resume:
        checkpoint.refuse_taken(folder, resume=True)
    elif not overwrite:
        refuse_taken(folder, checkpoint.refuse_taken)
    origin_folder = None if start is None else str(folder_of(start))
    name, config = recipes.choose(recipe, origin_folder, facts)
    known = {place.split(".")[-1] for place in config.places()}
    if stray := {field: value for field, value in fields.items() if field in {*BUILD, *READ} - known}:
        raise UnmaskError(f"{' and '.join(stray)} must be in corpus={stray}, which says how texts become a corpus.")
    changes = changes_of(pretrain, given, fields, [config])
    config = recipes.overridden(config, changes, resumed=resume)
    empty = isinstance(data, Sequence) and not len(data)
    if empty and not facts.get("corpora"):
        raise UnmaskError("Give data to pre-train on: texts, files of text, or the folder of a corpus.")
    distributed.init(config.training.device)
    audience = Audience(None if quiet else usual(), listeners)
    with replacing(folder, (start, data, *changes.values()), overwrite=overwrite and not resume):
        folders = (
            facts["corpora"] if empty else main_first(lambda: _corpora(data, folder, config, corpus or {}, audience))
        )
        return _carried_out(Pretrain(config, folders, folder, recipe=name, resume=resume, display=audience))


def finetune(
    model: Paths,
    train: Rows = (),
    *,
    dev: Rows | None = None,
    test: Rows | None = None,
    out: Paths,
    task: str | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    track: str | Sequence[str] | None = None,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> Trained:
    """Fine-tune a model on labelled rows, as `unmask finetune` does, and write its folder.

    >>> rows = [{"text": "a great film", "label": "good"}, {"text": "dull", "label": "bad"}]
    >>> run = unmask.finetune("runs/mine", rows * 50, out="runs/reviews", epochs=3)  # doctest: +SKIP
    >>> run.scores["dev/accuracy"]                                                   # doctest: +SKIP

    model            folder, or name on the Hub
    train, dev, test  files, or rows: dictionaries, (text, label) or (words, tags) tuples, or a table of pandas, Arrow,
                     polars or `datasets`. Rows are written beside `out`. Without dev rows, a tenth of the others
    out              folder of the run
    task             the task that the rows are labelled for (default: the one that `unmask finetune` finds)
    seeds            number of runs; the one with the best dev score is kept (3 below 10,000 rows)
    track            trackers: tensorboard, wandb, mlflow, trackio
    listeners, quiet, resume, overwrite  as for `unmask.pretrain`
    fields           any field that `unmask finetune --task NAME --fields` lists, such as strategy="lora"

    With `folds=N` the scores are those of a cross-validation. Raises UnmaskError for an unknown field (naming the
    nearest), and for a model, rows and settings that do not fit.
    """
    given: Settings = {"task": task, "epochs": epochs, "minutes": minutes, "learning_rate": learning_rate, "seed": seed}
    given |= {"batch_size": batch_size, "seeds": seeds, "device": device, "precision": precision, "track": track}
    changes = changes_of(finetune, given, fields, of_tasks())
    folder = Path(out)
    if resume:
        config = _begun(folder, changes)
    else:
        if not overwrite:
            refuse_taken(folder, finetuning.refuse_taken)
        changes["model"] = folder_of(model)
        distributed.init(changes.get("device", "auto"))
        files = main_first(lambda: _split_files(folder, train, dev, test))
        config = FineTuning().override(changes | files, **OTHERS)
    audience = Audience(None if quiet else usual(), listeners)
    with replacing(folder, (train, dev, test, *changes.values()), overwrite=overwrite and not resume):
        return _labelled(config, folder, finetuning.RECIPE, audience, resume=resume)


def train(
    system: str | None = None,
    data: Rows | None = None,
    *,
    pairs: Rows | Sequence[Paths] | None = None,
    dev: Rows | Sequence[Paths] | None = None,
    test: Rows | None = None,
    start: Paths | None = None,
    out: Paths | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    track: str | Sequence[str] | None = None,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> Trained:
    """Train a new translation system on pairs of texts, or a new classifier on labelled rows, as `unmask train` does.

    >>> pairs = [("good morning", "guten Morgen"), ("good night", "gute Nacht")]
    >>> run = unmask.train("transformer-tiny", pairs=pairs, out="runs/de", steps=500)    # doctest: +SKIP
    >>> unmask.Translator(run.folder)("good morning")                                    # doctest: +SKIP

    system  a name of `unmask systems`; optional with `start`
    data    labelled rows of a classifier, as for `unmask.finetune`; of pictures, recordings and signals their folder
    pairs   pairs of a translation system: two aligned files, a table, (source, target) tuples, or dictionaries; without
            any, dates and their ISO form
    dev, test  rows, or pairs, for evaluation and for the final score
    start   model folder to continue from, such as one of T5
    out     folder of the run (default: runs/ and the name of the system)
    listeners, quiet, resume, overwrite  as for `unmask.pretrain`
    fields  any field that `unmask train SYSTEM --fields` lists

    Raises UnmaskError for an unknown field (naming the nearest), and for settings and data that do not fit.
    """
    given: Settings = {
        "steps": steps,
        "epochs": epochs,
        "minutes": minutes,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    given |= {"device": device, "precision": precision, "track": track}
    check_name(system, "train", "system")
    if system is None and start is None and not resume:
        raise UnmaskError(f"Give a system: {', '.join([*systems.names(), *supervised_recipes.names()])}.")
    if out is None and system is None:
        raise UnmaskError("Give a folder for the run: out='runs/mine'.")
    folder = Path(out or f"runs/{system}")
    facts = run_facts(folder) if resume else {}
    name = system or facts.get("recipe") or systems.TUNED
    supervised = name in supervised_recipes.names()
    if not overwrite and not resume:
        refuse_taken(folder, (finetuning if supervised else checkpoint).refuse_taken)
    distributed.init(device or "auto")
    audience = Audience(None if quiet else usual(), listeners)
    replaced = overwrite and not resume
    if supervised:
        if pairs is not None or start is not None:
            raise UnmaskError(f"Pairs and a start are for translation systems, and {name} has new weights.")
        changes = changes_of(train, given, fields, [supervised_recipes.find(name), *of_tasks()])
        labelled = _begun(folder, changes) if resume else _from_scratch(name, folder, changes, data, dev, test)
        with replacing(folder, (data, dev, test, *changes.values()), overwrite=replaced):
            return _labelled(labelled, folder, name, audience, resume=resume)
    if data is not None or test is not None:
        raise UnmaskError("data and test are for labelled rows; a translation system takes pairs.")
    if resume:
        checkpoint.refuse_taken(folder, resume=True)
    config = systems.choose(name, None if start is None else str(folder_of(start)), facts, folder)
    changes = changes_of(train, given, fields, [config])
    if not facts and pairs is None and start is None:
        config = systems.dates(config)
    texts = main_first(lambda: _pair_files(folder, train=pairs, dev=dev))
    config = systems.overridden(config.replace(texts=texts), changes, resumed=bool(facts))
    with replacing(folder, (start, pairs, dev, *changes.values()), overwrite=replaced):
        return _carried_out(TrainTranslation(config, folder, recipe=name, resume=resume, display=audience))


# ------------------------------------------------------------------------------------------------ settings


def _begun(folder: Path, changes: Mapping[str, Any]) -> FineTuning:
    """The settings of an interrupted run. Raises UnmaskError if others are given."""
    config = finetuning.begun(folder)
    if config.override(changes, **OTHERS) != config:
        raise UnmaskError(f"The run in {folder} continues with its own settings; leave out the others.")
    return config


def _from_scratch(
    name: str, folder: Path, changes: dict[str, Any], data: Rows | None, dev: Rows | None, test: Rows | None
) -> FineTuning:
    """The settings of a new model on labelled rows."""
    if data is None:
        raise UnmaskError(f"Give labelled rows for {name}: data=ROWS.")
    files = main_first(lambda: _split_files(folder, data, dev, test))
    return supervised_recipes.overridden(supervised_recipes.find(name), changes | files)


# ------------------------------------------------------------------------------------------------ data


def _split_files(folder: Path, train: Rows, dev: Rows | None, test: Rows | None) -> dict[str, Path]:
    splits = {"train": train, "dev": dev, "test": test}
    return {name: file_of(rows, beside(folder), name) for name, rows in splits.items() if rows is not None}


def _pair_files(folder: Path, **splits: Any) -> dict[str, tuple[str, ...]]:
    found = {name: pairs for name, pairs in splits.items() if pairs is not None}
    return {
        name: tuple(map(str, paths_in(pairs) or [file_of(pairs, beside(folder), name, PAIR)]))
        for name, pairs in found.items()
    }


def _corpora(
    data: Any, folder: Path, config: Pretraining, how: Mapping[str, Any], display: Display
) -> list[Path | str]:
    """The folders of corpora that the data are, or become."""
    if is_address(data) and " " not in data:
        return [data]
    found = paths_in(data)
    if found and (config.objective.plain or all(format_of(path) for path in found)):
        if how:
            raise UnmaskError(f"{found[0]} is not built from texts: leave corpus={dict(how)} out.")
        return list(found)
    read = {name: value for name, value in how.items() if name in READ}
    build = {name: value for name, value in how.items() if name not in READ}
    for name in build:
        if name not in BUILD:
            raise unknown("option of a corpus:", name, [*BUILD, *READ])
    place = beside(folder)
    files = found or [file_of(data if not is_path(data) else [data], place, "texts", TEXT)]
    built = corpus_place(folder, files, dict(how), config.model.token_kind, config.start)
    if not built.is_dir():
        display.note(f"Building a corpus of the texts in {built}.")
        tokenizer = None if config.start is None else Tokenizer.load(config.start)
        text_corpus.build(
            lambda: reading.documents(files, **read),
            built,
            tokenizer=tokenizer,
            learn=KINDS[config.model.token_kind],
            **build,
        )
    display.note(text_corpus.Corpus(built).summary())
    return [built]


# ------------------------------------------------------------------------------------------------ runs


def _carried_out(run: Run) -> Trained:
    result = run.run()
    if distributed.is_main():
        write_report(run.out)
    metric = "" if run.best is None else run.best.metric
    return Trained(run.out, run.scores_of(result), run.summary(result), {}, result.stopped, metric)


def _labelled(config: FineTuning, out: Path, recipe: str, display: Display, *, resume: bool) -> Trained:
    """A run on labelled rows. Raises UnmaskError for settings that have no effect."""
    for part in (config.options, config.transfer, config.distillation):
        part.check()
    if config.rows.in_turn:
        found = cross_validate(config, out, recipe=recipe, display=display, resume=resume)
        means, base = ({name: x["mean"] for name, x in found[key].items()} for key in ("summary", "baseline"))
        return Trained(out, means, f"{len(found['folds'])} folds; the scores are means.", base, None, found["metric"])
    done = finetuning.finetune(config, out, recipe=recipe, display=display, resume=resume)
    kept = next(row for row in done.seeds if row["seed"] == done.kept)
    scores, base = (
        {f"{split}/{name}": x for split in done.baseline for name, x in of[split].items()}
        for of in (kept, done.baseline)
    )
    return Trained(out, scores, render_result(done.to_dict()), base, kept["stopped"], done.metric)
