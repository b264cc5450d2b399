"""Families of tasks: how the files of each are read, and what task is made of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from unmask.config import Config
from unmask.data import choices, dataset, glue, pairs, roles, squad
from unmask.data.dataset import Dataset
from unmask.data.rows import Choices, Question
from unmask.data.tables import guess_format
from unmask.errors import UnmaskError, plural, unknown
from unmask.tasks import (
    Classification,
    ClassLoss,
    Embedding,
    MultiLabel,
    MultipleChoice,
    QuestionAnswering,
    Regression,
    Tagging,
    Task,
    loss_for,
    metric_for,
    scheme_of,
)
from unmask.tasks.balance import balanced
from unmask.tasks.lengths import Long
from unmask.tasks.similarity import CosineRegression, InBatchNegatives, SoftmaxPairs, TripletLoss

Family = Literal[
    "classification",
    "multilabel",
    "regression",
    "tagging",
    "roles",
    "question-answering",
    "multiple-choice",
    "embedding",
]
FAMILIES: tuple[str, ...] = get_args(Family)
SHOWN = 20  # labels that are listed with their shares
LENGTHS = {"question-answering": 384}  # longest sequence in tokens, where nothing else is said; 128 for the others

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Rows(Config):
    """Where the labelled rows are.

    train, dev, test  files; without `dev`, a tenth of the rows of `train` is held out in its place
    benchmark         name of a public data set (`unmask.data.glue`): `train` is then its folder, as it is distributed,
                      with its dev rows and, where they have labels, its test rows
    text, pair, label names of the columns, where they are not the usual ones (`unmask.data.dataset.read`)
    negative          column of the third text of a triplet (embedding)
    predicate         number of the column that marks predicates (roles)
    several           what stands between the labels of a text that may have several, such as |
    format            where a file's name does not tell
    skip              leave damaged rows out; each is counted and the first are named
    encoding          of files without a byte order mark that are not UTF-8, such as cp1252 or euc-kr
    most              training rows to use, the first ones; None: all
    length            longest sequence, in tokens; None: 128 (384 for question answering), or what the model can take
    allow_overlap     go on though many rows of `dev` are also in `train`
    stratify          hold out of each class its share, not rows at random (classification)
    """

    train: Path | None = None
    dev: Path | None = None
    test: Path | None = None
    benchmark: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    negative: str | None = None
    predicate: str | None = None
    several: str | None = None
    format: str | None = None
    skip: bool = False
    encoding: str | None = None
    most: int | None = None
    length: int | None = None
    allow_overlap: bool = False
    stratify: bool = True


@dataclass(frozen=True, kw_only=True)
class Options(Config):
    """What only some tasks ask.

    long            texts that do not fit: truncate, head+tail, window-mean, window-max or error (classification)
    balance         "weights" lets rare classes count more, "focal" what is not yet right (Lin et al. 2017)
    gamma           of the focal loss
    scheme          tag sequences that are allowed: "auto" as the training rows have them, "any" does not restrict them
    crf             score whole sequences of tags with a linear-chain CRF on top (Lample et al. 2016)
    stride          tokens that neighbouring windows of a context share (question answering)
    longest_answer  tokens
    characters      score answers by characters, as KorQuAD does
    pooling         of sentence embeddings: "mean" or "cls"
    normalise       scale sentence embeddings to length 1
    loss            of sentence embeddings: cosine, softmax, in-batch or triplet; None: by the kind of rows
    """

    long: Long = "truncate"
    balance: Literal["none", "weights", "focal"] = "none"
    gamma: float = 2.0
    scheme: Literal["auto", "any"] = "auto"
    crf: bool = False
    stride: int = 128
    longest_answer: int = 30
    characters: bool = False
    pooling: Literal["mean", "cls"] = "mean"
    normalise: bool = False
    loss: str | None = None

    def check(self) -> None:
        """Raises UnmaskError for a field that is set but means nothing beside the others, rather than ignore it."""
        if self.gamma != Options().gamma and self.balance != "focal":
            raise UnmaskError("--gamma is of the focal loss: say --balance focal, or leave it out.")


_TEXTS = ("classification", "multilabel", "regression")
_TAGGED = ("tagging", "roles")
TAKERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("text", "label"), (*_TEXTS, *_TAGGED, "embedding")),
    "pair": (*_TEXTS, "embedding"),
    "negative": ("embedding",),
    "predicate": ("roles",),
    "several": ("multilabel",),
    "stratify": ("classification",),
    **dict.fromkeys(("format", "skip"), (*_TEXTS, "tagging", "multiple-choice", "embedding")),
    "long": _TEXTS,
    **dict.fromkeys(("balance", "gamma"), ("classification", "multilabel", *_TAGGED)),
    **dict.fromkeys(("scheme", "crf"), _TAGGED),
    **dict.fromkeys(("stride", "longest_answer", "characters"), ("question-answering",)),
    **dict.fromkeys(("pooling", "normalise", "loss"), ("embedding",)),
}
"""Field of `Rows` or `Options` -> the families that it means something to; fields that all know are absent."""


def check_fields(family: str, *configs: Config) -> None:
    """Raises UnmaskError for a field that is set but means nothing to the family, rather than ignore it."""
    for config in configs:
        usual = type(config)().places()
        for name, value in config.places().items():
            takers = TAKERS.get(name, FAMILIES)
            if value != usual[name] and family not in takers:
                flag = "--" + name.replace("_", "-")
                raise UnmaskError(f"{flag} is for --task {' or '.join(takers)}; {family} has no use for it.")


def check_scored(rows: Rows) -> None:
    """Raises UnmaskError for a field that is set but means nothing where the rows of one file are scored."""
    for name in ("train", "dev", "test", "most", "allow_overlap", "stratify"):
        if getattr(rows, name) != getattr(Rows(), name):
            raise UnmaskError(f"--rows.{name.replace('_', '-')} means nothing here: every row of --data is scored.")


# ------------------------------------------------------------------------------------------------ reading


def read(path: Path, family: str, rows: Rows | None = None, *, scoring: bool = False) -> Dataset:
    """The rows of one file, as a family of tasks needs them.

    scoring  the rows are to be scored, not learned from: questions whose answer cannot be learned stay

    Raises UnmaskError where the file holds rows of another kind.
    """
    rows = rows or Rows()
    encoding = rows.encoding
    if family not in FAMILIES:
        raise unknown("task", family, FAMILIES)
    check_fields(family, rows)
    if not path.is_file():
        raise UnmaskError(f"{path} is a folder, not a file." if path.is_dir() else f"There is no file {path}.")
    if family == "question-answering":
        return squad.read(path, scoring=scoring, encoding=encoding)
    if squad.nested(path):
        raise UnmaskError(_OTHER_KIND["question-answering"].format(path=path, family=family))
    if family == "multiple-choice":
        return choices.read(path, rows.format, skip=rows.skip, encoding=encoding)
    if family == "embedding":
        names = {"text": rows.text, "pair": rows.pair, "label": rows.label, "negative": rows.negative}
        return pairs.read(path, **names, format=rows.format, skip=rows.skip, encoding=encoding)
    if family == "roles":
        names = {"word": rows.text, "predicate": rows.predicate, "arguments": rows.label}
        return Dataset(path, *roles.read_roles(path, **names, encoding=encoding))
    format = rows.format
    if family == "tagging" and format is None:
        guessed = guess_format(path, otherwise="conll", encoding=encoding)
        format = "conll" if guessed in ("tsv", "csv", "conll") else None  # a sentence does not fit on a line of a table
    how: dict[str, Any] = {"text": rows.text, "pair": rows.pair, "label": rows.label}
    found = dataset.read(path, **how, format=format, several=rows.several, skip=rows.skip, encoding=encoding)
    kind = "tagging" if found.tagged else "multilabel" if found.several else "classification"
    if family == "multilabel" and kind == "classification" and (marked := dataset.separator_in(found)):
        mark, cell = marked
        raise UnmaskError(f"Cells of {path} such as '{cell}' seem to have several labels: say --several '{mark}'.")
    if kind != (family if family != "regression" else "classification"):
        raise UnmaskError(_OTHER_KIND[kind].format(path=path, family=family))
    return found


_OTHER_KIND = {
    "question-answering": "{path} has questions on contexts, as SQuAD has, which {family} cannot use; they are rows "
    "for --task question-answering.",
    "tagging": "{path} has tagged words, which {family} cannot use; they are rows for --task tagging.",
    "multilabel": "{path} has several labels for a text, which {family} cannot use; they are rows for "
    "--task multilabel.",
    "classification": "{path} has texts with a label, which {family} cannot use; they are rows for "
    "--task classification (for multilabel, say with --several what stands between labels).",
}


def read_sets(family: str, rows: Rows, say: Say, rng: np.random.Generator) -> dict[str, Dataset]:
    """The rows of train, dev and maybe test; where there are no dev rows, a tenth of the training rows stands in."""
    assert rows.train is not None
    sets: dict[str, Dataset] = {}
    if rows.benchmark is not None:
        sets = _published(family, rows.benchmark, rows.train, say)
    for name, path in (("train", rows.train), ("dev", rows.dev), ("test", rows.test)):
        if path is not None and not (rows.benchmark is not None and name == "train"):
            sets[name] = read(path, family, rows, scoring=name != "train")
    if rows.most is not None:
        if rows.most < 1:
            raise UnmaskError(f"--most must be 1 or more, not {rows.most}.")
        given = len(sets["train"])
        sets["train"] = sets["train"].take(range(min(rows.most, given)))
        if rows.most < given:
            say(f"Of the {given:,} training rows, the first {rows.most:,} are used.")
    for name, found in sets.items():
        say(f"{name}: {found.description}.")
    if "dev" not in sets:
        whole = sets["train"]
        if len(whole) < 10:
            few = plural(len(whole), "row")
            raise UnmaskError(f"{whole.path} has {few}: too few to hold some out; give --dev FILE.")
        stratified = family == "classification" and rows.stratify
        sets["dev"], sets["train"] = dataset.hold_out(whole, round(len(whole) / 10), rng, stratified=stratified)
        how = "of each class its share" if stratified else "at random"
        say(f"There are no dev rows; held out instead, {how}: {plural(len(sets['dev']), 'row')} of {whole.path}.")
        sets = {name: sets[name] for name in ("train", "dev", "test") if name in sets}
    for name in [name for name in sets if name != "train"]:
        common = dataset.overlap(sets["train"], sets[name])
        if not rows.allow_overlap and (name == "test" or rows.dev is not None):
            dataset.check_apart(sets["train"], sets[name])
        if common:
            say(f"The training rows also hold {len(common):,} of the {plural(len(sets[name]), f'{name} row')}.")
    return sets


def as_begun(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run as its folder has them. Where they do not know `stratify`, it began when every dev row was
    drawn at random, and goes on with the same rows."""
    if config.get("task") == "classification" and isinstance(config.get("rows"), dict):
        return {**config, "rows": {"stratify": False, **config["rows"]}}
    return config


