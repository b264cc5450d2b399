"""The results of a fine-tuning run: the table of seeds on the terminal, and the report."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.config import read_json
from unmask.errors import UnmaskError, plural
from unmask.runs.report import Report, captioned, curve, history
from unmask.runs.run import LOWER_IS_BETTER, sign_of
from unmask.train import report
from unmask.train.checkpoint import RUN
from unmask.train.metrics import chosen

RESULTS = "results.json"  # the scores of each seed, in the folder of a fine-tuning run
FOLDS = "folds.json"  # the scores of each fold, in the folder of a cross-validation
EXAMPLES = "examples.json"  # dev rows with their answers, if they are pictures or recordings
MOST_CLASSES = 30  # of a confusion matrix that is drawn; with more classes, the most confused pairs are listed
MOST_PAIRS = 20
KEPT = "The predictions are those of the model in the folder."


def summary(found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Metric -> mean, standard deviation (of the sample) and worst over the seeds."""
    table = {}
    for name in found[0]:
        values = np.array([row[name] for row in found])
        worst = values.max() if name in LOWER_IS_BETTER else values.min()
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        table[name] = {"mean": float(values.mean()), "std": spread, "worst": float(worst)}
    return table


def report_of(folder: Path, facts: Mapping[str, Any]) -> Report:
    """The report of a run. Raises UnmaskError for a run that has not ended, or is damaged."""
    if not (folder / RESULTS).exists():
        raise UnmaskError(f"{folder} holds a fine-tuning run that has not ended, and has no scores yet.")
    if "config" not in facts:
        raise UnmaskError(f"{folder} holds a damaged run: its {RUN} has no config.")
    results, config = read_json(folder / RESULTS), facts["config"]
    sections: list[report.Section] = [report.Text(said, kind="warning") for said in [doubts(results)] if said]
    sections.append(report.Text(results["notes"]))
    sections += [_table(results, split) for split in results["baseline"]]
    sections += _charts(results, folder)
    sections += [_curve(f"{title}, on the dev rows", found) for title, found in results.get("curves", {}).items()]
    for title, found in results.get("tables", {}).items():
        sections.append(report.Table(f"{title}, on the dev rows", found["heads"], found["rows"], note=KEPT))
    if results["classes"]:
        sections.append(classes_section(results["classes"]))
    if results.get("confusion"):  # results of version 0.1 have none
        sections.append(confusion_section(results["confusion"]))
    if (folder / EXAMPLES).is_file():
        sections.append(_examples(folder / EXAMPLES))
    if (folder / "search.json").is_file():
        from unmask.runs.finetuning import search

        sections.append(search.section(folder))
    start = config["model"] or facts.get("recipe")
    subtitle = f"{start} on {config['rows']['train']}, {plural(len(results['seeds']), 'seed')}"
    return Report(f"{'Fine-tuned' if config['model'] else 'Trained'} for {results['task']}", subtitle, sections, config)


def weakness(folder: Path, facts: Mapping[str, Any]) -> str | None:
    """The sentence of `doubts` for the model in the folder of a run."""
    return next(iter(doubts(read_json(folder / RESULTS))), None)


def doubts(results: Mapping[str, Any]) -> list[str]:
    """A sentence, with advice, for a model that is hardly better than the baseline on the dev rows: by no more than one
    standard error, taken for a mean over the rows of numbers from 0 to 1, which is at most sqrt(score (1 - score) /
    rows)."""
    metric, floor = results["metric"], results["baseline"]["dev"]
    if metric not in floor:
        return []
    found = kept_seed(results)["dev"][metric]
    gain, rows = sign_of(metric) * (found - floor[metric]), results.get("rows", {}).get("dev")
    error = math.sqrt(max(0.0, found * (1 - found)) / rows) if rows else 0.0
    if gain > error:
        return []
    beside = f"no better than {floor[metric]:.4f}, the baseline"
    if gain > 0:
        beside = f"within a standard error ({error:.4f}) of {floor[metric]:.4f}, the baseline"
    return [
        f"The model has hardly learned: its {metric} on the dev rows, {found:.4f}, is {beside}. Set a higher --lr, "
        "train longer (--epochs), give more rows, or start from a model that was trained longer."
    ]


def kept_seed(results: Mapping[str, Any]) -> Mapping[str, Any]:
    """The results of the seed whose model is in the folder."""
    return {row["seed"]: row for row in results["seeds"]}[results["kept"]]


def render_result(results: Mapping[str, Any]) -> str:
    """Metrics by seed, their mean and spread, and the baseline, as a table of text for each split."""
    lines = []
    for split in results["baseline"]:
        names, rows = _rows(results, split)
        cells = [[head, *("" if value is None else f"{value:.4f}" for value in values)] for head, *values in rows]
        table = [[split, *names], *cells]
        widths = [max(9, *map(len, column)) + 2 for column in zip(*table, strict=True)][1:]
        lines += [f"{head:<10}" + "".join(map(str.rjust, row, widths)) for head, *row in table]
        lines += [*chosen_sentences(results), *doubts(results)] if split == "dev" else []
    return "\n".join(lines)


def chosen_sentences(results: Mapping[str, Any]) -> list[str]:
    """For each seed, a sentence that its dev score is the best of so many evaluations, which makes it optimistic; empty
    for older results, which do not have the number of evaluations."""
    found = [run for run in results["seeds"] if "evaluations" in run]
    of = ((run["seed"], chosen(run["evaluations"], run["step"], _last(results, run))) for run in found)
    return [f"The dev scores of seed {seed} are of {choice}." for seed, choice in of]


