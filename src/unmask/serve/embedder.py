"""Embedder: the vectors of texts, as an array."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from unmask.huggingface import Loaded
from unmask.kernels.processor import Precision
from unmask.serve.predictor import Predictor
from unmask.serve.vectors import Pooling, encoder_of, vectors


class Embedder:
    """Computes a vector for each text.

    >>> embed = Embedder("runs/vectors")                      # doctest: +SKIP
    >>> embed(["a cat", "a dog"]).shape                       # doctest: +SKIP
    (2, 256)
    >>> embed.similarity(["a cat"], ["a dog", "tax law"])     # doctest: +SKIP
    array([[0.81, 0.12]], dtype=float32)

    model      folder, or name on the Hub, of a sentence encoder; of any other encoder of texts, vectors are pooled
    length     longest text, in tokens
    pooling    as for `serve.vectors.encoder_of`
    device, precision  as for `Predictor`; fp32 by default, so that vectors are equal on every device

    `width` is D, the numbers of a vector; `note` says how vectors are pooled that no training made for sentences.
    Raises UnmaskError for a model that reads no texts.
    """

    def __init__(
        self,
        model: Path | str | Loaded,
        *,
        length: int | None = None,
        pooling: Pooling | None = None,
        device: str = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        self.name = "a model" if isinstance(model, Loaded) else str(model)
        encoder, self.note = encoder_of(model, pooling)
        self.predictor = Predictor(encoder, length=length, device=device, precision=precision)
        self.width = int(next(vectors(self.predictor, ["text"])).shape[1])  # raises for a model without vectors

    def __call__(self, texts: str | Iterable[str]) -> np.ndarray:
        """[N, D] float32 for N texts; [D] for one string."""
        if isinstance(texts, str):
            return next(vectors(self.predictor, [texts]))[0]
        found = list(vectors(self.predictor, texts))
        return np.concatenate(found) if found else np.zeros((0, self.width), dtype=np.float32)

    def similarity(self, first: str | Iterable[str], second: str | Iterable[str]) -> np.ndarray:
        """[N, M] cosines of the vectors of N texts with those of M texts; one string is one text. A vector of zeros has
        the cosine 0 with every other."""
        one, other = (self([texts] if isinstance(texts, str) else texts) for texts in (first, second))
        return _unit(one) @ _unit(other).T

    def __repr__(self) -> str:
        return f"<Embedder of {self.name}: vectors of {self.width} numbers>"


def _unit(x_ND: np.ndarray) -> np.ndarray:
    """The vectors at length 1; zeros stay."""
    lengths = np.linalg.norm(x_ND, axis=1, keepdims=True)
    return x_ND / np.where(lengths > 0, lengths, 1)
