"""Scorer: how likely texts are to the model of a folder, by whatever kind of head it has."""

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

DOCUMENTS = 256  # that are read before they are scored together

SCORINGS: tuple[type[Scoring], ...] = (
    NextTokenScoring,
    GapScoring,
    ReplacedTokenScoring,
    WordScoring,
    MaskedTokenScoring,
)
"""How heads score texts. A model with several heads is scored by the first of these that knows one of them."""


class Scorer:
    """Says how likely texts are: `Scorer("lm").scores(["the film was good"])`.

    model   a folder, or one that `huggingface.load` opened
    window  tokens that are read at once; None: as many as the model has positions, or 1,024
    stride  tokens by which a window goes on; None: half a window. A smaller one costs more and gives more context

    Raises UnmaskError for a folder without a head that scores texts, for numbers that make no windows, and for windows
    over a model that reads whole texts.
    """

    def __init__(self, model: Path | str | Loaded, *, window: int | None = None, stride: int | None = None) -> None:
        loaded = model if isinstance(model, Loaded) else huggingface.load(model)
        kind, head = _chosen(loaded)
        self.scoring = kind(loaded, head, "The model" if loaded is model else model, window=window, stride=stride)

    @property
    def name(self) -> str:
        """What a score is, such as "log-probability"."""
        return self.scoring.name

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """[N] how likely each text is, in nats: its log-probability, or what stands for it (`Scoring`).

        Raises UnmaskError for a text that is longer than the model can read.
        """
        return self.scoring.scores(texts)

    def perplexity(self, texts: Iterable[str]) -> Likelihood:
        """How likely the texts are, each from its beginning to its end.

        Raises UnmaskError where there is no text, and for a model whose scores are no probabilities of texts.
        """
        nll, facts = 0.0, np.zeros(5, dtype=np.int64)
        for some in _together(texts):
            log_p, tokens, unknown = self.scoring.total(some)
            nll -= log_p
            words, characters = sum(len(text.split()) for text in some), sum(map(len, some))
            facts += np.array([len(some), tokens, words, characters, unknown])
        documents, tokens, words, characters, unknown = facts.tolist()
        if not words:
            raise UnmaskError("There is no text to score; the files hold nothing but empty lines.")
        return Likelihood(nll, documents, tokens, words, characters, unknown)

    def language_model(self) -> NextTokenScoring:
        """What scores any sequence of ids, each token from those before it. Raises UnmaskError for a model that does
        not predict the next token."""
        return self.scoring.language_model()


def _chosen(loaded: Loaded) -> tuple[type[Scoring], str]:
    """How a model scores texts, and by which of its heads. Raises UnmaskError where it has no such head."""
    for kind in SCORINGS:
        for name, layer in loaded.model.heads.items():
            head = asked_of(layer)
            if head is not None and kind.reads(loaded.model, head):
                return kind, name
    raise UnmaskError(
        "No head of this model says how likely a text is: take one as it was pre-trained, such as `unmask pretrain "
        "gpt-tiny` makes."
    )


def _together(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts that are scored together."""
    some: list[str] = []
    for text in texts:
        some.append(text)
        if len(some) == DOCUMENTS:
            yield some
            some = []
    if some:
        yield some
