"""Sentences on the end of a translation run: the score of the kept weights, and whether the model has learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask.errors import plural
from unmask.runs.pretraining.evaluation import CLEARLY
from unmask.train.calibrate import too_few
from unmask.train.metrics import chosen

LEARNED = {"exact": 0.5, "bleu": 5.0}
"""Metric -> the score of the dev pairs below which most translations are useless."""


def unigram_loss(train: Sequence[np.ndarray], dev: Sequence[np.ndarray], end: int, vocabulary: int) -> float:
    """Loss in nats per dev token, end tokens included, of predictions by training-token frequencies (add one) alone."""
    counts = np.ones(vocabulary)
    counts += np.bincount(np.concatenate(train), minlength=vocabulary)
    counts[end] += len(train)
    log_p = np.log(counts / counts.sum())
    total = log_p[np.concatenate(dev)].sum() + len(dev) * log_p[end]
    return float(-total / (sum(map(len, dev)) + len(dev)))


def kept(rows: Sequence[Mapping[str, Any]], metric: str) -> Mapping[str, Any] | None:
    """The evaluation whose weights are kept: the best one, the later of equals; None if there is none yet."""
    scored = [row for row in rows if metric in row]
    return max(scored, key=lambda row: (row[metric], row["step"]), default=None)


def score(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """The kept score, the number of evaluations, and the last score. There must be an evaluation."""
    scored, best = [row for row in rows if metric in row], kept(rows, metric)
    assert best is not None
    last = None if best is scored[-1] else shown(metric, scored[-1][metric])
    how = chosen(len(scored), best["step"], last)
    return f"{shown(metric, best[metric])}, {how}; perplexity {best['perplexity']:.2f}"


def warnings(
    rows: Sequence[Mapping[str, Any]], metric: str, minutes: float | None, floor: float | None, before: int = 0
) -> list[str]:
    """Sentences, with advice, for a complete run whose model is of no use; empty for any other.

    rows     evaluations
    minutes  planned minutes of the run; None: its length was given in steps
    floor    the loss of `unigram_loss`; None: the run continued from a model
    before   the steps before these minutes
    """
    learned = hardly_learned(rows, metric, floor, "--steps" if minutes is None else "--minutes")
    few = too_few(rows[-1]["step"] - before, minutes) if rows and (learned or floor is not None) else None
    return [sentence for sentence in (few, learned) if sentence]


def hardly_learned(rows: Sequence[Mapping[str, Any]], metric: str, floor: float | None, option: str) -> str | None:
    """A sentence for a model that is of no use yet; None for any other.

    option  the option that sets the length of the run
    """
    best = kept(rows, metric)
    if best is None:
        return None
    loss = best["next/nll"]
    if floor is not None and loss >= CLEARLY * floor:
        why = f"its loss on the dev pairs, {loss:.2f}, is not clearly better than word frequencies alone ({floor:.2f})"
    elif best[metric] < LEARNED.get(metric, 0.0):
        why = f"it has {shown(metric, best[metric])} on the dev pairs"
    else:
        return None
    after = plural(rows[-1]["step"], "step")
    return f"The model has hardly learned after {after}: {why}. Train longer: raise {option}."


def shown(metric: str, value: float) -> str:
    """A score as text."""
    named = {"bleu": "BLEU", "bleu_turns": "BLEU", "rouge1": "ROUGE-1", "f1": "F1"}
    if metric == "exact":
        return f"{value:.1%} exact"
    return f"{named[metric]} {value:.1f}" if metric in named else f"{metric} {value:.3f}"