def _last(results: Mapping[str, Any], run: Mapping[str, Any]) -> str | None:
    """The score of the last evaluation of a seed, with its precision unless that is fp32, as of the other scores; None
    if that evaluation is the best."""
    if run["step"] == run["total"]:
        return None
    precision = run.get("precision", "fp32")  # results of version 0.1 have none
    return f"{results['metric']} {run['last']:.4f}" + ("" if precision == "fp32" else f" in {precision}")


def shown(values: Mapping[str, float]) -> str:
    """Metrics as a part of a sentence."""
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def _rows(results: Mapping[str, Any], split: str) -> tuple[list[str], list[list[Any]]]:
    """Names of the metrics, and the rows of the table: a name and a value for each metric, None if there is none.

    The metrics are those that the baseline has (not the loss), and the one that decides.
    """
    baseline, summary, seeds = results["baseline"][split], results["summary"][split], results["seeds"]
    names = [name for name in seeds[0][split] if name in baseline or name == results["metric"]]
    rows = [[f"seed {run['seed']}", *(run[split][name] for name in names)] for run in seeds]
    if len(seeds) > 1:
        rows += [[kind, *(summary[name][kind] for name in names)] for kind in ("mean", "std", "worst")]
    return names, [*rows, ["baseline", *(baseline.get(name) for name in names)]]


def _table(results: Mapping[str, Any], split: str) -> report.Table:
    names, rows = _rows(results, split)
    note = f"The folder has the model of seed {results['kept']}, whose {results['metric']} on the dev rows is best."
    restarted = [str(run["seed"]) for run in results["seeds"] if run.get("restarted")]
    if restarted:
        note += f" Started again, as the first try collapsed: seed {', '.join(restarted)}."
    if split == "dev":
        note = " ".join([note, *chosen_sentences(results)])
    heads = [name.replace("_", " ") for name in names]  # so that long ones take two lines
    return report.Table(f"Scores on the {split} rows", ["", *heads], rows, note=note)


def _charts(results: Mapping[str, Any], folder: Path) -> list[report.Section]:
    """Charts of the metric and of the losses, with a line for each seed."""
    metric, scored, losses = results["metric"], {}, []
    for run in results["seeds"]:
        name = f"seed {run['seed']}"
        train, scored[name] = history(folder / "seeds" / str(run["seed"]))
        key = next((name for row in train for name in row if name.startswith("loss/")), "loss")
        losses.append(report.Series(f"{name}, training", [(row["step"], row.get(key)) for row in train]))
        losses.append(report.Series(f"{name}, dev", [(row["step"], row.get("loss")) for row in scored[name]]))
    floors = {"baseline": results["baseline"]["dev"][metric]} if metric in results["baseline"]["dev"] else {}
    losses = [series for series in losses if any(value is not None for _, value in series.points)]
    return [*curve(f"{metric} on the dev rows", metric, scored, floors=floors), report.Chart("Loss", losses)]


def _curve(title: str, found: Mapping[str, Any]) -> report.Chart:
    points = [(x, y) for x, y in found["points"]]
    return report.Chart(title, [report.Series("model", points)], x=found["x"], y=found["y"], log_x=found["log_x"])


def classes_section(classes: Mapping[str, Mapping[str, float]], of: str = "the dev rows") -> report.Table:
    """Precision, recall and F1 of each class; `of` names the rows."""
    names = ("precision", "recall", "f1", "support")
    rows: Sequence[Sequence[Any]] = [
        [label, *(found[name] for name in names[:3]), int(found["support"])] for label, found in classes.items()
    ]
    return report.Table(f"Each class, on {of}", ["", *names], rows)


def confusion_section(
    found: Mapping[str, Mapping[str, int]], of: str = "the dev rows", by: str = KEPT
) -> report.Section:
    """The confusion matrix, or the most confused pairs of more than MOST_CLASSES classes.

    of  names the rows
    by  a sentence that names the model
    """
    title, rows = f"Confusion matrix, on {of}", {label: sum(counts.values()) for label, counts in found.items()}
    if len(found) > MOST_CLASSES:
        pairs = [(n, label, other) for label, counts in found.items() for other, n in counts.items() if other != label]
        pairs = sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]
        cells = [[label, other, n, n / rows[label]] for n, label, other in pairs]
        note = f"The most frequent mistakes. The last column is their share of the rows with that label. {by}"
        return report.Table(f"Most confused classes, on {of}", ["label", "prediction", "rows", "share"], cells, note)
    counts = [[found[label].get(other, 0) for other in found] for label in found]
    shares = [[n / max(1, rows[label]) for n in row] for label, row in zip(found, counts, strict=True)]
    texts = [[str(n) if n else "" for n in row] for row in counts]
    note = f"A row for each label, a column for each prediction; colour is the share of the row. {by}"
    return report.Heatmap(title, list(found), list(found), shares, note=note, texts=texts)


def _examples(path: Path) -> report.Gallery:
    """Dev rows as pictures or spectrograms, with their predictions. Raises UnmaskError for a damaged file."""
    shown = []
    try:
        for one in read_json(path)["dev"]:
            good = one["label"] == one["predicted"]
            lines = [f"{one['predicted'] or '(nothing)'}", f"{one['probability']:.1%}"] + (
                [] if good else [f"label: {one['label']}"]
            )
            shown.append(captioned(base64.b64decode(one["picture"]), lines, str(one["place"]), good))
    except (KeyError, TypeError, ValueError):
        raise UnmaskError(f"{path} is damaged: delete it, and the report has no examples.") from None
    note = f"Predictions with their probabilities: the most confident mistakes first, then correct rows. {KEPT}"
    return report.Gallery("Examples of the dev rows", shown, note)