def _published(family: str, name: str, folder: Path, say: Say) -> dict[str, Dataset]:
    """The labelled parts of a public data set."""
    benchmark = glue.find(name)
    if family != benchmark.kind and not (family == "embedding" and benchmark.pair is not None):
        raise UnmaskError(f"The rows of {benchmark.name} are for --task {benchmark.kind}, not {family}.")
    sets = {part: glue.split(name, folder, part) for part in ("train", "dev") if part in benchmark.parts}
    if "test" in benchmark.parts and not benchmark.test_rows:  # GLUE keeps the labels of its test rows
        try:
            sets["test"] = glue.split(name, folder, "test")
        except UnmaskError as error:
            say(f"No test rows: {error}")
    return sets


# ------------------------------------------------------------------------------------------------ building


def build(family: str, sets: Mapping[str, Dataset], options: Options, say: Say, *, held_out: bool = False) -> Task:
    """The task that the training rows ask for; the other sets must fit it.

    held_out  the dev rows were taken from the training rows, and may have labels that only they have

    Raises UnmaskError for rows that cannot be learned from, such as those of a single class.
    """
    check_fields(family, options)
    train = sets["train"]
    others = [rows for name, rows in sets.items() if name != "train"]
    if family == "regression":
        return _regression(train, others, options, say)
    if family == "question-answering":
        return _questions(train, others, options, say)
    if family == "multiple-choice":
        numbers = [len(row.choices) for row in train if isinstance(row, Choices)]
        say(f"Choices: {_range(min(numbers), max(numbers))} a row.")
        return MultipleChoice()
    if family == "embedding":
        loss = loss_for(train, options.loss)
        say(f"Loss: {_LOSSES[type(loss)]}.")
        return Embedding(
            loss,
            pooling=options.pooling,
            normalise=options.normalise,
            metric=metric_for(sets["dev"], getattr(loss, "labels", ())),
        )
    labels = tuple(dataset.ordered({*dataset.classes(train), *(sets["dev"].labels if held_out else ())}))
    for other in others:
        dataset.check_labels(other, labels, f"the training rows of {train.path}")
    counts = train.histogram()
    whole = len(train) if family == "multilabel" else sum(counts.values())
    shares = [f"{label} {n / whole:.1%}" for label, n in counts.items()]
    if len(shares) > SHOWN:
        shares[SHOWN:] = [f"and {len(shares) - SHOWN} more"]
    say(f"{'Tags' if train.tagged else 'Labels'}: {', '.join(shares)}.")
    if family == "classification" and len(only := sets["dev"].labels) == 1:
        say(f"Every dev row has the label {only[0]}, so that their scores tell nothing about the others.")
    if family == "multilabel":
        return MultiLabel(labels, positive=_positive(counts, len(train), labels, options), long=options.long)
    weighing = _weighing([counts.get(label, 0) for label in labels], options)
    if family == "classification":
        return Classification(labels, weighing=weighing, long=options.long)
    scheme = None if options.scheme == "any" else scheme_of(train.rows)
    if scheme is not None:
        say(f"The tags mark spans as {scheme} does; only legal sequences are answered.")
    return Tagging(labels, scheme=scheme, crf=options.crf, weighing=weighing)


