"""Attention of every layer of a convolutional decoder (ConvS2S), and the memory that all layers read.

Shapes: B rows (sources), T tokens written, S tokens read, Q queries of a source, E width of the vectors, C of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from unmask.nn.convolution import scaled_sum, weight_norm


@dataclass(slots=True)
class Memory:
    """What the decoder reads of the sources, once for all its layers and for all hypotheses of a source.

    keys     z [B, S, E], what the encoder says of each token
    values   z + e [B, S, E], and the vector of the token itself
    visible  [B, 1, S], False for padding; None where nothing is padded
    scale    sqrt(m) [B, 1, 1] for the m tokens of each source
    """

    keys: Tensor
    values: Tensor
    visible: Tensor | None
    scale: Tensor

    def select(self, sources: Tensor) -> None:
        """Source i is from now on what source sources[i] was."""
        self.keys, self.values, self.scale = self.keys[sources], self.values[sources], self.scale[sources]
        self.visible = None if self.visible is None else self.visible[sources]


class MultiStepAttention(nn.Module):
    """Attention of one layer of the decoder to the source (Gehring et al. 2017, section 3.3, equations 1 and 2).

    d = W h + b + g        a = softmax(d z)        c = sum of a (z + e)

    h is what the layer has found, g the vector of the token before the one to be written. The output is c sqrt(m),
    for m tokens of the source, which keeps its variance where attention is even (section 3.4), brought to the width
    of the layer and added to h.
    """

    def __init__(self, width: int, dim: int):
        super().__init__()
        self.query, self.output = weight_norm(nn.Linear(width, dim)), weight_norm(nn.Linear(dim, width))
        self.recorder: Callable[[Tensor], None] | None = None  # set by record_attention alone

    def forward(self, h_BTC: Tensor, g_BTE: Tensor, memory: Memory) -> Tensor:
        """[B, T, C] -> [B, T, C]. Rows may be `width` times as many as sources: hypotheses of a source side by side.

        The recorder is handed [B, 1, T, S], the hypotheses of a source as so many queries.
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
