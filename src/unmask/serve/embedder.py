"""Embedder: the vectors of texts, as an array."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from unmask.huggingface import Loaded
from unmask.kernels.processor import Precision
from unmask.serve.predictor import Predictor
from unmask.serve.vectors import vectors


class Embedder:
    """Computes a vector for each text.

    >>> embed = Embedder("runs/vectors")                      # doctest: +SKIP
    >>> embed(["a cat", "a dog"]).shape                       # doctest: +SKIP
    (2, 256)
    >>> embed.similarity(["a cat"], ["a dog", "tax law"])     # doctest: +SKIP
    array([[0.81, 0.12]], dtype=float32)

    model      folder, or name on the Hub, of a sentence encoder
    length     longest text, in tokens
    device, precision  as for `Predictor`; fp32 by default, so that vectors are equal on every device

    `width` is D, the numbers of a vector. Raises UnmaskError for a model that computes no vectors.
    """

    def __init__(
        self,
        model: Path | str | Loaded,
        *,
        length: int | None = None,
        device: str = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        self.name = "a model" if isinstance(model, Loaded) else str(model)
        self.predictor = Predictor(model, length=length, device=device, precision=precision)
        self.width = int(next(vectors(self.predictor, ["text"])).shape[1])  # raises for a model without vectors

    def __call__(self, texts: str | Iterable[str]) -> np.ndarray:
        """[N, D] float32 for N texts; [D] for one string."""
        if isinstance(texts, str):
            return next(vectors(self.predictor, [texts]))[0]
        found = list(vectors(self.predictor, texts))
        return np.concatenate(found) if found else np.zeros((0, self.width), dtype=np.float32)

    def similarity(self, first: Iterable[str], second: Iterable[str]) -> np.ndarray:
        """[N, M] cosines of the vectors of N texts with those of M texts."""
        one, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (self(list(first)), self(list(second))))
        return one @ other.T

    def __repr__(self) -> str:
        return f"<Embedder of {self.name}: vectors of {self.width} numbers>"
