"""The model card of a pre-training run: its corpora and its scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.config import read_json
from unmask.data.files import corpora
from unmask.files import MANIFEST
from unmask.huggingface.card import Score
from unmask.objectives import ObjectiveConfig
from unmask.runs import cards
from unmask.runs.pretraining.evaluation import DESCRIBED

HELD_OUT = "heldout"
UNITS = "Losses are in natural units of information (nats), accuracies are shares."
FREQUENCIES = "a model without a context: word frequencies alone, or the most frequent class"


def facts(
    kind: ObjectiveConfig,
    folders: Sequence[Path],
    heldout: Mapping[str, float],
    baseline: Mapping[str, float],
    processor: Any,
) -> dict[str, Any]:
    """The fields of the card (`huggingface.Card`) that the objective, the corpora and the last evaluation decide."""
    learned = " and ".join(dict.fromkeys(part.learned for part in kind.all() if part.learned != "nothing"))
    scores = _scores(", ".join(map(_name, folders)), heldout, baseline)
    return {
        "learned": f"It was pre-trained without labels, to learn {learned}.",
        "task": kind.kind,
        "pipeline": kind.pipeline,
        "command": cards.masked(kind.command, processor),
        "datasets": cards.datasets(place for folder in folders for place in _sources(folder)),
        "data": [_sentence(folder) for folder in folders],
        "scores": scores,
        "reference": FREQUENCIES,
        "notes": [UNITS] if scores else [],
    }


def _scores(data: str, heldout: Mapping[str, float], baseline: Mapping[str, float]) -> list[Score]:
    """The numbers of an evaluation, by the names of the field: `loss/mlm` is mlm_loss, `mlm/correct` mlm_accuracy."""
    found = []
    for key, value in heldout.items():
        first, _, second = key.partition("/")
        name = f"{second}_loss" if first == "loss" else f"{first}_{'accuracy' if second == 'correct' else second}"
        found.append(Score(data, HELD_OUT, name.rstrip("_"), value, baseline.get(key)))
    return found


def _sentence(folder: Path) -> str:
    """What a corpus holds, by its manifest."""
    kind, data = corpora.format_of(folder), _name(folder)
    if kind is None or kind not in DESCRIBED:
        return f"The files of the folder `{data}`."
    values = DESCRIBED[kind](_manifest(folder))
    return f"Corpus `{data}`: {', '.join(f'{name} {_shown(value)}' for name, value in values.items())}."


def _name(folder: Path) -> str:
    """A corpus by the files, or the folder, that it was built from; a folder of files by its own name."""
    return cards.files_name(list(filter(None, _sources(folder))), folder.resolve().name)


def _sources(folder: Path) -> Iterable[str]:
    """The names of the files and data sets that a corpus was built from."""
    return map(str, _manifest(folder).get("sources") or ()) if corpora.format_of(folder) else ()


def _manifest(folder: Path) -> dict[str, Any]:
    return read_json(folder / MANIFEST)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
