"""ElmoModel: a language model from both sides over spelled words, and what a task reads of it.

Shapes: B rows, T tokens (characters) of a row, N sequences of words, S words of the longest, W words of all rows, D
width in one direction, L layers, E = 2 D (L + 1) numbers of all layers side by side, R width of a task's own network
in one direction, M places.
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
"""The head of pre-training: which word comes next, or came before."""


class ElmoModel(StackModel):
    """Characters in, states of words out, each at the place of its first character; elsewhere they are zero.

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
        """All layers of the language model side by side [B, T, E], or what the network of a task says, [B, T, 2 R]."""
        words = Words.of(batch.tokens, batch.documents, self.config.continues)
        sequences, lengths_N = words.sequences, words.sequences.lengths
        layers = self.stack(sequences.unpack(self.embedding(words.characters, words.lengths)[None]), lengths_N)
        if self.pooler is None:
            said_NSE = torch.cat(layers, -1)
        else:
            own_WD = self.pooler.own(words.characters, words.lengths)
            said_NSE = self.pooler(sequences.unpack(own_WD[None]), layers, lengths_N)
        said_WE = sequences.pack(said_NSE)[0]
        flat = said_WE.new_zeros(batch.tokens.numel(), said_WE.shape[-1])
        return flat.index_copy(0, words.places, said_WE).unflatten(0, batch.tokens.shape)

    def summary(self, hidden_BTD: Tensor, places_M: Tensor, batch: Batch | None) -> Tensor:
        """The state from the left after the last word of a sequence, and that from the right after its first."""
        assert batch is not None, "where a sequence ends is read off its batch"
        R, flat = self.config.task, hidden_BTD.flatten(0, 1)
        words = Words.of(batch.tokens, batch.documents, self.config.continues)
        at_M = torch.searchsorted(words.places, places_M, right=True) - 1  # the word that a place is in
        owners_1W = words.sequences.owners[None] + 1
        first_M, last_M = ends(Batch(owners_1W, documents=owners_1W), at_M)
        return torch.cat([flat[words.places[last_M], :R], flat[words.places[first_M], R:]], -1)

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """Of a language model; a state of a word stands at its first character, zeros at the others."""
        if self.pooler is not None:
            return super().hidden_states(batch)
        return list(self(batch).unflatten(-1, (self.config.layers + 1, -1)).unbind(2))

    def direction(self, hidden_BTE: Tensor, number: int) -> Tensor:
        """[B, T, D]: the last layer from the left (0) or from the right (1), from which words are guessed."""
        D = self.config.dim
        begin = (2 * self.config.layers + number) * D
        return hidden_BTE[..., begin : begin + D]
