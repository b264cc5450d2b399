"""Masks as values: the keys that a query may see, and the bias that the attention scores get for that.

Shapes: B rows, T queries, S keys, H heads, R sequences of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.kernels.attention import additive
from unmask.kernels.varlen import Varlen
from unmask.nn.position import distances

Device = torch.device | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """The bias of the attention scores, built once per forward pass and shared by all layers.

    tensor  broadcastable to [B, H, T, S]: bool (True is visible) or float (added); None adds nothing
    causal  the plain causal mask with T = S, and nothing else. It is a flag instead of a tensor, because the fastest
            kernels take a flag. Never set together with a tensor.
    varlen  the same mask as `tensor`, as sequence boundaries for the kernel of packed rows
    """

    tensor: Tensor | None = None
    causal: bool = False
    varlen: Varlen | None = None
    _added: dict[torch.dtype, Tensor] = field(default_factory=dict, init=False, repr=False)
    _blind: dict[torch.dtype, Tensor | None] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.causal and self.tensor is not None:
            raise UnmaskError("A plain causal bias has no tensor; use Mask(causal=True) & … to combine the two.")

    def softmax(self, scores_BHTS: Tensor) -> Tensor:
        """softmax(scores + bias) over the keys; zero for a query that sees no key, where softmax would give NaN."""
        dtype, (T, S) = scores_BHTS.dtype, scores_BHTS.shape[-2:]
        tensor = distances(T, S, scores_BHTS.device) <= 0 if self.causal else self.tensor
        if tensor is None:
            return scores_BHTS.softmax(-1)
        added = self._once(tensor, dtype)
        if dtype not in self._blind:
            self._blind[dtype] = _blind(added)
        scores_BHTS, blind = scores_BHTS + added, self._blind[dtype]
        if blind is None:
            return scores_BHTS.softmax(-1)
        return scores_BHTS.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)

    def added(self, dtype: torch.dtype) -> Tensor | None:
        """The tensor to add to scores of this number format: -inf where a key is hidden; None if there is none."""
        return None if self.tensor is None else self._once(self.tensor, dtype)

    def _once(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert the tensor once for all layers, at the first call."""
        if dtype not in self._added:
            self._added[dtype] = additive(tensor, dtype)
        return self._added[dtype]

    def plus(self, added: Tensor | None) -> Bias:
        """The sum of this bias and a float one, [H, T, S] or [B, H, T, S]."""
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
    """The keys that a query may see, as a value: `Mask(causal=True) & Mask(lengths=lengths)`.

    The T queries are the last T of the S places, so T < S is a sequence continued from a cache.

    causal      no key after the query
    window      only keys less than this many places away, on either side
    lengths     [B] int64: only the first `lengths[b]` keys of row b
    documents   [B, S] int64, not negative: only keys of the query's document. Padding is document 0 and sees padding,
                so that its outputs are finite.
    boundaries  [R + 1] int32: sequence boundaries, which `unmask.types.boundaries_of` computes from the documents;
                None: attention uses the documents alone
    """

    causal: bool = False
    window: int | None = None
    lengths: Tensor | None = None
    documents: Tensor | None = None
    boundaries: Tensor | None = None

    def __post_init__(self) -> None:
        if self.boundaries is not None and self.documents is None:
            raise UnmaskError("A mask has boundaries of documents, but no documents; give it both.")
        if self.window is not None and self.window < 1:
            raise UnmaskError(f"A window of {self.window} sees nothing; it must be at least 1 (the token itself).")

    def __and__(self, other: Mask) -> Mask:
        """The mask of the keys that are visible in both masks."""
        windows = [m.window for m in (self, other) if m.window is not None]
        alone = self if other.documents is None else other if self.documents is None else None
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            lengths=_both(self.lengths, other.lengths, torch.minimum),
            documents=_both(self.documents, other.documents, lambda a, b: a * (b.max() + 1) + b),
            boundaries=None if alone is None else alone.boundaries,
        )

    def within(self, window: int | None) -> Mask:
        """This mask, limited to a window; None: this mask."""
        return self if window is None else self & Mask(window=window)

    def tensor(self, T: int, S: int, device: Device = None) -> Tensor | None:
        """True where visible, [T, S] or [B, 1, T, S]; None where nothing is hidden."""
        parts, window = [], self._window(S)
        if (self.causal and T > 1) or window is not None:
            distance_TS = distances(T, S, device)
            if self.causal:
                parts.append(distance_TS <= 0)
            if window is not None:
                parts.append(distance_TS.abs() < window)
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
        """The mask as a `Bias`. An empty mask and a plain causal one get no tensor, so that the fast kernels take
        them."""
        window = self._window(S)
        if self.causal and T == S and window is None and self.lengths is None and self.documents is None:
            return Bias(causal=True)
        varlen = None
        if self.boundaries is not None and T == S and self.lengths is None:
            varlen = Varlen(self.boundaries, T, self.causal, window)
        return Bias(self.tensor(T, S, device), varlen=varlen)

    def _window(self, S: int) -> int | None:
        """The window, if it hides any of S keys; always in a compiled graph, which may be used for longer rows."""
        if self.window is None or torch.compiler.is_compiling():
            return self.window
        return self.window if self.window < S else None


@dataclass(frozen=True, slots=True, eq=False)
class CrossMask:
    """The tokens of a packed memory that a query may see: those of the source with the number of its sequence.

    queries    [B, T] int64: number of each query's sequence within its row; padding is 0
    documents  [B, S] int64: number of each key's sequence within its row; padding is 0
    """

    queries: Tensor
    documents: Tensor

    def bias(self, T: int, S: int, device: Device = None) -> Bias:
        """True where visible, [B, 1, T, S]."""
        return Bias((self.queries[:, :, None] == self.documents[:, None, :])[:, None].to(device))


def _both(a: Tensor | None, b: Tensor | None, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return combine(a, b)


def _blind(added: Tensor) -> Tensor | None:
    """[..., T, 1] bool: whether a query sees no key at all; None if every query sees one."""
    blind = added.isneginf().all(-1, keepdim=True)
    # Reading the values would break a compiled graph: there the mask stays, even if all of it is false.
    return blind if torch.compiler.is_compiling() or bool(blind.any()) else None
