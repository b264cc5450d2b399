"""Objective: how training data is prepared, and which loss is minimised. It owns no parameters."""

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
    guess     the name of a prediction, if the targets are text, which has word frequencies as its baseline; else ""
    table     title of the comparison with that baseline
    accuracy  what the accuracy is the share of
    more      (metric, title of its curve) of further metrics
    classes   whether the targets are a few classes, whose most frequent one is a baseline
    """

    name: str
    label: str
    guess: str = ""
    table: str = "Held-out documents, token by token"
    accuracy: str = "tokens that were predicted correctly"
    more: tuple[tuple[str, str], ...] = ()
    classes: bool = False


@dataclass(frozen=True)
class Probe:
    """A text with a question that the model answers at each evaluation, or a picture or recording.

    text      as it is shown; of a picture or recording, its name
    tokens    [T] ids with special tokens; of a picture or recording, empty
    expected  answers that a reader would give
    item      the picture [H, W, C] uint8, or the example of a recording
    """

    text: str
    tokens: np.ndarray
    expected: tuple[str, ...] = ()
    item: Any = None


Guesses = list[tuple[str, float]]
"""Predictions for a probe with their probabilities, the most likely first."""


class StreamOptions(TypedDict):
    """The options of training rows that do not depend on the objective: see `data.text.stream.stream`."""

    length: int
    cut: EqualRows
    seed: int
    workers: int
    alpha: float
    window: int | None


class Objective:
    """The base of all objectives: how one samples sequences, chooses targets, and scores predictions.

    name         of its loss term, of its target in `Batch.targets`, and of the head that predicts it
    heads        the heads that it needs: name of the head -> its kind
    terms        its loss terms, as a report describes them
    head_labels  (head, its name in messages) of the heads that it trains
    teachable    the head that predicts a distribution over the vocabulary, for distillation; "" for none
    restores     whether it predicts the pixels of pictures (`RestoredPictures`)
    """

    name: str
    heads: Mapping[str, Head]
    terms: tuple[Term, ...] = ()
    head_labels: tuple[tuple[str, str], ...] = ()
    teachable: str = ""
    restores: bool = False

    @property
    def weights(self) -> Mapping[str, float]:
        """Loss term -> weight in the total."""
        return {self.name: 1.0}

    # -- data

    def sample(self, documents: Sequence[Document], length: int, rng: np.random.Generator) -> list[Example]:
        """Sequences of at most `length` tokens from some documents, before they are packed into rows."""
        raise NotImplementedError(f"{type(self).__name__} chooses targets only; join it with one that samples text")

    def corrupt(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Choose targets in packed rows, and change the input where the objective needs it."""
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
        """One pass through the model: its hidden states, the batch that it read, and loss terms that arise in reading.
        Of joint objectives, the last one reads."""
        return model(batch), batch, {}

    def score(self, model: Model, hidden_BTD: Tensor, batch: Batch) -> Loss:
        """Cross-entropy of the head's predictions at the targets of `batch`, in nats, with the number correct."""
        target = batch.targets[self.name]
        return self.of_answers(model.logits(self.name, hidden_BTD, target.places, batch), target.values)

    def of_answers(self, logits: Tensor | Logits, values_M: Tensor) -> Loss:
        """As `score`, from logits [M, C], or from the product that makes them."""
        return of_logits(logits, values_M)

    def loss(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """One Loss for each term, after one pass through the model; that of a term without targets is 0."""
        hidden_BTD, seen, losses = self.read(model, batch.asking(self.weights))
        return losses | {self.name: self.score(model, hidden_BTD, seen)}

    def on_step(self, step: int, total: int) -> None:
        """Called before the update number `step` (from 0) of `total`, for what changes as a run goes. It depends only
        on its arguments, so that a resumed run continues exactly."""

    # -- evaluation and report

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        """How often each target value occurs in the training text, plus one for each: the baseline without context.

        vocabulary, length  entries of the tokenizer, tokens of a row

        By default [V], the counts of the tokens.
        """
        counts = np.ones(vocabulary)
        for split in splits:
            counts[: split.vocabulary] += split.unigrams()
        return counts

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        """Further metrics of an evaluation, computed from those in `found`.

        characters  the mean number of characters of text for each target token
        """
        return {}

    def concerns(self, found: Mapping[str, float]) -> list[str]:
        """Sentences, with advice, on an evaluation which shows that training goes wrong. A run shows them at once."""
        return []

    def measured(self, model: Model, heldout: Sequence[Batch]) -> dict[str, Any]:
        """Plain JSON values that a folder keeps for its answers, computed from the held-out rows; call it in evaluation
        mode, without gradients."""
        return {}

    def summary(
        self, found: Mapping[str, float], baseline: Mapping[str, float], before: Mapping[str, float]
    ) -> list[str]:
        """The results of a run, in sentences.

        found, baseline, before  the last evaluation, the baseline, and the evaluation of the folder that the run
                                 started from (empty for fresh weights)
        """
        return []

    def amount(self, tokens: int) -> str:
        """How much the tokens of a step are in units of the data, such as hours of sound; "" where they say it all."""
        return ""

    def probes(self, split: Split, tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Probes from a held-out split, the same for every run on the corpus."""
        return []

    def probes_of(self, texts: Mapping[str, Sequence[str]], tokenizer: Tokenizer, length: int) -> list[Probe]:
        """Probes from texts and the answers that a reader would give."""
        return []

    def guesses(self, model: Any, tokenizer: Tokenizer, probes: Sequence[Probe]) -> list[Guesses]:
        """The model's predictions for each probe; call it without gradients."""
        return [[] for _ in probes]

    def pictures(self, model: Any, processor: Any, probes: Sequence[Probe]) -> list[dict[str, np.ndarray]]:
        """For each probe, pictures [H, W, C] uint8 by name that show what the model does with it; call it without
        gradients."""
        return [{} for _ in probes]

    def folder_words(self, tokenizer: Tokenizer) -> Sequence[str]:
        """The words that a head predicts, as a folder keeps them (`words.txt`); empty where no head predicts words."""
        return ()


class Joint(Objective):
    """Several objectives on the same sequences, with one pass through the trunk.

    The first one samples, each chooses its targets in turn, and the last one runs the model and may change its input.
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
        # A batch may have no pairs. Every process still runs every head, because the processes of a sharded model must
        # all send gradients of the same parameters.
        hidden_BTD, seen, losses = self.parts[-1].read(model, batch.asking(self.weights))
        return losses | {part.name: part.score(model, hidden_BTD, seen) for part in self.parts}

    def on_step(self, step: int, total: int) -> None:
        for part in self.parts:
            part.on_step(step, total)

    def expected_counts(self, splits: Sequence[Split], vocabulary: int, length: int) -> np.ndarray:
        return self.parts[-1].expected_counts(splits, vocabulary, length)

    def derived(self, found: Mapping[str, float], characters: Callable[[], float]) -> dict[str, float]:
        return {name: x for part in self.parts for name, x in part.derived(found, characters).items()}

    def concerns(self, found: Mapping[str, float]) -> list[str]:
        return [line for part in self.parts for line in part.concerns(found)]

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
    """exp of a mean negative log-likelihood in nats, capped so that it is finite."""
    return math.exp(min(nll, 700.0))
