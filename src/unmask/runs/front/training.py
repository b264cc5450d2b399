"""`unmask.pretrain`, `unmask.finetune` and `unmask.train`: the runs of the command line, from Python."""

from __future__ import annotations

import difflib
import inspect
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.files.corpora import format_of
from unmask.data.text import corpus as text_corpus
from unmask.data.text import reading
from unmask.data.text.kinds import KINDS
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.huggingface.hub import model_folder
from unmask.runs import recipes, supervised_recipes
from unmask.runs.finetuning import FineTuning, cross_validate
from unmask.runs.finetuning import run as finetuning
from unmask.runs.finetuning.report import render_result
from unmask.runs.front.given import PAIR, TEXT, Paths, Rows, beside, corpus_place, file_of, is_path, paths_in
from unmask.runs.front.results import Trained
from unmask.runs.pretraining import Pretrain, Pretraining
from unmask.runs.report import run_facts, write_report
from unmask.runs.run import Run
from unmask.runs.translation import TrainTranslation, origin, systems
from unmask.runs.translation.config import Translation
from unmask.tasks.registry import task_of_page
from unmask.train import checkpoint, distributed
from unmask.train.display import Audience, Display
from unmask.train.events import Listener
from unmask.train.notebook import usual
from unmask.train.optim import check_rate

Settings = dict[str, Any]
NAMES = {"learning_rate": "lr"}
OTHERS = {"batch": "fit.batch_size"}  # names of pre-training -> fields of fine-tuning
LENGTH = {"epochs", "least_steps", "fit.epochs", "fit.least_steps"}  # in place of the minutes of a recipe
TUNED = "tuned"  # recipe of a translation run that starts from a folder


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
    data       texts; files or folders of text; or folders of corpora, which `unmask corpus build` wrote. For recipes of
               pictures, recordings and signals, their folders. Texts and files become a corpus beside `out`
    start      model folder, or name on the Hub, to continue from
    out        folder of the run (default: runs/ and the name of the recipe)
    steps, minutes  length of the run, in place of that of the recipe
    track      trackers: tensorboard, wandb, mlflow, trackio
    corpus     how texts and files become a corpus: vocabulary_size, cased, strip_accents, heldout, and for files per,
               column, encoding
    listeners  functions that receive every event of the run (`unmask.train.events`)
    quiet      show no progress
    resume     continue the interrupted run in `out`
    overwrite  delete the run that `out` holds
    fields     any field that `unmask pretrain RECIPE --fields` lists; a dotted name has `__` for the dot, or is a key
               of **{"rows.first": 32}

    Raises UnmaskError for an unknown field (naming the nearest), and for settings and data that do not fit.
    """
    given: Settings = {"steps": steps, "minutes": minutes, "learning_rate": learning_rate, "batch_size": batch_size}
    given |= {"seed": seed, "device": device, "precision": precision, "track": track}
    changes = _changes(pretrain, given, fields)
    folder = Path(out or f"runs/{recipe}")
    if out is None and recipe is None:
        raise UnmaskError("Give a recipe, or a folder for the run: out='runs/mine'.")
    facts = run_facts(folder) if resume else {}
    origin_folder = None if start is None else str(model_folder(start))
    _make_room(folder, overwrite)
    checkpoint.refuse_taken(folder, resume=resume)
    name, config = recipes.choose(recipe, origin_folder, facts)
    config = recipes.overridden(config, changes, resumed=resume)
    audience = Audience(None if quiet else usual(), listeners)
    empty = isinstance(data, Sequence) and not len(data)
    if empty and not facts.get("corpora"):
        raise UnmaskError("Give data to pre-train on: texts, files of text, or the folder of a corpus.")
    folders = facts["corpora"] if empty else _corpora(data, folder, config, corpus or {}, audience)
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
    seeds            number of runs, of which the best on the dev rows is kept (3 below 10,000 rows)
    track            trackers: tensorboard, wandb, mlflow, trackio
    listeners, quiet, resume, overwrite  as for `unmask.pretrain`
    fields           any field that `unmask finetune --task NAME --fields` lists, such as strategy="lora"

    With `folds=N` the scores are those of a cross-validation. Raises UnmaskError for an unknown field (naming the
    nearest), and for a model, rows and settings that do not fit.
    """
    given: Settings = {"task": task, "epochs": epochs, "minutes": minutes, "learning_rate": learning_rate, "seed": seed}
    given |= {"batch_size": batch_size, "seeds": seeds, "device": device, "precision": precision, "track": track}
    changes = _changes(finetune, given, fields)
    folder = Path(out)
    _make_room(folder, overwrite and not resume)
    if resume:
        config = _begun(folder, changes)
    else:
        finetuning.refuse_taken(folder)
        changes["model"] = model_folder(model)
        config = FineTuning().override(changes | _split_files(folder, train, dev, test), **OTHERS)
    return _labelled(config, folder, finetuning.RECIPE, Audience(None if quiet else usual(), listeners), resume=resume)


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
    changes = _changes(train, given | {"device": device, "precision": precision, "track": track}, fields)
    if system is None and start is None and not resume:
        raise UnmaskError(f"Give a system: {', '.join([*systems.names(), *supervised_recipes.names()])}.")
    if out is None and system is None:
        raise UnmaskError("Give a folder for the run: out='runs/mine'.")
    folder = Path(out or f"runs/{system}")
    facts = run_facts(folder) if resume else {}
    _make_room(folder, overwrite and not resume)
    audience = Audience(None if quiet else usual(), listeners)
    name = system or facts.get("recipe") or TUNED
    if name in supervised_recipes.names():
        if pairs is not None or start is not None:
            raise UnmaskError(f"Pairs and a start are for translation systems, and {name} has new weights.")
        config = _begun(folder, changes) if resume else _from_scratch(name, folder, changes, data, dev, test)
        return _labelled(config, folder, name, audience, resume=resume)
    if data is not None or test is not None:
        raise UnmaskError("data and test are for labelled rows; a translation system takes pairs.")
    checkpoint.refuse_taken(folder, resume=resume)
    run = _translation(name, start, facts, folder, {"train": pairs, "dev": dev}, changes)
    return _carried_out(TrainTranslation(run, folder, recipe=name, resume=resume, display=audience))


