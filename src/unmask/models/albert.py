"""ALBERT: BERT whose layers share one set of weights, over narrow token vectors (Lan et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from unmask.models.bert import Bert
from unmask.nn import ActivationName, Block, Classifier, Dropout, Embedding, Segment, Stack, Token
from unmask.types import Head


@dataclass(frozen=True, kw_only=True)
class Albert(Bert):
    """The numbers that make an ALBERT; the defaults are version 2 of ALBERT-base, which is trained without dropout.

    factor  E, width of the stored token, segment and position vectors, which a linear map projects to `dim`
    """

    vocabulary: int = 30_000
    factor: int = 128
    activation: ActivationName = "gelu_new"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    head_dropout: float | None = 0.1

    def embedding(self) -> Embedding:
        """V * E + E * D parameters in place of V * D (section 3.1, "Factorized embedding parameterization").

        As published, the vectors are summed and normalised at width E, and projected to the width of the stack then.
        """
        return Embedding(
            Token(self.vocabulary, self.factor),
            segment=Segment(self.segments, self.factor),
            position=self.position(self.factor),
            norm=nn.LayerNorm(self.factor, self.eps),
            dropout=self.dropout,
            project=nn.Linear(self.factor, self.dim),
        )

    def block(self) -> Block:
        """As BERT's, but without dropout after the feed-forward, as in `transformers`, so that a folder computes the
        same there. The published code has this dropout."""
        block = super().block()
        block.feedforward.dropout = Dropout(0.0)
        return block

    def stack(self) -> Stack:
        """One block, run `layers` times (section 3.1, "Cross-layer parameter sharing")."""
        return Stack([self.block()], order=[0] * self.layers)

    def sequence_head(self, head: Head, token: nn.Embedding) -> nn.Module:
        """As BERT's, but the head for sentence order has dropout, as other classifiers do."""
        if head.pretraining:
            return Classifier(self.dim, head.outputs, dropout=self.head_dropout or 0.0)
        return super().sequence_head(head, token)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 2, "hidden": 512, "factor": 64},
    "mini": {"layers": 4, "dim": 256, "heads": 4, "hidden": 1_024, "factor": 64},
    "base": {"layers": 12, "dim": 768, "heads": 12, "hidden": 3_072},
    "large": {"layers": 24, "dim": 1_024, "heads": 16, "hidden": 4_096},
    "xlarge": {"layers": 24, "dim": 2_048, "heads": 32, "hidden": 8_192},
    "xxlarge": {"layers": 12, "dim": 4_096, "heads": 64, "hidden": 16_384},
}
"""Published sizes (Lan et al. 2020, table 1; heads of 64 numbers, section 3.1), and two of BERT's for a CPU."""
