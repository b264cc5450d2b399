"""RecurrentNetwork: an RNN, LSTM or GRU as language model, tagger or classifier.

Shapes: B rows, T tokens of a row, N sequences of all rows (or hypotheses, in `next`), S tokens of the longest, D width
of token vectors, H width of a state, E width of the outputs (H, or 2 H in two directions), M places, V vocabulary,
L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.models.recurrent_model import RecurrentModel
from unmask.nn import (
    Classifier,
    Embedding,
    ProjectedHead,
    Recurrent,
    RecurrentLayer,
    RecurrentStack,
    Span,
    Token,
    xavier_uniform,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class RecurrentNetwork(ModelConfig):
    """The numbers and the parts that make a recurrent network over a text.

    vocabulary     V, entries of the tokenizer        dim    D, width of the token vectors
    hidden         H, width of the state of a layer   layers, cell
    bidirectional  every layer is read from both ends (Schuster & Paliwal 1997): for tags and classes, or to guess
                   hidden words, but not the next one, which it would have seen
    length         longest sequence, in tokens; None: no end is known
    tbptt          tokens that a gradient goes back at most (truncated back-propagation through time, Williams & Peng
                   1990): the state goes on through all of a sequence, its gradient stops at every so many tokens.
                   None: it goes back to the beginning of the sequence
    dropout        on token vectors and on the outputs of each layer, not from step to step (Zaremba et al. 2014)
    padding        id of the padding token
    """

    vocabulary: int = 8_192
    dim: int = 256
    hidden: int = 512
    layers: int = 2
    cell: Literal["rnn", "lstm", "gru"] = "lstm"
    bidirectional: bool = False
    length: int | None = None
    tbptt: int | None = None
    dropout: float = 0.1
    padding: int = 0

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"bidirectional" if self.bidirectional else "causal"})

    @property
    def width(self) -> int:
        """E, of what the last layer says of each token."""
        return 2 * self.hidden if self.bidirectional else self.hidden

    def stack(self) -> RecurrentStack:
        """The layers, one after the other. Raises UnmaskError for truncation that cannot be."""
        if self.tbptt is not None and self.bidirectional:
            raise UnmaskError("A network that reads from the end, too, cannot be cut in windows; leave out tbptt.")
        if self.tbptt is not None and self.tbptt < 1:
            raise UnmaskError(f"A gradient must go back at least one token, not {self.tbptt}.")
        widths = [self.dim] + [self.width] * (self.layers - 1)
        layers = [Recurrent(self.cell, dim, self.hidden, bidirectional=self.bidirectional) for dim in widths]
        return RecurrentStack([RecurrentLayer(layer, self.dropout, self.tbptt) for layer in layers])

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Over the vocabulary. Raises UnmaskError in two directions, which have seen what they would guess."""
        if self.bidirectional:
            raise UnmaskError(
                "A bidirectional network has seen the next token and cannot learn to guess it: set --bidirectional "
                "false, or learn hidden words."
            )
        return ProjectedHead(token, self.width)

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return ProjectedHead(token, self.width)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.width, head.outputs)  # the outputs of the stack are dropped out already

    sequence_head = choice_head = token_head

    def span_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Span(self.width)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> RecurrentModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> kind of head; default: the next token, or in two directions hidden words
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  of no effect: sequences are summed up without weights
        """
        if heads is None:
            heads = {"mlm": Head("masked_token")} if self.bidirectional else {"next": Head("next_token")}
        token = Token(self.vocabulary, self.dim, padding=self.padding)
        built = {name: head_of(self, head, token) for name, head in heads.items()}
        model = RecurrentModel(self, Embedding(token, dropout=self.dropout), self.stack(), built)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Give a model, or a part of one, the weights it starts from."""
        xavier_uniform(module, seed, padding=self.padding)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 256, "layers": 1},
    "small": {"dim": 256, "hidden": 512, "layers": 2},
    "medium": {"dim": 650, "hidden": 650, "layers": 2},
    "large": {"dim": 1_500, "hidden": 1_500, "layers": 2},
}
"""Sizes: medium and large as published (Zaremba et al. 2014, section 4.1)."""
