"""Embedder: the vectors of texts, as an array."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from unmask.errors import UnmaskError
from unmask.huggingface import Loaded
from unmask.kernels.processor import Precision
from unmask.serve.predictor import Predictor
from unmask.serve.vectors import Pooling, encoder_of, vectors

Compared = str | Iterable[str] | np.ndarray
"""A text, texts, or an array of their vectors [N, D]."""


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

    def similarity(self, first: Compared, second: Compared) -> np.ndarray:
        """[N, M] cosines of the vectors of N texts with those of M texts; one string is one text. In place of texts,
        their vectors [N, D] may be given. A vector of zeros has the cosine 0 with every other.

        Raises UnmaskError for vectors of another width than D.
        """
        return _unit(self._vectors(first)) @ _unit(self._vectors(second)).T

    def _vectors(self, given: Compared) -> np.ndarray:
        """[N, D] the vectors that are given, or those of the texts."""
        if not isinstance(given, np.ndarray) or not np.issubdtype(given.dtype, np.number):
            return self([given] if isinstance(given, str) else given)
        vectors_ND = np.atleast_2d(given).astype(np.float32)
        if vectors_ND.ndim != 2 or vectors_ND.shape[1] != self.width:
            raise UnmaskError(f"Vectors of {self.name} have {self.width} numbers each, but the array is {given.shape}.")
        return vectors_ND

    def __repr__(self) -> str:
        return f"<Embedder of {self.name}: vectors of {self.width} numbers>"


def _unit(x_ND: np.ndarray) -> np.ndarray:
    """The vectors at length 1; zeros stay."""
    lengths = np.linalg.norm(x_ND, axis=1, keepdims=True)
    return x_ND / np.where(lengths > 0, lengths, 1)
