"""ElmoModel: a bidirectional language model over words that are read as characters, and its outputs for tasks.

Shapes: B rows, T tokens (characters) of a row, N sequences of words, S words of the longest, W words of all rows, D
width in one direction, L layers, E = 2 D (L + 1) numbers of all layers side by side, R width of a task's network in
one direction, M places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from unmask.models.causal import ends
from unmask.models.stack_model import StackModel
from unmask.nn import BidirectionalLMStack, CharacterCNN, TaskReader
from unmask.nn.sequences import Words
from unmask.types import Batch

if TYPE_CHECKING:
    from unmask.models.elmo import Elmo

WORDS = "words"
"""The head of pre-training, which predicts the next or the previous word."""


class ElmoModel(StackModel):
    """Characters in, states of words out, each at the place of the word's first character; other places are zero.

    pooler  the network of a task, None in pre-training
    """

    config: Elmo
    embedding: CharacterCNN
    stack: BidirectionalLMStack
    pooler: TaskReader | None

    def __init__(
        self,
        config: Elmo,
        embedding: CharacterCNN,
        stack: BidirectionalLMStack,
        heads: Mapping[str, nn.Module],
        reader: TaskReader | None,
    ) -> None:
        super().__init__(config, embedding, stack, heads=heads)
        self.pooler = reader

    def forward(self, batch: Batch) -> Tensor:
        """All layers of the language model side by side [B, T, E], or the outputs of a task's network [B, T, 2 R]."""
        words = Words.of(batch.tokens, batch.documents, self.config.continues)
        sequences, lengths_N = words.sequences, words.sequences.lengths
        layers = self.stack(sequences.unpack(self.embedding(words.characters, words.lengths)[None]), lengths_N)
        if self.pooler is None:
            states_NSE = torch.cat(layers, -1)
        else:
            own_WD = self.pooler.own(words.characters, words.lengths)
            states_NSE = self.pooler(sequences.unpack(own_WD[None]), layers, lengths_N)
        states_WE = sequences.pack(states_NSE)[0]
        flat = states_WE.new_zeros(batch.tokens.numel(), states_WE.shape[-1])
        return flat.index_copy(0, words.places, states_WE).unflatten(0, batch.tokens.shape)

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """[M, 2 R]: the forward state at the last word of a sequence, and the backward state at its first word."""
        assert batch is not None, "where a sequence ends is read off its batch"
        R, flat = self.config.task, hidden_BTD.flatten(0, 1)
        words = Words.of(batch.tokens, batch.documents, self.config.continues)
        at_M = torch.searchsorted(words.places, places_M, right=True) - 1  # the word that a place is in
        owners_1W = words.sequences.owners[None] + 1
        first_M, last_M = ends(Batch(owners_1W, documents=owners_1W), at_M)
        return torch.cat([flat[words.places[last_M], :R], flat[words.places[first_M], R:]], -1)

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """As `Model.hidden_states`, without the network of a task; other places than first characters are zero."""
        if self.pooler is not None:
            return super().hidden_states(batch)
        return list(self(batch).unflatten(-1, (self.config.layers + 1, -1)).unbind(2))

    def direction(self, hidden_BTE: Tensor, number: int) -> Tensor:
        """[B, T, D]: the last layer of the forward (0) or the backward (1) direction, which predicts words."""
        D = self.config.dim
        begin = (2 * self.config.layers + number) * D
        return hidden_BTE[..., begin : begin + D]
