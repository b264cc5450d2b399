"""The model card of a translation run: its pairs and the scores of its texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.huggingface.card import Score
from unmask.runs import cards
from unmask.runs.translation.config import Translation

NAMES = {"next/nll": "loss", "next/correct": "accuracy", "next/loss": "smoothed_loss"}
"""Names of an evaluation -> of the card. The smoothed loss is the one that is minimised."""


def facts(
    config: Translation, dev: int, heldout: Mapping[str, Any], baseline: Mapping[str, float], metric: str
) -> dict[str, Any]:
    """The fields of the card (`huggingface.Card`).

    dev      number of dev pairs        heldout  the evaluation whose weights are kept; empty if there is none
    metric   the score that decided
    """
    texts, pictures = config.texts, config.model.reads_pictures
    data = ", ".join(cards.file_name(name) for name in texts.train)
    held_out = ", ".join(cards.file_name(name) for name in texts.dev) or data
    numbers = {name: value for name, value in heldout.items() if name not in ("step", "seconds", "split")}
    scored = min(dev, texts.scored)
    return {
        "learned": "It was trained to write texts on pictures."
        if pictures
        else "It was trained to write a text for a text.",
        "task": "image-to-text" if pictures else "text-to-text",
        "pipeline": "image-to-text" if pictures else texts.pipeline,
        "command": ("translate", "picture.png" if pictures else '"A text."'),
        "start": cards.name_of(config.start),
        "made": cards.made(config.start),
        "datasets": cards.datasets((*texts.train, *texts.dev)),
        "data": [
            f"Training pairs: `{data}`.",
            f"Dev pairs: {dev:,}, {'of' if texts.dev else 'held out of'} `{held_out}`.",
        ],
        "settings": cards.settings(
            {name: getattr(config, name).to_dict() for name in ("learning", "vocabulary", "search")}
            | {"tokens of a step": texts.tokens}
        ),
        "scores": [
            Score(held_out, "dev", NAMES.get(name, name), value, baseline.get(name))
            for name, value in numbers.items()
            if isinstance(value, float | int) and not name.startswith("loss/")
        ],
        "reference": "a model of word frequencies alone",
        "notes": [
            f"The scores of texts are those of greedy outputs for the first {scored:,} dev pairs; the best evaluation "
            f"by {metric} was kept, which makes them optimistic."
        ]
        if numbers
        else [],
    }
