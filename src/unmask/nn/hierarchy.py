"""Attention that sums up a sequence as one vector, and a hierarchy of such summaries (Yang et al. 2016).

Shapes: N sequences, S elements of the longest, D width of an element, E width of its state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn.recurrent import Recurrent


def average(x_NSD: Tensor, scores_NS: Tensor, real_NS: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """sum_i a_i x_i, a = softmax over i of the scores: [N, D], and the weights [N, S], which are 0 where `real_NS` is
    false."""
    scores_NS = scores_NS.float()
    if real_NS is not None:
        scores_NS = scores_NS.masked_fill(~real_NS, -torch.inf)
    weights_NS = scores_NS.softmax(-1).to(x_NSD.dtype)
    return (weights_NS[:, None] @ x_NSD).squeeze(1), weights_NS


class AttentionPooling(nn.Module):
    """sum_i a_i h_i with u_i = tanh(W h_i + b) and a = softmax over i of u_i . u (Yang et al. 2016, equations 5 to 7).

    dim    width of h
    width  of u, the learned context vector: "a high level representation of a fixed query"

    Raises UnmaskError for a width below 1.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        if width < 1:
            raise UnmaskError(
                f"The context vector of attention needs a width of at least 1, not {width}: raise --context."
            )
        self.project = nn.Linear(dim, width)
        self.context = nn.Linear(width, 1, bias=False)

    def forward(self, x_NSD: Tensor, real_NS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `average`."""
        return average(x_NSD, self.context(torch.tanh(self.project(x_NSD))).squeeze(-1), real_NS)


class AttentiveLevel(nn.Module):
    """A bidirectional network that reads elements in order, and attention that sums them up."""

    def __init__(self, network: Recurrent, attention: AttentionPooling) -> None:
        super().__init__()
        self.network, self.attention = network, attention

    def forward(self, x_NSD: Tensor, lengths_N: Tensor) -> Tensor:
        """The states [N, S, E] of the elements; lengths descend, as in `Sequences`."""
        if not len(lengths_N):  # rows without a word
            return x_NSD.new_zeros(*x_NSD.shape[:2], self.network.width)
        states_NSE: Tensor = self.network(x_NSD, None, lengths_N)[0]
        return states_NSE

    def pool(self, states_NSE: Tensor, lengths_N: Tensor) -> tuple[Tensor, Tensor]:
        """Summaries [N, E], and the weights of the elements [N, S], 0 after the end of a sequence."""
        places_S = torch.arange(states_NSE.shape[1], device=states_NSE.device)
        vectors_NE, weights_NS = self.attention(states_NSE, places_S < lengths_N[:, None])
        return vectors_NE, weights_NS


class Hierarchy(nn.Module):
    """Two levels: words of a sentence, and sentences of a document."""

    def __init__(self, words: AttentiveLevel, sentences: AttentiveLevel) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([words, sentences])

    @property
    def words(self) -> AttentiveLevel:
        return self._level(0)

    @property
    def sentences(self) -> AttentiveLevel:
        return self._level(1)

    def _level(self, number: int) -> AttentiveLevel:
        level = self.blocks[number]
        assert isinstance(level, AttentiveLevel)
        return level
