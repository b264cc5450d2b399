"""Attention masks as pictures: which token may attend to which, by causal, padding, document and window masks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.nn import Mask
from unmask.visualize.numbers import Data, packed

MOST = 128  # tokens that are shown


def masks(tokens: Sequence[str], other: Sequence[str] = (), *, window: int = 3, padding: int = 3) -> Data:
    """The masks of a sequence [T, T], 1 where the row may attend to the column.

    tokens   names of the tokens of a sequence
    other    names of the tokens of a second sequence, packed into the same row for the document mask
    window   size of the window on either side, including the token itself
    padding  number of padding tokens after the sequence

    Raises UnmaskError for no tokens, too many of them, and negative padding.
    """
    if not tokens or len(tokens) + len(other) + padding > MOST:
        raise UnmaskError(f"Give one to {MOST - padding} tokens, not {len(tokens) + len(other)}.")
    if padding < 0:
        raise UnmaskError(f"The padding must be at least 0, not {padding}.")
    own = list(tokens)
    documents = torch.tensor([[1] * len(own) + [2] * len(other) + [0] * padding])
    shown = [
        (
            "causal",
            "a token attends to itself and the tokens before it: a decoder must not see the future",
            own,
            Mask(causal=True),
        ),
        (
            "padding",
            "no token attends to the padding that fills the row",
            [*own, *["[PAD]"] * padding],
            Mask(lengths=torch.tensor([len(own)])),
        ),
        (
            "documents",
            "sequences packed into one row attend only to themselves, so that no padding is needed",
            [*own, *other, *["[PAD]"] * padding],
            Mask(documents=documents),
        ),
        ("window", f"only tokens less than {window} positions away", own, Mask(window=window)),
        (
            "causal and window",
            f"itself and the {window - 1} tokens before it: the intersection of both masks, written causal & window",
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
