"""Scoring: how a kind of head scores a text; Likelihood, what a scorer finds out about some texts.

Shapes: N texts; T tokens of a text, special ones included.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError, plural
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.tasks import answered
from unmask.types import Head

if TYPE_CHECKING:
    from unmask.serve.likelihood.next_token import NextTokenScoring

COPIES = 4_096  # of texts that are made before they are read, in batches of equal lengths

Framed = tuple[np.ndarray, np.ndarray]
"""The tokens of a text as a model reads it, [T], and the places of those that are of the text itself."""


@dataclass(frozen=True)
class Likelihood:
    """How likely some texts are.

    nll         -log p of all of them, in nats: of every token from those before it, and of the end of each text
    tokens      that were predicted, the ends included; words, where the model predicts words
    words       runs of characters between whitespace
    characters  of the texts as they were given, which models of other tokens are compared by
    unknown     tokens that the model has no entry for: it predicts only that there is one
    """

    nll: float
    documents: int
    tokens: int
    words: int
    characters: int
    unknown: int

    @property
    def perplexity(self) -> float:
        """exp of the mean per token."""
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """exp of the mean per word."""
        return _exp(self.nll / self.words)

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.characters

    def to_dict(self) -> dict[str, Any]:
        names = ("perplexity", "word_perplexity", "bits_per_character")
        return {**asdict(self), **{name: getattr(self, name) for name in names}}

    def render(self) -> str:
        """A few lines for a person."""
        lines = [
            f"{plural(self.documents, 'document')}, {plural(self.tokens, 'token')}, {plural(self.words, 'word')}, "
            f"{plural(self.characters, 'character')}.",
            f"Perplexity {self.perplexity:.2f} per token, {self.word_perplexity:.2f} per word; "
            f"{self.bits_per_character:.3f} bits per character.",
        ]
        if self.unknown:
            lines.append(
                f"The model does not know {plural(self.unknown, 'token')}, so the text is less likely than this says."
            )
        return "\n".join(lines)


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


class Scoring(ABC):
    """How a kind of head scores a text.

    loaded          a model with its tokenizer
    head            name of the head of the model that scores
    owner           what an error calls the model
    window, stride  of a model that reads a long text in windows (`Scorer`)

    name   what a score is, in what is printed
    model  what reads the texts

    Raises UnmaskError for a folder that lacks what is needed, and for windows where texts are read whole.
    """

    name: ClassVar[str]
    model: Model
    whole_texts: ClassVar[str] = "this model"
    """What an error calls a model that has no windows."""

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        for name, value in (("window", window), ("stride", stride)):
            if value is not None:
                raise UnmaskError(f"--{name} means nothing to {self.whole_texts}, which reads whole texts.")
        self.model, self.head = loaded.model, head

    @classmethod
    @abstractmethod
    def reads(cls, model: Model, head: Head) -> bool:
        """Whether it scores texts by this head of this model."""

    @abstractmethod
    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """[N] how likely each text is, in nats. Raises UnmaskError for one that is too long."""

    def total(self, texts: Sequence[str]) -> tuple[float, int, int]:
        """The log-probability of all texts, the number of tokens that were predicted, and how many of these are unknown
        to the model. Raises UnmaskError for a model whose scores are no log-probabilities of texts."""
        raise _no_language_model()

    def language_model(self) -> NextTokenScoring:
        """See `Scorer.language_model`."""
        raise _no_language_model()


class TokenScoring(Scoring):
    """A scoring that is a sum over the tokens of a text."""

    @abstractmethod
    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, the score of every token of it, without special ones. Raises UnmaskError for one that is too
        long."""

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([one.sum(dtype=np.float64) for one in self.log_probabilities(texts)])


def _no_language_model() -> UnmaskError:
    return UnmaskError(
        "This model has no head that says the next token: take one of a language model, such as `unmask pretrain "
        "gpt-tiny` or `lstm-lm` makes."
    )


def each_token(
    lengths: Sequence[int],
    read: Callable[[Sequence[tuple[int, int]]], Iterable[float]],
    size: Callable[[int], int],
    device: torch.device,
) -> list[np.ndarray]:
    """For each text, a number for each of its tokens, from a copy of the text for each.

    lengths  of each text, the tokens that are scored
    read     (number of a text, number of a token in it) for each copy -> a number for each
    size     number of a text -> the tokens of a copy of it
    device   where the copies are read
    """
    found = [np.zeros(length, dtype=np.float32) for length in lengths]
    pairs = [(i, j) for i, length in enumerate(lengths) for j in range(length)]

    def numbers(some: Sequence[tuple[int, int]]) -> list[float]:
        return answered(lambda batch: read([some[k] for k in batch]), [size(i) for i, _ in some], device)

    for begin in range(0, len(pairs), COPIES):
        some = pairs[begin : begin + COPIES]
        for (i, j), number in zip(some, numbers(some), strict=True):
            found[i][j] = number
    return found


def framed(tokenizer: Tokenizer, longest: int | None, texts: Sequence[str]) -> list[Framed]:
    """Texts as a model of at most `longest` positions reads them. Raises UnmaskError for a text that is too long."""
    return [_framed(tokenizer, longest, text, ids) for text, ids in zip(texts, tokenizer.ids(texts), strict=True)]


def _framed(tokenizer: Tokenizer, longest: int | None, text: str, ids: np.ndarray) -> Framed:
    tokens, _ = tokenizer.join(ids)
    if longest is not None and len(tokens) > longest:
        raise UnmaskError(
            f"'{text[:40]} …' has {len(tokens)} tokens, but the model reads {longest}: score it in parts."
        )
    before = next((i for i in range(len(tokens)) if np.array_equal(tokens[i : i + len(ids)], ids)), 0)
    return tokens, np.arange(before, before + len(ids))
