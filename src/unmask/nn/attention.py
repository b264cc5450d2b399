"""Attention (self, cross, grouped, causal, relative), masks as values, and a recorder of attention weights.

Shapes: B rows, T queries, S keys, D width, H heads, N heads of the keys and values, K width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.nn.cache import KeyValues
from unmask.nn.dropout import dropout
from unmask.nn.linear import project, side_by_side
from unmask.nn.position import Position, distances
from unmask.nn.runs import Runs

Device = torch.device | str | None

FEW = 256
"""Queries up to which attention is written out where it learns in bfloat16 on a CPU."""


class Added(NamedTuple):
    """What is added to attention scores: [B, H, T, S] or what is broadcast to it, None for nothing; and which queries
    see no key at all, [..., T, 1] bool, None where there are none."""

    scores: Tensor | None
    blind: Tensor | None

    @classmethod
    def of(cls, scores: Tensor) -> Added:
        blind = scores.isneginf().all(-1, keepdim=True)
        # A look at the values would break a graph that is compiled: there the mask stays, though it may hide nothing.
        return cls(scores, blind if torch.compiler.is_compiling() or bool(blind.any()) else None)


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """What is added to the attention scores, made once per forward and shared by all layers.

    tensor  broadcastable to [B, H, T, S]: bool (True is visible) or float (added); None adds nothing
    causal  the plain causal mask with T = S, and nothing else. It is kept as a word, not as a tensor, because
            the fastest kernels know it by that word. Never set together with a tensor.
    runs    says what the tensor says, for the kernel that knows it by that
    """

    tensor: Tensor | None = None
    causal: bool = False
    runs: Runs | None = None
    _made: dict[torch.dtype, Added] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.causal and self.tensor is not None:
            raise UnmaskError("A plain causal bias has no tensor; use Mask(causal=True) & … to combine the two.")

    def to(self, dtype: torch.dtype) -> Bias:
        """The same with a float tensor in `dtype`; the kernels want that of the queries."""
        if self.tensor is None or self.tensor.dtype is torch.bool:
            return self
        return Bias(self.tensor.to(dtype))

    def added(self, scores_BHTS: Tensor) -> Added:
        """What is added to these scores, as they are of dtype and device: -inf where a key is hidden."""
        dtype, (T, S) = scores_BHTS.dtype, scores_BHTS.shape[-2:]
        visible = distances(T, S, scores_BHTS.device) <= 0 if self.causal else self.tensor
        if visible is None:
            return Added(None, None)
        if visible.dtype is not torch.bool:
            return Added.of(visible.to(dtype))
        if dtype not in self._made:  # all layers ask for the same
            hidden = torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, -math.inf)
            self._made[dtype] = Added.of(hidden)
        return self._made[dtype]

    def plus(self, added: Tensor | None) -> Bias:
        """This bias and a float one, [H, T, S] or [B, H, T, S]."""
        if added is None:
            return self
        visible = distances(added.shape[-2], added.shape[-1], added.device) <= 0 if self.causal else self.tensor
        if visible is None:
            return Bias(added)
        if visible.dtype is torch.bool:
            return Bias(torch.where(visible, added, -math.inf))
        return Bias(visible + added)


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Which keys a query may see, as a value: `Mask(causal=True) & Mask(lengths=lengths)`.

    The T queries are the last T of the S places, so T < S is a sequence continued from a cache.

    causal     no key after the query
    window     only keys less than this many places away, on either side
    lengths    [B] int64: only the first `lengths[b]` keys of row b
    documents  [B, S] int64, not negative: only keys of the query's own document. Padding is document 0 and
               sees itself, which is finite and harmless.
    runs       what `unmask.types.runs_of` reads off the documents, where a device attends by that
    """

    causal: bool = False
    window: int | None = None
    lengths: Tensor | None = None
    documents: Tensor | None = None
    runs: Tensor | None = None

    def __post_init__(self) -> None:
        if self.runs is not None and self.documents is None:
            raise UnmaskError("A mask has runs of documents, but no documents; give it both.")
        if self.window is not None and self.window < 1:
            raise UnmaskError(f"A window of {self.window} sees nothing; it must be at least 1 (the token itself).")

    def __and__(self, other: Mask) -> Mask:
        """Visible where both masks say so."""
        windows = [m.window for m in (self, other) if m.window is not None]
        alone = self if other.documents is None else other if self.documents is None else None
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            lengths=_both(self.lengths, other.lengths, torch.minimum),
            documents=_both(self.documents, other.documents, lambda a, b: a * (b.max() + 1) + b),
            runs=None if alone is None else alone.runs,
        )

    def tensor(self, T: int, S: int, device: Device = None) -> Tensor | None:
        """True where visible, [T, S] or [B, 1, T, S]; None where nothing is hidden."""
        parts = []
        if (self.causal and T > 1) or self.window is not None:
            distance_TS = distances(T, S, device)
            if self.causal:
                parts.append(distance_TS <= 0)
            if self.window is not None:
                parts.append(distance_TS.abs() < self.window)
        if self.lengths is not None:
            parts.append((torch.arange(S, device=device) < self.lengths.to(device)[:, None])[:, None, None])
        if self.documents is not None:
            documents = self.documents.to(device)[:, None]
            parts.append(documents[..., -T:, None] == documents[..., None, :])
        visible = None
        for part in parts:
            visible = part if visible is None else visible & part
        return visible if visible is None else visible.expand(*visible.shape[:-2], T, S)

    def bias(self, T: int, S: int, device: Device = None) -> Bias:
        """The same as a `Bias`; nothing hidden and plain causal stay recognisable for the fast kernels."""
        if self.causal and T == S and self.window is None and self.lengths is None and self.documents is None:
            return Bias(causal=True)
        runs = None
        if self.runs is not None and T == S and self.window is None and self.lengths is None:
            runs = Runs(self.runs, T, self.causal)
        return Bias(self.tensor(T, S, device), runs=runs)


