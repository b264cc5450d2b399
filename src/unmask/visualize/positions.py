"""Position embeddings as a picture: the vectors of positions, and the similarity of any two.

Shapes: P positions, D width.
"""

from __future__ import annotations

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.nn import Embedding, Learned, Sinusoidal
from unmask.visualize.numbers import Data, packed

MOST = 512  # most positions that are shown


def sinusoidal(length: int = 64, dim: int = 128) -> Data:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) the cosine (Vaswani et al. 2017, section 3.5)."""
    if not (2 <= length <= MOST and 2 <= dim <= 1_024):
        raise UnmaskError(f"Show 2 to {MOST} positions of 2 to 1,024 features, not {length} of {dim}.")
    table_PD = Sinusoidal(dim).embed(torch.zeros(1, length, dim))[0].numpy()
    return _data(table_PD, "sinusoidal", "computed, not trained: each pair of features rotates at a different speed")


def of_model(model: torch.nn.Module) -> Data:
    """The position embeddings that a model adds to its tokens. Raises UnmaskError for a model without them, such as one
    with rotary or relative positions, or a recurrent network."""
    embeddings = [part for part in model.modules() if isinstance(part, Embedding)]
    for embedding in embeddings:
        scheme = embedding.position
        if isinstance(scheme, Learned):
            table_PD = scheme.table.weight[scheme.offset :][:MOST].detach().float().cpu().numpy()
            return _data(table_PD, "learned", "a vector for each position, learned like the vectors of tokens")
        if isinstance(scheme, Sinusoidal):
            table_PD = scheme.embed(torch.zeros(1, 64, scheme.dim))[0].numpy()
            return _data(table_PD, "sinusoidal", "computed, not trained")
    raise UnmaskError("This model has no position embeddings: it represents order in another way.")


def _data(table_PD: np.ndarray, kind: str, note: str) -> Data:
    lengths = np.linalg.norm(table_PD, axis=1, keepdims=True)
    unit_PD = table_PD / np.where(lengths > 0, lengths, 1)
    return {
        "view": "positions",
        "kind": kind,
        "note": note,
        "table": packed(table_PD),
        "scale": float(np.quantile(np.abs(table_PD), 0.99)),  # without the few largest outliers
        "similarity": packed(unit_PD @ unit_PD.T),
    }
