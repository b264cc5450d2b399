"""Scoring by a masked language model: masks each token in turn, and predicts it from all others.

Shapes: T tokens of a text, special ones included; N copies of texts, each with one token masked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unmask.data import collate
from unmask.data.text.tokenizer import Tokenizer
from unmask.huggingface import Loaded
from unmask.models.inference_encoder import inference_layout
from unmask.models.model import Model
from unmask.serve.likelihood.scoring import Framed, TokenScoring, each_token, framed
from unmask.tasks import evaluating
from unmask.types import Example, Head


class MaskedTokenScoring(TokenScoring):
    """PLL(w) = sum over t of log p(w_t | all other tokens) (Salazar et al. 2020, "Masked Language Model Scoring").

    It is not the log-probability of the text, because the tokens are not predicted one after another; but the better
    one of two texts mostly has the higher PLL.
    """

    name = "pseudo-log-likelihood"
    whole_texts = "a masked language model"

    def __init__(
        self, loaded: Loaded, head: str, owner: object, *, window: int | None = None, stride: int | None = None
    ) -> None:
        super().__init__(loaded, head, owner, window=window, stride=stride)
        self.model = inference_layout(loaded.model)
        self.tokenizer: Tokenizer = loaded.require_tokenizer(owner)

    @classmethod
    def reads(cls, model: Model, head: Head) -> bool:
        return head.kind == "masked_token"

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        rows = framed(self.tokenizer, self.model.positions, texts)
        lengths = [len(places) for _, places in rows]
        with torch.inference_mode(), evaluating(self.model):
            return each_token(
                lengths,
                lambda copies: self._predict([(rows[i], j) for i, j in copies]),
                lambda i: len(rows[i][0]),
                self.model.device,
            )

    def _predict(self, copies: Sequence[tuple[Framed, int]]) -> np.ndarray:
        """[N] log p of token j of each text, with that token masked."""
        examples = []
        for (tokens, places), j in copies:
            masked = tokens.copy()
            masked[places[j]] = self.tokenizer.mask
            target = {self.head: (places[j : j + 1], tokens[places[j] : places[j] + 1])}
            examples.append(Example(masked, targets=target))
        batch = collate.pad(examples, self.tokenizer.pad, multiple=1).to(self.model.device)
        target_N = batch.targets[self.head]  # one a row, in the order of the rows
        logits_NV = self.model.answer(self.head, self.model(batch), target_N.places).float()
        log_p_N: np.ndarray = logits_NV.log_softmax(-1).gather(-1, target_N.values[:, None]).squeeze(-1).cpu().numpy()
        return log_p_N
