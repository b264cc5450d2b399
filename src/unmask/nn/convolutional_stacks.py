"""The convolutional encoder and decoder of ConvS2S (Gehring et al. 2017).

Shapes: B rows (sources), T target tokens, S source tokens, E width of the vectors, C width of a layer, O width of the
output.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from unmask.nn.convolution import GatedBlock, GatedConvolution, Window, scaled_sum, weight_norm
from unmask.nn.dropout import Dropout
from unmask.nn.multi_step_attention import Memory, MultiStepAttention


def normalised_linear(inputs: int, outputs: int) -> nn.Linear:
    """A weight-normalised linear map, as all layers except the embeddings are (section 3.5)."""
    return weight_norm(nn.Linear(inputs, outputs))


class AttentiveBlock(nn.Module):
    """A layer of the decoder: a gated causal convolution, then attention, within one residual sum (section 3.3)."""

    def __init__(self, gated: GatedConvolution, attention: MultiStepAttention, *, project: nn.Module | None = None):
        super().__init__()
        self.gated, self.attention, self.project = gated, attention, project or nn.Identity()

    def forward(self, x_BTD: Tensor, g_BTE: Tensor, memory: Memory, window: Window) -> Tensor:
        """[B, T, D] -> [B, T, C]."""
        return scaled_sum(self.project(x_BTD), self.attention(self.gated(x_BTD, window), g_BTE, memory))


class ConvolutionalEncoder(nn.Module):
    """output(blocks(input(e))): a projection to the width of the blocks, the blocks, and a projection back."""

    def __init__(self, input: nn.Linear, blocks: Sequence[GatedBlock], output: nn.Linear):
        super().__init__()
        self.input, self.blocks, self.output = input, nn.ModuleList(blocks), output

    def forward(self, e_BSE: Tensor, real_BS1: Tensor | None = None) -> Tensor:
        """[B, S, E] -> z [B, S, E]. `real_BS1` is 0 at padding; None: there is no padding."""
        x_BSC = self.input(e_BSE)
        for block in self.blocks:
            x_BSC = block(x_BSC, real_BS1)
        z_BSE: Tensor = self.output(x_BSC)
        return z_BSE


class ConvolutionalDecoder(nn.Module):
    """dropout(output(blocks(input(g)))): a projection to the width of the blocks, the blocks, and a projection to the
    width of the output layer."""

    def __init__(self, input: nn.Linear, blocks: Sequence[AttentiveBlock], output: nn.Linear, *, dropout: float = 0.0):
        super().__init__()
        self.input, self.blocks, self.output = input, nn.ModuleList(blocks), output
        self.dropout = Dropout(dropout)

    def windows(self) -> list[Window]:
        """An empty window for each block, before the first token."""
        return [Window() for _ in self.blocks]

    def forward(self, g_BTE: Tensor, memory: Memory, windows: Sequence[Window] | None = None) -> Tensor:
        """[B, T, E] -> [B, T, O]; with `windows`, the tokens continue those of the previous call."""
        x_BTC = self.input(g_BTE)
        for block, window in zip(self.blocks, windows or self.windows(), strict=True):
            x_BTC = block(x_BTC, g_BTE, memory, window)
        hidden_BTO: Tensor = self.dropout(self.output(x_BTC))
        return hidden_BTO
