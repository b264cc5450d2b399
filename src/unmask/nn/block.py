"""Feed-forward, residual, block and stack: the frame around attention. Variants are parts, not flags.

Shapes: B rows, T tokens, S tokens of the memory, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.linear import Linear, joint
from unmask.nn.attention import Attention
from unmask.nn.cache import BlockCache, Cache, KeyValues
from unmask.nn.dropout import Dropout, DropPath, LayerDrop
from unmask.nn.mask import Bias, CrossMask, Mask
from unmask.nn.position import Position

Activation = Callable[[Tensor], Tensor]

ActivationName = Literal[
    "gelu",
    "gelu_new",
    "relu",
    "silu",
    "gelu_python",
    "gelu_pytorch_tanh",
    "gelu_python_tanh",
    "gelu_fast",
    "gelu_accurate",
    "swish",
    "relu6",
    "leaky_relu",
    "hardswish",
    "mish",
    "sigmoid",
    "tanh",
    "linear",
]


def _linear(x: Tensor) -> Tensor:
    return x


_TANH_GELU = partial(F.gelu, approximate="tanh")
ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_new": _TANH_GELU,
    "relu": F.relu,
    "silu": F.silu,
    "gelu_python": F.gelu,
    "gelu_pytorch_tanh": _TANH_GELU,
    "gelu_python_tanh": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_accurate": _TANH_GELU,
    "swish": F.silu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "linear": _linear,
}
"""Activations by their names in folders. Exact GELU, GELU approximated with tanh, and SiLU have several names each; a
folder keeps its name."""


class FeedForward(nn.Module):
    """down(activation(up(x))), for each token separately (Vaswani et al. 2017, section 3.3).

    dropout  rate on the hidden features; BERT has none there
    """

    def __init__(
        self, dim: int, hidden: int, activation: Activation = F.gelu, *, bias: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        self.up = Linear(dim, hidden, bias)
        self.down = Linear(hidden, dim, bias)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return self.down(self.dropout(self.activation(self.up(x_BTD))))

    @property
    def factors(self) -> tuple[Linear, ...]:
        """The maps whose product is the hidden features; the first one is activated."""
        return (self.up,)


class GatedFeedForward(nn.Module):
    """down(activation(gate(x)) * up(x)): GEGLU with `F.gelu`, SwiGLU with `F.silu` (Shazeer 2020, section 2)."""

    def __init__(
        self, dim: int, hidden: int, activation: Activation = F.gelu, *, bias: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        self.gate = Linear(dim, hidden, bias)
        self.up = Linear(dim, hidden, bias)
        self.down = Linear(hidden, dim, bias)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        gate, up = joint(x_BTD, self.gate, self.up)
        return self.down(self.dropout(self.activation(gate) * up))

    @property
    def factors(self) -> tuple[Linear, ...]:
        """As those of `FeedForward`."""
        return (self.gate, self.up)


FEEDFORWARDS: dict[str, Callable[..., nn.Module]] = {
    **{name: partial(FeedForward, activation=f, bias=False) for name, f in ACTIVATIONS.items()},
    **{f"gated-{name}": partial(GatedFeedForward, activation=f, bias=False) for name, f in ACTIVATIONS.items()},
    "gated-gelu": partial(GatedFeedForward, activation=_TANH_GELU, bias=False),
}
"""Feed-forward layers by their published names: T5 1.0 has "relu", and 1.1 has "gated-gelu" (Shazeer 2020), which is
GELU approximated with tanh; "gated-gelu_python" has exact GELU."""


class Residual(nn.Module):
    """after(x + dropout(f(before(x)))). Pre-norm fills `before`, post-norm fills `after`, a sandwich fills both.

    drop_path  rate of stochastic depth: in training, the share of the rows for which f counts as 0
    """

    def __init__(
        self,
        f: nn.Module,
        *,
        before: nn.Module | None = None,
        after: nn.Module | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.f = f
        self.before, self.after = before or nn.Identity(), after or nn.Identity()
        self.dropout = nn.Sequential(Dropout(dropout), DropPath(drop_path)) if drop_path else Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """[B, T, D] -> [B, T, D]; further arguments are passed to `f`."""
        return self.after(x_BTD + self.dropout(self.f(self.before(x_BTD), *args, **kwargs)))


class Block(nn.Module):
    """One layer: self-attention, then attention to a memory if there is a `cross`, then feed-forward."""

    def __init__(self, attention: Residual, feedforward: Residual, cross: Residual | None = None):
        super().__init__()
        self.attention, self.cross, self.feedforward = attention, cross, feedforward

    def forward(
        self,
        x_BTD: Tensor,
        *,
        bias: Bias | None = None,
        memory_BSD: Tensor | None = None,
        memory_bias: Bias | None = None,
        positions_BT: Tensor | None = None,
        cache: BlockCache | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]. With a cache, x continues its tokens, and the memory is that of the cache."""
        own, memory = (None, memory_BSD) if cache is None else cache
        x_BTD = self.attention(x_BTD, bias=bias, positions_BT=positions_BT, cache=own)
        if self.cross is not None:
            if memory is None:
                raise UnmaskError("This block attends to a memory, but none was given; pass `memory`.")
            x_BTD = self.cross(x_BTD, memory, bias=memory_bias)
        return self.feedforward(x_BTD)

    def begin(self, memory_BSD: Tensor | None = None) -> BlockCache:
        """The cache of this block before the first token, with the keys and values of the memory."""
        if self.cross is None or memory_BSD is None:
            return BlockCache(KeyValues())
        attention = self.cross.f
        assert isinstance(attention, Attention)
        return BlockCache(KeyValues(), attention.project(memory_BSD))


