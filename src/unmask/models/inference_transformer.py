"""The inference layout of a Transformer that writes: fewer, larger products, pre-packed weights, and no gradients.

Shapes: B rows (sources), W hypotheses of each, N = B * W of all; D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.attention import fused
from unmask.kernels.prepacked import PrepackedLinear, inference_dtype, lowers, prepacked
from unmask.kernels.processor import Precision, Settled, settle
from unmask.models.transformer_model import TransformerModel, TransformerState
from unmask.models.writer import State, Writer
from unmask.nn import Attention, Bias, Block, FeedForward, Position, TiedHead
from unmask.nn.cache import BlockCache
from unmask.nn.lora import adapters
from unmask.types import Batch


class InferenceDecoderBlock:
    """A `Block` of the decoder for one token of each hypothesis, with the same results up to rounding."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        assert block.cross is not None
        self.residuals = (block.attention, block.cross, block.feedforward)
        attention, cross, feedforward = (residual.f for residual in self.residuals)
        assert isinstance(attention, Attention)
        assert isinstance(cross, Attention)
        assert isinstance(feedforward, FeedForward)
        self.heads, self.scale = attention.heads, attention.scale
        self.projections = PrepackedLinear(attention.query, attention.key, attention.value, dtype=dtype)
        self.output = PrepackedLinear(attention.output, dtype=dtype)
        self.query = PrepackedLinear(cross.query, dtype=dtype)
        self.cross_output = PrepackedLinear(cross.output, dtype=dtype)
        self.up = PrepackedLinear(feedforward.up, dtype=dtype, then=feedforward.activation)
        self.down = PrepackedLinear(feedforward.down, dtype=dtype)

    def __call__(self, x_ND: Tensor, W: int, kept: BlockCache, seen: Tensor | None, source: Tensor | None) -> Tensor:
        """[N, D] -> [N, D].

        kept    the cache of the block, to which the tokens are added
        seen    added to the scores of self-attention; None: all tokens are visible
        source  added to the scores of cross-attention; None: the whole source is visible
        """
        attention, cross, feedforward = self.residuals
        assert kept.memory is not None
        q_BHWK, k_BHWK, v_BHWK = self._split(self.projections(attention.before(x_ND)), W, 3)
        kept.own.extend(k_BHWK, v_BHWK)
        x_ND = attention.after(x_ND + self.output(self._attend(q_BHWK, kept.own.keys, kept.own.values, seen)))
        (q_BHWK,) = self._split(self.query(cross.before(x_ND)), W, 1)
        x_ND = cross.after(x_ND + self.cross_output(self._attend(q_BHWK, kept.memory.keys, kept.memory.values, source)))
        return feedforward.after(x_ND + self.down(self.up(feedforward.before(x_ND))))

    def _split(self, x: Tensor, W: int, parts: int) -> tuple[Tensor, ...]:
        """[N, parts * D] -> parts of [B, H, W, K]."""
        return x.view(-1, W, parts, self.heads, x.shape[1] // (parts * self.heads)).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, q_BHWK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, seen: Tensor | None) -> Tensor:
        y_BHWK = fused(q_BHWK, k_BHSK, v_BHSK, seen, scale=self.scale)
        return y_BHWK.transpose(1, 2).reshape(-1, q_BHWK.shape[1] * q_BHWK.shape[3])


class InferenceTransformer(Writer):
    """Writes the same as `model`, up to rounding, from copies of its weights, which later training does not change.

    model      a Transformer in evaluation mode, without adapters (`nn.lora`)
    precision  "bf16" multiplies in bfloat16, in the encoder too; see `kernels.processor.settle`
    """

    def __init__(self, model: TransformerModel, precision: Precision = "fp32") -> None:
        head, blocks = model.heads["next"], model.decoder.blocks
        assert isinstance(head, TiedHead)
        self.model = model
        self.dtype = inference_dtype(model, precision)  # of queries, keys and values
        self.encoder = prepacked(model, self.dtype) if lowers(model, self.dtype) else model
        self.blocks = [InferenceDecoderBlock(block, self.dtype) for block in blocks if isinstance(block, Block)]
        self.output = PrepackedLinear(_as_linear(head), dtype=self.dtype)
        with torch.no_grad():
            self.places_TD = self._places(64)

    @property
    def positions(self) -> int | None:
        return self.model.positions

    def prefill(self, batch: Batch, width: int = 1) -> TransformerState:
        """Read the sources, as the model does."""
        return self.encoder.prefill(batch, width)

    @torch.no_grad()
    def decode_step(self, tokens_N: Tensor, state: State) -> Tensor:
        """Feed one token to each hypothesis; logits [N, V] of the token after it. Changes `state`."""
        assert isinstance(state, TransformerState)
        cache, W = state.cache, state.width
        self.model.check_length(cache.length + 1)
        places_TD = self.places_TD  # read once: another thread may replace it
        if cache.length >= len(places_TD):
            self.places_TD = places_TD = self._places(2 * cache.length)
        x_ND: Tensor = self.model.target.token(tokens_N) + places_TD[cache.length]
        seen = Bias(cache.advance(len(tokens_N) // W, W, x_ND.device)).added(self.dtype)
        source = Bias(cache.memory_mask).added(self.dtype)
        for block, kept in zip(self.blocks, cache.blocks, strict=True):
            x_ND = block(x_ND, W, kept, seen, source)
        logits_NV: Tensor = self.output(self.model.decoder.norm(x_ND))
        return logits_NV

    def _places(self, length: int) -> Tensor:
        """The position vectors of the first positions, [length, D]."""
        position = self.model.target.position
        assert isinstance(position, Position)
        weight = next(self.model.parameters())
        return position.embed(weight.new_zeros(1, length, self.model.config.width))[0]


def writer_layout(model: Writer, precision: Precision = "fp32") -> Writer:
    """A faster writer of the same, up to rounding: an `InferenceTransformer` for a Transformer without adapters;
    otherwise the model, with pre-packed layers in another number format. Raises UnmaskError as `settled` does.
    """
    chosen = settled(model, precision).precision
    if type(model) is TransformerModel and not adapters(model):  # T5 has the same wiring, but other parts
        return InferenceTransformer(model, chosen)
    if not isinstance(model, TransformerModel):
        return model
    dtype = inference_dtype(model, chosen)
    return prepacked(model, dtype) if lowers(model, dtype) else model


def settled(model: Writer, precision: Precision) -> Settled:
    """The number format in which a model writes, given `precision`. For a model that is neither a Transformer nor a T5,
    "auto" is always fp32.

    Raises UnmaskError for bf16 and fp16 with such a model, which has hardly any products to compute in them.
    """
    if isinstance(model, TransformerModel):
        return settle(precision, model.device)
    if precision in ("bf16", "fp16"):
        raise UnmaskError(f"Only a Transformer or a T5 writes in {precision}: leave --precision out for this model.")
    return Settled("fp32")


def _as_linear(head: TiedHead) -> nn.Linear:
    """A tied head as the equal linear layer over the vocabulary."""
    V, D = head.token.weight.shape
    layer = nn.Linear(D, V, bias=False, device="meta")
    layer.weight = head.token.weight
    if head.bias is not None:
        layer.bias = head.bias
    return layer
