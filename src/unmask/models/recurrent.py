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
from unmask.models.model import ModelConfig
from unmask.models.recurrent_model import RecurrentModel
from unmask.nn import (
    Classifier,
    Embedding,
    LinearChainCRF,
    ProjectedHead,
    Recurrent,
    RecurrentLayer,
    RecurrentStack,
    Span,
    Token,
    xavier_uniform,
)

WRITING = ("next", "mlm")
"""Heads that answer with a token of the vocabulary."""


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
    def learns(self) -> tuple[str, ...]:
        """Hidden words from both ends, else what comes next."""
        return ("hidden", "pairs") if self.bidirectional else ("next", "again")

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

    def head(self, name: str, outputs: int, token: Token) -> nn.Module:
        """The layer that answers for `name`: over the vocabulary for "next" and "mlm", else over `outputs` classes."""
        if name == "next" and self.bidirectional:
            raise UnmaskError(
                "A bidirectional network has seen the next token and cannot learn to guess it: set --bidirectional "
                "false, or learn hidden words."
            )
        if name in WRITING:
            return ProjectedHead(token, self.width)
        if name == "span":
            return Span(self.width)
        if name == "crf":
            return LinearChainCRF(outputs)  # reads what "tagging" says, not hidden states
        return Classifier(self.width, outputs)  # the outputs of the stack are dropped out already

    def build(
        self, heads: Mapping[str, int] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> RecurrentModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> outputs; default: the next token, or in two directions hidden words
        seed    of the initialisation; None leaves that to the caller, who fills the parameters anyway
        pooler  of no effect: sequences are summed up without weights
        """
        if heads is None:
            heads = {"mlm" if self.bidirectional else "next": 0}
        token = Token(self.vocabulary, self.dim, padding=self.padding)
        built = {name: self.head(name, outputs, token) for name, outputs in heads.items()}
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
