"""How likely texts are to a model of hidden words: each token hidden in turn, and guessed from all the others.

Shapes: T tokens of a text, special ones included; M copies of texts, each with one token hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from unmask import huggingface
from unmask.data import collate
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.models.inference_encoder import inference_layout
from unmask.tasks import answered, evaluating
from unmask.types import Example

COPIES = 4_096  # that are made before they are read, in batches of equal lengths


class PseudoScorer:
    """PLL(w) = sum over t of log p(w_t | all other tokens) (Salazar et al. 2020, "Masked Language Model Scoring").

    It is no log-probability of the text, for the guesses are not made one after the other; but of two texts, the
    better one mostly has the higher PLL.

    model  a folder, or one that `huggingface.load` opened

    Raises UnmaskError for a folder whose model does not guess hidden words.
    """

    def __init__(self, model: Path | str | Loaded) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        if "mlm" not in loaded.model.heads:
            raise UnmaskError("This model does not guess hidden words: take one that was pre-trained on them.")
        self.model = inference_layout(loaded.model)
        self.tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)

    def log_probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, log p of every token of it, without special ones. Raises UnmaskError for one too long."""
        framed = whole(self.tokenizer, self.model.positions, texts)
        found = [np.zeros(len(places), dtype=np.float32) for _, places in framed]
        with torch.inference_mode(), evaluating(self.model):
            for some in _together([(i, j) for i, (_, places) in enumerate(framed) for j in range(len(places))]):
                for (i, j), said in zip(some, self._guesses(some, framed), strict=True):
                    found[i][j] = said
        return found

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """PLL of each text, in nats."""
        return np.array([one.sum(dtype=np.float64) for one in self.log_probabilities(texts)])

    def _guesses(
        self, copies: Sequence[tuple[int, int]], framed: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> list[float]:
        """Log p of token j of text i for each (i, j), while it is hidden."""
        lengths = [len(framed[i][0]) for i, _ in copies]
        return answered(lambda batch: self._guess([copies[k] for k in batch], framed), lengths, self.model.device)

    def _guess(self, copies: Sequence[tuple[int, int]], framed: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """The same for a batch, [N]."""
        examples = []
        for i, j in copies:
            tokens, places = framed[i]
            hidden = tokens.copy()
            hidden[places[j]] = self.tokenizer.mask
            target = {"mlm": (places[j : j + 1], tokens[places[j] : places[j] + 1])}
            examples.append(Example(hidden, targets=target))
        batch = collate.pad(examples, self.tokenizer.pad, multiple=1).to(self.model.device)
        target_M = batch.targets["mlm"]  # one a row, in the order of the rows
        logits_MV = self.model.answer("mlm", self.model(batch), target_M.places).float()
        said_M: np.ndarray = logits_MV.log_softmax(-1).gather(-1, target_M.values[:, None]).squeeze(-1).cpu().numpy()
        return said_M


def whole(tokenizer: Tokenizer, longest: int | None, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each text the tokens [T] that a model of at most `longest` positions reads, and the places of those that are
    of the text itself. Raises UnmaskError for a text that is too long."""
    return [_whole(tokenizer, longest, text, ids) for text, ids in zip(texts, tokenizer.ids(texts), strict=True)]


def _whole(tokenizer: Tokenizer, longest: int | None, text: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tokens, _ = tokenizer.join(ids)
    if longest is not None and len(tokens) > longest:
        raise UnmaskError(
            f"'{text[:40]} …' has {len(tokens)} tokens, but the model reads {longest}: score it in parts."
        )
    before = next((i for i in range(len(tokens)) if np.array_equal(tokens[i : i + len(ids)], ids)), 0)
    return tokens, np.arange(before, before + len(ids))


def _together(copies: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    for begin in range(0, len(copies), COPIES):
        yield copies[begin : begin + COPIES]
