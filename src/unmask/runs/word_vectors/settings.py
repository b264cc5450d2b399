"""The settings of word2vec: the network, its output layer, the words that get a vector, and how files are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.runs.word_vectors import sampling
from unmask.runs.word_vectors.reading import Reading


@dataclass(frozen=True, kw_only=True)
class Words(Config):
    """Which words get a vector, and how often they are used in training.

    min_count   rarer words are left out
    most        keep only the `most` frequent words; None: all
    limit       most different words in memory while the text is read (see `corpus.number`); None: no limit
    subsample   threshold for skipping frequent words at random (see `sampling.keep_probabilities`); 0: never
    phrases     passes that join pairs into phrases, such as 2 for `new_york_times`
    phrase_threshold  threshold of the first pass; each further one has half of it
    """

    min_count: int = 5
    most: int | None = None
    limit: int | None = None
    subsample: float = 1e-3
    phrases: int = 0
    phrase_threshold: float = 100.0


@dataclass(frozen=True, kw_only=True)
class Word2Vec(Config):
    """The settings of word2vec (Mikolov et al. 2013a, b); the defaults are those of gensim.

    network   skip-gram predicts a word from each neighbour, cbow from their mean
    output    negative: distinguish the word from `negative` others drawn at random; hierarchical: find it in a Huffman
              tree; softmax: choose it among all words, for small vocabularies
    negative  number of those others
    seed      of the initial vectors and of what is drawn
    noise     power of the counts by which those others are drawn
    dim       D, numbers of a vector
    window    largest distance of a neighbour, in words
    visits    the data are the visits of patients, sets of codes: the context of a code is all codes of its visit and of
              so many visits before and after it, and nearer ones count more; 0: the data are sets without an
              order, such as baskets; None: the data are sentences
    epochs    passes over the text
    alpha, min_alpha  first and last learning rate, linear in between
    save_minutes  minutes between checkpoints, in a run that has a folder
    """

    network: Literal["skip-gram", "cbow"] = "skip-gram"
    output: Literal["negative", "hierarchical", "softmax"] = "negative"
    dim: int = 100
    window: int = 5
    visits: int | None = None
    negative: int = 5
    noise: float = 0.75
    epochs: int = 5
    alpha: float = 0.025
    min_alpha: float = 1e-4
    seed: int = 0
    save_minutes: float = 10.0
    words: Words = field(default_factory=Words)
    reading: Reading = field(default_factory=Reading)

    @property
    def recipe(self) -> str:
        """The recipe of `unmask pretrain`."""
        return "word2vec" if self.network == "skip-gram" else "word2vec-cbow"

    @property
    def span(self) -> int:
        """Number of successive visits whose codes are contexts of each other; 0 for sentences."""
        return 0 if self.visits is None else self.visits + 1

    def check(self) -> None:
        """Raises UnmaskError for an invalid number."""
        for name in ("dim", "window", "epochs", "negative", "words.min_count"):
            if self.places()[name] < 1:
                raise UnmaskError(f"{name} must be at least 1, not {self.places()[name]}.")
        for name in ("most", "limit"):
            if (count := self.places()[f"words.{name}"]) is not None and count < 2:
                raise UnmaskError(f"words.{name} must be at least 2, or none for all words, not {count}.")
        if self.visits is not None and (self.visits < 0 or self.words.phrases):
            raise UnmaskError(
                "visits must not be negative, and codes of a visit have no order, so no phrases: leave --phrases out."
            )
        if not 0 <= self.min_alpha <= self.alpha or not self.alpha > 0:
            raise UnmaskError(
                f"The learning rate must fall from alpha to min_alpha, not {self.alpha} to {self.min_alpha}."
            )
        if not self.save_minutes > 0:
            raise UnmaskError(f"save_minutes must be above 0, not {self.save_minutes}.")
        if self.words.subsample < 0 or not math.isfinite(self.noise) or self.words.phrases < 0 or self.seed < 0:
            raise UnmaskError("subsample, phrases and seed must not be negative, and noise must be finite.")

    def questions(self, counts: np.ndarray) -> sampling.Output:
        """The output layer for words with these counts [V]. Raises UnmaskError for too many words for a softmax."""
        if self.output == "hierarchical":
            return sampling.hierarchical_softmax(counts)
        if self.output == "softmax":
            return sampling.full_softmax(len(counts))
        return sampling.negative_sampling(counts, self.negative, self.noise)
