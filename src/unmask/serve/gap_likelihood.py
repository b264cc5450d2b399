"""How likely texts are to a T5: each token cut out in turn, and written from all the others.

Shapes: T tokens of a text; N copies of texts, each with one token cut out; M tokens that are asked for, two a copy; V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.objectives.paired_rows import pack_pairs
from unmask.tasks import answered, evaluating

COPIES = 4_096  # that are made before they are read, in batches of equal lengths
WRITTEN = 3  # tokens of a target: <X>, what stood there, <Y>


class GapScorer:
    """sum over t of log p(w_t <Y> | text with <X> in place of w_t, <X>): what a model of hidden words is asked (Salazar
    et al. 2020), as span corruption asks it (Raffel et al. 2020, section 3.1.4).

    The <Y> says that nothing else stood in the gap; without it, a word that only begins what would fit were likely.

    model  a folder of a T5, or one that `huggingface.load` opened

    Raises UnmaskError for a model that has no sentinels, <X> and <Y>.
    """

    def __init__(self, model: Path | str | Loaded) -> None:
        loaded = huggingface.opened(model, huggingface.ENCODER_DECODER)
        tokenizer = loaded.tokenizer
        if tokenizer is None or len(tokenizer.sentinels) < 2:
            raise UnmaskError("This model does not write what was cut out of a text: take a T5 as it was pre-trained.")
        self.model, self.tokenizer = loaded.model, tokenizer
        self.gap, self.after = tokenizer.sentinels[:2]

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, log p of every token of it and of the end of its gap."""
        ids = self.tokenizer.encode_all(texts)
        found = [np.zeros(len(own), dtype=np.float32) for own in ids]
        gaps = [(i, j) for i, own in enumerate(ids) for j in range(len(own))]
        with torch.inference_mode(), evaluating(self.model):
            for some in (gaps[begin : begin + COPIES] for begin in range(0, len(gaps), COPIES)):
                for (i, j), said in zip(some, self._fill_all([(ids[i], j) for i, j in some]), strict=True):
                    found[i][j] = said
        return found

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The sum of each text, in nats."""
        return np.array([one.sum(dtype=np.float64) for one in self.log_probabilities(texts)])

    def _fill_all(self, copies: Sequence[tuple[np.ndarray, int]]) -> list[float]:
        """Log p of token j of each text and of <Y>, after <X>."""
        lengths = [len(ids) + WRITTEN for ids, _ in copies]
        return answered(lambda batch: self._fill([copies[k] for k in batch]), lengths, self.model.device)

    def _fill(self, copies: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
        """The same for a batch, [N]."""
        rows = []
        for ids, j in copies:
            read = ids.astype(np.int64)
            read[j] = self.gap
            rows.append([(read, np.array([self.gap, ids[j], self.after]))])
        device = self.model.device
        batch = pack_pairs(rows, self.tokenizer.pad, self.tokenizer.start, self.tokenizer.end).to(device)
        asked = batch.targets["next"]  # <X>, the token, <Y> and the end of each row, in order
        kept = torch.arange(len(asked.places), device=device).view(-1, WRITTEN + 1)[:, 1:WRITTEN]
        logits_MV = self.model.answer("next", self.model(batch), asked.places[kept.flatten()]).float()
        said = logits_MV.log_softmax(-1).gather(-1, asked.values[kept.flatten(), None])
        return said.view(-1, WRITTEN - 1).sum(-1).cpu().numpy()
