"""Position schemes: learned, sinusoidal, rotary, T5 bias, ALiBi, Transformer-XL; each opens one of four doors.

Shapes: B rows, T queries, S keys, D width, H heads, N heads of the keys, K width of a head, L distances.
The T queries are always the last T of the S places, so T < S is a sequence continued from a cache.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UnmaskError

Door = Literal["embed", "rotate", "bias", "score"]


class Position(nn.Module):
    """A position scheme. A subclass overrides one of the four methods ("doors"); the others change nothing.

    The `Embedding` calls `embed`, the `Stack` (once for all layers) or an `Attention` with its own scheme calls `bias`,
    and the `Attention` calls `rotate` and `score`. `Position()` ignores positions.
    """

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """The input plus position vectors, [B, T, D]. `positions_BT=None` means 0 … T-1 in every row."""
        return x_BTD

    def rotate(self, q_BHTK: Tensor, k_BNSK: Tensor, positions_BS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys, rotated by their positions. `positions_BS=None` means 0 … S-1 in every row."""
        return q_BHTK, k_BNSK

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor | None:
        """The bias of the scores that depends only on distances, [H, T, S]; None: no bias."""
        return None

    def score(self, q_BHTK: Tensor, k_BNSK: Tensor, scale: float) -> Tensor | None:
        """The bias of the scores that depends on content and distance, [B, H, T, S], `scale` applied; None: no bias."""
        return None

    def opens(self, *doors: Door) -> bool:
        """Whether this scheme overrides one of these doors."""
        return any(getattr(type(self), door) is not getattr(Position, door) for door in doors)

    def fits(self, owner: str, *doors: Door) -> Position:
        """Return this scheme. Raises `UnmaskError` if `owner` calls none of the doors that the scheme overrides."""
        every: tuple[Door, ...] = ("embed", "rotate", "bias", "score")
        opened = [door for door in every if self.opens(door)]
        if opened and not set(opened) & set(doors):
            place = {"embed": "the Embedding", "bias": "the Stack"}.get(opened[0], "each Attention")
            raise UnmaskError(f"{type(self).__name__} has no effect in {owner}; give it to {place} instead.")
        return self


class Learned(Position):
    """One learned vector for each position (Gehring et al. 2017; BERT, section 3.2).

    length  maximum length of a sequence
    offset  unused rows before the first position: RoBERTa has 2, and stores length + 2 rows
    """

    def __init__(self, length: int, dim: int, offset: int = 0):
        super().__init__()
        self.length, self.offset = length, offset
        self.table = nn.Embedding(length + offset, dim)

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """x + table[offset + position]. Raises `UnmaskError` for a position beyond the table (not checked on a GPU)."""
        if positions_BT is None:
            if x_BTD.shape[1] > self.length:
                raise self._too_long(f"A sequence of {x_BTD.shape[1]} tokens")
            return x_BTD + self.table.weight[self.offset : self.offset + x_BTD.shape[1]]
        try:
            return x_BTD + self.table(positions_BT + self.offset)
        except IndexError:
            raise self._too_long(f"Position {int(positions_BT.max())}") from None

    def _too_long(self, what: str) -> UnmaskError:
        return UnmaskError(f"{what} is beyond the {self.length} positions of this model; shorten the sequences.")


class LearnedGrid(Learned):
    """One learned vector for each place of a square grid, and for the places before it (ViT, section 3.1).

    side    G, places of a side of the grid
    before  places before the grid, such as the class token
    """

    def __init__(self, side: int, dim: int, before: int = 0):
        super().__init__(before + side**2, dim)
        self.side, self.before = side, before

    def fitted(self, weight: Tensor) -> Tensor:
        """The table of a grid of another size, [before + G'^2, D], interpolated to this one, [before + G^2, D]: bicubic
        and without antialiasing, as `transformers` does (ViT, section 3.2). Places before the grid keep their
        vectors."""
        side = math.isqrt(len(weight) - self.before)
        if side == self.side:
            return weight
        first, grid_ND = weight[: self.before], weight[self.before :]
        grid_1DGG = grid_ND.T.unflatten(1, (side, side))[None].float()
        other_1DGG = F.interpolate(grid_1DGG, (self.side, self.side), mode="bicubic", align_corners=False)
        return torch.cat([first, other_1DGG[0].flatten(1).T.to(weight)])


