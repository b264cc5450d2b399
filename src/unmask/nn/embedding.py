"""Embeddings: token (plain or factorised), signal, segment, and the input layer that adds them up.

Shapes: B rows, T tokens, D width, V vocabulary, P places with F raw numbers each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn.dropout import Dropout
from unmask.nn.position import Position
from unmask.types import Kind, Signal


class Token(nn.Embedding):
    """One vector for each token.

    factor   width of the stored vectors, which a linear map without bias widens to `dim`: V * factor + factor * dim
             parameters instead of V * dim (Lan et al. 2020, section 3.1)
    padding  id whose vector starts at zero and gets no gradient from the input
    """

    def __init__(self, vocabulary: int, dim: int, *, factor: int | None = None, padding: int | None = None):
        super().__init__(vocabulary, dim if factor is None else factor, padding_idx=padding)
        self.project = nn.Identity() if factor is None else nn.Linear(factor, dim, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T] int64 -> [B, T, D]. Raises `UnmaskError` for an id beyond the vocabulary (not checked on a GPU)."""
        return self.project(_look_up(self, tokens_BT, "Token"))


class ScaledToken(Token):
    """Token vectors times sqrt(D): vectors that the output shares would be small compared with the sinusoids (Vaswani
    et al. 2017, section 3.4)."""

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = super().forward(tokens_BT)
        return x_BTD * x_BTD.shape[-1] ** 0.5


class Patch(nn.Module):
    """A linear map of the raw numbers of a place, such as the pixels of a patch (ViT, Dosovitskiy et al. 2021, equation
    1), and a norm if there is one. The published code computes the map as a convolution with the same weights."""

    def __init__(self, numbers: int, dim: int, norm: nn.Module | None = None):
        super().__init__()
        self.project, self.norm = nn.Linear(numbers, dim), norm or nn.Identity()

    def forward(self, signal: Signal, shape: torch.Size) -> Tensor:
        """The values [P, F] of a signal in rows of `shape` [B, T] -> [B, T, D], zero at all other places."""
        # Products may be in bfloat16, but the sums of the blocks, which begin with these vectors, are not.
        vectors_PD = self.norm(self.project(signal.values).to(signal.values.dtype))
        rows_ND = vectors_PD.new_zeros(shape.numel(), vectors_PD.shape[-1]).index_copy(0, signal.places, vectors_PD)
        return rows_ND.unflatten(0, shape)


class Places(nn.Module):
    """The vector of each place: from its raw values, its kind, or its id.

    signal  embedding of raw values, such as `Patch`: (Signal, shape [B, T]) -> [B, T, D]
    dim     D
    kinds   kinds of places with one learned vector each
    token   embedding of ids, if the model reads ids too
    """

    def __init__(self, signal: nn.Module, dim: int, kinds: Sequence[Kind], token: nn.Embedding | None = None):
        super().__init__()
        self.signal, self.token = signal, token
        self.kinds = nn.ParameterDict({kind.name: nn.Parameter(torch.zeros(dim)) for kind in kinds})

    def forward(self, tokens_BT: Tensor, signal: Signal | None = None) -> Tensor:
        """[B, T] int64 -> [B, T, D]; padding is zero. Raises UnmaskError for a batch without raw values."""
        if signal is None:
            raise UnmaskError("This model reads raw values, such as pixels or samples, but the batch has only tokens.")
        x_BTD = self.signal(signal, tokens_BT.shape)
        x_BTD = torch.where((tokens_BT == Kind.SIGNAL)[..., None], x_BTD, x_BTD.new_zeros(()))
        if self.token is not None:
            x_BTD = torch.where((tokens_BT >= 0)[..., None], self.token(tokens_BT.clamp(min=0)), x_BTD)
        for name, vector_D in self.kinds.items():
            x_BTD = torch.where((tokens_BT == Kind[name])[..., None], vector_D, x_BTD)
        return x_BTD


class Segment(nn.Embedding):
    """One vector for each segment, the sentence of a pair that a token belongs to (BERT, section 3). With a single
    segment, as in RoBERTa, all tokens get the same vector, whatever the segment ids are."""

    def __init__(self, segments: int, dim: int):
        super().__init__(segments, dim)

    def forward(self, segments_BT: Tensor | None) -> Tensor:
        """[B, T] int64 -> [B, T, D]; None, which puts every token in segment 0 -> [D]."""
        if segments_BT is None or self.num_embeddings == 1:
            return self.weight[0]
        return _look_up(self, segments_BT, "Segment")


class Embedding(nn.Module):
    """project(dropout(norm(token + segment + position))); all parts except the token are optional.

    project  widens the sum to the width of the stack, as in ALBERT and ELECTRA

    reads_neighbours  whether the vector of a token depends on neighbouring tokens, so that a row with padding needs
                      positions that show where a sequence ends
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
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        signal: Signal | None = None,
    ) -> Tensor:
        """[B, T] int64 -> [B, T, D]. A model without segments ignores them; positions None means 0 … T-1.

        signal  raw values of places, for a token embedding that reads them (`Places`)
        """
        x_BTD = self.vectors(tokens_BT, positions_BT, signal)
        if self.segment is not None:
            x_BTD = x_BTD + self.segment(segments_BT)
        return self.project(self.dropout(self.norm(self.position.embed(x_BTD, positions_BT))))

    def vectors(self, tokens_BT: Tensor, positions_BT: Tensor | None, signal: Signal | None) -> Tensor:
        """The vector of each place, [B, T, D], before segments and positions are added."""
        vectors_BTD: Tensor = self.token(tokens_BT) if signal is None else self.token(tokens_BT, signal)
        return vectors_BTD


def _look_up(table: nn.Embedding, ids: Tensor, what: str) -> Tensor:
    try:
        return nn.Embedding.forward(table, ids)
    except IndexError:
        low, high = int(ids.min()), int(ids.max())
        wrong = low if low < 0 else high
        raise UnmaskError(
            f"{what} id {wrong} does not exist in this model, which has {table.num_embeddings} of them "
            f"(0 to {table.num_embeddings - 1}); encode the text with this model's tokenizer."
        ) from None
