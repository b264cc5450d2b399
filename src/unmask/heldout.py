"""What a pre-training run reaches on held-out text, beside word frequencies alone: numbers, and sentences on them.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from unmask.data.tokenizer import Tokenizer
from unmask.errors import plural
from unmask.types import Batch

WORDS = ("mlm", "next", "spans")
"""Loss terms that guess tokens of the text; a run has one of them, or none."""

SIDES = ("forward", "backward")
"""Loss terms that guess whole words of the text, which have numbers of their own; an ELMo has both."""


CLEARLY = 0.97
"""Share of the loss of word frequencies below which a model clearly uses the context."""

FEW = 100
"""A run with a budget in minutes that takes fewer steps than this has hardly learned anything."""


def guessed(batches: Sequence[Batch]) -> tuple[str, np.ndarray]:
    """The term that guesses tokens, and all the tokens that it is to guess; ("", nothing) where there is none."""
    for term in WORDS:
        values = _targets(batches, term)
        if len(values):
            return term, values
    return "", np.empty(0, np.int64)


def _targets(batches: Sequence[Batch], term: str) -> np.ndarray:
    """All that a term is to guess; nothing where it is none of the run."""
    values = [batch.targets[term].values.numpy() for batch in batches if term in batch.targets]
    return np.concatenate(values) if values else np.empty(0, np.int64)


def baseline(batches: Sequence[Batch], log_p: np.ndarray) -> dict[str, float]:
    """What a guess without any context reaches on the targets of `batches`, by log probabilities [V] of tokens, or of
    words where the run guesses those.

    loss/mlm, loss/next, loss/spans, or loss/forward and loss/backward  cross-entropy, in nats
    mlm/correct and so on                                               share that the most frequent one gets right
    """
    found = {}
    for term in (*WORDS, *SIDES):
        targets = _targets(batches, term)
        if len(targets):
            found[f"loss/{term}"] = float(-log_p[targets].mean())
            found[f"{term}/correct"] = float((targets == log_p.argmax()).mean())
    return found


def characters(batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """Characters of text that a token to be guessed stands for, on average: those of the text that the tokenizer makes
    of the tokens, spaces included; the token that ends a text counts, and stands for none."""
    _, targets = guessed(batches)
    return len(tokenizer.decode(targets)) / len(targets) if len(targets) else 0.0


def of_language(found: Mapping[str, float], per_token: float) -> dict[str, float]:
    """Of a mean negative log-likelihood next/nll, in nats per token: the perplexity exp(nll), and the bits per
    character, which models of other tokens can be compared by. Nothing where there is none."""
    nll = found.get("next/nll")
    if nll is None:
        return {}
    bits = {"next/bits_per_character": nll / math.log(2) / per_token} if per_token else {}
    return {"next/perplexity": math.exp(min(nll, 700.0)), **bits}


def sentences(found: Mapping[str, float], floor: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """How a run ended, in a sentence or two; none where it guessed no tokens.

    found, floor, before  the last evaluation, the baseline, and the evaluation of the folder that the run started from
    """
    lines = []
    if "loss/mlm" in found and "loss/mlm" in floor:
        start = f"at the start: {before['mlm/correct']:.1%}, {before['loss/mlm']:.2f}; " if "loss/mlm" in before else ""
        lines.append(
            f"Held-out masked words: {found['mlm/correct']:.1%} right, loss {found['loss/mlm']:.2f} ({start}word "
            f"frequencies alone: {floor['mlm/correct']:.1%}, {floor['loss/mlm']:.2f})."
        )
    if "next/perplexity" in found and "loss/next" in floor:
        start = f"at the start: {before['next/perplexity']:.1f}; " if "next/perplexity" in before else ""
        bits = found.get("next/bits_per_character")
        lines.append(
            f"Held-out text: {found['next/correct']:.1%} of the tokens right, perplexity "
            f"{found['next/perplexity']:.1f} ({start}word frequencies alone: {math.exp(floor['loss/next']):.1f})"
            + (f", {bits:.2f} bits per character." if bits is not None else ".")
        )
    if "spans/correct" in found and "loss/spans" in floor:
        start = f"at the start: {math.exp(min(before['spans/nll'], 700.0)):.1f}; " if "spans/nll" in before else ""
        lines.append(
            f"Held-out spans: {found['spans/correct']:.1%} of the tokens right, perplexity "
            f"{math.exp(min(found['spans/nll'], 700.0)):.1f} ({start}word frequencies alone: "
            f"{math.exp(floor['loss/spans']):.1f})."
        )
    if "loss/forward" in found:
        sides = [f"{math.exp(min(found[f'loss/{side}'], 700.0)):.1f}" for side in SIDES]
        first = [f"{math.exp(min(before[f'loss/{side}'], 700.0)):.1f}" for side in SIDES if f"loss/{side}" in before]
        beside = [f"at the start: {' and '.join(first)}"] if first else []
        if "loss/forward" in floor:
            beside.append(f"word frequencies alone: {math.exp(floor['loss/forward']):.1f}")
        more = f" ({'; '.join(beside)})" if beside else ""
        lines.append(f"Held-out words: perplexity {sides[0]} from those before, {sides[1]} from those behind{more}.")
    if "rtd/correct" in found:
        lines.append(
            f"Replaced tokens: {found['rtd/correct']:.1%} of all tokens told right, where {found['rtd/replaced']:.1%} "
            "were replaced."
        )
    stuck = plateau(found, floor)
    return lines + ([stuck] if stuck else [])


def plateau(result: Mapping[str, float], baseline: Mapping[str, float]) -> str | None:
    """A sentence for a run that learned no more than word frequencies, and what to try; None for one that did."""
    terms = ("masked-word", "next-token", "hidden-span", "next-word", "previous-word")
    for term, what in zip((*WORDS, *SIDES), terms, strict=True):
        loss, floor = result.get(f"loss/{term}"), baseline.get(f"loss/{term}")
        if loss is not None and floor is not None and loss >= CLEARLY * floor:
            return (
                f"The held-out {what} loss, {loss:.2f}, is not clearly better than word frequencies alone "
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
