"""Han: a hierarchical attention network for documents (Yang et al. 2016).

Shapes: B rows, T places of a row, N sentences, S words of the longest, D width of a token vector, E = 2 H width of a
state of either level, M places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from unmask.models.han_model import HanModel
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.nn import Classifier, Embedding, Recurrent, Token, xavier_uniform
from unmask.nn.hierarchy import AttentionPooling, AttentiveLevel, Hierarchy
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Han(ModelConfig):
    """The numbers that make a hierarchical attention network; the defaults are the published ones (section 3.3).

    vocabulary  V, words of the tokenizer       separator  id of the token between sentences
    dim         D, width of the token vectors   hidden     H, width of a state of either level in one direction
    context     width of the context vectors    cell       of both levels
    dropout     on token vectors and on the vector of a document
    length      longest document, in tokens; None: no limit
    padding     id of the padding token
    """

    vocabulary: int = 20_000
    dim: int = 200
    hidden: int = 50
    context: int = 100
    cell: Literal["rnn", "lstm", "gru", "gru-cho", "gru-chung"] = "gru"
    dropout: float = 0.1
    separator: int = 3
    length: int | None = None
    padding: int = 0

    offers = frozenset[str]()
    token_kind = "word"

    @property
    def width(self) -> int:
        """E."""
        return 2 * self.hidden

    def level(self, dim: int) -> AttentiveLevel:
        """The network of one level, over vectors of a width `dim`."""
        network = Recurrent(self.cell, dim, self.hidden, bidirectional=True)
        return AttentiveLevel(network, AttentionPooling(self.width, self.context))

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.width, head.outputs, self.dropout)

    sequence_head = choice_head = token_head

    def build(self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False) -> HanModel:
        """As `ModelConfig.build`; the default has no heads. The summary of a document has no pooler."""
        token = Token(self.vocabulary, self.dim, padding=self.padding)
        built = {name: head_of(self, head, token) for name, head in (heads or {}).items()}
        stack = Hierarchy(self.level(self.dim), self.level(self.width))
        model = HanModel(self, Embedding(token, dropout=self.dropout), stack, built)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        xavier_uniform(module, seed, padding=self.padding)


SIZES: dict[str, dict[str, Any]] = {"base": {}, "tiny": {"dim": 100, "hidden": 32, "context": 64}}
"""The published sizes, and a smaller one."""
