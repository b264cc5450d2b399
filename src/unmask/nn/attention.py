"""Attention: self, cross, grouped, causal, relative; and a recorder of attention weights.

Shapes: B rows, T queries, S keys, D width, H heads, N heads of the keys and values, K width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.kernels.attention import attend
from unmask.kernels.dropout import dropout
from unmask.kernels.formats import cast
from unmask.kernels.linear import Linear, joint
from unmask.nn.cache import KeyValues
from unmask.nn.mask import Bias
from unmask.nn.position import Position


def attention(
    q_BHTK: Tensor,
    k_BNSK: Tensor,
    v_BNSK: Tensor,
    bias: Bias,
    *,
    scale: float,
    rate: float = 0.0,
    look: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """softmax(scale q k^T + bias) v (Vaswani et al. 2017, equation 1), [B, H, T, K]; a hidden key has a bias of -inf.
    `kernels.attention.attend` computes the same with the fastest kernel.

    rate  rate of dropout on the weights
    look  receives the weights, [B, H, T, S], before dropout
    """
    group = q_BHTK.shape[1] // k_BNSK.shape[1]  # heads of queries that read the same keys
    k_BHSK, v_BHSK = (x if group == 1 else x.repeat_interleave(group, 1) for x in (k_BNSK, v_BNSK))
    scores_BHTS = (scale * q_BHTK) @ k_BHSK.transpose(-1, -2)
    weights_BHTS = bias.softmax(scores_BHTS)
    if look is not None:
        look(weights_BHTS)
    return dropout(weights_BHTS, rate, True) @ v_BHSK


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2). Variants are parts, not flags.

    Self-attention passes x only; cross-attention passes the keys too; values default to the keys. Projections are
    reused: self-attention continues from a `cache`, and cross-attention reads the result of `project`.

    kv_heads              heads of keys and values, each read by heads / kv_heads query heads (Ainslie et al. 2023)
    head_dim              width of a head, dim / heads by default
    key_dim, value_dim    width of the inputs of the key and value projections: dim and key_dim by default
    position              a scheme that rotates queries and keys, or adds to the scores; a scheme that all layers share
                          belongs in the `Stack`
    bias                  whether the four projections have a bias
    scale                 scale of the scores, head_dim^-0.5 by default; 1 in T5
    dropout               rate on the attention weights, in training
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        position: Position | None = None,
        bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.head_dim = _divide(dim, heads, "width", "heads") if head_dim is None else head_dim
        _divide(self.heads, self.kv_heads, "heads", "heads of keys and values")
        key_dim = dim if key_dim is None else key_dim
        value_dim = key_dim if value_dim is None else value_dim
        self.query = Linear(dim, self.heads * self.head_dim, bias)
        self.key = Linear(key_dim, self.kv_heads * self.head_dim, bias)
        self.value = Linear(value_dim, self.kv_heads * self.head_dim, bias)
        self.output = Linear(self.heads * self.head_dim, dim, bias)
        self.position = (position or Position()).fits("an Attention", "rotate", "bias", "score")
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.dropout = dropout
        self.recorder: Callable[[Tensor], None] | None = None  # set by record_attention alone

    def forward(
        self,
        x_BTD: Tensor,
        keys_BSD: Tensor | KeyValues | None = None,
        values_BSD: Tensor | None = None,
        *,
        bias: Bias | None = None,
        positions_BT: Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]. A query that sees no key gets the output projection of zero.

        cache  keys and values of the tokens before x; those of x are added. `positions_BT` has the positions of x
        """
        x_BTD = cast(x_BTD)  # once, not for each of the three projections
        if keys_BSD is None and values_BSD is None:
            q_BHTK, k_BNSK, v_BNSK = (self._split(x) for x in joint(x_BTD, self.query, self.key, self.value))
        else:
            q_BHTK = self._split(self.query(x_BTD))
            if isinstance(keys_BSD, KeyValues):
                k_BNSK, v_BNSK = keys_BSD.keys, keys_BSD.values
            else:
                k_BNSK, v_BNSK = self._project(x_BTD if keys_BSD is None else keys_BSD, values_BSD)
        if not isinstance(keys_BSD, KeyValues):
            q_BHTK, k_BNSK = self.position.rotate(q_BHTK, k_BNSK, positions_BT)
        if cache is not None:
            cache.extend(k_BNSK, v_BNSK)
            k_BNSK, v_BNSK = cache.keys, cache.values
        bias = (bias or Bias()).plus(self.position.bias(q_BHTK.shape[-2], k_BNSK.shape[-2], q_BHTK.device))
        bias = bias.plus(self.position.score(q_BHTK, k_BNSK, self.scale))
        y_BHTK = attend(
            q_BHTK,
            k_BNSK,
            v_BNSK,
            bias,
            scale=self.scale,
            rate=self.dropout if self.training else 0.0,
            plain=partial(attention, look=self.recorder),
            in_plain=self.recorder is not None,
        )
        return self.output(y_BHTK.transpose(1, 2).flatten(2))

    def project(self, keys_BSD: Tensor, values_BSD: Tensor | None = None) -> KeyValues:
        """Compute the keys and values of a memory [B, S, D] once, for any number of calls.

        Raises UnmaskError if the position scheme rotates keys.
        """
        if self.position.opens("rotate"):
            raise UnmaskError("The keys of a memory have no positions; give this Attention no rotary positions.")
        return KeyValues(*(x_BNSK.contiguous() for x_BNSK in self._project(keys_BSD, values_BSD)))

    def _project(self, keys_BSD: Tensor, values_BSD: Tensor | None) -> tuple[Tensor, Tensor]:
        keys_BSD = cast(keys_BSD)
        k_BNSK = self._split(self.key(keys_BSD))
        return k_BNSK, self._split(self.value(keys_BSD if values_BSD is None else values_BSD))

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, H * K] -> [B, H, T, K]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class AttentionMap(NamedTuple):
    """The weights of one call of one attention layer: its name in the model, and [B, H, T, S] before dropout."""

    name: str
    weights: Tensor


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Collect the attention weights of every forward pass inside the `with`, in the order of the calls.

    Every part with an attribute `recorder`, a function that receives the weights or None, is recorded. Outputs stay
    the same. A block that runs twelve times is recorded twelve times. The weights keep their graph, which distillation
    needs; use `torch.no_grad()` to inspect a trained model.

    >>> import torch
    >>> attention = Attention(8, 2)
    >>> with record_attention(attention) as maps:
    ...     _ = attention(torch.zeros(1, 3, 8))
    >>> maps[0].weights.shape
    torch.Size([1, 2, 3, 3])
    """
    maps: list[AttentionMap] = []
    parts = [(name, part) for name, part in model.named_modules() if hasattr(part, "recorder")]
    before = [part.recorder for _, part in parts]

    def recorder(name: str) -> Callable[[Tensor], None]:
        return lambda weights: maps.append(AttentionMap(name, weights))

    for name, part in parts:
        part.recorder = recorder(name)
    try:
        yield maps
    finally:
        for (_, part), old in zip(parts, before, strict=True):
            part.recorder = old


def _divide(whole: int, parts: int, whole_name: str, parts_name: str) -> int:
    if parts < 1 or whole % parts:
        raise UnmaskError(f"{parts} {parts_name} do not divide {whole} {whole_name} evenly; choose a divisor.")
    return whole // parts
