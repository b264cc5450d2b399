"""IB-BERT: the teacher of MobileBERT, BERT-large with inverted bottlenecks (Sun et al., 2020, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from unmask.kernels.linear import Linear
from unmask.models.mobilebert import MobileBert
from unmask.nn import ActivationName, Attention


@dataclass(frozen=True, kw_only=True)
class IbBert(MobileBert):
    """The numbers that make an IB-BERT; the defaults are the published ones (293 M parameters).

    Between its blocks it is as wide as MobileBERT, so that the student can learn the states there; inside, it is
    `bottleneck` wide, as BERT-large. Layer norms, GELU and one feed-forward network are those of BERT. Queries, keys
    and values come from the input of the block.
    """

    hidden: int = 4_096
    activation: ActivationName = "gelu"
    dropout: float = 0.1
    bottleneck: int = 1_024
    feedforwards: int = 1

    def norm(self, dim: int) -> nn.Module:
        return nn.LayerNorm(dim, self.eps)

    def look(self) -> nn.Module:
        return nn.Identity()

    def attention(self) -> Attention:
        """Wider than its input; its output is as wide as what it is added to."""
        head_dim = self.bottleneck // self.heads
        attention = Attention(self.dim, self.heads, head_dim=head_dim, dropout=self.attention_dropout)
        attention.output = Linear(self.bottleneck, self.bottleneck)
        return attention


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 2, "hidden": 1_024, "factor": 64, "bottleneck": 256},
}
"""A teacher for `mobilebert-tiny`; the published size is that of `IbBert()`."""