# ------------------------------------------------------------------------------------------------ settings


def _changes(function: Callable[..., Any], given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings by the names of fields. Raises UnmaskError for a misspelt keyword of the function."""
    own = [name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD]
    found = {NAMES.get(name, name): value for name, value in given.items() if value is not None}
    for name, value in fields.items():
        if difflib.get_close_matches(name, own, n=1, cutoff=0.8):
            raise unknown(f"keyword of {function.__name__}:", name, own)
        found[name.replace("__", ".")] = value
    return found


def _make_room(folder: Path, overwrite: bool) -> None:
    """Delete the run in a folder if that is asked for. Raises UnmaskError for a folder that holds something else."""
    if not overwrite or not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / checkpoint.RUN).is_file():
        raise UnmaskError(f"{folder} holds no run, so it is not deleted; choose another folder.")
    shutil.rmtree(folder)


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
    config = supervised_recipes.find(name)
    if data is None:
        raise UnmaskError(f"Give labelled rows for {name}: data=ROWS.")
    assert config.page is not None
    if "task" in changes:
        config = config.replace(task=task_of_page(changes.pop("task"), config.page))
    if LENGTH & set(changes):
        config = config.replace(fit={"minutes": None})
    return config.override(changes | _split_files(folder, data, dev, test), **OTHERS)


def _translation(
    name: str, start: Paths | None, facts: Mapping[str, Any], folder: Path, pairs: Mapping[str, Any], changes: Any
) -> Translation:
    """The settings of a translation run, as the command line finds them."""
    begins = facts["config"].get("start") if facts else start and str(model_folder(start))
    if facts and begins:
        newest = checkpoint.latest(folder / "checkpoints")
        begins = str(newest.folder) if newest else begins
    if begins:
        config = systems.tuned(begins) if name == TUNED else origin.starting_from(systems.find(name), begins)
    else:
        config = systems.find(name)
    if facts:
        config = config.replace(**facts["config"])
    elif pairs["train"] is None and not begins:
        config = systems.dates(config)
    texts = {split: _pair_files(of, folder, split) for split, of in pairs.items() if of is not None}
    if {"steps", "minutes", "training.steps", "training.minutes"} & set(changes):
        config = config.override({"training.steps": None, "training.minutes": None})
    before, config = config.training.optimizer, config.replace(texts=texts).override(changes)
    if not facts:
        check_rate(before, config.training.optimizer, changes)
    return config


# ------------------------------------------------------------------------------------------------ data


def _split_files(folder: Path, train: Rows, dev: Rows | None, test: Rows | None) -> dict[str, Path]:
    splits = {"train": train, "dev": dev, "test": test}
    return {name: file_of(rows, beside(folder), name) for name, rows in splits.items() if rows is not None}


def _pair_files(pairs: Any, folder: Path, split: str) -> tuple[str, ...]:
    found = paths_in(pairs)
    return tuple(map(str, found or [file_of(pairs, beside(folder), split, PAIR)]))


def _corpora(
    data: Any, folder: Path, config: Pretraining, how: Mapping[str, Any], display: Display
) -> list[Path | str]:
    """The folders of corpora that the data are, or become."""
    found = paths_in(data)
    if found and (config.objective.plain or all(format_of(path) for path in found)):
        if how:
            raise UnmaskError(f"{found[0]} is not built from texts: leave corpus={dict(how)} out.")
        return list(found)
    names = ("per", "column", "encoding")
    read = {name: value for name, value in how.items() if name in names}
    build = {name: value for name, value in how.items() if name not in names}
    known = ("vocabulary_size", "cased", "strip_accents", "heldout")
    for name in build:
        if name not in known:
            raise unknown("option of a corpus:", name, [*known, *names])
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
