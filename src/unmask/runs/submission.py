"""GLUE submissions: a file of predictions for each test set, a zip of all files, and the average of the leaderboard.

Wang et al., "GLUE", ICLR 2019. The files have the format of gluebenchmark.com: a header `index`, `prediction`, and one
prediction a row.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from unmask import files
from unmask.data.labelled import glue
from unmask.data.labelled.glue import Benchmark
from unmask.errors import UnmaskError, plural, unknown

HEADER = "index\tprediction"
LOWEST, HIGHEST = 0.0, 5.0  # scores of STS-B
ZIP = "submission.zip"

TASKS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("CoLA", "SST-2", "MRPC", "STS-B", "QQP")},
    "MNLI": ("MNLI-m", "MNLI-mm"),
    **{name: (name,) for name in ("QNLI", "RTE", "WNLI")},
}
"""Task of the leaderboard -> its test sets. AX, the diagnostic rows, is shown there but not counted."""

_PAPER_METRICS = {"MRPC": "f1", "QQP": "f1", "STS-B": "spearman"}  # the one of two metrics that the paper gives


def write(
    folder: Path | str, name: str, answers: Sequence[str | float], ids: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Write the predictions for the test rows of a GLUE task to the file for its submission: `folder`/CoLA.tsv etc.

    answers  a label for each row, in the spelling of the task (`glue.find(name).labels`; 0 and 1 may be numbers), or a
             score for STS-B; scores outside 0 to 5 are clipped
    ids      id of each row in the test file (`Row.id`); None, or all empty: numbers from 0

    Returns warnings: if the number of rows is not that of the official test set, and if scores were clipped. Raises
    UnmaskError for a task that GLUE does not have, for an answer that is no label of the task or no number, and for ids
    that are not unique or not as many as the answers. The file is written whole or not at all.
    """
    benchmark = _task(name)
    names = _ids(benchmark, len(answers), ids)
    notes = []
    if benchmark.labels:
        values = _labels(benchmark, answers, names)
    else:
        scores = _scores(benchmark, answers, names)
        values = [repr(min(max(score, LOWEST), HIGHEST)) for score in scores]
        beyond = sum(not LOWEST <= score <= HIGHEST for score in scores)
        if beyond:
            notes.append(f"Scores outside {LOWEST:g} to {HIGHEST:g} that were clipped: {beyond:,}.")
    if len(answers) != benchmark.test_rows:
        notes.append(
            f"{benchmark.submission} has {plural(len(answers), 'prediction')}, but the official test set of "
            f"{benchmark.name} has {benchmark.test_rows:,} rows, and each needs a prediction."
        )
    lines = [HEADER, *(f"{id}\t{value}" for id, value in zip(names, values, strict=True))]
    files.write_text(Path(folder) / benchmark.submission, "\n".join(lines) + "\n")
    return tuple(notes)


def pack(folder: Path | str) -> tuple[str, ...]:
    """Put the files of predictions in `folder` into its submission.zip, and return the names of the missing files.

    GLUE requires all of them. The same files give the same bytes. Raises UnmaskError if there is no file of
    predictions, or one is damaged.
    """
    folder = Path(folder)
    names = [glue.find(task).submission for task in glue.GLUE]
    present = [name for name in names if (folder / name).is_file()]
    if not present:
        raise UnmaskError(f"{folder} has no file of predictions, such as {names[0]}.")
    with files.atomic(folder / ZIP) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name in present:
            member = zipfile.ZipInfo(name)  # dated 1980-01-01, so that the bytes do not depend on the time
            member.compress_type, member.create_system, member.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(member, _sound(folder / name))
    return tuple(name for name in names if name not in present)


def _task(name: str) -> Benchmark:
    benchmark = glue.find(name)
    if not benchmark.submission:
        raise UnmaskError(f"{benchmark.name} is not a GLUE task: choose one of {', '.join(glue.GLUE)}.")
    return benchmark


def _ids(benchmark: Benchmark, count: int, ids: Sequence[str] | None) -> list[str]:
    """The id of each row, or its number."""
    if ids is not None and len(ids) != count:
        raise UnmaskError(f"{benchmark.name} has {plural(count, 'prediction')} but {plural(len(ids), 'id')} of rows.")
    if ids is None or not any(ids):
        return [str(i) for i in range(count)]
    wrong = next((i for i, id in enumerate(ids) if not id or id.split() != [id]), None)
    if wrong is not None:
        raise UnmaskError(
            f"Row {wrong + 1:,} of {benchmark.name} has the id '{ids[wrong]}'; give every row a valid id, or none."
        )
    if len(set(ids)) != count:
        twice = next(id for id, times in Counter(ids).items() if times > 1)
        raise UnmaskError(f"Two rows of {benchmark.name} have the id '{twice}'.")
    return list(ids)


def _labels(benchmark: Benchmark, answers: Sequence[str | float], ids: Sequence[str]) -> list[str]:
    values = [str(answer) for answer in answers]
    for value, id in zip(values, ids, strict=True):
        if value not in benchmark.labels:
            known = ", ".join(benchmark.labels)
            raise UnmaskError(f"The label for row {id} of {benchmark.name} is '{value}'; it must be one of {known}.")
    return values


def _scores(benchmark: Benchmark, answers: Sequence[str | float], ids: Sequence[str]) -> list[float]:
    values = []
    for answer, id in zip(answers, ids, strict=True):
        try:
            values.append(float(answer))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            raise UnmaskError(f"The prediction for row {id} of {benchmark.name} is '{answer}'; it must be a number.")
    return values


