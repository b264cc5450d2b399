"""QuickStack: the blocks of an encoder laid out for answering: fewer and larger products, weights in order.

Shapes: B rows, T tokens, N = B * T of all; D width, H heads, K width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.models.model import Model
from unmask.models.stack_model import StackModel
from unmask.nn import Attention, Block, FeedForward, Mask, Position, Stack
from unmask.nn.cache import additive
from unmask.nn.packed import PackedLinear, packed
from unmask.processor import Precision, settle

EVEN = 256
"""In bfloat16, larger batches are filled up to a multiple of so many tokens: for every new number of rows the
processor's library writes a new program for each product, which takes longer than the product itself."""


class QuickEncoderBlock:
    """A `Block` for all tokens of a batch as one matrix: the same numbers up to rounding."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self.residuals = (block.attention, block.feedforward)
        attention, feedforward = (residual.f for residual in self.residuals)
        assert isinstance(attention, Attention)
        assert isinstance(feedforward, FeedForward)
        self.heads, self.scale = attention.heads, attention.scale
        self.read = PackedLinear(attention.query, attention.key, attention.value, dtype=dtype)
        self.said = PackedLinear(attention.output, dtype=dtype)
        self.up = PackedLinear(feedforward.up, dtype=dtype, then=feedforward.activation)
        self.down = PackedLinear(feedforward.down, dtype=dtype)

    def __call__(self, x_ND: Tensor, B: int, T: int, seen: Tensor | None) -> Tensor:
        """[N, D] -> [N, D], of which the first B * T rows count. `seen` is added to the scores; None: all are seen."""
        own, feedforward = self.residuals
        x_ND = own.after(x_ND + self.said.forward(self._attend(own.before(x_ND), B, T, seen)))
        return feedforward.after(x_ND + self.down.forward(self.up.forward(feedforward.before(x_ND))))

    def _attend(self, x_ND: Tensor, B: int, T: int, seen: Tensor | None) -> Tensor:
        """Equation 1 of Vaswani et al. 2017, with queries, keys and values from one product."""
        N = len(x_ND)
        read = self.read.forward(x_ND)[: B * T].view(B, T, 3, self.heads, -1)
        q_BHTK, k_BHTK, v_BHTK = read.permute(2, 0, 3, 1, 4).unbind(0)
        o_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, attn_mask=seen, scale=self.scale)
        return _filled(o_BHTK.transpose(1, 2).reshape(B * T, -1), N)


class QuickStack(Stack):
    """Answers what `stack` would, up to rounding, from copies of its weights: what is learned later stays behind.

    bf16  whether it multiplies in bfloat16; sums and norms stay float32
    """

    def __init__(self, stack: Stack, *, bf16: bool) -> None:
        super().__init__([], order=stack.order, norm=stack.norm)
        self.dtype = torch.bfloat16 if bf16 else next(stack.parameters()).dtype
        self.quick = [QuickEncoderBlock(block, self.dtype) for block in stack.blocks if isinstance(block, Block)]

    def forward(
        self, x_BTD: Tensor, *, mask: Mask | None = None, positions_BT: Tensor | None = None, **_: Any
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; no gradients. Positions are in x already."""
        B, T, D = x_BTD.shape
        if not B * T:
            return x_BTD.detach()
        seen = additive((mask or Mask()).tensor(T, T, x_BTD.device), self.dtype)  # once, for all blocks
        x_ND = x_BTD.detach().reshape(B * T, D)
        if self.dtype is torch.bfloat16 and B * T > EVEN:
            x_ND = _filled(x_ND, -(-B * T // EVEN) * EVEN)
        for i in self.order:
            x_ND = self.quick[i](x_ND, B, T, seen)
        return self.norm(x_ND[: B * T]).view(B, T, D)


def _filled(x_ND: Tensor, N: int) -> Tensor:
    """The rows, and zeros behind them up to N."""
    return x_ND if len(x_ND) == N else F.pad(x_ND, (0, 0, 0, N - len(x_ND)))


def answering(model: Model, precision: Precision = "fp32") -> Model:
    """What answers in the place of a model, sooner: on a CPU, and in bfloat16 anywhere, one with a `QuickStack` where
    the blocks are those of BERT; otherwise, in bfloat16, one whose linear layers are packed; else the model itself.

    Pooler and heads stay as they are, and are shared with the model, as its mode is.

    precision  see `processor.settle`
    """
    bf16 = settle(precision, model.device).precision == "bf16"
    if not bf16 and model.device.type != "cpu":
        return model
    if type(model) is not StackModel or not isinstance(model.stack, Stack) or not _is_plain(model.stack):
        own = nn.ModuleList([model.heads] if model.pooler is None else [model.heads, model.pooler])
        return packed(model, but=own) if bf16 else model
    quick = QuickStack(model.stack, bf16=bf16)
    heads = dict(model.heads.items())
    quick_model = StackModel(model.config, model.embedding, quick, pooler=model.pooler, heads=heads, mask=model.mask)
    return quick_model.train(model.training)


def _is_plain(stack: Stack) -> bool:
    """Whether a stack has nothing but self-attention and feed-forward layers, none of them of a special kind."""
    return (
        type(stack) is Stack
        and type(stack.position) is Position
        and all(type(block) is Block and block.cross is None and _is_usual(block) for block in stack.blocks)
    )


def _is_usual(block: Block) -> bool:
    attention, feedforward = block.attention.f, block.feedforward.f
    if type(attention) is not Attention or type(feedforward) is not FeedForward:
        return False
    linear = [part for part in block.modules() if isinstance(part, nn.Linear)]
    plain = all(type(layer) is nn.Linear for layer in linear) and len(linear) == 6
    return plain and type(attention.position) is Position and attention.kv_heads == attention.heads