class Stack(nn.Module):
    """A sequence of blocks.

    order     index of the block of each layer; ALBERT is `Stack([block], order=[0] * 12)`, its parameters stored once
    position  a scheme whose bias all layers share (T5, ALiBi)
    norm      norm of the last block's output; pre-norm models need one
    skip      which of the input and the output of a layer the next one reads; None: the output
    windows   for each layer, the window that limits its mask (`Mask.window`), or None; None: no layer has one
    """

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        *,
        order: Sequence[int] | None = None,
        position: Position | None = None,
        norm: nn.Module | None = None,
        skip: LayerDrop | None = None,
        windows: Sequence[int | None] | None = None,
    ):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.order = list(range(len(blocks)) if order is None else order)
        self.position = (position or Position()).fits("a Stack", "bias")
        self.norm, self.skip = norm or nn.Identity(), skip or LayerDrop(0.0)
        self.windows = [None] * len(self.order) if windows is None else list(windows)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        mask: Mask | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | CrossMask | None = None,
        positions_BT: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D].

        mask           the tokens that each token sees; None: all see all
        memory         [B, S, D], the input of the blocks' cross-attention
        memory_mask    the tokens of the memory that are visible; None: all
        positions_BT   position of each token in its sequence; None: 0 … T-1, or the next ones after the cache
        cache          the cache of the tokens that x continues, from `begin`; it has the memory and the masks, so
                       `mask` and `memory` must be None
        """
        if cache is not None:
            if mask is not None or memory is not None:
                raise UnmaskError(
                    "A cache already has the memory and the mask; pass neither a mask nor a memory with it."
                )
            return self._continue(x_BTD, positions_BT, cache)
        T, device = x_BTD.shape[1], x_BTD.device
        shared, mask = self.position.bias(T, T, device), mask or Mask()
        biases = {window: mask.within(window).bias(T, T, device).plus(shared) for window in set(self.windows)}
        memory_bias = None if memory is None else (memory_mask or Mask()).bias(T, memory.shape[1], device)
        for i, window in zip(self.order, self.windows, strict=True):
            y_BTD = self.blocks[i](
                x_BTD, bias=biases[window], memory_BSD=memory, memory_bias=memory_bias, positions_BT=positions_BT
            )
            x_BTD = self.skip(x_BTD, y_BTD)
        return self.norm(x_BTD)

    def begin(self, memory: Tensor | None = None, *, memory_mask: Mask | None = None, width: int = 1) -> Cache:
        """An empty cache, for tokens that are fed one by one or several at once.

        memory  [B, S, D], the input of the blocks' cross-attention; its keys and values are computed here, once
        width   W hypotheses of each row of the memory: the tokens [B, W] are then the next token of each hypothesis,
                instead of W tokens of one sequence

        Raises `UnmaskError` if W > 1 and an attention layer has its own scheme that depends on distances, because the
        keys of hypotheses are interleaved. A scheme of the Stack works with any width. Also for layers with a window,
        which a cache does not limit.
        """
        if any(window is not None for window in self.windows):
            raise UnmaskError("Layers with a window read whole sequences: this stack does not go on from a cache.")
        schemes = [part.position for part in self.modules() if isinstance(part, Attention)]
        in_line = any(scheme.opens("bias", "score") for scheme in schemes)
        by_distance = in_line or self.position.opens("bias")
        visible = None if memory is None else (memory_mask or Mask()).tensor(1, memory.shape[1], memory.device)
        blocks: list[Any] = [self.blocks[i] for i in self.order]
        caches = [block.begin(memory) for block in blocks]
        return Cache(caches, memory_mask=visible, width=width, by_distance=by_distance, in_line=in_line)

    def _continue(self, x_BTD: Tensor, positions_BT: Tensor | None, cache: Cache) -> Tensor:
        """Run `forward` for tokens that continue those of a cache."""
        B, T, _ = x_BTD.shape
        positions_BT = cache.positions(T, x_BTD.device) if positions_BT is None else positions_BT
        bias = Bias(cache.advance(B, T, x_BTD.device)).plus(self._by_place(T, cache, x_BTD.device))
        memory_bias = Bias(cache.memory_mask)
        for i, block_cache in zip(self.order, cache.blocks, strict=True):
            x_BTD = self.blocks[i](
                x_BTD, bias=bias, memory_bias=memory_bias, positions_BT=positions_BT, cache=block_cache
            )
        return self.norm(x_BTD)

    def _by_place(self, T: int, cache: Cache, device: torch.device) -> Tensor | None:
        """The bias of the Stack's position scheme for T new tokens: [H, T, S], or [H, 1, S] if they are one token of
        each hypothesis, all at the same position."""
        if cache.width == 1:
            return self.position.bias(T, cache.length, device)
        bias_H1T = self.position.bias(1, cache.length, device)
        return None if bias_H1T is None else bias_H1T[..., cache.places(device)]