_LOSSES: Mapping[type, str] = {
    CosineRegression: "cosine, which draws the similarity of a pair to its score",
    SoftmaxPairs: "softmax, which tells the classes of pairs",
    InBatchNegatives: "in-batch, which sets the second text of a row against those of the others",
    TripletLoss: "triplet, which draws the second text nearer than the third",
}


def _regression(train: Dataset, others: Sequence[Dataset], options: Options, say: Say) -> Regression:
    values, *_ = [dataset.scores(rows) for rows in (train, *others)]
    low, high = min(values), max(values)
    if low == high:
        raise UnmaskError(f"{train.path} has a single score, {low:g}: there is nothing to learn.")
    say(f"Scores from {low:g} to {high:g}, {np.mean(values):.3g} on average.")
    if max(abs(low), abs(high)) > 20:
        say("Scores this large are learned slowly; divide them so that they lie between 0 and 5 or so.")
    return Regression(options.long)


def _questions(train: Dataset, others: Sequence[Dataset], options: Options, say: Say) -> QuestionAnswering:
    impossible = _impossible(train)
    if impossible:
        say(f"{impossible:,} of the {len(train):,} training questions have no answer in their context.")
    for rows in others:
        if _impossible(rows) and not impossible:
            say(
                f"{_impossible(rows):,} of the {len(rows):,} questions of {rows.path} have no answer in their context, "
                "but every training question has one: the model answers them all the same, and is wrong."
            )
    return QuestionAnswering(
        stride=options.stride,
        longest_answer=options.longest_answer,
        unanswerable=impossible > 0,
        characters=options.characters,
    )


def _impossible(rows: Dataset) -> int:
    return sum(isinstance(row, Question) and not row.possible for row in rows)


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _weighing(counts: Sequence[int], options: Options) -> ClassLoss | None:
    if options.gamma <= 0:
        raise UnmaskError(f"--gamma must be above 0, not {options.gamma:g}.")
    if options.balance == "weights":
        return ClassLoss(balanced(counts))
    return ClassLoss(gamma=options.gamma) if options.balance == "focal" else None


def _positive(
    counts: Mapping[str, int], rows: int, labels: Sequence[str], options: Options
) -> tuple[float, ...] | None:
    """For each label, the texts without it for each text with it."""
    if options.balance == "focal":
        raise UnmaskError("The focal loss is for one label a text; use --balance weights for several.")
    if options.balance == "none":
        return None
    return tuple((rows - counts.get(label, 0)) / max(1, counts.get(label, 0)) for label in labels)


def family_of(task: Task) -> str:
    """The family whose files a task is scored on."""
    return {"span": "question-answering", "choice": "multiple-choice"}.get(task.name, task.name)
