"""Scoring by an ELECTRA: is every token the original one, or was it replaced?

Shapes: T tokens of a text, special ones included; M tokens of all texts of a batch, without special ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from unmask.data import collate
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface import Loaded
from unmask.models.model import Model
from unmask.serve.likelihood.scoring import Framed, TokenScoring, framed
from unmask.tasks import answered, evaluating
from unmask.types import Example, Head


class ReplacedTokenScoring(TokenScoring):
    """sum over t of log p(w_t is the original token | text), by the discriminator (Clark et al. 2020, section 2).

    One forward pass reads the whole text, with no token masked. The score is not the log-probability of the text: the
    model, which saw about one token in seven replaced in training, classifies each token independently.
    """

    name = "log-probability that nothing was replaced"
    whole_texts = "an ELECTRA"

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        super().__init__(loaded, head, owner, window=window, stride=stride)
        self.tokenizer: Tokenizer = loaded.require_tokenizer(owner)

    @classmethod
    def reads(cls, model: Model, head: Head) -> bool:
        discriminator = "generator" in model.config.offers
        return discriminator and head.kind == "token" and head.pretraining and head.outputs == 1

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        rows = framed(self.tokenizer, self.model.positions, texts)
        lengths = [len(tokens) for tokens, _ in rows]
        with torch.inference_mode(), evaluating(self.model):
            return answered(lambda batch: self._judge([rows[i] for i in batch]), lengths, self.model.device)

    def _judge(self, rows: Sequence[Framed]) -> list[np.ndarray]:
        batch = collate.pad([Example(tokens) for tokens, _ in rows], self.tokenizer.pad, multiple=1)
        width = batch.tokens.shape[1]
        places_M = np.concatenate([row * width + places for row, (_, places) in enumerate(rows)])
        batch = batch.to(self.model.device)
        logits_M = self.model.answer(self.head, self.model(batch), torch.from_numpy(places_M).to(self.model.device))
        original_M = F.logsigmoid(-logits_M.squeeze(-1).float()).cpu().numpy()  # the logit is that of "replaced"
        return np.split(original_M, np.cumsum([len(places) for _, places in rows])[:-1])