@dataclass(frozen=True, slots=True, eq=False)
class CrossMask:
    """Which tokens of a packed memory a query may see: those of the sequence that goes with its own.

    queries    [B, T] int64: number in its row of the sequence that each query belongs to; padding is 0
    documents  [B, S] int64: the same of each key
    """

    queries: Tensor
    documents: Tensor

    def bias(self, T: int, S: int, device: Device = None) -> Bias:
        """True where visible, [B, 1, T, S]."""
        return Bias((self.queries[:, :, None] == self.documents[:, None, :])[:, None].to(device))


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2): what differs is handed in, not switched on.

    Self-attention passes x only; cross-attention passes the keys too; values default to the keys. What was projected
    before is not projected again: self-attention goes on from a `cache`, cross-attention reads what `project` made.

    kv_heads              heads of keys and values, each read by heads / kv_heads query heads (Ainslie et al. 2023)
    head_dim              width of a head, dim / heads by default
    key_dim, value_dim    width of what keys and values are made from: dim and key_dim by default
    position              a scheme that rotates or adds to the scores; one shared by all layers goes to the `Stack`
    bias                  whether the four projections have one
    scale                 of the scores, head_dim^-0.5 by default; 1 in T5
    dropout               rate on the attention weights, while training
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
        self.query = nn.Linear(dim, self.heads * self.head_dim, bias)
        self.key = nn.Linear(key_dim, self.kv_heads * self.head_dim, bias)
        self.value = nn.Linear(value_dim, self.kv_heads * self.head_dim, bias)
        self.output = nn.Linear(self.heads * self.head_dim, dim, bias)
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
        """[B, T, D] -> [B, T, D]. A query that may see no key at all gets the output projection of zero.

        cache  keys and values of the tokens before x, which those of x join; `positions_BT` then says where x stands
        """
        x_BTD = x_BTD.to(working_dtype(x_BTD))  # once, not for each of the three projections
        if keys_BSD is None and values_BSD is None:
            said = side_by_side(x_BTD, self.query, self.key, self.value)
            q_BHTK, k_BNSK, v_BNSK = (self._split(part) for part in said)
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
        attend = self._way(q_BHTK, k_BNSK, bias)
        return project(self.output, attend(q_BHTK, k_BNSK, v_BNSK, bias).transpose(1, 2).flatten(2))

    def project(self, keys_BSD: Tensor, values_BSD: Tensor | None = None) -> KeyValues:
        """Keys and values of a memory [B, S, D], for any number of forwards."""
        if self.position.opens("rotate"):
            raise UnmaskError("A memory has no places to rotate its keys by; give this Attention no such positions.")
        return KeyValues(*(x_BNSK.contiguous() for x_BNSK in self._project(keys_BSD, values_BSD)))

    def _project(self, keys_BSD: Tensor, values_BSD: Tensor | None) -> tuple[Tensor, Tensor]:
        keys_BSD = keys_BSD.to(working_dtype(keys_BSD))
        k_BNSK = self._split(self.key(keys_BSD))
        return k_BNSK, self._split(self.value(keys_BSD if values_BSD is None else values_BSD))

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, H * K] -> [B, H, T, K]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _fused(self, q_BHTK: Tensor, k_BNSK: Tensor, v_BNSK: Tensor, bias: Bias) -> Tensor:
        return F.scaled_dot_product_attention(
            q_BHTK,
            k_BNSK,
            v_BNSK,
            attn_mask=bias.to(q_BHTK.dtype).tensor,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=bias.causal,
            scale=self.scale,
            enable_gqa=self.kv_heads != self.heads,
        )

    def _within_runs(self, q_BHTK: Tensor, k_BNSK: Tensor, v_BNSK: Tensor, bias: Bias) -> Tensor:
        assert bias.runs is not None
        dropout = self.dropout if self.training else 0.0
        return bias.runs.attend(q_BHTK, k_BNSK, v_BNSK, scale=self.scale, dropout=dropout)

    def _way(self, q_BHTK: Tensor, k_BNSK: Tensor, bias: Bias) -> Callable[[Tensor, Tensor, Tensor, Bias], Tensor]:
        """The one of the three that is to compute this, all of them equal: the only place that chooses."""
        if self.recorder is not None:
            return self._explicit
        if bias.runs is not None and bias.runs.fit(q_BHTK, k_BNSK):
            return self._within_runs
        return self._explicit if self._slow_when_fused(q_BHTK) else self._fused

    def _slow_when_fused(self, q_BHTK: Tensor) -> bool:
        """Whether plain products are faster: on a CPU the kernel of `_fused` draws dropout slowly, and bfloat16 in
        float32 (see `nn.dropout`); without dropout, it learns in bfloat16 up to three times as slowly, until rows are
        so long that the weights no longer fit the caches (`benchmarks/attention.py`)."""
        if q_BHTK.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        if self.training and self.dropout > 0:
            return True
        return q_BHTK.requires_grad and q_BHTK.dtype is torch.bfloat16 and q_BHTK.shape[-2] <= FEW

    def _explicit(self, q_BHTK: Tensor, k_BNSK: Tensor, v_BNSK: Tensor, bias: Bias) -> Tensor:
        """softmax(scale q k^T + bias) v (Vaswani et al. 2017, equation 1), written out, with weights to look at."""
        group = self.heads // self.kv_heads
        k_BHSK, v_BHSK = (x if group == 1 else x.repeat_interleave(group, 1) for x in (k_BNSK, v_BNSK))
        with torch.autocast(q_BHTK.device.type, enabled=False):  # or the weights would go to float32 and back
            scores_BHTS = (self.scale * q_BHTK) @ k_BHSK.transpose(-1, -2)
            weights_BHTS = _softmax(scores_BHTS, bias.added(scores_BHTS))
            if self.recorder is not None:
                self.recorder(weights_BHTS)
            return dropout(weights_BHTS, self.dropout, self.training) @ v_BHSK


