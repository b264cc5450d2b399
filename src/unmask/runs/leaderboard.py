"""GLUE from fine-tuned folders: predictions of the test rows as a submission, scores on the dev rows as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.labelled import glue
from unmask.data.labelled.glue import Benchmark
from unmask.errors import UnmaskError, plural
from unmask.kernels.processor import Precision
from unmask.runs import submission
from unmask.runs.submission import Average
from unmask.serve import Predictor
from unmask.serve.predictor import length_of_run
from unmask.tasks import TASKS

OF_MNLI = ("MNLI-m", "MNLI-mm", "AX")
"""What an MNLI model predicts: both test sets, and the diagnostic rows, which have no training set."""


def submit(
    models: Sequence[str | Path],
    data: Path | str,
    out: Path | str,
    *,
    say: Callable[[str], None] = lambda text: None,
    device: str = "cpu",
    precision: Precision = "auto",
) -> tuple[str, ...]:
    """Predict the test rows of GLUE with fine-tuned folders; write the files of answers and submission.zip into `out`.

    models  folders whose run names a benchmark (`--benchmark`), else "RTE=FOLDER"
    data    folder of GLUE, with a folder for each task
    device, precision  device and precision of the models (`Predictor`)

    An MNLI folder also predicts MNLI-m, MNLI-mm and AX if `data` has their test rows and no other folder is given for
    them. Returns the names of the missing files. Raises UnmaskError for a folder that names no task, two folders for
    one task, labels that are not those of the task, and missing test rows.
    """
    data, out = Path(data), Path(out)
    for name, (folder, named) in _assigned(models).items():
        benchmark = glue.find(name)
        try:
            rows = glue.split(name, data, "test")
        except UnmaskError as error:
            if named:
                raise
            say(f"{name}: {error}")
            continue
        say(f"{name}: {plural(len(rows), 'row')} of {rows.path}, predicted by {folder}.")
        predictor = Predictor(folder, length=length_of_run(folder), device=device, precision=precision)
        if predictor.settled.note:
            say(f"{name}: {predictor.settled.note}")
        answers = _answers(predictor, folder, benchmark, rows)
        for note in submission.write(out, name, answers, [row.id for row in rows]):
            say(f"{name}: {note}")
    missing = submission.pack(out)
    if missing:
        say(f"These files are missing, and GLUE requires all: {', '.join(missing)}.")
    say(f"The answers are in {out / submission.ZIP}.")
    return missing


def table(results: Sequence[str | Path], *, wnli: bool = False) -> Average:
    """The GLUE score of fine-tuning runs on their dev rows, each as the mean of its seeds.

    results  folders of runs, their results.json, or files of `unmask evaluate --json`; "MNLI-mm=FILE" if the folder
             does not name its task
    """
    scores: dict[str, Mapping[str, float]] = {}
    for given in results:
        name, path = _named(given)
        if not path.exists():
            raise UnmaskError(f"There is no file or folder {path}.")
        folder = path if path.is_dir() else path.parent
        benchmark = glue.find(name or _benchmark_of(folder)).name
        if benchmark in scores:
            raise UnmaskError(f"There are two results of {benchmark}; give one.")
        scores[benchmark] = _scores(path / "results.json" if path.is_dir() else path)
    return submission.average(scores, wnli=wnli)


# ------------------------------------------------------------------------------------------------ folders


def _named(given: str | Path) -> tuple[str, Path]:
    """("RTE", folder) for "RTE=folder", ("", folder) for a folder without a task."""
    name, equals, place = str(given).partition("=")
    return (name, Path(place)) if equals and "/" not in name else ("", Path(given))


def _benchmark_of(folder: Path) -> str:
    run = read_json(folder / "run.json") if (folder / "run.json").is_file() else {}
    name = run.get("config", {}).get("rows", {}).get("benchmark")
    if not name:
        raise UnmaskError(f"{folder} does not name its task; put it before the folder, as in RTE={folder}.")
    return str(name)


def _assigned(models: Sequence[str | Path]) -> dict[str, tuple[Path, bool]]:
    """Task -> its folder, and whether the folder was given for this task itself (not as MNLI for AX)."""
    found: dict[str, tuple[Path, bool]] = {}
    for given in models:
        name, folder = _named(given)
        benchmark = glue.find(name or _benchmark_of(folder))
        if not benchmark.submission:
            raise UnmaskError(f"{benchmark.name} is not a GLUE task: choose one of {', '.join(glue.GLUE)}.")
        if found.get(benchmark.name, (folder, False))[1]:
            raise UnmaskError(f"{found[benchmark.name][0]} and {folder} are both for {benchmark.name}; give one.")
        found[benchmark.name] = folder, True
        if benchmark.name.startswith("MNLI") and not name:
            for other in OF_MNLI:
                found.setdefault(other, (folder, False))
    return {name: found[name] for name in glue.GLUE if name in found}


# ------------------------------------------------------------------------------------------------ answers


def _answers(predictor: Predictor, folder: Path, benchmark: Benchmark, rows: Sequence[Any]) -> list[str | float]:
    """A label of the benchmark, or a score, for each row."""
    key = "label" if benchmark.labels else "score"
    wanted = next(task for task in TASKS.values() if task.learns(benchmark))
    if predictor.task is None or predictor.kind != wanted.name:
        raise UnmaskError(f"{benchmark.name} needs a model for {wanted.task_name}, which {folder} is not.")
    if not benchmark.labels:
        return [answer[key] for answer in predictor.answer(rows)]
    names = _spelling(folder, benchmark, predictor.task.labels)
    return [names[answer[key]] for answer in predictor.answer(rows)]


def _spelling(folder: Path, benchmark: Benchmark, labels: Sequence[str]) -> dict[str, str]:
    """Label of the model -> official label: by name, or by number if the model has no names (LABEL_0)."""
    official = {label.lower(): label for label in benchmark.labels}
    if {label.lower() for label in labels} == set(official):
        return {label: official[label.lower()] for label in labels}
    if len(labels) == len(official) and list(labels) == [f"LABEL_{i}" for i in range(len(labels))]:
        return dict(zip(labels, benchmark.labels, strict=True))
    raise UnmaskError(
        f"{folder} answers {', '.join(labels)}, but the labels of {benchmark.name} are {', '.join(benchmark.labels)}."
    )


def _scores(path: Path) -> dict[str, float]:
    """The metrics of a results.json, as means over the seeds, or of the output of `unmask evaluate --json`."""
    found = read_json(path)
    metrics = dict(_means(found)) if "summary" in found else found.get("metrics")
    if not isinstance(metrics, dict) or not all(isinstance(value, (int, float)) for value in metrics.values()):
        raise UnmaskError(f"{path} holds no scores of a run or of an evaluation.")
    return metrics


def _means(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, values in found["summary"]["dev"].items():
        yield name, values["mean"]
