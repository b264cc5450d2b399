"""The model card of a fine-tuning run: its rows, its task and the scores of the model in the folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.huggingface.card import Card, Score
from unmask.runs import cards
from unmask.runs.finetuning.prepared import Prepared
from unmask.runs.finetuning.report import doubts, kept_seed
from unmask.tasks import Task

MOST_LABELS = 30  # labels that a card lists


def card_of(prepared: Prepared, results: Mapping[str, Any], notes: list[str], recipe: str) -> Card:
    """The card of the model of the kept seed.

    results  as in results.json
    notes    sentences on the scores of the dev rows
    """
    config, kind = prepared.config, prepared.config.kind
    kept = kept_seed(results)
    splits = [split for split in results["baseline"] if split in kept]
    data = {split: _data(prepared, split) for split in prepared.counts}
    scores = [
        Score(data.get(split, split), split, name, value, results["baseline"][split].get(name))
        for split in splits
        for name, value in kept[split].items()
        if name in results["baseline"][split] or name == results["metric"]
    ]
    settings = {"steps": kept["step"], "seed": kept["seed"], "seeds tried": len(results["seeds"]), "recipe": recipe}
    parts = {name: getattr(config, name).to_dict() for name in ("fit", "transfer", "options")}
    files = [config.rows.benchmark, *config.rows.files.values()]
    return Card(
        learned=_learned(results, kind.__doc__ or ""),
        task=kind.task_name,
        pipeline=prepared.pipeline,
        command=use_of(kind),
        start=cards.name_of(config.model),
        made=cards.made(config.model),
        datasets=cards.datasets(files),
        data=[_counted(prepared, split, data[split], count) for split, count in prepared.counts.items()],
        settings=settings | cards.settings(parts | {"length": config.rows.length}),
        scores=scores,
        reference=kind.reference,
        notes=[*filter(None, [prepared.notice]), *notes, *_spread(results)],
        warnings=doubts(results),
        tags=(kind.task_name,),
    )


def use_of(kind: type[Task]) -> tuple[str, str]:
    """The verb that uses a model of a task, and its arguments after `--model FOLDER`."""
    return ("embed", f"{kind.form.several} --out vectors.npy") if kind.gives_vectors else ("predict", kind.form.example)


def _learned(results: Mapping[str, Any], about: str) -> str:
    labels = results["labels"]
    listed = f" Its {len(labels)} labels: {', '.join(labels)}." if 0 < len(labels) <= MOST_LABELS else ""
    said = " ".join(about.split("\n\n")[0].split())
    return f"It was trained for {results['task']}: {said[:1].lower()}{said[1:]}{listed}"


def _data(prepared: Prepared, split: str) -> str:
    """The name of the rows of a split; rows that were held out have that of the training rows."""
    rows = prepared.config.rows
    return rows.benchmark or cards.file_name(rows.files.get(split) or rows.train or split)


def _counted(prepared: Prepared, split: str, data: str, count: int) -> str:
    rows = prepared.config.rows
    own = rows.benchmark is not None or rows.files.get(split) is not None
    return f"{split}: {count:,} rows {'of' if own else 'held out of'} `{data}`."


def _spread(results: Mapping[str, Any]) -> list[str]:
    """Mean and standard deviation over the seeds, where there are several."""
    if len(results["seeds"]) < 2:
        return []
    metric, found = results["metric"], results["summary"]
    of = [
        f"{split} {one[metric]['mean']:.4f} ± {one[metric]['std']:.4f}" for split, one in found.items() if metric in one
    ]
    return [f"{metric} over {len(results['seeds'])} seeds, mean and standard deviation: {', '.join(of)}."]