def _softmax(scores_BHTS: Tensor, added: Added) -> Tensor:
    """Over the keys; all zero for a query that sees none, where softmax alone would give NaN."""
    if added.scores is not None:
        scores_BHTS = scores_BHTS + added.scores
    if added.blind is None:
        return scores_BHTS.softmax(-1)
    return scores_BHTS.masked_fill(added.blind, 0.0).softmax(-1).masked_fill(added.blind, 0.0)


class AttentionMap(NamedTuple):
    """The weights of one call of one attention: its name in the model, and [B, H, T, S] before dropout."""

    name: str
    weights: Tensor


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Collect the attention weights of every forward inside the `with`, in the order of the calls.

    Attention is every part with a `recorder`, which is handed the weights and is None while nobody looks. Outputs stay
    the same. A block that runs twelve times is recorded twelve times. The weights keep their graph (distillation needs
    it); look at a trained model under `torch.no_grad()`.

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


def working_dtype(x: Tensor) -> torch.dtype:
    """That of the products that x goes into."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _both(a: Tensor | None, b: Tensor | None, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return combine(a, b)


def _divide(whole: int, parts: int, whole_name: str, parts_name: str) -> int:
    if parts < 1 or whole % parts:
        raise UnmaskError(f"{parts} {parts_name} do not divide {whole} {whole_name} evenly; choose a divisor.")
    return whole // parts
