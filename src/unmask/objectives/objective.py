"""Objective: what the data must look like and what is minimised. It owns no parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
from torch import Tensor

from unmask.data.loader import EqualRows, Loader
from unmask.data.text import stream
from unmask.data.text.corpus import Split
from unmask.data.text.tokenizer import Tokenizer
from unmask.models.model import Model
from unmask.nn import Logits
from unmask.objectives.cross_entropy import of_logits
from unmask.types import Batch, Document, Example, Head, Loss


class Join(Protocol):
    """How a tokenizer frames one or two runs of ids with its special tokens: `Tokenizer.join`."""

    def __call__(
        self, first: np.ndarray, second: np.ndarray | None = None, length: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]: ...


class Term(NamedTuple):
    """A loss term, as a report describes it.

    name      as in metrics
    label     of its curves
    guess     what is guessed, where that is text, so that word frequencies alone are a baseline; "" elsewhere
    table     title of the comparison with that baseline
    accuracy  what the accuracy is a share of
    """

    name: str
    label: str
    guess: str = ""
    table: str = "Held-out documents, token by token"
    accuracy: str = "tokens that were thought likeliest"


@dataclass(frozen=True)
class Probe:
    """A text with a question to the model, answered at each evaluation.

    text      as it is shown
    tokens    [T] ids with special tokens
    expected  answers that a reader would give
    """

    text: str
    tokens: np.ndarray
    expected: tuple[str, ...] = ()


Guesses = list[tuple[str, float]]
"""Answers to a probe and their probabilities, the likeliest first."""


class StreamOptions(TypedDict):
    """The options of training rows that objectives do not decide: see `data.text.stream.stream`."""

    length: int
    cut: EqualRows
    seed: int
    workers: int
    alpha: float


class Objective:
    """One thing to learn: how it samples sequences, chooses its targets, and scores the answers.

    name         of its loss term, of its target in `Batch.targets`, and of the head that answers it
    heads        what it asks of the model: name of the head -> its kind
    terms        its loss terms, as a report describes them
    head_labels  (head, its name in messages) of the heads that it trains
    teachable    the head whose answers are a distribution over the vocabulary, which a teacher can soften; "" for none
    """

    name: str
    heads: Mapping[str, Head]
    terms: tuple[Term, ...] = ()
    head_labels: tuple[tuple[str, str], ...] = ()
    teachable: str = ""

    @property
    def weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total."""
        return {self.name: 1.0}

    # -- data

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Sequences of at most `length` tokens out of some documents, before they are packed into rows."""
        raise NotImplementedError(f"{type(self).__name__} chooses targets only; join it with one that samples text")

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Choose targets in packed rows, and change the input where the objective asks for it."""
        return batch

    def stream(self, splits: Sequence[Any], options: StreamOptions) -> Loader:
        """The rows of a training run, without end."""
        return stream.stream(splits, sample=self.sample, corrupt=self.corrupt, **options)

    def evaluation_rows(self, splits: Sequence[Any], *, length: int, rows: int, limit_rows: int) -> list[Batch]:
        """Rows of held-out text, the same at every call, `rows` at a time; fewer where the text is short."""
        sizes = {"length": length, "rows": rows, "limit_rows": limit_rows}
        return stream.fixed(splits, sample=self.sample, corrupt=self.corrupt, **sizes)

    # -- the loss

    def read(self, model: Model, batch: Batch) -> tuple[Tensor, Batch, dict[str, Loss]]:
        """One pass through the model: its hidden states, the batch that it saw, and terms that come of reading it. Of
        objectives that are joined, the last one reads."""
        return model(batch), batch, {}

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy of the head's answers at the targets of `batch`, in nats, with the number right."""
        target = batch.targets[self.name]
        return self.of_answers(model.logits(self.name, hidden_BTD, target.places, batch), target.values)

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        """The same of answers [M, C] that are there already, or are a product away."""
        return of_logits(logits, values_M)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through the model; of a term without a target it is 0."""
        hidden_BTD, seen, losses = self.read(model, batch.asking(self.weights))
        return losses | {self.name: self.score(model, hidden_BTD, seen)}

    # -- evaluation and report

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        """How often each answer comes in the training text, with one added to each: the baseline without any context.

        vocabulary, length  entries of the tokenizer, tokens of a row

        By default [V], the counts of the tokens.
        """
        counts = np.ones(vocabulary)
        for split in splits:
            counts[: split.vocabulary] += split.unigrams()
        return counts

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        """Further metrics of an evaluation, out of those that were found.

        characters  how many characters of text a token to be guessed stands for, on average
        """
        return {}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        """How a run ended, in sentences.

        found, baseline, before  the last evaluation, the baseline, and the evaluation of the folder that the run
                                 started from (empty for fresh weights)
        """
        return []

    def probes(self, split: Split, tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Texts out of a held-out split with questions to the model, the same for every run on the corpus."""
        return []

    def probes_of(self, texts: Mapping[str, Sequence[str]], tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Probes out of texts and the answers that a reader would give."""
        return []

    def guesses(self, model: Any, tokenizer: Tokenizer, probes: Sequence[Probe]) -> list[Guesses]:
        """The answers of the model to each probe; call it without gradients."""
        return [[] for _ in probes]

    def folder_words(self, tokenizer: Tokenizer) -> Sequence[str]:
        """What a folder keeps of the words that a head guesses (`words.txt`); empty where no head guesses words."""
        return ()


class Joint(Objective):
    """Several objectives on the same sequences, with one pass through the trunk.

    The first one samples, each chooses its targets in turn, and the last one, which may change what is read, reads.
    BERT is `Joint(NextSentence(join), MaskedLM(...))`.
    """

    def __init__(self, *parts: Objective, weights: Mapping[str, float] | None = None) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)
        self.heads = {name: head for part in parts for name, head in part.heads.items()}
        self.terms = tuple(term for part in parts for term in part.terms)
        self._weights = {name: w for part in parts for name, w in part.weights.items()} | dict(weights or {})

    @property
    def weights(self) -> Mapping[str, float]:
        return self._weights

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        return self.parts[0].sample(documents, length, rng)

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        for part in self.parts:
            batch = part.corrupt(batch, rng)
        return batch

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        # No pair may have been long enough. Every process asks every head all the same, for a sharded model sends its
        # gradients together, and those of all processes must be the same ones.
        hidden_BTD, seen, losses = self.parts[-1].read(model, batch.asking(self.weights))
        return losses | {part.name: part.score(model, hidden_BTD, seen) for part in self.parts}

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        return self.parts[-1].expected_counts(splits, vocabulary, length)

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        return {name: x for part in self.parts for name, x in part.derived(found, characters).items()}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        return [line for part in self.parts for line in part.summary(found, baseline, before)]

    def probes(self, split: Split, tokenizer: Tokenizer, length: int) -> list[Probe]:
        return self.parts[-1].probes(split, tokenizer, length)

    def probes_of(self, texts: Mapping[str, Sequence[str]], tokenizer: Tokenizer, length: int) -> list[Probe]:
        return self.parts[-1].probes_of(texts, tokenizer, length)

    def guesses(self, model: Any, tokenizer: Tokenizer, probes: Sequence[Probe]) -> list[Guesses]:
        return self.parts[-1].guesses(model, tokenizer, probes)


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood in nats, finite for any of them."""
    return math.exp(min(nll, 700.0))
