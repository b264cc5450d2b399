"""How likely texts are to an ELMo: every word from those before it, and from those behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.data import collate, spelling
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.elmo import ElmoModel
from unmask.objectives import TwoWayLM
from unmask.objectives.two_way import DIRECTIONS, UNKNOWN, likelihoods
from unmask.serve.likelihood import LONGEST, Likelihood, together
from unmask.tasks import by_length, evaluating
from unmask.types import Document, Example


class WordScorer:
    """The mean of sum over k of log p(w_k | w_1 .. w_k-1) and of log p(w_k | w_k+1 .. w_n) (Peters et al. 2018, section
    3.1), the end of the text and its beginning included. Words that the model cannot guess are one word to it.

    model  a folder, or one that `huggingface.load` opened

    Raises UnmaskError for a folder whose model does not guess words, or does not say which.
    """

    def __init__(self, model: Path | str | Loaded) -> None:
        loaded = model if isinstance(model, Loaded) else huggingface.load(model)
        if not isinstance(loaded.model, ElmoModel) or not loaded.words:
            raise UnmaskError("This model does not say which words it guesses: take an ELMo as it was pre-trained.")
        self.model = loaded.model
        self.tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)
        first, ends = spelling.continues(self.tokenizer), {"start": self.tokenizer.cls, "end": self.tokenizer.sep}
        words = dict.fromkeys(spelling.unspelled(loaded.words, self.tokenizer), 0)
        self.objective = TwoWayLM(words, spelling.words, first, **ends)

    def perplexity(self, texts: Iterable[str]) -> Likelihood:
        """How likely the texts are; its tokens are words, and the ends of texts. A text of more characters than the
        model reads at once is read in parts that know nothing of each other. Raises UnmaskError where there is none."""
        nll, facts = 0.0, np.zeros(5, dtype=np.int64)
        for some in together(texts):
            read = [self._read(text) for text in some]
            values = np.concatenate([example.targets[DIRECTIONS[0]][1] for parts in read for example in parts])
            nll -= float(self._scores(read).sum())
            words, characters = sum(len(text.split()) for text in some), sum(map(len, some))
            facts += np.array([len(some), len(values), words, characters, int((values == UNKNOWN).sum())])
        documents, tokens, words, characters, unknown = facts.tolist()
        if not words:
            raise UnmaskError("There is no text to score; the files hold nothing but empty lines.")
        return Likelihood(nll, documents, tokens, words, characters, unknown)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The log-probability of each text, in nats."""
        return self._scores([self._read(text) for text in texts])

    def _read(self, text: str) -> list[Example]:
        (ids,) = self.tokenizer.ids([text])
        document = Document([np.asarray(ids)], 0)
        room = self.model.positions or LONGEST
        return self.objective.sample([document], room, np.random.default_rng(0)) or [self.objective.example(ids)]

    def _scores(self, read: Sequence[Sequence[Example]]) -> np.ndarray:
        """[N] mean over both directions, of texts in parts."""
        parts = [(number, example) for number, examples in enumerate(read) for example in examples]
        found = np.zeros(len(read))
        with torch.inference_mode(), evaluating(self.model):
            for places in by_length(np.array([len(example.tokens) for _, example in parts])):
                batch = collate.pad([parts[i][1] for i in places], self.tokenizer.pad, multiple=1)
                said = likelihoods(self.model, batch.to(self.model.device))
                counts = [len(parts[i][1].targets[DIRECTIONS[0]][1]) for i in places]  # as many in either direction
                owners = np.repeat([parts[i][0] for i in places], counts)
                for log_p_M, _ in said.values():
                    np.add.at(found, owners, log_p_M.double().cpu().numpy() / len(said))
        return found