class Sinusoidal(Position):
    """Sines in the even features, cosines in the odd ones (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, dim: int, base: float = 10_000.0):
        super().__init__()
        self.dim, self.base = _even(dim, "width"), base

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        place = torch.arange(x_BTD.shape[1], device=x_BTD.device) if positions_BT is None else positions_BT
        angle = _angles(place, self.dim, self.base, x_BTD.dtype)
        return x_BTD + self.arrange(angle.sin(), angle.cos()).to(x_BTD.dtype)

    def arrange(self, sin: Tensor, cos: Tensor) -> Tensor:
        """The order of the features: [..., D / 2] each -> [..., D]."""
        return torch.stack([sin, cos], dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The features of `Sinusoidal` in another order, first all sines and then all cosines, as in tensor2tensor and
    Marian.

    The values equal the table that `transformers` computes in float64 and stores in float32: angles in float32 have an
    error of up to 1e-4 at position 1,000.
    """

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        place = torch.arange(x_BTD.shape[1], device=x_BTD.device) if positions_BT is None else positions_BT
        exponent = torch.arange(0, self.dim, 2, device=place.device).double() / self.dim
        angle = place[..., None].double() / self.base**exponent
        return x_BTD + self.arrange(angle.sin(), angle.cos()).float().to(x_BTD.dtype)

    def arrange(self, sin: Tensor, cos: Tensor) -> Tensor:
        return torch.cat([sin, cos], dim=-1)


