"""Scoring: how a kind of head scores a text. Likelihood: the likelihood of some texts.

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

COPIES = 4_096  # copies of texts that are sorted by length into batches together

Framed = tuple[np.ndarray, np.ndarray]
"""The tokens [T] of a text with special tokens, and the positions of the tokens of the text itself."""


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of some texts.

    nll         -log p of all texts, in nats: of each token given those before it, and of the end of each text
    documents   number of texts
    tokens      number of predicted tokens, ends included; words, if the model predicts words
    words       number of words, separated by whitespace
    characters  number of characters; models with different tokenizers are compared per character
    unknown     number of tokens that the vocabulary lacks; the model predicts the unknown token for each
    """

    nll: float
    documents: int
    tokens: int
    words: int
    characters: int
    unknown: int

    @property
    def perplexity(self) -> float:
        """exp of the mean nll per token."""
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """exp of the mean nll per word."""
        return _exp(self.nll / self.words)

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.characters

    def to_dict(self) -> dict[str, Any]:
        names = ("perplexity", "word_perplexity", "bits_per_character")
        return {**asdict(self), **{name: getattr(self, name) for name in names}}

    def render(self) -> str:
        """A few lines of text for a terminal."""
        lines = [
            f"{plural(self.documents, 'document')}, {plural(self.tokens, 'token')}, {plural(self.words, 'word')}, "
            f"{plural(self.characters, 'character')}.",
            f"Perplexity {self.perplexity:.2f} per token, {self.word_perplexity:.2f} per word; "
            f"{self.bits_per_character:.3f} bits per character.",
        ]
        if self.unknown:
            lines.append(f"The model does not know {plural(self.unknown, 'token')}, so the true perplexity is higher.")
        return "\n".join(lines)


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


class Scoring(ABC):
    """How a kind of head scores a text.

    loaded          a model with its tokenizer
    head            name of the head that scores
    owner           name of the model in errors
    window, stride  for a model that reads a long text in windows (`Scorer`)

    name   name of the score, for output
    model  the model that reads the texts

    Raises UnmaskError for a folder that lacks a needed file, and for a window or stride with a model that reads whole
    texts.
    """

    name: ClassVar[str]
    model: Model
    whole_texts: ClassVar[str] = "this model"
    """Name of a model without windows, in errors."""

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        for name, value in (("window", window), ("stride", stride)):
            if value is not None:
                raise UnmaskError(
                    f"--{name} does not apply to {self.whole_texts}, which reads whole texts; leave it out."
                )
        self.model, self.head = loaded.model, head

    @classmethod
    @abstractmethod
    def reads(cls, model: Model, head: Head) -> bool:
        """Whether this scoring supports the head of the model."""

    @abstractmethod
    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """[N] the score of each text, in nats. Raises UnmaskError for a text that is too long."""

    def total(self, texts: Sequence[str]) -> tuple[float, int, int]:
        """(log-probability of all texts in nats, number of predicted tokens, number of unknown tokens among them).
        Raises UnmaskError for a model whose scores are not log-probabilities of texts."""
        raise _no_language_model()

    def language_model(self) -> NextTokenScoring:
        """See `Scorer.language_model`."""
        raise _no_language_model()


class TokenScoring(Scoring):
    """A scoring that is a sum over the tokens of a text."""

    @abstractmethod
    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, the score of each of its tokens, without special tokens. Raises UnmaskError for a text that
        is too long."""

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([one.sum(dtype=np.float64) for one in self.log_probabilities(texts)])


def _no_language_model() -> UnmaskError:
    return UnmaskError(
        "This model has no head that predicts the next token: use a language model, such as `unmask pretrain "
        "gpt-tiny` or `lstm-lm` makes."
    )


def each_token(
    lengths: Sequence[int],
    read: Callable[[Sequence[tuple[int, int]]], Iterable[float]],
    size: Callable[[int], int],
    device: torch.device,
) -> list[np.ndarray]:
    """The scores of each token of each text, with one copy of the text for each token.

    lengths  number of scored tokens of each text
    read     (index of a text, index of a token in it) for each copy -> a score for each
    size     index of a text -> number of tokens of a copy
    device   the device of the model
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
    """Texts with special tokens, of at most `longest` tokens each. Raises UnmaskError for a text that is too long."""
    return [_framed(tokenizer, longest, text, ids) for text, ids in zip(texts, tokenizer.ids(texts), strict=True)]


def _framed(tokenizer: Tokenizer, longest: int | None, text: str, ids: np.ndarray) -> Framed:
    tokens, _ = tokenizer.join(ids)
    if longest is not None and len(tokens) > longest:
        raise UnmaskError(
            f"'{text[:40]} …' has {len(tokens)} tokens, but the model reads at most {longest}: score it in parts."
        )
    before = next((i for i in range(len(tokens)) if np.array_equal(tokens[i : i + len(ids)], ids)), 0)
    return tokens, np.arange(before, before + len(ids))