def _sound(path: Path) -> bytes:
    """The bytes of a file of predictions. Raises UnmaskError if it cannot be read or does not begin with the header."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not data.startswith(f"{HEADER}\n".encode()):
        raise UnmaskError(f"{path} does not begin with the columns index and prediction; write it again.")
    return data


# ------------------------------------------------------------------------------------------------ average


@dataclass(frozen=True)
class Average:
    """The average of GLUE scores.

    scores   test set -> its official metrics, from 0 to 1; correlations from -1
    tasks    task that counts -> the mean of its metrics, times 100; for MNLI, the mean of its test sets
    value    the unweighted mean of `tasks`
    missing  test sets that count but have no scores; if there are any, the average is partial
    paper    the average of Table 1 in the BERT paper (Devlin et al. 2018), times 100: the unweighted mean of MNLI-m,
             MNLI-mm, QQP (F1), QNLI, SST-2, CoLA, STS-B (Spearman), MRPC (F1) and RTE; None if one is missing
    """

    scores: Mapping[str, Mapping[str, float]]
    tasks: Mapping[str, float]
    value: float
    missing: tuple[str, ...]
    paper: float | None

    @property
    def table(self) -> str:
        """A line for each task, the average, and sentences on the tasks that it counts."""
        lines = [f"{'task':<8}{'score':>8}  metrics", *(self._line(task) for task in (*TASKS, "AX"))]
        partial = ", partial" if self.missing else ""
        return "\n".join(
            [*lines, f"{'average':<8}{self.value:8.1f}  of {len(self.tasks)} tasks{partial}", "", *self._notes()]
        )

    def _line(self, task: str) -> str:
        sets = TASKS.get(task, (task,))
        shown = "; ".join(f"{name} {self._metrics(name)}" if len(sets) > 1 else self._metrics(name) for name in sets)
        uncounted = task not in self.tasks and any(name in self.scores for name in sets)
        score = f"{self.tasks[task]:8.1f}" if task in self.tasks else f"{'-':>8}"
        return f"{task:<8}{score}  {shown}{' (not counted)' if uncounted else ''}"

    def _metrics(self, name: str) -> str:
        found = self.scores.get(name)
        return (
            "missing" if found is None else ", ".join(f"{metric} {100 * value:.1f}" for metric, value in found.items())
        )

    def _notes(self) -> Iterator[str]:
        yield "The score of a task is the mean of its metrics; MNLI is one task; AX (diagnostic rows) does not count."
        if "WNLI" in self.tasks or "WNLI" in self.missing:
            yield "WNLI counts, as on the GLUE leaderboard; the published averages of BERT-like models leave it out."
        else:
            yield "WNLI is left out, as in published averages of BERT-like models; the GLUE leaderboard counts it."
        if self.missing:
            yield f"The average is partial: there are no scores of {', '.join(self.missing)}."
        if self.paper is not None:
            yield f"Average as in Table 1 of the BERT paper (MNLI-m and -mm apart, one metric each): {self.paper:.1f}."


def average(scores: Mapping[str, Mapping[str, float]], *, wnli: bool = False) -> Average:
    """The GLUE score.

    scores  test set -> its metrics, from `Task.metrics`: fractions from 0 to 1, correlations from -1
    wnli    count WNLI, as the leaderboard does. Published averages leave it out, because its dev rows share their
            sentences with training rows of the other label, and no model of the time was better than the majority class
            (Devlin et al. 2018, section 4.1).

    Metrics that are not official are ignored. Raises UnmaskError for a name that GLUE does not have, a test set without
    one of its official metrics, a value outside -1 to 1, and scores of which none counts.
    """
    found: dict[str, dict[str, float]] = {}
    for name, metrics in scores.items():
        benchmark = _task(name)
        if benchmark.name in found:
            raise UnmaskError(f"There are scores of {benchmark.name} under two names.")
        found[benchmark.name] = {metric: _fraction(benchmark, metrics, metric) for metric in benchmark.metrics}
    counted = {task: sets for task, sets in TASKS.items() if wnli or task != "WNLI"}
    means = {name: 100 * fmean(metrics.values()) for name, metrics in found.items()}
    tasks = {task: [means[name] for name in sets if name in means] for task, sets in counted.items()}
    values = {task: fmean(some) for task, some in tasks.items() if some}
    if not values:
        raise UnmaskError(f"There are no scores for the average; it counts {', '.join(counted)}.")
    missing = tuple(name for sets in counted.values() for name in sets if name not in found)
    return Average(found, values, fmean(values.values()), missing, _paper(found))


def _fraction(benchmark: Benchmark, metrics: Mapping[str, float], metric: str) -> float:
    if metric not in metrics:
        raise unknown(f"metric of {benchmark.name}", metric, metrics)
    value = float(metrics[metric])
    if not -1 <= value <= 1:
        raise UnmaskError(
            f"{metric} of {benchmark.name} is {value:g}, but a fraction up to 1 is needed, not a percentage."
        )
    return value


def _paper(scores: Mapping[str, Mapping[str, float]]) -> float | None:
    names = [name for task, sets in TASKS.items() if task != "WNLI" for name in sets]
    if not all(name in scores for name in names):
        return None
    return 100 * fmean(scores[name][_PAPER_METRICS.get(name, glue.find(name).metrics[0])] for name in names)
