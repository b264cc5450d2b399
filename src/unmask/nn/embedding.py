"""Embeddings: token (plain or factorised), segment, and the input layer that adds them up.

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn.dropout import Dropout
from unmask.nn.position import Position


class Token(nn.Embedding):
    """One vector a token.

    factor   width of the stored vectors, which a linear map without bias widens to `dim`: V * factor + factor * dim
             parameters in place of V * dim (Lan et al. 2020, section 3.1)
    padding  id whose vector starts at zero and gets no gradient from the input
    """

    def __init__(self, vocabulary: int, dim: int, *, factor: int | None = None, padding: int | None = None):
        super().__init__(vocabulary, dim if factor is None else factor, padding_idx=padding)
        self.project = nn.Identity() if factor is None else nn.Linear(factor, dim, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T] int64 -> [B, T, D]. Raises `UnmaskError` for an id beyond the vocabulary (not checked on a GPU)."""
        return self.project(_look_up(self, tokens_BT, "Token"))


class Segment(nn.Embedding):
    """One vector a segment: which sentence of a pair a token belongs to (BERT, section 3). A table of one, as RoBERTa
    has, tells none apart: all tokens are in it, whatever a tokenizer says."""

    def __init__(self, segments: int, dim: int):
        super().__init__(segments, dim)

    def forward(self, segments_BT: Tensor | None) -> Tensor:
        """[B, T] int64 -> [B, T, D]; None, every token in segment 0 -> [D]."""
        if segments_BT is None or self.num_embeddings == 1:
            return self.weight[0]
        return _look_up(self, segments_BT, "Segment")


class Embedding(nn.Module):
    """project(dropout(norm(token + segment + position))), each part but the token optional.

    project  widens the sum to the width of the stack, as ALBERT and ELECTRA do

    reads_neighbours  whether a token's vector depends on the tokens beside it, so that in a row with padding positions
                      must say where a sequence ends
    """

    reads_neighbours = False

    def __init__(
        self,
        token: nn.Module,
        *,
        segment: Segment | None = None,
        position: Position | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        project: nn.Module | None = None,
    ):
        super().__init__()
        self.token, self.segment = token, segment
        self.position = (position or Position()).fits("an Embedding", "embed")
        self.norm, self.project = norm or nn.Identity(), project or nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(
        self, tokens_BT: Tensor, segments_BT: Tensor | None = None, positions_BT: Tensor | None = None
    ) -> Tensor:
        """[B, T] int64 -> [B, T, D]. A model without segments reads none; positions None means 0 … T-1."""
        x_BTD = self.token(tokens_BT)
        if self.segment is not None:
            x_BTD = x_BTD + self.segment(segments_BT)
        return self.project(self.dropout(self.norm(self.position.embed(x_BTD, positions_BT))))


def _look_up(table: nn.Embedding, ids: Tensor, what: str) -> Tensor:
    try:
        return nn.Embedding.forward(table, ids)
    except IndexError:
        low, high = int(ids.min()), int(ids.max())
        wrong = low if low < 0 else high
        raise UnmaskError(
            f"{what} id {wrong} does not exist in this model, which has {table.num_embeddings} of them "
            f"(0 to {table.num_embeddings - 1}); was the text encoded with this model's tokenizer?"
        ) from None
