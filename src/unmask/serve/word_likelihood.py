"""How likely texts are to an ELMo: every word from those before it, and from those behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.elmo_model import WORDS
from unmask.objectives.bidirectional import DIRECTIONS, UNKNOWN, check_words, likelihoods, scorer
from unmask.serve.likelihood import Likelihood, together
from unmask.tasks import answered, evaluating
from unmask.types import Example


class WordScorer:
    """The mean of sum over k of log p(w_k | w_1 .. w_k-1) and of log p(w_k | w_k+1 .. w_n) (Peters et al. 2018, section
    3.1), the end of the text and its beginning included. Words that the model cannot guess are one word to it.

    model  a folder, or one that `huggingface.load` opened

    Raises UnmaskError for a folder whose model does not guess words, or does not say which.
    """

    def __init__(self, model: Path | str | Loaded) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        owner = "The model" if loaded is model else model
        if WORDS not in loaded.model.heads:
            raise UnmaskError("This model does not guess words: take an ELMo as it was pre-trained.")
        check_words(loaded.model, loaded.words, owner)
        self.model = loaded.model
        self.tokenizer = loaded.require_tokenizer(owner)
        self.objective = scorer(loaded.words, self.tokenizer)
        strange = np.array([self.tokenizer.unknown], np.int32).tobytes()  # a word with a character that is none here
        self.unknown = [UNKNOWN, self.objective.ids.get(strange, UNKNOWN)]

    def perplexity(self, texts: Iterable[str]) -> Likelihood:
        """How likely the texts are, each from end to end; tokens are words, and an end of each text. Raises UnmaskError
        where there is no text."""
        nll, facts = 0.0, np.zeros(5, dtype=np.int64)
        for some in together(texts):
            read = self._read(some)
            values = np.concatenate([example.targets[DIRECTIONS[0]][1] for example in read])
            nll -= float(self._scores(read).sum())
            words, characters = sum(len(text.split()) for text in some), sum(map(len, some))
            facts += np.array([len(some), len(values), words, characters, int(np.isin(values, self.unknown).sum())])
        documents, tokens, words, characters, unknown = facts.tolist()
        if not words:
            raise UnmaskError("There is no text to score; the files hold nothing but empty lines.")
        return Likelihood(nll, documents, tokens, words, characters, unknown)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The log-probability of each text, in nats."""
        return self._scores(self._read(texts))

    def _read(self, texts: Sequence[str]) -> list[Example]:
        return [self.objective.example(ids) for ids in self.tokenizer.ids(texts)]

    def _scores(self, read: Sequence[Example]) -> np.ndarray:
        """[N] the mean over both directions."""
        lengths = [len(example.tokens) for example in read]
        with torch.inference_mode(), evaluating(self.model):
            return np.array(answered(lambda places: self._sums([read[i] for i in places]), lengths, self.model.device))

    def _sums(self, read: Sequence[Example]) -> np.ndarray:
        batch = collate.pad(read, self.tokenizer.pad, multiple=1)
        said = likelihoods(self.model, batch.to(self.model.device))
        owners = np.repeat(np.arange(len(read)), [len(example.targets[DIRECTIONS[0]][1]) for example in read])
        sums = np.zeros(len(read))
        for log_p_M, _ in said.values():
            np.add.at(sums, owners, log_p_M.double().cpu().numpy() / len(said))
        return sums
