"""Position embeddings as a picture: the vectors of positions, and the similarity of any two.

Of a picture, also one map for each patch (Dosovitskiy et al. 2021, figure 7); of windows, their relative biases.

Shapes: P positions, D width; G patches of a side of a picture, H heads, W patches of a side of a window.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from unmask.errors import UnmaskError
from unmask.nn import Embedding, Learned, Sinusoidal
from unmask.nn.windows import WindowAttention, WindowBias
from unmask.visualize import gallery
from unmask.visualize.numbers import Data, packed

MOST = 512  # most positions that are shown
SIDE = 896  # pixels of the maps of a picture together, on the page


def sinusoidal(length: int = 64, dim: int = 128) -> Data:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) the cosine (Vaswani et al. 2017, section 3.5)."""
    if not (2 <= length <= MOST and 2 <= dim <= 1_024):
        raise UnmaskError(f"Show 2 to {MOST} positions of 2 to 1,024 features, not {length} of {dim}.")
    table_PD = Sinusoidal(dim).embed(torch.zeros(1, length, dim))[0].numpy()
    return _data(table_PD, "sinusoidal", "computed, not trained: each pair of features rotates at a different speed")


def of_model(model: torch.nn.Module) -> Data:
    """The position embeddings that a model adds to its tokens or patches, or the biases of its windows. Raises
    UnmaskError for a model without them, such as one with rotary positions, or a recurrent network."""
    embeddings = [part for part in model.modules() if isinstance(part, Embedding)]
    for embedding in embeddings:
        scheme = embedding.position
        if isinstance(scheme, Learned):
            table_PD = scheme.table.weight[scheme.offset :].detach().float().cpu().numpy()
            kind, note = "learned", "a vector for each position, learned like the vectors of tokens"
            if not scheme.table.weight.requires_grad:
                kind, note = "fixed", "stored, not trained"
            return _data(table_PD[:MOST], kind, note) | _maps(table_PD, getattr(model, "config", None))
        if isinstance(scheme, Sinusoidal):
            table_PD = scheme.embed(torch.zeros(1, 64, scheme.dim))[0].numpy()
            return _data(table_PD, "sinusoidal", "computed, not trained")
    windows = [part for part in model.modules() if isinstance(part, WindowAttention)]
    if windows:
        return _biases(windows)
    raise UnmaskError("This model has no position embeddings: it represents order in another way.")


def _data(table_PD: np.ndarray, kind: str, note: str) -> Data:
    unit_PD = _units(table_PD)
    return {
        "view": "positions",
        "kind": kind,
        "note": note,
        "table": packed(table_PD),
        "scale": float(np.quantile(np.abs(table_PD), 0.99)),  # without the few largest outliers
        "similarity": packed(unit_PD @ unit_PD.T),
    }


def _maps(table_PD: np.ndarray, config: Any) -> Data:
    """{"maps": one map [G, G] for each patch of a picture, its cosines with all patches}; empty for a text."""
    if "pictures" not in getattr(config, "offers", ()):
        return {}
    patches_ND = table_PD[len(config.summaries) :]
    unit_ND = _units(patches_ND)
    grid = math.isqrt(len(patches_ND))
    cosines = (unit_ND @ unit_ND.T).reshape(grid * grid, grid, grid)
    title = "Each map shows the cosines of one patch with all others; it stands where its patch stands in the picture"
    return {"maps": gallery.group(title, [gallery.numbers(one) for one in cosines], grid, size=SIDE // grid)}


def _biases(windows: list[WindowAttention]) -> Data:
    """A map for each head of each block: the bias of a key by its place relative to the query, which is the centre."""
    groups, largest = [], 0.0
    for number, part in enumerate(windows, 1):
        position = part.attention.position
        if not isinstance(position, WindowBias):
            continue
        side, used = 2 * position.window - 1, 2 * position.used - 1
        first = position.window - position.used
        table = position.table.detach().float().cpu().numpy().reshape(side, side, -1)
        maps_HWW = table[first : first + used, first : first + used][::-1, ::-1].transpose(2, 0, 1)  # key minus query
        largest = max(largest, float(np.abs(maps_HWW).max()))
        shifted = f", shifted by {part.shift}" if part.shift else ""
        title = f"Block {number}: windows of {position.used} in a grid of {part.grid}{shifted}"
        cells = [gallery.numbers(one, f"head {head}") for head, one in enumerate(maps_HWW, 1)]
        groups.append(gallery.group(title, cells, 8))
    scale = largest or 1.0  # new weights have no biases yet
    lead = (
        "Windows have no position embeddings: each head adds a learned number to the score of a query and a key, by "
        "the place of the key relative to the query, which stands at the centre of a map (Liu et al. 2021, equation "
        f"4). Blue is above zero, orange is below; the colour is full from ±{scale:.2g}."
    )
    return gallery.gallery(lead, groups, scale=scale)


def _units(table_PD: np.ndarray) -> np.ndarray:
    """Vectors of length 1; those of length 0 stay as they are."""
    lengths = np.linalg.norm(table_PD, axis=1, keepdims=True)
    unit_PD: np.ndarray = table_PD / np.where(lengths > 0, lengths, 1)
    return unit_PD
