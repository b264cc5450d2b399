"""The update of word2vec with the full softmax, as a loop for numba.

Shapes: V words, D numbers of a vector. `compiled.py` compiles it.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def choose(h_D: Any, outputs_VD: Any, word: int, alpha: float, chances_V: Any, error_D: Any) -> None:
    """One step of a choice among all words given the vector h: the full softmax.

    The loss is -log p(w | h), p(k | h) = exp(u_k . h) / sum_j exp(u_j . h) (Mikolov et al. 2013b, equation 2). With
    g_k = alpha ([k = w] - p(k | h)), error and all u_k are changed as by `kernel.update`. `chances_V` is room for p.
    """
    greatest, total = np.float32(-np.inf), np.float32(0.0)
    for k in range(outputs_VD.shape[0]):
        dot = np.float32(0.0)
        for d in range(h_D.shape[0]):
            dot += outputs_VD[k, d] * h_D[d]
        chances_V[k] = dot
        greatest = max(greatest, dot)
    for k in range(outputs_VD.shape[0]):
        chances_V[k] = np.exp(chances_V[k] - greatest)
        total += chances_V[k]
    error_D[:] = 0.0
    for k in range(outputs_VD.shape[0]):
        u_D = outputs_VD[k]
        g = np.float32(alpha * ((1.0 if k == word else 0.0) - chances_V[k] / total))
        for d in range(h_D.shape[0]):
            error_D[d] += g * u_D[d]
            u_D[d] += g * h_D[d]
