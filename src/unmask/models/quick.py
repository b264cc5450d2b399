"""QuickTransformer: a Transformer laid out for writing: fewer and larger products, weights by columns, no gradients.

Shapes: B rows (sources), W hypotheses of each, N = B * W of all; D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.models.sequence import State, Writer
from unmask.models.transformer import TransformerModel, TransformerState
from unmask.nn import Attention, Block, FeedForward, Position, TiedHead
from unmask.nn.cache import BlockCache, additive
from unmask.nn.lora import adapters
from unmask.types import Batch


class Product(NamedTuple):
    """x W^T + b of one or several linear layers that read the same, side by side.

    The weight lies in memory by columns: with the few rows of a step, MKL multiplies 1.1 to 2 times as fast by it.
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, *layers: nn.Linear) -> Product:
        weights: list[Tensor] = [layer.weight for layer in layers]
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        return cls(_by_columns(torch.cat(weights)), torch.cat(biases) if biases else None)

    def __call__(self, x_ND: Tensor) -> Tensor:
        return F.linear(x_ND, self.weight, self.bias)


class QuickBlock:
    """A `Block` of the decoder for one token of each hypothesis: the same numbers up to rounding."""

    def __init__(self, block: Block) -> None:
        assert block.cross is not None
        self.residuals = (block.attention, block.cross, block.feedforward)
        own, cross, feedforward = (residual.f for residual in self.residuals)
        assert isinstance(own, Attention)
        assert isinstance(cross, Attention)
        assert isinstance(feedforward, FeedForward)
        self.heads, self.scale = own.heads, own.scale
        self.read, self.said = Product.of(own.query, own.key, own.value), Product.of(own.output)
        self.ask, self.told = Product.of(cross.query), Product.of(cross.output)
        self.up, self.down = Product.of(feedforward.up), Product.of(feedforward.down)
        self.activation = feedforward.activation

    def __call__(self, x_ND: Tensor, W: int, kept: BlockCache, seen: Tensor | None, source: Tensor | None) -> Tensor:
        """[N, D] -> [N, D].

        kept    what the block keeps, which the tokens join
        seen    added to the scores of their own keys, source  to those of the memory; None: all are seen
        """
        own, cross, feedforward = self.residuals
        assert kept.memory is not None
        q_BHWK, k_BHWK, v_BHWK = self._split(self.read(own.before(x_ND)), W, 3)
        kept.own.extend(k_BHWK, v_BHWK)
        x_ND = own.after(self.said(self._attend(q_BHWK, kept.own.keys, kept.own.values, seen)).add_(x_ND))
        (q_BHWK,) = self._split(self.ask(cross.before(x_ND)), W, 1)
        x_ND = cross.after(self.told(self._attend(q_BHWK, kept.memory.keys, kept.memory.values, source)).add_(x_ND))
        return feedforward.after(self.down(self.activation(self.up(feedforward.before(x_ND)))).add_(x_ND))

    def _split(self, x: Tensor, W: int, parts: int) -> tuple[Tensor, ...]:
        """[N, parts * D] -> parts of [B, H, W, K]."""
        return x.view(-1, W, parts, self.heads, x.shape[1] // (parts * self.heads)).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, q_BHWK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, seen: Tensor | None) -> Tensor:
        o_BHWK = F.scaled_dot_product_attention(q_BHWK, k_BHSK, v_BHSK, attn_mask=seen, scale=self.scale)
        return o_BHWK.transpose(1, 2).reshape(-1, q_BHWK.shape[1] * q_BHWK.shape[3])


class QuickTransformer:
    """Writes what `model` would write, up to rounding, from copies of its weights: what is trained later stays behind.

    model  a Transformer in evaluation mode, without adapters (`nn.lora`)
    """

    def __init__(self, model: TransformerModel) -> None:
        head, blocks = model.heads["next"], model.decoder.blocks
        assert isinstance(head, TiedHead)
        self.model, self.positions = model, model.positions
        with torch.no_grad():
            self.blocks = [QuickBlock(block) for block in blocks if isinstance(block, Block)]
            self.output = Product(_by_columns(head.token.weight), head.bias)
            self.places_TD = self._places(64)

    def begin(self, batch: Batch, width: int = 1) -> TransformerState:
        """Read the sources, as the model does."""
        return self.model.begin(batch, width)

    @torch.no_grad()
    def next(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, TransformerState)
        cache, W = state.cache, state.width
        self.model.check_length(cache.length + 1)
        if cache.length >= len(self.places_TD):
            self.places_TD = self._places(2 * len(self.places_TD))
        x_ND: Tensor = self.model.target.token(tokens_N) + self.places_TD[cache.length]
        seen = additive(cache.advance(len(tokens_N) // W, W, x_ND.device), x_ND.dtype)
        source = additive(cache.memory_mask, x_ND.dtype)
        for block, kept in zip(self.blocks, cache.blocks, strict=True):
            x_ND = block(x_ND, W, kept, seen, source)
        return self.output(self.model.decoder.norm(x_ND))

    def _places(self, length: int) -> Tensor:
        """What the first places add to their tokens, [length, D]."""
        position = self.model.target.position
        assert isinstance(position, Position)
        return position.embed(self.output.weight.new_zeros(1, length, self.model.config.dim))[0]


def quickened(model: Writer) -> Writer:
    """What writes the same, up to rounding, sooner: a `QuickTransformer` where there is one, else the model itself."""
    if isinstance(model, TransformerModel) and not adapters(model):
        return QuickTransformer(model)
    return model


def _by_columns(weight: Tensor) -> Tensor:
    return weight.t().contiguous().t()
