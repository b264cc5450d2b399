"""Scoring by a language model: predicts each token from those before it, in strided windows over a long text.

Shapes: T tokens of a sequence, M target places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from unmask.data import collate
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.serve.likelihood.scoring import TokenScoring
from unmask.tasks import answered, evaluating
from unmask.types import Example, Head

LONGEST = 1_024  # tokens of a window, for models without a limit
LOGITS = 2**22  # most outputs of the head at a time, in each thread


class Window(NamedTuple):
    """A part of a sequence: the model reads the tokens `begin` … `end - 1` and predicts the tokens `first` … `end`."""

    begin: int
    first: int
    end: int


def windows(tokens: int, longest: int, stride: int) -> Iterator[Window]:
    """Windows over a sequence that predict every token but the first once.

    A window reads at most `longest` tokens and predicts the `stride` tokens after those of the window before; the first
    window predicts all tokens after its first. So each token is predicted from all tokens before it, or from at least
    the longest - stride + 1 nearest ones.
    """
    ends = [min(longest, tokens - 1)]
    while ends[-1] < tokens - 1:
        ends.append(min(ends[-1] + stride, tokens - 1))
    for last, end in pairwise([0, *ends]):
        yield Window(max(0, end - longest), last + 1, end)


class NextTokenScoring(TokenScoring):
    """sum over t of log p(w_t | w_1 .. w_t-1), the end of the text included: the log-probability of the text.

    Raises UnmaskError for an invalid window or stride.
    """

    name = "log-probability"

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        super().__init__(loaded, head, owner)
        self.tokenizer: Tokenizer = loaded.require_tokenizer(owner)
        positions = self.model.positions
        self.window = (positions or LONGEST) if window is None else window
        self.stride = max(1, self.window // 2) if stride is None else stride
        if self.window < 1 or (positions is not None and self.window > positions):
            raise UnmaskError(f"--window must be 1 to {positions or LONGEST} tokens for this model, not {self.window}.")
        if not 1 <= self.stride <= self.window:
            raise UnmaskError(
                f"--stride must be 1 to {self.window} tokens, the size of the window, not {self.stride}: a larger "
                "stride would skip tokens."
            )

    @classmethod
    def reads(cls, model: Model, head: Head) -> bool:
        return head.kind == "next_token" and model.causal and not model.reads_source

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, log p of each of its tokens and of its end."""
        return self.of_sequences(self._sequences(texts))

    def total(self, texts: Sequence[str]) -> tuple[float, int, int]:
        sequences = self._sequences(texts)
        log_p = sum(float(one.sum(dtype=np.float64)) for one in self.of_sequences(sequences))
        unknown = sum(int((tokens[1:-1] == self.tokenizer.unknown).sum()) for tokens in sequences)
        return log_p, sum(len(tokens) - 1 for tokens in sequences), unknown

    def language_model(self) -> NextTokenScoring:
        return self

    def _sequences(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of texts, each with the tokens for its beginning and its end."""
        ends = self.tokenizer.cls, self.tokenizer.sep
        return [np.concatenate([ends[:1], ids, ends[1:]]) for ids in self.tokenizer.ids(texts)]

    def of_sequences(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each sequence of ids [T], special tokens included, log p of each token but the first [T - 1]."""
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
        """Log p of each token that each window predicts. Reads the windows as one batch, one window a row."""
        examples = [Example(np.asarray(sequences[i][w.begin : w.end], dtype=np.int64)) for i, w in cut]
        batch = collate.pad(examples, self.tokenizer.pad, multiple=1).to(self.model.device)
        width = batch.tokens.shape[1]
        # The state at position t - 1 of a sequence predicts the token at position t.
        places = [row * width + np.arange(w.first - 1, w.end) - w.begin for row, (_, w) in enumerate(cut)]
        values = [np.asarray(sequences[i][w.first : w.end + 1], dtype=np.int64) for i, w in cut]
        places_M, values_M = (torch.from_numpy(np.concatenate(x)).to(self.model.device) for x in (places, values))
        hidden_BTD = self.model(batch)
        said = []
        step = max(1, LOGITS // self.tokenizer.size)
        for begin in range(0, len(places_M), step):
            logits_MV = self.model.answer(self.head, hidden_BTD, places_M[begin : begin + step]).float()
            said.append(logits_MV.log_softmax(-1).gather(-1, values_M[begin : begin + step, None]).squeeze(-1))
        return np.split(torch.cat(said).cpu().numpy(), np.cumsum([len(x) for x in places])[:-1])
