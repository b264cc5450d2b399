"""How likely texts are to a language model: log-probabilities in strided windows, perplexity, bits per character.

Shapes: T tokens of a sequence, M places that are answered at once, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.errors import UnmaskError, plural
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.serve.continuation import language_model
from unmask.tasks import answered, evaluating
from unmask.types import Example

LONGEST = 1_024  # tokens of a window, where the model sets no limit
DOCUMENTS = 256  # that are read before they are scored together
LOGITS = 2**22  # numbers that a head may answer with at once, in each of the threads that read


class Window(NamedTuple):
    """A piece of a sequence: the tokens `begin` … `end - 1` are read, those from `first` to `end` are guessed."""

    begin: int
    first: int
    end: int


def windows(tokens: int, longest: int, stride: int) -> Iterator[Window]:
    """Windows over a sequence in which every token but the first is guessed once.

    A window reads at most `longest` tokens and guesses `stride` that the one before did not; the first one guesses all
    that follow its own. So every token is guessed from all that stand before it, or from at least the
    longest - stride + 1 nearest ones.
    """
    ends = [min(longest, tokens - 1)]
    while ends[-1] < tokens - 1:
        ends.append(min(ends[-1] + stride, tokens - 1))
    for last, end in pairwise([0, *ends]):
        yield Window(max(0, end - longest), last + 1, end)


@dataclass(frozen=True)
class Likelihood:
    """How likely some texts are.

    nll         -log p of all of them, in nats: of every token from those before it, and of the end of each text
    tokens      that were guessed, the ends included
    words       runs of characters between whitespace
    characters  of the texts as they were given, which models of other tokens are compared by
    unknown     tokens that the model has no entry for: it guesses only that there is one
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


class Scorer:
    """Says how likely texts are: `Scorer("lm").perplexity(["the film was good"])`.

    model   a folder, or one that `huggingface.load` opened
    window  tokens that are read at once; None: as many as the model has positions, or 1,024
    stride  tokens by which a window goes on; None: half a window. A smaller one costs more and gives more context

    Raises UnmaskError for a folder whose model does not say the next token, and for numbers that make no windows.
    """

    def __init__(self, model: Path | str | Loaded, *, window: int | None = None, stride: int | None = None) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        self.model: Model = language_model(loaded)
        self.tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)
        positions = self.model.positions
        self.window = (positions or LONGEST) if window is None else window
        self.stride = max(1, self.window // 2) if stride is None else stride
        if self.window < 1 or (positions is not None and self.window > positions):
            raise UnmaskError(f"A window has 1 to {positions or LONGEST} tokens in this model, not {self.window}.")
        if not 1 <= self.stride <= self.window:
            raise UnmaskError(
                f"Windows of {self.window} tokens go on by 1 to {self.window} of them, not by {self.stride}; a larger "
                "--stride would leave tokens out."
            )

    def perplexity(self, texts: Iterable[str]) -> Likelihood:
        """How likely the texts are, each from its beginning to its end. Raises UnmaskError where there is no text."""
        nll, facts = 0.0, np.zeros(5, dtype=np.int64)
        for some in together(texts):
            ids = self.tokenizer.ids(some)
            framed = [np.concatenate([[self.tokenizer.cls], own, [self.tokenizer.sep]]) for own in ids]
            nll -= sum(float(found.sum(dtype=np.float64)) for found in self.log_probabilities(framed))
            tokens, unknown = (
                sum(map(len, ids)) + len(ids),
                sum(int((x == self.tokenizer.unknown).sum()) for x in ids),
            )
            words, characters = sum(len(text.split()) for text in some), sum(map(len, some))
            facts += np.array([len(some), tokens, words, characters, unknown])
        documents, tokens, words, characters, unknown = facts.tolist()
        if not words:
            raise UnmaskError("There is no text to score; the files hold nothing but empty lines.")
        return Likelihood(nll, documents, tokens, words, characters, unknown)

    def log_probabilities(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each sequence of ids [T], special tokens included, log p of every token from those before it, [T - 1]."""
        found = [np.empty(max(len(tokens) - 1, 0), dtype=np.float32) for tokens in sequences]
        cut = [
            (number, window)
            for number, tokens in enumerate(sequences)
            if len(tokens) > 1
            for window in windows(len(tokens), self.window, self.stride)
        ]
        lengths = [window.end - window.begin for _, window in cut]
        with evaluating(self.model):
            said = answered(lambda places: self._score([cut[i] for i in places], sequences), lengths, self.model.device)
        for (i, w), piece in zip(cut, said, strict=True):
            found[i][w.first - 1 : w.end] = piece
        return found

    def _score(self, cut: Sequence[tuple[int, Window]], sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Read some windows, one a row: log p of every token that each of them guesses."""
        examples = [Example(np.asarray(sequences[i][w.begin : w.end], dtype=np.int64)) for i, w in cut]
        batch = collate.pad(examples, self.tokenizer.pad, multiple=1).to(self.model.device)
        width = batch.tokens.shape[1]
        # What says the token at place t of a sequence stands one place before it.
        places = [row * width + np.arange(w.first - 1, w.end) - w.begin for row, (_, w) in enumerate(cut)]
        values = [np.asarray(sequences[i][w.first : w.end + 1], dtype=np.int64) for i, w in cut]
        places_M, values_M = (torch.from_numpy(np.concatenate(x)).to(self.model.device) for x in (places, values))
        hidden_BTD = self.model(batch)
        said = []
        step = max(1, LOGITS // self.tokenizer.size)
        for begin in range(0, len(places_M), step):
            logits_MV = self.model.answer("next", hidden_BTD, places_M[begin : begin + step]).float()
            said.append(logits_MV.log_softmax(-1).gather(-1, values_M[begin : begin + step, None]).squeeze(-1))
        return np.split(torch.cat(said).cpu().numpy(), np.cumsum([len(x) for x in places])[:-1])


def together(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts that are scored together."""
    some: list[str] = []
    for text in texts:
        some.append(text)
        if len(some) == DOCUMENTS:
            yield some
            some = []
    if some:
        yield some
