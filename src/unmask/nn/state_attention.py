"""Attention of a decoder's state to the states of an encoder: dot product, general, additive.

Shapes: B sources, T queries of each (target places in training, hypotheses in search), S states of the encoder, Q width
of a query, E width of an encoder's state, A width in which queries and keys are compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The encoded sources, in the form that attention needs; computed once for all queries.

    keys     [B, S, A]: the projected states, with which queries are compared
    values   [B, S, E]: the encoder's states; the context is their weighted average
    visible  [B, 1, S] bool, false at padding; None: all are visible
    """

    keys: Tensor
    values: Tensor
    visible: Tensor | None = None

    def __len__(self) -> int:
        """B, number of sources."""
        return len(self.values)

    def select(self, sources: Tensor) -> Keys:
        """The keys of the given sources, in this order."""
        same = self.keys is self.values  # dot product: one tensor for both
        values = self.values[sources]
        visible = None if self.visible is None else self.visible[sources]
        return Keys(values if same else self.keys[sources], values, visible)


class StateAttention(nn.Module, ABC):
    """context = sum over s of weight_s * state_s, weight = softmax over s of score(query, state_s).

    Subclasses implement the score (Luong et al. 2015, section 3.1). There is one head, no scale and no projection of
    the values; `record_attention` collects the weights as [B, 1, T, S].
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorder: Callable[[Tensor], None] | None = None  # set by record_attention alone

    @abstractmethod
    def project(self, states_BSE: Tensor) -> Tensor:
        """The part of the score that depends only on the sources, [B, S, A]."""

    @abstractmethod
    def score(self, query_BTQ: Tensor, keys_BSA: Tensor) -> Tensor:
        """The score of each query with each state, [B, T, S]."""

    def keys(self, states_BSE: Tensor, lengths_B: Tensor | None = None) -> Keys:
        """Compute the keys of the first `lengths_B` states of each row; None: of all states."""
        visible = None
        if lengths_B is not None:
            places_S = torch.arange(states_BSE.shape[1], device=states_BSE.device)
            visible = (places_S < lengths_B.to(states_BSE.device)[:, None])[:, None]
        return Keys(self.project(states_BSE), states_BSE, visible)

    def forward(self, query_BTQ: Tensor, keys: Keys) -> Tensor:
        """Contexts [B, T, E]; zero for a source without a visible state."""
        scores_BTS = self.score(query_BTQ, keys.keys)
        if keys.visible is None:
            weights_BTS = scores_BTS.softmax(-1)
        else:
            hidden_B1S = ~keys.visible
            lowest = torch.finfo(scores_BTS.dtype).min  # finite: a row that is all padding would give NaN
            weights_BTS = scores_BTS.masked_fill(hidden_B1S, lowest).softmax(-1).masked_fill(hidden_B1S, 0.0)
        if self.recorder is not None:
            self.recorder(weights_BTS[:, None])
        return weights_BTS.to(keys.values.dtype) @ keys.values

    def step(self, query_NQ: Tensor, keys: Keys) -> Tensor:
        """Contexts [N, E] of N queries: N / B consecutive ones for each source."""
        return self(query_NQ.unflatten(0, (len(keys), -1)), keys).flatten(0, 1)


class DotAttention(StateAttention):
    """score = q . s (Luong et al. 2015, section 3.1, "dot"). Raises UnmaskError if the widths differ.

    query, states  Q and E, which must be equal
    """

    def __init__(self, query: int, states: int):
        super().__init__()
        if query != states:
            raise UnmaskError(f"A dot product needs equal widths, not {query} and {states}; use general attention.")

    def project(self, states_BSE: Tensor) -> Tensor:
        return states_BSE

    def score(self, query_BTQ: Tensor, keys_BSA: Tensor) -> Tensor:
        return query_BTQ @ keys_BSA.transpose(-1, -2)


class GeneralAttention(StateAttention):
    """score = q . W s (Luong et al. 2015, section 3.1, "general").

    query, states  Q and E, widths of the queries and of the encoder's states
    """

    def __init__(self, query: int, states: int):
        super().__init__()
        self.key = nn.Linear(states, query, bias=False)

    def project(self, states_BSE: Tensor) -> Tensor:
        return self.key(states_BSE)

    def score(self, query_BTQ: Tensor, keys_BSA: Tensor) -> Tensor:
        return query_BTQ @ keys_BSA.transpose(-1, -2)


class AdditiveAttention(StateAttention):
    """score = v . tanh(W q + U s) (Bahdanau et al. 2014, appendix A.1.2).

    query, states  Q and E, widths of the queries and of the encoder's states
    width          A, the width in which they are compared; Q by default
    """

    def __init__(self, query: int, states: int, width: int | None = None):
        super().__init__()
        width = query if width is None else width
        self.query = nn.Linear(query, width, bias=False)
        self.key = nn.Linear(states, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def project(self, states_BSE: Tensor) -> Tensor:
        return self.key(states_BSE)

    def score(self, query_BTQ: Tensor, keys_BSA: Tensor) -> Tensor:
        sum_BTSA = self.query(query_BTQ)[:, :, None] + keys_BSA[:, None]
        return self.energy(sum_BTSA.tanh()).squeeze(-1)
