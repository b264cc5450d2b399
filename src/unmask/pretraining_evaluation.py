"""The evaluation of a pre-training run on held-out text, beside word frequencies alone.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unmask.data.tokenizer import Tokenizer
from unmask.errors import plural
from unmask.objectives import Term
from unmask.types import Batch

CLEARLY = 0.97
"""Share of the loss of word frequencies below which a model clearly uses the context."""

FEW = 100
"""A run with a budget in minutes that takes fewer steps than this has hardly learned anything."""


def baseline(batches: Sequence[Batch], log_p: np.ndarray, terms: Iterable[Term]) -> dict[str, float]:
    """What a guess without any context reaches on the targets of `batches`.

    log_p  [V] log probability of each answer
    terms  the loss terms of the run

    loss/TERM     cross-entropy of each term that guesses text, in nats
    TERM/correct  share that the most frequent answer gets right
    """
    found = {}
    for name in guessing(terms):
        targets = _targets(batches, name)
        if len(targets):
            found[f"loss/{name}"] = float(-log_p[targets].mean())
            found[f"{name}/correct"] = float((targets == log_p.argmax()).mean())
    return found


def guessing(terms: Iterable[Term]) -> dict[str, Term]:
    """The terms that guess text, which word frequencies alone can do as well, by name."""
    return {term.name: term for term in terms if term.guess}


def characters(batches: Sequence[Batch], tokenizer: Tokenizer, terms: Iterable[Term]) -> float:
    """Characters of text that a token to be guessed stands for, on average: those of the text that the tokenizer makes
    of the tokens, spaces included; the token that ends a text counts, and stands for none."""
    targets = next((found for found in (_targets(batches, name) for name in guessing(terms)) if len(found)), ())
    return len(tokenizer.decode(np.asarray(targets))) / len(targets) if len(targets) else 0.0


def _targets(batches: Sequence[Batch], term: str) -> np.ndarray:
    """All that a term is to guess; nothing where no batch has a target for it."""
    values = [batch.targets[term].values.numpy() for batch in batches if term in batch.targets]
    return np.concatenate(values) if values else np.empty(0, np.int64)


def plateau(result: Mapping[str, float], baseline: Mapping[str, float], terms: Iterable[Term]) -> str | None:
    """A sentence for a run that learned no more than word frequencies, and what to try; None for one that did."""
    for name, term in guessing(terms).items():
        loss, floor = result.get(f"loss/{name}"), baseline.get(f"loss/{name}")
        if loss is not None and floor is not None and loss >= CLEARLY * floor:
            return (
                f"The held-out {term.guess} loss, {loss:.2f}, is not clearly better than word frequencies alone "
                f"({floor:.2f}): the model has hardly begun to use the context. Train longer, lower the learning rate, "
                "or lengthen the warm-up."
            )
    return None


def too_few(steps: int, minutes: float | None) -> str | None:
    """A sentence for a run by minutes in which hardly any step fitted, and what to do; None for any other."""
    if minutes is None or steps >= FEW:
        return None
    return (
        f"Only {plural(steps, 'step')} fitted into {plural(minutes, 'minute')}, too few for a model to learn much: "
        f"give it more --minutes, so that there are {FEW} steps at least."
    )
