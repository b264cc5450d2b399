"""GLUE, SNLI and TREC in their published form: files, columns, labels and metrics, and the rows of each part.

Wang et al., "GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language Understanding", ICLR 2019;
Bowman et al., "A large annotated corpus for learning natural language inference", EMNLP 2015; Li & Roth, "Learning
Question Classifiers", COLING 2002.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unmask.data.files.lines import COMPRESSED, LONGEST_LINE, opened
from unmask.data.files.tables import format_by_name, rows
from unmask.data.labelled import dataset
from unmask.data.labelled.dataset import Dataset
from unmask.data.labelled.rows import Row
from unmask.errors import UnmaskError, plural, unknown

Parts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Benchmark:
    """A published data set.

    name       the usual name; the two test sets of MultiNLI are separate benchmarks with the same training rows
    parts      part (train, dev, test) -> possible names of its file, the preferred one first. "a + b" are two files
               that together are the part; a file whose name is given with a "*" may be another subset of the data
    metrics    the official metrics, by their names in `unmask.metrics`; the score of a task is their mean
    labels     the labels in the files, in the order of the outputs of most published models; empty for a regression.
               F1 is that of "1"
    text, pair, label   names of the columns in the header
    numbers    the same roles as numbers of columns, for files without a header
    folders    possible names of the folder
    test_rows  number of test rows of a submission; 0 outside GLUE
    """

    name: str
    parts: Parts
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    text: str = "sentence1"
    pair: str | None = "sentence2"
    label: str = "label"
    numbers: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    test_rows: int = 0

    @property
    def submission(self) -> str:
        """The name of the file for a submission to GLUE; empty if there is none."""
        return f"{self.name}.tsv" if self.test_rows else ""


def _parts() -> dict[str, tuple[str, ...]]:
    """Train, dev and test by their names in GLUE, or with a suffix, such as train_10k.tsv."""
    return {part: (f"{part}.tsv", f"{part}_*.tsv") for part in ("train", "dev", "test")}


def _mnli(name: str, kind: str, test_rows: int) -> Benchmark:
    """MultiNLI with the dev and test rows of one kind; a file whose name has no kind is matched."""
    other = "_[!m]*" if kind == "matched" else "_mismatched_*"
    tests = {part: (f"{part}_{kind}.tsv", f"{part}{other}.tsv") for part in ("dev", "test")}
    return Benchmark(
        name,
        {**_parts(), **tests},
        metrics=("accuracy",),
        labels=_NLI,
        label="gold_label",
        folders=("MNLI",),
        test_rows=test_rows,
    )


def _trec(name: str, labels: tuple[str, ...]) -> Benchmark:
    parts = {"train": ("train_5500.label", "train.txt", "train_*.label"), "test": ("TREC_10.label", "test.txt")}
    return Benchmark(name, parts, ("accuracy",), labels, text="question", pair=None, folders=("TREC",))


_BINARY = ("0", "1")
_NLI = ("entailment", "neutral", "contradiction")
_ENTAILMENT = ("entailment", "not_entailment")
_ANSWERS = {  # coarse -> fine classes of the expected answers
    "ABBR": "abb exp",
    "DESC": "def desc manner reason",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant product religion sport "
    "substance symbol techmeth termeq veh word",
    "HUM": "desc gr ind title",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other perc period speed temp volsize weight",
}
_SNLI = {
    part: (f"snli_1.0_{part}.jsonl", f"snli_1.0_{part}.txt", f"{part}.jsonl", f"{part}.tsv", f"{part}_*.tsv")
    for part in ("train", "dev", "test")
}
_COLA = {**_parts(), "train": ("train.tsv", "in_domain_train.tsv", "train_*.tsv")}
_COLA["dev"] = ("dev.tsv", "in_domain_dev.tsv + out_of_domain_dev.tsv", "dev_*.tsv")
_DIAGNOSTIC = {"test": ("AX.tsv", "diagnostic.tsv", "test.tsv")}

_ALL = (
    Benchmark(
        name="CoLA",
        parts=_COLA,
        metrics=("mcc",),
        labels=_BINARY,
        text="sentence",
        pair=None,
        numbers={"text": "4", "label": "2"},
        folders=("CoLA",),
        test_rows=1_063,
    ),
    Benchmark(
        name="SST-2",
        parts=_parts(),
        metrics=("accuracy",),
        labels=_BINARY,
        text="sentence",
        pair=None,
        folders=("SST-2", "SST"),
        test_rows=1_821,
    ),
    Benchmark(
        name="MRPC",
        parts=_parts(),
        metrics=("accuracy", "f1"),
        labels=_BINARY,
        text="#1 String",
        pair="#2 String",
        label="Quality",
        folders=("MRPC",),
        test_rows=1_725,
    ),
    Benchmark(
        name="STS-B",
        parts=_parts(),
        metrics=("pearson", "spearman"),
        label="score",
        folders=("STS-B", "STSBenchmark"),
        test_rows=1_379,
    ),
    Benchmark(
        name="QQP",
        parts=_parts(),
        metrics=("accuracy", "f1"),
        labels=_BINARY,
        text="question1",
        pair="question2",
        label="is_duplicate",
        folders=("QQP",),
        test_rows=390_965,
    ),
    _mnli("MNLI-m", "matched", 9_796),
    _mnli("MNLI-mm", "mismatched", 9_847),
    Benchmark(
        name="QNLI",
        parts=_parts(),
        metrics=("accuracy",),
        labels=_ENTAILMENT,
        text="question",
        pair="sentence",
        folders=("QNLI", "QNLIv2"),
        test_rows=5_463,
    ),
    Benchmark("RTE", _parts(), ("accuracy",), _ENTAILMENT, folders=("RTE",), test_rows=3_000),
    Benchmark("WNLI", _parts(), ("accuracy",), _BINARY, folders=("WNLI",), test_rows=146),
    Benchmark("AX", _DIAGNOSTIC, ("mcc",), _NLI, folders=("AX", "diagnostic"), test_rows=1_104),
    Benchmark("SNLI", _SNLI, ("accuracy",), _NLI, label="gold_label", folders=("SNLI", "snli_1.0")),
    _trec("TREC-6", tuple(_ANSWERS)),
    _trec("TREC-50", tuple(f"{coarse}:{fine}" for coarse, some in _ANSWERS.items() for fine in some.split())),
)
BENCHMARKS: Mapping[str, Benchmark] = {benchmark.name: benchmark for benchmark in _ALL}
GLUE = tuple(benchmark.name for benchmark in _ALL if benchmark.test_rows)
"""The tasks of a submission, in the order of the leaderboard. AX, the diagnostic rows, has no training rows: a model of
MNLI predicts it."""

_ALIASES = {
    **{"mnli": "MNLI-m", "mnlimatched": "MNLI-m", "mnlimismatched": "MNLI-mm"},
    **{"sst": "SST-2", "sts": "STS-B", "diagnostic": "AX", "trec": "TREC-6", "trecfine": "TREC-50"},
}


def find(name: str) -> Benchmark:
    """The benchmark with this name, ignoring case and dashes: "CoLA", "sst2", "mnli" (matched), "mnli-mm".

    Raises UnmaskError for an unknown name; the message suggests the most similar one.
    """
    known = {**{_plain(known): known for known in BENCHMARKS}, **_ALIASES}
    if _plain(name) in known:
        return BENCHMARKS[known[_plain(name)]]
    near = difflib.get_close_matches(_plain(name), known, n=1)
    hint = f"; did you mean '{known[near[0]]}'?" if near else "."
    raise UnmaskError(f"There is no benchmark '{name}'{hint} Known: {', '.join(BENCHMARKS)}.")


def split(name: str, folder: Path | str, part: str) -> Dataset:
    """The rows of a part ("train", "dev" or "test") of a benchmark, from its folder or the one above.

    Files are read as distributed, also with the suffix .gz or .zst. Test rows without labels have the label "" and the
    `id` of submissions. Rows with missing fields (in QQP) and rows on which the annotators disagreed (in SNLI) are left
    out; `notes` counts them, and has a sentence if a file may not have the official rows. Raises UnmaskError if the
    benchmark, part, folder or file does not exist, and for a label that the benchmark does not have.
    """
    benchmark = find(name)
    if part not in benchmark.parts:
        raise unknown(f"{benchmark.name} part", part, benchmark.parts)
    paths, note = _locate(benchmark, Path(folder), part)
    found = _joined([_read(benchmark, path, part) for path in paths])
    if benchmark.labels:
        dataset.check_labels(found, benchmark.labels, f"the official rows of {benchmark.name}")
    elif "label" in found.columns:
        dataset.scores(found)
    return Dataset(found.path, found.rows, found.columns, (*found.notes, *note))


# ------------------------------------------------------------------------------------------------ files


def _locate(benchmark: Benchmark, folder: Path, part: str) -> tuple[list[Path], tuple[str, ...]]:
    """The files of a part, and a sentence if their name is not the official one."""
    if folder.is_file():
        raise UnmaskError(f"{folder} is a file: give the folder of {benchmark.name}, {folder.parent}.")
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder {folder}.")
    known = {_plain(name) for name in benchmark.folders}
    below = sorted(path for path in folder.iterdir() if path.is_dir() and _plain(path.name) in known)
    names = benchmark.parts[part]
    for name in names:
        for place in (folder, *below):
            paths = [_existing(place, file, names[0]) for file in name.split(" + ")]
            found = [path for path in paths if path is not None]
            if len(found) == len(paths):
                note = f"There is no {names[0]}; {found[0].name} was read, which may not hold the official rows."
                return found, (note,) if "*" in name else ()
    looked_for = " or ".join(name for name in names if "*" not in name)
    raise UnmaskError(
        f"{folder} has no {part} rows of {benchmark.name}: there is no {looked_for}, "
        f"with or without .gz or .zst, in it or in its folder {benchmark.folders[0]}."
    )


def _existing(folder: Path, name: str, official: str) -> Path | None:
    """The file with this name, or the only file that matches a name with "*", compressed or not."""
    found = [path for ending in ("", *COMPRESSED) for path in sorted(folder.glob(name + ending)) if path.is_file()]
    if "*" in name and len(found) > 1:
        raise UnmaskError(
            f"Several files of {folder} match: {', '.join(path.name for path in found)}; "
            f"rename the correct one to {official}."
        )
    return found[0] if found else None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


# ------------------------------------------------------------------------------------------------ rows


def _read(benchmark: Benchmark, path: Path, part: str) -> Dataset:
    if benchmark.name.startswith("TREC"):
        return _questions(path, fine=benchmark.name == "TREC-50")
    format = format_by_name(path) or "tsv"
    names = _first_line(path, format)
    headed = {benchmark.text, benchmark.pair or benchmark.text} <= names
    text, pair = (benchmark.text, benchmark.pair) if headed else (None, None)  # None: their usual names
    label = benchmark.label if benchmark.label in names else None
    if not headed and benchmark.numbers:
        text, label = benchmark.numbers["text"], benchmark.numbers["label"]
    labelled = part != "test" or label is not None
    return dataset.read(path, text=text, pair=pair, label=label, format=format, labelled=labelled, skip=True)


def _first_line(path: Path, format: str) -> set[str]:
    """The names of the columns, or the first fields of a file without a header."""
    _, values = next(rows(path, format, header=False), (0, {}))
    return {str(value).strip() for value in (values if format == "jsonl" else values.values())}


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """The rows of the files of one part, joined."""
    if len(parts) == 1:
        return parts[0]
    named = [f"{part.path.name} ({plural(len(part), 'row')})" for part in parts]
    note = f"Read from {' and '.join(named)}."
    notes = (note, *(note for part in parts for note in part.notes))
    return Dataset(parts[0].path.parent, tuple(row for part in parts for row in part), parts[0].columns, notes)


def _questions(path: Path, *, fine: bool) -> Dataset:
    """The rows of a TREC file: "COARSE:fine question". The published files are Latin-1, but copies are often UTF-8."""
    with opened(path) as file:
        data = file.read(LONGEST_LINE + 1)
    if len(data) > LONGEST_LINE:
        raise UnmaskError(f"{path} has more than {LONGEST_LINE:,} bytes; it is not a file of TREC.")
    try:
        text, notes = data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        text, notes = data.decode("latin-1"), [f"{path.name} is not UTF-8 and was read as Latin-1."]
    found = tuple(_classified(path, text, fine))
    if not found:
        raise UnmaskError(f"{path} has no rows.")
    return Dataset(path, found, {"text": "question", "label": "fine class" if fine else "coarse class"}, tuple(notes))


def _classified(path: Path, text: str, fine: bool) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        kind, _, question = line.strip().partition(" ")
        coarse, colon, rest = kind.partition(":")
        if line.strip() and not (coarse and colon and rest and question.strip()):
            raise UnmaskError(
                f"{path}:{number} must be a class and a question, as in 'LOC:city What is …', not '{line[:40]}'."
            )
        if line.strip():
            yield Row(question.strip(), label=kind if fine else coarse, place=f"{path}:{number}")
