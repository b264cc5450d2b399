"""Caches: keys and values kept from token to token, and which of them each hypothesis of a beam may see.

Shapes: B rows (sources), W hypotheses of each, H = B * W of all; T new tokens, S kept ones, N heads of the keys and
values, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.errors import UnmaskError

ROOM = 64
"""Tokens that a cache has room for at first; the room doubles when full, so that a token is copied about once."""


class KeyValues:
    """Keys and values of one attention, [B, N, S, K] each: given at once (a memory) or token by token (`extend`)."""

    __slots__ = ("_keys", "_values", "length")

    def __init__(self, keys_BNSK: Tensor | None = None, values_BNSK: Tensor | None = None) -> None:
        self._keys, self._values = keys_BNSK, values_BNSK  # with room for more after the first `length`
        self.length = 0 if keys_BNSK is None else keys_BNSK.shape[2]

    @property
    def keys(self) -> Tensor:
        """[B, N, S, K]."""
        assert self._keys is not None
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        """[B, N, S, K]."""
        assert self._values is not None
        return self._values[:, :, : self.length]

    def extend(self, keys_BNTK: Tensor, values_BNTK: Tensor) -> None:
        """Keep T more; the work is that of copying them, whatever is kept already."""
        begin, self.length = self.length, self.length + keys_BNTK.shape[2]
        self._keys = _with_room(self._keys, keys_BNTK, begin, self.length)
        self._values = _with_room(self._values, values_BNTK, begin, self.length)
        self._keys[:, :, begin : self.length] = keys_BNTK
        self._values[:, :, begin : self.length] = values_BNTK

    def select(self, rows_B: Tensor) -> None:
        """Row i continues from row rows_B[i]. Rows that stay are not touched; the others are overwritten."""
        self.move((rows_B != torch.arange(len(rows_B), device=rows_B.device)).nonzero().squeeze(1), rows_B)

    def move(self, places_M: Tensor, rows_B: Tensor) -> None:
        """The same, where it is known which places differ from what they hold."""
        if self._keys is not None and self._values is not None:
            self._keys = _moved(self._keys, places_M, rows_B, self.length)
            self._values = _moved(self._values, places_M, rows_B, self.length)


class BlockCache(NamedTuple):
    """What one block keeps: of the tokens so far, and of the memory that it attends to."""

    own: KeyValues
    memory: KeyValues | None = None


class Cache:
    """What a `Stack` keeps, so that a token costs the same however many came before; `Stack.begin` makes it.

    The W hypotheses of a source are tokens of one row, side by side: they share the keys of the memory, and their own
    keys lie together in the order in which they were fed. A table says which of them are ancestors of which hypothesis.
    So a beam that continues from other hypotheses changes the table, and no key is moved or held twice.

    blocks       one for each block that runs, in their order
    memory_mask  [B, 1, 1, S], true where a token of the memory is seen; None: all of them
    width        W, hypotheses of each source
    length       tokens fed to each hypothesis so far
    by_distance  whether a scheme acts on the scores by the distance of tokens, so that fillers would be in its way
    in_line      whether each attention has such a scheme of its own, which wants the keys to lie in one line. One that
                 the stack owns goes by the place of each key (`places`)
    """

    def __init__(
        self,
        blocks: Sequence[BlockCache],
        *,
        memory_mask: Tensor | None = None,
        width: int = 1,
        by_distance: bool = False,
        in_line: bool = False,
    ) -> None:
        if width < 1:
            raise UnmaskError(f"A source has one hypothesis or more, not {width}.")
        if width > 1 and in_line:
            raise UnmaskError(
                "Positions that each attention adds to its scores cannot be kept for several hypotheses; hand them to "
                "the Stack."
            )
        self.blocks, self.memory_mask, self.width, self.length = blocks, memory_mask, width, 0
        self.by_distance, self.in_line = by_distance, in_line
        self._shared = 0  # the first tokens, which all hypotheses of a source have
        self._ancestors_HS: Tensor | None = None  # where W > 1: true at the keys of a hypothesis' own tokens

    def fork(self, width: int, visible_BS: Tensor | None = None) -> None:
        """Let every row go on as `width` hypotheses, which share what it was fed so far.

        visible_BS  true at the tokens of each row that are seen from here on, where rows were filled up to be equally
                    long; None: all. Places then differ from row to row, so they are handed to the stack

        Raises `UnmaskError` where rows have hypotheses already, for a position scheme that wants the keys to lie in one
        line, and for one that goes by the distance of tokens where there are fillers between them.
        """
        if self.width > 1 or width < 1:
            raise UnmaskError(f"A row with {self.width} hypotheses cannot go on as {width}.")
        if width == 1 and visible_BS is None:
            return
        if self.in_line or (self.by_distance and visible_BS is not None):
            raise UnmaskError(
                "Positions that act on the attention scores by distance cannot be kept for beginnings of different "
                "lengths or, where each attention has its own, for several hypotheses."
            )
        self.width, self._shared, rows = width, self.length, self._rows()
        if rows is not None:
            keys_BNSK = self.blocks[0].own.keys
            if visible_BS is None:
                visible_BS = torch.ones(rows, self.length, dtype=torch.bool, device=keys_BNSK.device)
            self._ancestors_HS = visible_BS.repeat_interleave(width, 0)

    def positions(self, T: int, device: torch.device) -> Tensor:
        """Place of each of the T tokens that come next, [1, T]: the T after those so far, or one a hypothesis."""
        if self.width > 1:
            return torch.full((1, T), self.length, device=device)
        return torch.arange(self.length, self.length + T, device=device)[None]

    def places(self, device: torch.device) -> Tensor:
        """Place of each key that is kept, [S]: those that the W hypotheses were fed together have the same."""
        places_T = torch.arange(self.length, device=device)
        if self.width == 1:
            return places_T
        return torch.cat([places_T[: self._shared], places_T[self._shared :].repeat_interleave(self.width)])

    def advance(self, rows: int, T: int, device: torch.device) -> Tensor | None:
        """Count T new tokens of each of the rows in; which keys they see, [T, S] or [B, 1, W, S], None: all.

        Raises `UnmaskError` where W > 1 and T is not W, one token for each hypothesis.
        """
        if self.width == 1 and self._ancestors_HS is None:
            self.length += T
            return torch.ones(T, self.length, dtype=torch.bool, device=device).tril(self.length - T) if T > 1 else None
        if self.width != T:
            raise UnmaskError(f"{self.width} hypotheses of a source go on by one token each, but {T} came.")
        own_HW = torch.eye(T, dtype=torch.bool, device=device).repeat(rows, 1)
        past = () if self._ancestors_HS is None else (self._ancestors_HS,)
        self._ancestors_HS = torch.cat((*past, own_HW), 1)  # small: a bit a key, whatever the layers and their width
        self.length += 1
        return self._ancestors_HS.unflatten(0, (rows, T))[:, None]

    def select(self, rows_H: Tensor) -> None:
        """Hypothesis i continues from hypothesis rows_H[i]; the W of a source come from those of one source."""
        if self._ancestors_HS is not None:
            self._ancestors_HS = self._ancestors_HS[rows_H]
        rows_B = rows_H[:: self.width] // self.width
        places_M = (rows_B != torch.arange(len(rows_B), device=rows_B.device)).nonzero().squeeze(1)
        if self._rows() == len(rows_B) and not len(places_M):
            return
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask[rows_B]
        for block in self.blocks:
            block.own.move(places_M, rows_B)
            if block.memory is not None:
                block.memory.move(places_M, rows_B)

    def _rows(self) -> int | None:
        """B, or None where nothing is kept yet."""
        first = self.blocks[0]
        kept = first.memory or first.own
        return len(kept.keys) if kept.length else None


def _moved(kept_BNSK: Tensor, places_M: Tensor, rows_B: Tensor, length: int) -> Tensor:
    """Rows rows_B of what is kept, in place where they are not more than before; those at places_M are copied."""
    if len(rows_B) > len(kept_BNSK):
        return kept_BNSK[rows_B]
    if len(places_M):
        kept_BNSK[places_M, :, :length] = kept_BNSK[rows_B[places_M], :, :length]
    return kept_BNSK[: len(rows_B)]


def _with_room(kept: Tensor | None, new_BNTK: Tensor, used: int, needed: int) -> Tensor:
    """A tensor with room for `needed` tokens whose first `used` are those kept."""
    if kept is not None and kept.shape[2] >= needed:
        return kept
    B, N, _, K = new_BNTK.shape
    larger = new_BNTK.new_empty(B, N, max(2 * needed, ROOM), K)
    if kept is not None:
        larger[:, :, :used] = kept[:, :, :used]
    return larger
