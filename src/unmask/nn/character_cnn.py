"""Word vectors from characters: convolutions with max-pooling over characters, then highway layers.

Shapes: W words, C characters of the longest, E width of a character, F filters of one width, D width of a word.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Highway(nn.Module):
    """y = t * relu(W x + b) + (1 - t) * x, where t = sigmoid(W_t x + b_t) (Srivastava et al. 2015)."""

    def __init__(self, dim: int):
        super().__init__()
        self.transform, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        t = self.gate(x).sigmoid()
        y: Tensor = t * self.transform(x).relu() + (1 - t) * x
        return y


class CharacterCNN(nn.Module):
    """project(highways(relu(max over characters of each filter))): word vectors from characters (Kim et al. 2016).

    A filter of width k is applied at each character of the word, with zeros after its end.

    filters   width of a filter in characters -> number of such filters
    outputs   width of a word; None: the number of filters, without a projection
    """

    def __init__(
        self, vocabulary: int, dim: int, filters: Mapping[int, int], *, highways: int = 0, outputs: int | None = None
    ):
        super().__init__()
        self.token, width = nn.Embedding(vocabulary, dim), sum(filters.values())
        self.filters = nn.ModuleList(nn.Conv1d(dim, number, k) for k, number in filters.items())
        self.highways = nn.ModuleList(Highway(width) for _ in range(highways))
        self.project = nn.Identity() if outputs is None else nn.Linear(width, outputs)
        self.width = width if outputs is None else outputs

    def forward(self, characters_WC: Tensor, lengths_W: Tensor) -> Tensor:
        """[W, C] ids, `lengths_W` for each word and then padding -> [W, D]. Equal words are computed once."""
        characters_WC, lengths_W, back_W = _distinct(characters_WC, lengths_W)
        read_WC = torch.arange(characters_WC.shape[1], device=characters_WC.device) < lengths_W[:, None]
        x_WEC = (self.token(characters_WC) * read_WC[..., None]).transpose(1, 2)
        found = []
        for filters in self.filters:
            assert isinstance(filters, nn.Conv1d)
            said_WFC = filters(F.pad(x_WEC, (0, filters.kernel_size[0] - 1)))
            found.append(said_WFC.masked_fill(~read_WC[:, None], float("-inf")).amax(-1).relu())
        x_WD = torch.cat(found, -1)
        for highway in self.highways:
            x_WD = highway(x_WD)
        words_WD: Tensor = self.project(x_WD)[back_W]
        return words_WD


def _distinct(characters_WC: Tensor, lengths_W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct words, their lengths, and for each word its index among them."""
    rows, back_W = torch.cat([characters_WC, lengths_W[:, None]], 1).unique(dim=0, return_inverse=True)
    return rows[:, :-1], rows[:, -1], back_W
