"""Masks as pictures: which token may see which, by causal, padding, document and window masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.nn import Mask
from unmask.visualize.numbers import Data, packed

MOST = 128  # tokens that are shown


def masks(tokens: Sequence[str], other: Sequence[str] = (), *, window: int = 3, padding: int = 3) -> Data:
    """The masks of a sequence [T, T], 1 where row sees column.

    tokens   names of a sequence
    other    names of a second one, which is packed into the same row for the document mask
    window   tokens that a window reaches, on either side, the token itself included
    padding  places of padding behind the sequence
    """
    if not tokens or len(tokens) + len(other) + padding > MOST:
        raise UnmaskError(f"Give one to {MOST - padding} tokens, not {len(tokens) + len(other)}.")
    if padding < 0:
        raise UnmaskError(f"There cannot be {padding} places of padding.")
    own = list(tokens)
    documents = torch.tensor([[1] * len(own) + [2] * len(other) + [0] * padding])
    shown = [
        ("causal", "a token sees itself and those before it: what writes must not look ahead", own, Mask(causal=True)),
        (
            "padding",
            "no token sees the padding that fills the row",
            [*own, *["[PAD]"] * padding],
            Mask(lengths=torch.tensor([len(own)])),
        ),
        (
            "documents",
            "sequences packed into one row see only themselves, so that nothing is wasted on padding",
            [*own, *other, *["[PAD]"] * padding],
            Mask(documents=documents),
        ),
        ("window", f"only tokens less than {window} places away", own, Mask(window=window)),
        (
            "causal and window",
            f"itself and the {window - 1} before it: both at once, written as one & the other",
            own,
            Mask(causal=True) & Mask(window=window),
        ),
    ]
    return {
        "view": "masks",
        "masks": [
            {"name": name, "note": note, "tokens": names, "visible": packed(_matrix(mask, len(names)), "uint8")}
            for name, note, names, mask in shown
        ],
    }


def _matrix(mask: Mask, T: int) -> np.ndarray:
    visible = mask.tensor(T, T)
    if visible is None:
        return np.ones((T, T))
    found: np.ndarray = visible.reshape(-1, T, T)[0].numpy().astype(np.float64)
    return found
