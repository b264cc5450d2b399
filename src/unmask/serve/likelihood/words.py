"""Scoring by an ELMo: predicts each word from those before it, and from those after it.

Shapes: N texts; M words of all texts of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unmask.data import collate
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.objectives.bidirectional import DIRECTIONS, UNKNOWN, check_words, likelihoods, scorer
from unmask.serve.likelihood.scoring import Scoring
from unmask.tasks import answered, evaluating
from unmask.types import Example, Head


class WordScoring(Scoring):
    """The mean of sum over k of log p(w_k | w_1 .. w_k-1) and of log p(w_k | w_k+1 .. w_n) (Peters et al. 2018, section
    3.1), including the end of the text and its beginning. All unknown words are the same word to the model.

    Raises UnmaskError for a folder without the list of words that its model predicts.
    """

    name = "log-probability from either side"
    whole_texts = "an ELMo"

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        super().__init__(loaded, head, owner, window=window, stride=stride)
        check_words(self.model, loaded.words, owner)
        self.tokenizer: Tokenizer = loaded.require_tokenizer(owner)
        self.objective = scorer(loaded.words, self.tokenizer)
        strange = np.array([self.tokenizer.unknown], np.int32).tobytes()  # a word with an unknown character
        self.unknown = [UNKNOWN, self.objective.ids.get(strange, UNKNOWN)]

    @classmethod
    def reads(cls, model: Model, head: Head) -> bool:
        return head.kind == "words"

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        return self._scores(self._read(texts))

    def total(self, texts: Sequence[str]) -> tuple[float, int, int]:
        """See `Scoring.total`; the tokens are words and the end of each text."""
        read = self._read(texts)
        values_M = np.concatenate([example.targets[DIRECTIONS[0]][1] for example in read])
        return float(self._scores(read).sum()), len(values_M), int(np.isin(values_M, self.unknown).sum())

    def _read(self, texts: Sequence[str]) -> list[Example]:
        return [self.objective.example(ids) for ids in self.tokenizer.ids(texts)]

    def _scores(self, read: Sequence[Example]) -> np.ndarray:
        """[N] the mean over both directions."""
        lengths = [len(example.tokens) for example in read]
        with torch.inference_mode(), evaluating(self.model):
            return np.array(answered(lambda places: self._sums([read[i] for i in places]), lengths, self.model.device))

    def _sums(self, read: Sequence[Example]) -> np.ndarray:
        batch = collate.pad(read, self.tokenizer.pad, multiple=1)
        found = likelihoods(self.model, batch.to(self.model.device))
        owners = np.repeat(np.arange(len(read)), [len(example.targets[DIRECTIONS[0]][1]) for example in read])
        sums = np.zeros(len(read))
        for log_p_M, _ in found.values():
            np.add.at(sums, owners, log_p_M.double().cpu().numpy() / len(found))
        return sums
