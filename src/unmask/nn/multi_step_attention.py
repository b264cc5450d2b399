"""Attention in each layer of a convolutional decoder (ConvS2S), and the memory that all layers read.

Shapes: B rows (sources), T target tokens, S source tokens, Q queries of a source, E width of the vectors, C width of a
layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from unmask.nn.convolution import scaled_sum, weight_norm


@dataclass(slots=True)
class Memory:
    """The encoded sources, computed once for all layers of the decoder and all hypotheses of a source.

    keys     [B, S, E]: z, the output of the encoder for each token
    values   [B, S, E]: z + e, with e the vector of the token
    visible  [B, 1, S], False for padding; None if nothing is padded
    scale    [B, 1, 1]: sqrt(m) for the m tokens of each source
    """

    keys: Tensor
    values: Tensor
    visible: Tensor | None
    scale: Tensor

    def select(self, sources: Tensor) -> None:
        """Replace source i by source sources[i], in place."""
        self.keys, self.values, self.scale = self.keys[sources], self.values[sources], self.scale[sources]
        self.visible = None if self.visible is None else self.visible[sources]


class MultiStepAttention(nn.Module):
    """Attention of one layer of the decoder to the source (Gehring et al. 2017, section 3.3, equations 1 and 2).

    d = W h + b + g        a = softmax(d z)        c = sum of a (z + e)

    h is the output of the layer's convolution, g the vector of the previous target token. The output is
    scaled_sum(W c sqrt(m), h), for m tokens of the source: sqrt(m) keeps the variance if attention is uniform (section
    3.4), and W projects to the width of the layer.
    """

    def __init__(self, width: int, dim: int):
        super().__init__()
        self.query, self.output = weight_norm(nn.Linear(width, dim)), weight_norm(nn.Linear(dim, width))
        self.recorder: Callable[[Tensor], None] | None = None  # set by record_attention alone

    def forward(self, h_BTC: Tensor, g_BTE: Tensor, memory: Memory) -> Tensor:
        """[B, T, C] -> [B, T, C]. There may be `width` rows for each source, one after the other: its hypotheses.

        The recorder receives [B, 1, Q, S]: the tokens of all hypotheses of a source are its queries.
        """
        d_BTE = scaled_sum(self.query(h_BTC), g_BTE)
        d_BQE = d_BTE.reshape(len(memory.keys), -1, d_BTE.shape[-1])  # Q = width * T
        score_BQS = d_BQE @ memory.keys.transpose(1, 2)
        if memory.visible is not None:
            score_BQS = score_BQS.masked_fill(~memory.visible, -math.inf)
        a_BQS = score_BQS.softmax(-1)
        if self.recorder is not None:
            self.recorder(a_BQS[:, None])
        c_BQE = a_BQS.to(memory.values.dtype) @ memory.values * memory.scale
        return scaled_sum(self.output(c_BQE.view_as(d_BTE)), h_BTC)
