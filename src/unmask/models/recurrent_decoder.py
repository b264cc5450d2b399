"""Recurrent decoders: from the last state of an encoder alone, and with the attention of Luong or of Bahdanau.

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
    """What a recurrent decoder keeps while it writes.

    recurrent  [L, N, H] of its layers
    keys       what attention needs of the B sources; None without attention
    fed        [N, H] what attention made of the token before, where the decoder reads it; None before the first token
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
            if not torch.equal(sources_B, every_B):  # most often all sources go on, and nothing has to be copied
                self.keys = self.keys.select(sources_B)


class Decoder(nn.Module, ABC):
    """Writes the target: a recurrent network over the tokens so far, and its way to look at the source."""

    @abstractmethod
    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        """Read one token of each hypothesis; [N, H], from which the next one is guessed. Changes `state`."""

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        """Read all tokens of the targets, [B, T, H]: one after the other, where a step needs what the last one saw."""
        return torch.stack([self.step(x_BD, state) for x_BD in x_BTD.unbind(1)], 1)

    def keys(self, states_BSE: Tensor, lengths_B: Tensor | None) -> Keys | None:
        """What is kept of the sources."""
        return None


class Bottleneck(Decoder):
    """All that is known of the source is the state from which the decoder starts (Sutskever et al. 2014, section 2)."""

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
    """Attends from its new state, after which the two are joined (Luong et al. 2015, section 3, equation 5).

    h_t = RNN(x_t, h_t-1)        c_t = attention(h_t)        a_t = tanh(W [c_t; h_t])

    No step of the network needs the attention of the last one, so that all tokens of a target run at once.
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
    """Also reads its last attentional vector, so that it knows what was attended to (Luong et al. 2015, section 3.3).

    h_t = RNN([x_t; a_t-1], h_t-1)        c_t = attention(h_t)        a_t = tanh(W [c_t; h_t])
    """

    def forward(self, x_BTD: Tensor, state: Seq2SeqState) -> Tensor:
        return Decoder.forward(self, x_BTD, state)

    def step(self, x_ND: Tensor, state: Seq2SeqState) -> Tensor:
        fed_NH = x_ND.new_zeros(len(x_ND), self.network.hidden) if state.fed is None else state.fed
        state.fed = super().step(torch.cat([x_ND, fed_NH], -1), state)
        return state.fed


class BahdanauDecoder(AttendingDecoder):
    """Attends from its last state, and reads what it saw beside the token (Bahdanau et al. 2014, section 3.1).

    c_t = attention(h_t-1)        h_t = RNN([x_t; c_t], h_t-1)        output = maxout(W [h_t; x_t; c_t])

    The output takes the larger of each two numbers (appendix A.2.2).

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
