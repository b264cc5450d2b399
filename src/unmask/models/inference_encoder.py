"""The inference layout of an encoder: fewer and larger products, with pre-packed weights and no gradients.

Shapes: B rows, T tokens, N = B * T of all; D width, H heads, K width of a head.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from unmask.kernels.attention import fused
from unmask.kernels.linear import is_plain
from unmask.kernels.prepacked import PrepackedLinear, gains, inference_dtype, lowers, padded, padded_to, prepacked
from unmask.kernels.processor import Precision
from unmask.models.model import Model
from unmask.models.stack_model import StackModel
from unmask.nn import Attention, Bias, Block, FeedForward, GatedFeedForward, Mask, Patch, Position, Rotary, Stack
from unmask.nn.recordings import FrameEmbedding

Turns = tuple[Tensor, Tensor] | None


class InferenceBlock:
    """A `Block` that computes all tokens of a batch as one matrix, with the same results up to rounding."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self.residuals = (block.attention, block.feedforward)
        attention, feedforward = (residual.f for residual in self.residuals)
        assert isinstance(attention, Attention)
        assert isinstance(feedforward, FeedForward | GatedFeedForward)
        self.heads, self.scale = attention.heads, attention.scale
        self.rotary = attention.position if isinstance(attention.position, Rotary) else None
        self.projections = PrepackedLinear(attention.query, attention.key, attention.value, dtype=dtype)
        self.output = PrepackedLinear(attention.output, dtype=dtype)
        active, *factors = feedforward.factors
        self.active = PrepackedLinear(active, dtype=dtype, then=feedforward.activation)
        self.factors = [PrepackedLinear(factor, dtype=dtype) for factor in factors]
        self.down = PrepackedLinear(feedforward.down, dtype=dtype)

    def __call__(self, x_ND: Tensor, B: int, T: int, seen: Tensor | None, turns: Turns) -> Tensor:
        """[N, D] -> [N, D]; the first B * T rows are tokens. The values of x change: the sums are computed in its
        memory.

        seen   added to the attention scores, if given
        turns  rotation of queries and keys (`Rotary.turns`), if the block has one
        """
        attention, feedforward = self.residuals
        y_ND = self._attend(attention.before(x_ND), B, T, seen, turns)
        x_ND = attention.after(x_ND.add_(self.output.forward(y_ND)))
        return feedforward.after(x_ND.add_(self.down.forward(self._inside(feedforward.before(x_ND)))))

    def _inside(self, x_ND: Tensor) -> Tensor:
        """The hidden features of the feed-forward layer; a gate multiplies them."""
        hidden = self.active.forward(x_ND)
        for factor in self.factors:
            hidden = hidden.mul_(factor.forward(x_ND))
        return hidden

    def _attend(self, x_ND: Tensor, B: int, T: int, seen: Tensor | None, turns: Turns) -> Tensor:
        """Equation 1 of Vaswani et al. 2017, with queries, keys and values from one product."""
        N = len(x_ND)
        projected = self.projections.forward(x_ND)[: B * T].view(B, T, 3, self.heads, -1)
        q_BHTK, k_BHTK, v_BHTK = projected.permute(2, 0, 3, 1, 4).unbind(0)
        if turns is not None:
            q_BHTK, k_BHTK = Rotary.turned(q_BHTK, k_BHTK, *turns)
        y_BHTK = fused(q_BHTK, k_BHTK, v_BHTK, seen, scale=self.scale)
        return padded_to(y_BHTK.transpose(1, 2).reshape(B * T, -1), N)


class InferenceStack(Stack):
    """The same results as `stack`, up to rounding, from copies of its weights, which later training does not change.

    dtype  of the factors of matrix products; sums and norms keep the number format of the stack
    """

    def __init__(self, stack: Stack, dtype: torch.dtype) -> None:
        super().__init__([], order=stack.order, norm=stack.norm, windows=stack.windows)
        self.dtype = dtype
        self.laid_out = [InferenceBlock(block, self.dtype) for block in stack.blocks if isinstance(block, Block)]
        self.rotaries = {block.rotary for block in self.laid_out if block.rotary is not None}

    def forward(
        self, x_BTD: Tensor, *, mask: Mask | None = None, positions_BT: Tensor | None = None, **_: Any
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]; no gradients."""
        B, T, D = x_BTD.shape
        if not B * T:
            return x_BTD.detach()
        mask = mask or Mask()
        seen = {  # once, for all blocks
            window: Bias(mask.within(window).tensor(T, T, x_BTD.device)).added(self.dtype)
            for window in set(self.windows)
        }
        places_BT = torch.arange(T, device=x_BTD.device)[None] if positions_BT is None else positions_BT
        turns: dict[Rotary | None, Turns] = {one: one.turns(places_BT, self.dtype) for one in self.rotaries}
        x_ND = padded(x_BTD.detach().reshape(B * T, D), self.dtype)
        if x_ND.data_ptr() == x_BTD.data_ptr():
            x_ND = x_ND.clone()  # the blocks change it
        for i, window in zip(self.order, self.windows, strict=True):
            block = self.laid_out[i]
            x_ND = block(x_ND, B, T, seen[window], turns.get(block.rotary))
        return self.norm(x_ND[: B * T]).view(B, T, D)


def inference_layout(model: Model, precision: Precision = "fp32") -> Model:
    """A model with the same answers that is faster on this device: one with an `InferenceStack` where the blocks are
    those of BERT; otherwise, in another number format, one with pre-packed linear layers; otherwise the model itself.

    Pooler and heads stay as they are and are shared with the model; so is its mode, training or evaluation.

    precision  see `kernels.processor.settle`
    """
    dtype = inference_dtype(model, precision)
    if (
        isinstance(model, StackModel)
        and model.reads_stack_whole
        and isinstance(model.stack, Stack)
        and _is_plain(model.stack)
        and gains(model, dtype)
    ):
        found = copy.copy(model)
        found._modules = dict(model._modules)
        found.stack = InferenceStack(model.stack, dtype)
        if any(isinstance(part, Patch | FrameEmbedding) for part in model.embedding.modules()):
            found.embedding = prepacked(model.embedding, dtype)
        return found
    if lowers(model, dtype):
        unchanged = nn.ModuleList([model.heads] if model.pooler is None else [model.heads, model.pooler])
        return prepacked(model, dtype, but=unchanged)
    return model


def _is_plain(stack: Stack) -> bool:
    """Whether a stack has only self-attention and feed-forward layers, and no special kinds of them."""
    return (
        type(stack) is Stack
        and type(stack.position) is Position
        and all(type(block) is Block and block.cross is None and _is_usual(block) for block in stack.blocks)
    )


def _is_usual(block: Block) -> bool:
    attention, feedforward = block.attention.f, block.feedforward.f
    if type(attention) is not Attention or type(feedforward) not in (FeedForward, GatedFeedForward):
        return False
    assert isinstance(feedforward, FeedForward | GatedFeedForward)
    linear = [part for part in block.modules() if isinstance(part, nn.Linear)]
    plain = all(is_plain(layer) for layer in linear) and len(linear) == 5 + len(feedforward.factors)
    return plain and type(attention.position) in (Position, Rotary) and attention.kv_heads == attention.heads
