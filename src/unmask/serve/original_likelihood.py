"""How likely texts are to an ELECTRA: is every token the one that was there, or was it replaced?

Shapes: T tokens of a text, special ones included; M tokens of all texts of a batch, without special ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from unmask import huggingface
from unmask.data import collate
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.serve.pseudo_likelihood import whole
from unmask.tasks import answered, evaluating
from unmask.types import Example


class OriginalScorer:
    """sum over t of log p(w_t is the original token | text), by the discriminator (Clark et al. 2020, section 2).

    One forward pass reads the whole text, in which nothing is hidden. It is no log-probability of the text: tokens are
    judged each for itself, and by a model that saw one in seven of them replaced, not by a writer of texts.

    model  a folder, or one that `huggingface.load` opened

    Raises UnmaskError for a folder whose model does not find replaced tokens.
    """

    def __init__(self, model: Path | str | Loaded) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        if "rtd" not in loaded.model.heads:
            raise UnmaskError("This model does not find replaced words: take an ELECTRA as it was pre-trained.")
        self.model = loaded.model
        self.tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, log p of every token of it being the original one, without special ones.

        Raises UnmaskError for a text that is too long.
        """
        framed = whole(self.tokenizer, self.model.positions, texts)
        lengths = [len(tokens) for tokens, _ in framed]
        with torch.inference_mode(), evaluating(self.model):
            return answered(lambda batch: self._judge([framed[i] for i in batch]), lengths, self.model.device)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The sum of each text, in nats."""
        return np.array([one.sum(dtype=np.float64) for one in self.log_probabilities(texts)])

    def _judge(self, framed: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        batch = collate.pad([Example(tokens) for tokens, _ in framed], self.tokenizer.pad, multiple=1)
        width = batch.tokens.shape[1]
        places_M = np.concatenate([row * width + places for row, (_, places) in enumerate(framed)])
        batch = batch.to(self.model.device)
        logits_M = self.model.answer("rtd", self.model(batch), torch.from_numpy(places_M).to(self.model.device))
        original_M = F.logsigmoid(-logits_M.squeeze(-1).float()).cpu().numpy()  # the logit is that of "replaced"
        return np.split(original_M, np.cumsum([len(places) for _, places in framed])[:-1])
