"""Transformer-XL: reads a text in segments, with a memory of hidden states of earlier segments (Dai et al., 2019).

Shapes: L layers, B rows, T tokens of a segment, M tokens of the memory, S = M + T keys, D width, V vocabulary;
W hypotheses of each row, N = B * W of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.heads import head_of
from unmask.models.model import ModelConfig
from unmask.models.segment_model import SegmentModel, SegmentStack
from unmask.nn import (
    Attention,
    Classifier,
    Embedding,
    FeedForward,
    Residual,
    ScaledToken,
    Span,
    TiedHead,
    TransformerXL,
)
from unmask.nn.attention import Bias
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class TransformerXl(ModelConfig):
    """The numbers that make a Transformer-XL; the defaults are those of the base model for WikiText-103.

    vocabulary  V, entries of the tokenizer        dim     D, width of the hidden states
    layers      number of blocks                   heads   H, attention heads of each
    hidden      width inside the feed-forward      memory  M, tokens that every layer remembers; longer rows are read
                                                           M tokens at a time
    length      longest sequence, in tokens; None: no limit
    dropout     after embeddings and sub-layers, and on the outputs of the last block
    attention_dropout  on attention weights
    std         of the initialisation
    padding     id of the padding token

    The output shares the table of token vectors; the adaptive softmax of the published models is not used.
    """

    vocabulary: int = 32_768
    dim: int = 410
    layers: int = 16
    heads: int = 10
    hidden: int = 2_100
    memory: int = 150
    length: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    eps: float = 1e-5
    std: float = 0.02
    padding: int = 0

    offers = frozenset({"causal", "memory"})

    @property
    def width(self) -> int:
        return self.dim

    def block(self, position: TransformerXL) -> SegmentBlock:
        """Attention to the memory and the segment, then feed-forward, each followed by a residual sum and a norm."""
        norm = partial(nn.LayerNorm, self.dim, self.eps)
        attention = Attention(self.dim, self.heads, position=position, bias=False, dropout=self.attention_dropout)
        feedforward = FeedForward(self.dim, self.hidden, F.relu, dropout=self.dropout)
        return SegmentBlock(
            Residual(attention, after=norm(), dropout=self.dropout),
            Residual(feedforward, after=norm(), dropout=self.dropout),
        )

    def stack(self) -> SegmentStack:
        """The blocks; they share u and v, which have no layer index in the equations (section 3.3)."""
        if self.memory < 1:
            raise UnmaskError(f"A Transformer-XL remembers at least one token, not {self.memory}; set --memory.")
        positions = [TransformerXL(self.dim, self.heads) for _ in range(self.layers)]
        for position in positions[1:]:
            position.u, position.v = positions[0].u, positions[0].v
        return SegmentStack([self.block(position) for position in positions], self.memory, self.dropout)

    def next_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return TiedHead(token, bias=True)

    def token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Classifier(self.dim, head.outputs)  # the stack has dropout on its outputs

    sequence_head = choice_head = token_head

    def span_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        return Span(self.dim)

    def build(
        self, heads: Mapping[str, Head] | None = None, *, seed: int | None = 0, pooler: bool = False
    ) -> SegmentModel:
        """A freshly initialised model. Raises UnmaskError for parts that do not go together.

        heads   name -> kind of head; default: the next token
        seed    of the initialisation; None leaves it to the caller, who sets the parameters anyway
        pooler  has no effect: the summary of a sequence has no weights
        """
        heads = {"next": Head("next_token")} if heads is None else heads
        token = ScaledToken(self.vocabulary, self.dim)
        built = {name: head_of(self, head, token) for name, head in heads.items()}
        embedding = Embedding(token, dropout=self.dropout)
        model = SegmentModel(self, embedding, self.stack(), built)
        if seed is not None:
            self.initialise(model, seed)
        return model

    def initialise(self, module: nn.Module, seed: int) -> None:
        """Weights, embeddings, u and v from a normal of `std`; biases 0; weights of norms 1, their biases 0."""
        generator = torch.Generator().manual_seed(seed)
        for part in module.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, std=self.std, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
            if isinstance(part, TransformerXL):
                nn.init.normal_(part.u, std=self.std, generator=generator)
                nn.init.normal_(part.v, std=self.std, generator=generator)
            if isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512, "memory": 64},
    "small": {"layers": 4, "dim": 512, "heads": 8, "hidden": 2_048, "memory": 128},
    "base": {"layers": 16, "dim": 410, "heads": 10, "hidden": 2_100, "memory": 150},
    "large": {"layers": 18, "dim": 1_024, "heads": 16, "hidden": 4_096, "memory": 384},
}
"""Sizes: base and large as published for WikiText-103; below them, those of small GPTs."""


class SegmentBlock(nn.Module):
    """One layer, which reads a segment and a memory of its earlier inputs (section 3.2; SG stops the gradient):

        h~ = [SG(m) ; h]                q = h W_q      k = h~ W_k      v = h~ W_v
        a_ij = q_i·k_j + q_i·W_R R_i-j + u·k_j + v·W_R R_i-j           a token i sees the tokens j <= i
        o = norm(h + softmax(a / sqrt K) v W_o)        next h = norm(o + feedforward(o))

    `nn.position.TransformerXL` computes the last three terms of a_ij (section 3.3).
    """

    def __init__(self, attention: Residual, feedforward: Residual):
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(self, h_BTD: Tensor, memory_BMD: Tensor, bias: Bias) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        keys_BSD = torch.cat([memory_BMD.detach(), h_BTD], 1)
        out_BTD: Tensor = self.feedforward(self.attention(h_BTD, keys_BSD, bias=bias))
        return out_BTD
