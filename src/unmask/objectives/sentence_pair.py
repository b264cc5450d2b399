"""How sequences are made of sentences: single runs, or pairs with an objective, for the pre-training of encoders.

`Sentences` is the type of the field that chooses this. `SingleRuns` has no objective; pairs are objectives themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.objectives.config import ObjectiveConfig
from unmask.objectives.objective import Join, Objective
from unmask.types import Example, Head

MANY = 0.1  # share of documents of one sentence above which a run says so


@dataclass(frozen=True, kw_only=True)
class Sentences(ObjectiveConfig):
    """The content of the sequences of an objective.

    short  share of the sequences, or pairs, that aim at a random shorter length
    """

    short: float = 0.1

    off = (("short", 0.0),)
    optional = True
    ignored: ClassVar[bool] = False
    """Whether objectives without sentences accept this choice, because it has no effect."""

    @classmethod
    def chosen(cls, current: ObjectiveConfig, option: str, value: str) -> ObjectiveConfig | None:
        """As `ObjectiveConfig.chosen`; it goes into the field of `current` for sentences, or replaces `current`."""
        made = cls().like(current)
        if isinstance(current, Sentences):
            return made
        return current.with_part(option, made) or (current if cls.ignored else None)

    def question(self, tokenizer: Tokenizer) -> Objective | None:
        """The objective that samples and classifies pairs; None where sequences are single runs."""
        return None


@dataclass(frozen=True, kw_only=True)
class SingleRuns(Sentences):
    """Runs of consecutive sentences, without an objective of their own."""

    kind = "runs"
    learned = "nothing"
    example = "roberta-tiny"
    choices = (("sentences", "none"),)
    ignored = True

    def build(self, tokenizer: Tokenizer, splits: Sequence[Split] = (), words: Sequence[str] = ()) -> Objective:
        """Always raises UnmaskError."""
        raise UnmaskError("There is nothing to learn: set --masked true, --sentences next or order, or --written next.")


@dataclass(frozen=True, kw_only=True)
class PairConfig(Sentences):
    """Pairs of sentences with two classes; also an objective by itself."""

    learned = "pairs of sentences"
    example = "bert-tiny"
    requires = frozenset({"bidirectional"})

    def question(self, tokenizer: Tokenizer) -> Objective:
        return self.build(tokenizer)

    def check_data(self, splits: Sequence[Split]) -> list[str]:
        alone, documents = sum(split.single for split in splits), sum(split.documents for split in splits)
        if alone <= MANY * documents:
            return []
        return [
            f"{alone:,} of {documents:,} documents have one sentence, from which pairs of sentences cannot be learned: "
            "learn the masked words alone (--sentences none), or build the corpus from longer documents (--per)."
        ]


class SentencePair(Objective):
    """Binary classification of two segments at [CLS].

    join   frames two runs of ids with special tokens: `Tokenizer.join`
    short  share of the pairs that aim at a random shorter length
    """

    def __init__(self, join: Join, *, short: float = 0.1) -> None:
        self.heads = {self.name: Head("sequence", 2, pretraining=True)}
        self.join, self.short = join, short
        nothing = np.zeros(0, dtype=np.int64)
        self.frame = len(join(nothing, nothing)[0])  # special tokens of a pair: 3 for BERT, 4 for RoBERTa

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        key = f"{self.name}/correct"
        if key not in found or key not in baseline:
            return []
        label, constant = self.terms[0].label.capitalize(), f"{baseline[key]:.1%}"
        return [f"{label}: accuracy {found[key]:.1%} on held-out pairs (the more frequent answer: {constant})."]


def end_of(sentences: Sequence[np.ndarray], at: int, target: int) -> int:
    """The end of the run of sentences that begins at `at`, has at least one sentence, and reaches `target` tokens or
    the last sentence."""
    end, total = at + 1, len(sentences[at])
    while end < len(sentences) and total < target:
        total += len(sentences[end])
        end += 1
    return end


def truncated(
    first: np.ndarray, second: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shorten the longer segment, token by token and from a random end each time, until the pair fits."""
    excess = max(0, len(first) + len(second) - room)
    gap = abs(len(first) - len(second))
    # The closed form of removing tokens from the longer segment until both have the same length, then in turn.
    from_longer = min(excess, gap) + (max(0, excess - gap) + 1) // 2
    cuts = (from_longer, excess - from_longer) if len(first) >= len(second) else (excess - from_longer, from_longer)

    def cut(segment: np.ndarray, tokens: int) -> np.ndarray:
        front = int(rng.binomial(tokens, 0.5)) if tokens else 0
        return segment[front : len(segment) - (tokens - front)]

    return cut(first, cuts[0]), cut(second, cuts[1])


def example(join: Join, first: np.ndarray, second: np.ndarray, name: str, label: int) -> Example:
    tokens, segments = join(first, second)
    return Example(tokens, segments, {name: (np.zeros(1, dtype=np.int64), np.array([label], dtype=np.int64))})
