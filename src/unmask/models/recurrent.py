"""RecurrentNetwork: an RNN, LSTM or GRU as language model, tagger or classifier.

Shapes: B rows, T tokens of a row, N sequences of all rows (or hypotheses), S tokens of the longest, D width of token
vectors, H width of a state, E width of the outputs (H, or 2 H if bidirectional), M places, V vocabulary, L layers.
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
    SpanRanking,
    Token,
    xavier_uniform,
)
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class RecurrentNetwork(ModelConfig):
    """The numbers and the parts that make a recurrent network over a text.

    vocabulary     V, entries of the tokenizer        dim    D, width of the token vectors
    hidden         H, width of the state of a layer   layers, cell
    bidirectional  every layer reads in both directions (Schuster & Paliwal 1997): for tags, classes and masked tokens,
                   but not for the next token, which it has seen
    length         longest sequence, in tokens; None: no limit
    tbptt          most tokens that a gradient goes back (truncated back-propagation through time, Williams & Peng
                   1990): the state is carried through the whole sequence, its gradient stops after this many tokens.
                   None: it goes back to the beginning of the sequence
    dropout        on token vectors and on the outputs of each layer, not from step to step (Zaremba et al. 2014)
    padding        id of the padding token
    """

    vocabulary: int = 8_192
    dim: int = 256
    hidden: int = 512
    layers: int = 2
    cell: Literal["rnn", "lstm", "gru", "gru-cho", "gru-chung"] = "lstm"
    bidirectional: bool = False
    length: int | None = None
    tbptt: int | None = None
    dropout: float = 0.1
    padding: int = 0

    @property
    def offers(self) -> frozenset[str]:
        return frozenset({"bidirectional" if self.bidirectional else "causal"})

    @property
    def outputs(self) -> int:
        """E, the width of a layer's outputs."""
        return 2 * self.hidden if self.bidirectional else self.hidden

    @property
    def width(self) -> int:
        return self.outputs

    def stack(self) -> RecurrentStack:
        """The layers, one after the other. Raises UnmaskError for `tbptt` below 1 or in a bidirectional network."""
        if self.tbptt is not None and self.bidirectional:
            raise UnmaskError("The gradient of a bidirectional network cannot be truncated; leave out tbptt.")
        if self.tbptt is not None and self.tbptt < 1:
            raise UnmaskError(f"A gradient must go back at least one token, not {self.tbptt}.")
        widths = [self.dim] + [self.outputs] * (self.layers - 1)
        layers = [Recurrent(self.cell, dim, self.hidden, bidirectional=self.bidirectional) for dim in widths]
        return RecurrentStack([RecurrentLayer(layer, self.dropout, self.tbptt) for layer in layers])

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """Logits over the vocabulary. Raises UnmaskError for a bidirectional network, which has seen the next token."""
        if self.bidirectional:
            raise UnmaskError(
                "A bidirectional network has seen the next token and cannot learn to predict it: set --bidirectional "
                "false, or learn masked tokens."
            )
        return ProjectedHead(token, self.outputs)

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return ProjectedHead(token, self.outputs)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.outputs, head.outputs)  # the stack has dropout on its outputs

    sequence_head = choice_head = token_head

    def span_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Span(self.outputs)

    def span_ranking_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return SpanRanking(self.outputs, head.outputs)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> RecurrentModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> kind of head; default: the next token, or masked tokens if bidirectional
        seed    of the initialisation; None leaves it to the caller, who sets the parameters anyway
        pooler  has no effect: the summary of a sequence has no weights
        """
        if heads is None:
            heads = {"mlm": Head("masked_token")} if self.bidirectional else {"next": Head("next_token")}
        token = Token(self.vocabulary, self.dim, padding=self.padding)
        built = {name: head_of(self, head, token) for name, head in heads.items()}
        model = self.assemble(Embedding(token, dropout=self.dropout), built)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def assemble(self, embedding: Embedding, heads: Mapping[str, nn.Module]) -> RecurrentModel:
        """A model with these heads."""
        return RecurrentModel(self, embedding, self.stack(), heads)

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Set the initial weights of a model, or of a part of one: see `xavier_uniform`."""
        xavier_uniform(module, seed, padding=self.padding)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"dim": 128, "hidden": 256, "layers": 1},
    "small": {"dim": 256, "hidden": 512, "layers": 2},
    "medium": {"dim": 650, "hidden": 650, "layers": 2},
    "large": {"dim": 1_500, "hidden": 1_500, "layers": 2},
}
"""Sizes: medium and large as published (Zaremba et al. 2014, section 4.1)."""
