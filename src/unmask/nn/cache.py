"""Caches: the keys and values of earlier tokens, and a table of those that each hypothesis of a beam sees.

Shapes: B rows (sources), W hypotheses of each, H = B * W hypotheses in all; T new tokens, S cached ones, N heads of the
keys and values, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.errors import UnmaskError

ROOM = 64
"""Initial capacity of a cache, in tokens; it doubles when full, so that each token is copied about once."""


class KeyValues:
    """Keys and values of one attention layer, [B, N, S, K] each: given at once (a memory) or token by token
    (`extend`)."""

    __slots__ = ("_keys", "_values", "length")

    def __init__(self, keys_BNSK: Tensor | None = None, values_BNSK: Tensor | None = None) -> None:
        self._keys, self._values = keys_BNSK, values_BNSK  # with spare capacity after the first `length`
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
        """Append T tokens. The cost is that of copying them, for any number of cached tokens."""
        begin, self.length = self.length, self.length + keys_BNTK.shape[2]
        self._keys = _with_room(self._keys, keys_BNTK, begin, self.length)
        self._values = _with_room(self._values, values_BNTK, begin, self.length)
        self._keys[:, :, begin : self.length] = keys_BNTK
        self._values[:, :, begin : self.length] = values_BNTK

    def select(self, rows_B: Tensor) -> None:
        """Row i continues from row rows_B[i]. Rows that stay are not copied; the others are overwritten."""
        self.move((rows_B != torch.arange(len(rows_B), device=rows_B.device)).nonzero().squeeze(1), rows_B)

    def move(self, places_M: Tensor, rows_B: Tensor) -> None:
        """As `select`, if the rows that change, places_M, are known already."""
        if self._keys is not None and self._values is not None:
            self._keys = _moved(self._keys, places_M, rows_B, self.length)
            self._values = _moved(self._values, places_M, rows_B, self.length)


class BlockCache(NamedTuple):
    """The cache of one block: keys and values of the tokens so far, and those of the memory."""

    own: KeyValues
    memory: KeyValues | None = None


class Cache:
    """The cache of a `Stack`, so that a new token does not compute earlier ones again; `Stack.begin` makes it.

    The W hypotheses of a source are the tokens of one row: they share the keys of the memory, and their keys are stored
    together in the order in which they were fed. A table has the ancestors of each hypothesis among these keys. So a
    beam that continues from other hypotheses changes only the table, and no key is moved or stored twice.

    blocks       the cache of each block, in the order in which they run
    memory_mask  [B, 1, 1, S], true if a token of the memory is visible; None: all are
    width        W, hypotheses of each source
    length       tokens fed to each hypothesis so far
    by_distance  whether a position scheme depends on the distance of tokens, so that padding inside a row would be an
                 error
    in_line      whether an attention layer has its own scheme of this kind, which needs the keys in the order of
                 their positions. A scheme of the stack uses the position of each key (`places`) instead
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
            raise UnmaskError(f"A source needs at least one hypothesis, not {width}.")
        if width > 1 and in_line:
            raise UnmaskError(
                "A position scheme that each attention layer adds to its scores does not support several hypotheses; "
                "give the scheme to the Stack."
            )
        self.blocks, self.memory_mask, self.width, self.length = blocks, memory_mask, width, 0
        self.by_distance, self.in_line = by_distance, in_line
        self._shared = 0  # number of first tokens, which all hypotheses of a source share
        self._ancestors_HS: Tensor | None = None  # if W > 1: true at the keys that belong to a hypothesis

    def fork(self, width: int, visible_BS: Tensor | None = None) -> None:
        """Continue every row as `width` hypotheses, which share its tokens so far.

        visible_BS  false at the padding of rows of different lengths, which later tokens do not see; None: there is
                    none. With padding, positions differ from row to row, so the caller passes them to the stack

        Raises `UnmaskError` if rows have hypotheses already, if an attention layer has its own scheme that depends on
        distances, and if there is padding and any scheme depends on distances.
        """
        if self.width > 1 or width < 1:
            raise UnmaskError(f"A row with {self.width} hypotheses cannot continue as {width}; fork a cache only once.")
        if width == 1 and visible_BS is None:
            return
        if self.in_line or (self.by_distance and visible_BS is not None):
            raise UnmaskError(
                "A position scheme that depends on distances needs prompts of one length and, for several hypotheses, "
                "belongs in the Stack instead of each attention layer."
            )
        self.width, self._shared, rows = width, self.length, self._rows()
        if rows is not None:
            keys_BNSK = self.blocks[0].own.keys
            if visible_BS is None:
                visible_BS = torch.ones(rows, self.length, dtype=torch.bool, device=keys_BNSK.device)
            self._ancestors_HS = visible_BS.repeat_interleave(width, 0)

    def positions(self, T: int, device: torch.device) -> Tensor:
        """Position of each of the next T tokens, [1, T]: T successive ones, or the same for each hypothesis."""
        if self.width > 1:
            return torch.full((1, T), self.length, device=device)
        return torch.arange(self.length, self.length + T, device=device)[None]

    def places(self, device: torch.device) -> Tensor:
        """Position of each cached key, [S]; keys that the W hypotheses were fed in one step have the same one."""
        places_T = torch.arange(self.length, device=device)
        if self.width == 1:
            return places_T
        return torch.cat([places_T[: self._shared], places_T[self._shared :].repeat_interleave(self.width)])

    def advance(self, rows: int, T: int, device: torch.device) -> Tensor | None:
        """Add T new tokens of each row. Returns the keys that they see, [T, S] or [B, 1, W, S] bool; None: all.

        Raises `UnmaskError` if W > 1 and T is not W: each hypothesis gets one token.
        """
        if self.width == 1 and self._ancestors_HS is None:
            self.length += T
            return torch.ones(T, self.length, dtype=torch.bool, device=device).tril(self.length - T) if T > 1 else None
        if self.width != T:
            raise UnmaskError(f"Each of the {self.width} hypotheses of a source needs one token, but {T} were given.")
        own_HW = torch.eye(T, dtype=torch.bool, device=device).repeat(rows, 1)
        past = () if self._ancestors_HS is None else (self._ancestors_HS,)
        self._ancestors_HS = torch.cat((*past, own_HW), 1)  # small: one boolean a key, for all layers
        self.length += 1
        return self._ancestors_HS.unflatten(0, (rows, T))[:, None]

    def select(self, rows_H: Tensor) -> None:
        """Hypothesis i continues from hypothesis rows_H[i]; the W of a source continue from those of one source."""
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
        """B, or None if nothing is cached yet."""
        first = self.blocks[0]
        kept = first.memory or first.own
        return len(kept.keys) if kept.length else None


def _moved(kept_BNSK: Tensor, places_M: Tensor, rows_B: Tensor, length: int) -> Tensor:
    """The rows rows_B of a cached tensor; in place unless there are more rows than before, copying only places_M."""
    if len(rows_B) > len(kept_BNSK):
        return kept_BNSK[rows_B]
    if len(places_M):
        kept_BNSK[places_M, :, :length] = kept_BNSK[rows_B[places_M], :, :length]
    return kept_BNSK[: len(rows_B)]


def _with_room(kept: Tensor | None, new_BNTK: Tensor, used: int, needed: int) -> Tensor:
    """A tensor with capacity for `needed` tokens, which begins with the `used` cached ones."""
    if kept is not None and kept.shape[2] >= needed:
        return kept
    B, N, _, K = new_BNTK.shape
    larger = new_BNTK.new_empty(B, N, max(2 * needed, ROOM), K)
    if kept is not None:
        larger[:, :, :used] = kept[:, :, :used]
    return larger
