"""Recurrent decoders: from the last state of an encoder alone, or with the attention of Luong or of Bahdanau.

Shapes: B rows (sources), T tokens written, S tokens read, D width of token vectors, H width of the decoder's state, E
width of the encoder's outputs, L layers; N = B * width hypotheses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unmask.models.writer import State
from unmask.nn import Keys, Recurrent, RecurrentState, StateAttention


@dataclass(eq=False)
class Seq2SeqState(State):
    """The state of a recurrent decoder while it writes.

    recurrent  [L, N, H] states of its layers
    keys       keys of the B sources, for attention; None without attention
    fed        [N, H] attentional vectors of the previous token, for input feeding; None before the first token
    """

    width: int
    first: Tensor
    recurrent: RecurrentState
    keys: Keys | None = None
    fed: Tensor | None = None

    def select(self, rows_N: Tensor) -> None:
        self.first = self.first[rows_N]
        self.recurrent = self.recurrent.select(rows_N)
        self.fed = None if self.fed is None else self.fed[rows_N]
        if self.keys is not None:
            sources_B = rows_N[:: self.width] // self.width
            every_B = torch.arange(len(self.keys), device=sources_B.device)
            if not torch.equal(sources_B, every_B):  # usually all sources remain, and nothing has to be copied
                self.keys = self.keys.select(sources_B)


class Decoder(nn.Module, ABC):
    """Writes the target: a recurrent network over the tokens so far, which knows the source in one way or another."""

    @abstractmethod
    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        """Read one token of each hypothesis; [N, H], from which the next token is predicted. Changes `state`."""

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        """Read all tokens of the targets; [B, T, H]. By default one step follows the other."""
        return torch.stack([self.step(x_BD, state) for x_BD in x_BTD.unbind(1)], 1)

    def keys(self, states_BSE: Tensor, lengths_B: Tensor | None) -> Keys | None:
        """The keys of the sources, which attention reads; None without attention."""
        return None


class Bottleneck(Decoder):
    """A decoder that knows the source by its initial state alone (Sutskever et al. 2014, section 2)."""

    def __init__(self, network: Recurrent):
        super().__init__()
        self.network = network

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        h_BTH, state.recurrent = self.network(x_BTD, state.recurrent)
        return h_BTH

    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        h_NH, state.recurrent = self.network.step(x_ND, state.recurrent)
        return h_NH


class AttendingDecoder(Decoder):
    """A decoder that attends to the encoder's outputs."""

    def __init__(self, network: Recurrent, attention: StateAttention):
        super().__init__()
        self.network, self.attention = network, attention

    def keys(self, states_BSE: Tensor, lengths_B: Tensor | None) -> Keys | None:
        return self.attention.keys(states_BSE, lengths_B)


class LuongDecoder(AttendingDecoder):
    """Attends from its new state, and combines context and state (Luong et al. 2015, section 3, equation 5).

    h_t = RNN(x_t, h_t-1)        c_t = attention(h_t)        a_t = tanh(W [c_t; h_t])

    No step of the network needs the attention of the previous step, so all tokens of a target are computed at once.
    """

    def __init__(self, network: Recurrent, attention: StateAttention):
        super().__init__(network, attention)
        self.combine = nn.Linear(2 * network.hidden, network.hidden, bias=False)

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        h_BTH, state.recurrent = self.network(x_BTD, state.recurrent)
        return self.join(self.attention(h_BTH, state.keys), h_BTH)

    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        assert state.keys is not None
        h_NH, state.recurrent = self.network.step(x_ND, state.recurrent)
        return self.join(self.attention.step(h_NH, state.keys), h_NH)

    def join(self, c: Tensor, h: Tensor) -> Tensor:
        """tanh(W [c; h]), [..., H]: the attentional vector."""
        return self.combine(torch.cat([c, h], -1)).tanh()


class InputFeedingDecoder(LuongDecoder):
    """Also reads its previous attentional vector, so that it knows where it has attended (Luong et al. 2015, section
    3.3).

    h_t = RNN([x_t; a_t-1], h_t-1)        c_t = attention(h_t)        a_t = tanh(W [c_t; h_t])
    """

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        return Decoder.forward(self, x_BTD, state)

    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        fed_NH = x_ND.new_zeros(len(x_ND), self.network.hidden) if state.fed is None else state.fed
        state.fed = super().step(torch.cat([x_ND, fed_NH], -1), state)
        return state.fed


class BahdanauDecoder(AttendingDecoder):
    """Attends from its previous state, and reads token and context together (Bahdanau et al. 2014, section 3.1).

    c_t = attention(h_t-1)        h_t = RNN([x_t; c_t], h_t-1)        output = maxout(W [h_t; x_t; c_t])

    maxout takes the larger of each pair of numbers (appendix A.2.2).

    dim  D, width of the token vectors
    """

    def __init__(self, network: Recurrent, attention: StateAttention, dim: int):
        super().__init__(network, attention)
        self.output = nn.Linear(dim + 2 * network.hidden, 2 * network.hidden)

    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        assert state.keys is not None
        c_NE = self.attention.step(state.recurrent.hidden[-1], state.keys)
        h_NH, state.recurrent = self.network.step(torch.cat([x_ND, c_NE], -1), state.recurrent)
        return self.output(torch.cat([h_NH, x_ND, c_NE], -1)).unflatten(-1, (-1, 2)).amax(-1)
