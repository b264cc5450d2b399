"""MobileBERT: deep and narrow, a bottleneck around every block, no layer normalisation (Sun et al., 2020).

Shapes: B rows, T tokens of a row, M places, D width between blocks, E width of a token vector, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.models.bert import Bert
from unmask.nn import (
    ACTIVATIONS,
    ActivationName,
    Attention,
    Bias,
    Embedding,
    FeedForward,
    Pooler,
    Residual,
    Segment,
    Stack,
    Token,
    WideHead,
)
from unmask.types import Head, Signal


@dataclass(frozen=True, kw_only=True)
class MobileBert(Bert):
    """The numbers that make a MobileBERT; the defaults are the published ones.

    factor        E, width of the token vectors; each place reads three: those of the next, this and the previous token
    bottleneck    width inside a block
    feedforwards  feed-forward networks of a block, one after the other
    pooled        whether heads for sequences read the first token through a pooler; the published weights have none
    """

    dim: int = 512
    layers: int = 24
    heads: int = 4
    hidden: int = 512
    activation: ActivationName = "relu"
    dropout: float = 0.0
    factor: int = 128
    bottleneck: int = 128
    feedforwards: int = 4
    pooled: bool = True

    def embedding(self) -> Embedding:
        """Three neighbouring token vectors, projected to D, + segment + position (section 3.1, "Embedding
        Factorization")."""
        return TrigramEmbedding(
            Token(self.vocabulary, self.factor, padding=self.padding),
            transform=nn.Linear(3 * self.factor, self.dim),
            segment=Segment(self.segments, self.dim),
            position=self.position(self.dim),
            norm=self.norm(self.dim),
            dropout=self.dropout,
        )

    def norm(self, dim: int) -> nn.Module:
        """What stands where BERT has a layer norm."""
        return NoNorm(dim)

    def stack(self) -> Stack:
        """Residual blocks that are D wide outside and narrower inside."""
        narrow = [self.narrow() for _ in range(self.layers)]
        return Stack([Residual(f, after=self.norm(self.dim), dropout=self.dropout) for f in narrow])

    def narrow(self) -> Bottleneck:
        """The inside of a block (sections 3.1 to 3.3)."""
        narrow, activation = self.bottleneck, ACTIVATIONS[self.activation]
        feedforwards = [
            Residual(FeedForward(narrow, self.hidden, activation), after=self.norm(narrow))
            for _ in range(self.feedforwards)
        ]
        enter, leave = nn.Sequential(nn.Linear(self.dim, narrow), self.norm(narrow)), nn.Linear(narrow, self.dim)
        return Bottleneck(enter, self.look(), self.attention(), self.norm(narrow), feedforwards, leave)

    def look(self) -> nn.Module:
        """What queries and keys are made from."""
        return nn.Sequential(nn.Linear(self.dim, self.bottleneck), self.norm(self.bottleneck))

    def attention(self) -> Attention:
        return Attention(self.bottleneck, self.heads, value_dim=self.dim, dropout=self.attention_dropout)

    pools = property(lambda self: self.pooled)

    def pooler(self, heads: Collection[Head]) -> Pooler | None:
        return Pooler(self.dim) if self.pooled else None

    def masked_token_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """As BERT's, for token vectors that are narrower than the hidden states."""
        if self.factor > self.dim:
            raise UnmaskError(f"Token vectors of {self.factor} numbers are wider than hidden states of {self.dim}.")
        return WideHead(token, self.dim, activation=ACTIVATIONS[self.activation], eps=self.eps)

    def initialise(self, module: nn.Module, seed: int) -> None:
        super().initialise(module, seed)
        for part in module.modules():
            if isinstance(part, NoNorm):
                nn.init.ones_(part.weight)
                nn.init.zeros_(part.bias)


class NoNorm(nn.Module):
    """weight * x + bias in place of a layer norm, without a mean and a variance to compute (section 3.4)."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return x_BTD * self.weight + self.bias


class TrigramEmbedding(Embedding):
    """norm(transform([next; this; previous] token vectors) + segment + position): a convolution of width 3.

    With positions, neighbours beyond the ends of a sequence are zero, whether padding or another sequence follows.
    Without positions, the neighbours are those of the row, padding included, as in `transformers`.
    """

    reads_neighbours = True

    def __init__(self, token: Token, *, transform: nn.Linear, **parts: Any):
        super().__init__(token, **parts)
        self.transform = transform

    def vectors(self, tokens_BT: Tensor, positions_BT: Tensor | None, signal: Signal | None) -> Tensor:
        """[B, T] int64 -> [B, T, D]; a sequence begins where its positions do."""
        begins_BT = None if positions_BT is None else positions_BT == 0
        return self.transform(neighbours(super().vectors(tokens_BT, positions_BT, signal), begins_BT))


def neighbours(x_BTE: Tensor, begins_BT: Tensor | None = None) -> Tensor:
    """[B, T, 3 E]: for each token the vectors of the next, this and the previous one; zero beyond its sequence.

    begins_BT  bool, where a sequence begins; None: one in each row
    """
    next_BTE, last_BTE = F.pad(x_BTE[:, 1:], (0, 0, 0, 1)), F.pad(x_BTE[:, :-1], (0, 0, 1, 0))
    if begins_BT is not None:
        last_BTE = last_BTE.masked_fill(begins_BT[..., None], 0.0)
        next_BTE = next_BTE.masked_fill(F.pad(begins_BT[:, 1:], (0, 1))[..., None], 0.0)
    return torch.cat([next_BTE, x_BTE, last_BTE], -1)


class Bottleneck(nn.Module):
    """leave(feedforwards(norm(enter(x) + attention(look(x), look(x), x)))): narrow between two linear maps.

    enter, leave  from D to the narrow width, and back
    look          what queries and keys are made from: one narrow projection of x; values come from x itself (section
                  3.1)
    feedforwards  each a Residual
    """

    def __init__(
        self,
        enter: nn.Module,
        look: nn.Module,
        attention: Attention,
        norm: nn.Module,
        feedforwards: list[Residual],
        leave: nn.Linear,
    ):
        super().__init__()
        self.enter, self.look = enter, look
        self.attention, self.norm = attention, norm
        self.stacked, self.last = nn.ModuleList(feedforwards[:-1]), feedforwards[-1]
        self.leave = leave

    def forward(
        self, x_BTD: Tensor, *, bias: Bias | None = None, positions_BT: Tensor | None = None, **_: Any
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        seen = self.look(x_BTD)
        h = self.norm(self.enter(x_BTD) + self.attention(seen, seen, x_BTD, bias=bias, positions_BT=positions_BT))
        for feedforward in self.stacked:
            h = feedforward(h)
        out_BTD: Tensor = self.leave(self.last(h))
        return out_BTD


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 2, "hidden": 256, "factor": 64, "bottleneck": 64, "feedforwards": 2},
}
"""A size for a CPU; the published size is that of `MobileBert()`."""