class Rotary(Position):
    """Rotates queries and keys by an angle proportional to the position, so that their product depends on the distance.

    Su et al. 2021, equation 34; feature i is paired with feature i + K/2, the order that Llama and ModernBERT store.
    """

    def __init__(self, head_dim: int, base: float = 10_000.0):
        super().__init__()
        self.head_dim, self.base = _even(head_dim, "width of a head"), base

    def rotate(self, q_BHTK: Tensor, k_BNSK: Tensor, positions_BS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if q_BHTK.shape[-1] != self.head_dim:
            raise UnmaskError(
                f"Rotary was built for heads of width {self.head_dim}, but these have width {q_BHTK.shape[-1]}."
            )
        S = k_BNSK.shape[-2]
        place_BS = torch.arange(S, device=k_BNSK.device)[None] if positions_BS is None else positions_BS
        return self.turned(q_BHTK, k_BNSK, *self.turns(place_BS, q_BHTK.dtype))

    def turns(self, positions_BS: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles, [B, 1, S, K / 2] each, which all layers with these positions share."""
        angle = _angles(positions_BS, self.head_dim, self.base, dtype)[:, None]
        return angle.cos().to(dtype), angle.sin().to(dtype)

    @staticmethod
    def turned(q_BHTK: Tensor, k_BNSK: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, rotated by the angles of `turns`."""
        T = q_BHTK.shape[-2]
        return _turn(q_BHTK, cos[..., -T:, :], sin[..., -T:, :]), _turn(k_BNSK, cos, sin)


class T5Bias(Position):
    """A learned number for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    buckets   number of buckets: half for each direction, or all for the past if causal; half of those hold one distance
              each
    furthest  larger distances share the last bucket
    causal    keys after the query share bucket 0, as in T5's decoder

    Raises `UnmaskError` if the buckets do not reach `furthest`.
    """

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, causal: bool = False):
        super().__init__()
        exact = buckets // (2 if causal else 4)
        if not 0 < exact < furthest:
            raise UnmaskError(
                f"{buckets} buckets do not fit a furthest distance of {furthest}: use 4 buckets or more, and a "
                f"distance above {exact}."
            )
        self.buckets, self.furthest, self.causal = buckets, furthest, causal
        self.table = nn.Embedding(buckets, heads)

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        return self.table(self.bucket(distances(T, S, self.table.weight.device))).permute(2, 0, 1)

    def bucket(self, distance: Tensor) -> Tensor:
        """Key position minus query position -> bucket: one for each small distance, logarithmic up to `furthest`."""
        if self.causal:
            buckets, first, far = self.buckets, torch.zeros_like(distance), -distance.clamp(max=0)
        else:
            buckets = self.buckets // 2
            first, far = (distance > 0) * buckets, distance.abs()
        exact = buckets // 2
        # The order of these operations is that of T5: another one rounds a few distances into the next bucket.
        share = torch.log(far.clamp(min=exact).float() / exact) / math.log(self.furthest / exact)
        wide = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(far < exact, far, wide)


class ALiBi(Position):
    """A penalty proportional to the distance, with a fixed slope for each head (Press et al. 2022, section 3).

    Slopes are 2^(-8/H), 2^(-16/H), …; if H is not a power of two, those of the next smaller power and then every other
    one of the next larger power. The penalty is symmetric; a causal mask gives the published one-sided form.
    """

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        below = 2 ** int(math.log2(self.heads))
        first = torch.arange(1, below + 1, device=device) / below
        between = torch.arange(1, 2 * (self.heads - below) + 1, 2, device=device) / (2 * below)
        slope_H11 = torch.exp2(-8 * torch.cat([first, between]))[:, None, None]
        return -slope_H11 * distances(T, S, device).abs()


class TransformerXL(Position):
    """Relative sinusoids: adds (q + v)·Wr + u·k to q·k (Dai et al. 2019, section 3.3, equation 5, terms b, c and d)."""

    def __init__(self, dim: int, heads: int, base: float = 10_000.0):
        super().__init__()
        self.dim, self.heads, self.base = _even(dim, "width"), heads, base
        self.project = nn.Linear(dim, dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, dim // heads))
        self.v = nn.Parameter(torch.zeros(heads, dim // heads))

    def score(self, q_BHTK: Tensor, k_BNSK: Tensor, scale: float) -> Tensor:
        T, S = q_BHTK.shape[-2], k_BNSK.shape[-2]
        apart_L = torch.arange(S - 1, -T, -1, device=q_BHTK.device)  # query position minus key position, descending
        angle = _angles(apart_L, self.dim, self.base, self.u.dtype)
        wave_LD = torch.cat([angle.sin(), angle.cos()], dim=-1).to(self.u.dtype)
        r_HKL = self.project(wave_LD).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
        by_distance_BHTL = (q_BHTK + self.v[:, None]).to(r_HKL.dtype) @ r_HKL
        index_TS = distances(T, S, q_BHTK.device) + S - 1
        by_distance = by_distance_BHTL.gather(-1, index_TS.expand(*q_BHTK.shape[:2], T, S))
        u_NGK = self.u.unflatten(0, (k_BNSK.shape[1], -1))  # G query heads read each head of the keys
        by_content = (u_NGK.to(k_BNSK.dtype) @ k_BNSK.transpose(-1, -2)).flatten(1, 2).unsqueeze(-2)
        return scale * (by_distance + by_content)


def distances(T: int, S: int, device: torch.device | str | None) -> Tensor:
    """Key position minus query position, [T, S]."""
    return torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]


def _angles(places: Tensor, dim: int, base: float, dtype: torch.dtype) -> Tensor:
    """position / base^(2i / dim), [..., dim / 2], in at least float32: positions 257 and 258 are equal in bfloat16."""
    dtype = torch.promote_types(dtype, torch.float32)
    speed = 1.0 / base ** (torch.arange(0, dim, 2, device=places.device).to(dtype) / dim)
    return places[..., None].to(dtype) * speed


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _even(dim: int, what: str) -> int:
    if dim % 2:
        raise UnmaskError(f"The {what} must be even, because sines and cosines come in pairs, but it is {dim}.")
    return dim
