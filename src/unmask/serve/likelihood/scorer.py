"""Scorer: the likelihood of texts under the model of a folder, with any kind of head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.heads import asked_of
from unmask.serve.likelihood.gaps import GapScoring
from unmask.serve.likelihood.masked import MaskedTokenScoring
from unmask.serve.likelihood.next_token import NextTokenScoring
from unmask.serve.likelihood.replaced import ReplacedTokenScoring
from unmask.serve.likelihood.scoring import Likelihood, Scoring
from unmask.serve.likelihood.words import WordScoring

DOCUMENTS = 256  # texts that are scored together

SCORINGS: tuple[type[Scoring], ...] = (
    NextTokenScoring,
    GapScoring,
    ReplacedTokenScoring,
    WordScoring,
    MaskedTokenScoring,
)
"""The kinds of scoring. A model with several heads uses the first kind that supports one of them."""


class Scorer:
    """Scores the likelihood of texts: `Scorer("lm").scores(["the film was good"])`.

    model   a folder, or what `huggingface.load` returned for it
    window  tokens that the model reads at a time; None: the number of its positions, or 1,024
    stride  tokens between the ends of two windows; None: half a window. A smaller stride takes longer and gives more
            context

    Raises UnmaskError for a folder without a head that scores texts, for an invalid window or stride, and for windows
    with a model that reads whole texts.
    """

    def __init__(self, model: Path | str | Loaded, *, window: int | None = None, stride: int | None = None) -> None:
        loaded = model if isinstance(model, Loaded) else huggingface.load(model)
        kind, head = _chosen(loaded)
        self.scoring = kind(loaded, head, "The model" if loaded is model else model, window=window, stride=stride)

    @property
    def name(self) -> str:
        """The name of the score, such as "log-probability"."""
        return self.scoring.name

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """[N] the score of each text, in nats: its log-probability or a substitute (`name`).

        Raises UnmaskError for a text that is longer than the model can read.
        """
        return self.scoring.scores(texts)

    def perplexity(self, texts: Iterable[str]) -> Likelihood:
        """The likelihood and perplexity of whole texts.

        Raises UnmaskError if there is no text, and for a model whose scores are not log-probabilities of texts.
        """
        nll, facts = 0.0, np.zeros(5, dtype=np.int64)
        for some in _together(texts):
            log_p, tokens, unknown = self.scoring.total(some)
            nll -= log_p
            words, characters = sum(len(text.split()) for text in some), sum(map(len, some))
            facts += np.array([len(some), tokens, words, characters, unknown])
        documents, tokens, words, characters, unknown = facts.tolist()
        if not words:
            raise UnmaskError("There is no text to score: all lines are empty.")
        return Likelihood(nll, documents, tokens, words, characters, unknown)

    def language_model(self) -> NextTokenScoring:
        """The scoring of sequences of ids by next-token prediction. Raises UnmaskError for a model that does not
        predict the next token."""
        return self.scoring.language_model()


def _chosen(loaded: Loaded) -> tuple[type[Scoring], str]:
    """The scoring of a model, and the name of its head. Raises UnmaskError for a model without a head that scores."""
    for kind in SCORINGS:
        for name, layer in loaded.model.heads.items():
            head = asked_of(layer)
            if head is not None and kind.reads(loaded.model, head):
                return kind, name
    raise UnmaskError(
        "No head of this model scores the likelihood of a text: use a pre-trained model, such as `unmask pretrain "
        "gpt-tiny` makes."
    )


def _together(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts that are scored together."""
    some: list[str] = []
    for text in texts:
        some.append(text)
        if len(some) == DOCUMENTS:
            yield some
            some = []
    if some:
        yield some
