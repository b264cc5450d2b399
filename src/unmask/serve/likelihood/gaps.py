"""Scoring by a T5: masks each token in turn, and predicts it from all others.

Shapes: N copies of texts, each with one token masked; M target places, two a copy; V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.objectives.paired_rows import pack_pairs
from unmask.serve.likelihood.scoring import TokenScoring, each_token
from unmask.tasks import evaluating
from unmask.types import Head

WRITTEN = 3  # tokens of a target: <X>, the masked token, <Y>


class GapScoring(TokenScoring):
    """sum over t of log p(w_t <Y> | text with <X> in place of w_t, <X>): the pseudo-log-likelihood of a masked language
    model (Salazar et al. 2020), by span corruption (Raffel et al. 2020, section 3.1.4).

    The <Y> ends the masked span; without it, a token that only begins a likely span would get a high score.

    Raises UnmaskError for a model without the sentinels <X> and <Y>.
    """

    name = "log-probability of gaps"
    whole_texts = "a T5"

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        super().__init__(loaded, head, owner, window=window, stride=stride)
        tokenizer: Tokenizer | None = loaded.tokenizer
        if tokenizer is None or len(tokenizer.sentinels) < 2:
            raise UnmaskError("This model does not predict masked spans: use a T5 that is not fine-tuned.")
        self.tokenizer = tokenizer
        self.gap, self.after = tokenizer.sentinels[:2]

    @classmethod
    def reads(cls, model: Model, head: Head) -> bool:
        return head.kind == "next_token" and model.reads_source

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, log p of each of its tokens and of the sentinel after it."""
        ids = self.tokenizer.ids(texts)
        with torch.inference_mode(), evaluating(self.model):
            return each_token(
                [len(tokens) for tokens in ids],
                lambda copies: self._fill([(ids[i], j) for i, j in copies]),
                lambda i: len(ids[i]) + WRITTEN,
                self.model.device,
            )

    def _fill(self, copies: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
        """[N] log p of token j of each text and of <Y>, after <X>."""
        rows = []
        for ids, j in copies:
            source = ids.astype(np.int64)
            source[j] = self.gap
            rows.append([(source, np.array([self.gap, ids[j], self.after]))])
        device = self.model.device
        batch = pack_pairs(rows, self.tokenizer.pad, self.tokenizer.start, self.tokenizer.end, self.head).to(device)
        target = batch.targets[self.head]  # <X>, the token, <Y> and the end of each row, in order
        kept_M = torch.arange(len(target.places), device=device).view(-1, WRITTEN + 1)[:, 1:WRITTEN].flatten()
        logits_MV = self.model.answer(self.head, self.model(batch), target.places[kept_M]).float()
        log_p_M = logits_MV.log_softmax(-1).gather(-1, target.values[kept_M, None])
        log_p_N: np.ndarray = log_p_M.view(-1, WRITTEN - 1).sum(-1).cpu().numpy()
        return log_p_N
