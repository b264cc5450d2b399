"""Position schemes: learned, sinusoidal, rotary, T5 bias, ALiBi, Transformer-XL; each opens one of four doors.

Shapes: B rows, T queries, S keys, D width, H heads, N heads of the keys, K width of a head, L distances.
The T queries are always the last T of the S places, so T < S is a sequence continued from a cache.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError

Door = Literal["embed", "rotate", "bias", "score"]


class Position(nn.Module):
    """Where a token is. A scheme overrides one of the four doors; the others leave everything as it is.

    `embed` is called by the `Embedding`, `bias` by the `Stack` (once for all layers) or by an `Attention` that
    has a scheme of its own, `rotate` and `score` by the `Attention`. `Position()` knows no order at all.
    """

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """The input with its places added, [B, T, D]. `positions_BT=None` means 0 … T-1 in every row."""
        return x_BTD

    def rotate(self, q_BHTK: Tensor, k_BNSK: Tensor, positions_BS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their places. `positions_BS=None` means 0 … S-1 in every row."""
        return q_BHTK, k_BNSK

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor | None:
        """What the distance alone adds to the scores, [H, T, S]."""
        return None

    def score(self, q_BHTK: Tensor, k_BNSK: Tensor, scale: float) -> Tensor | None:
        """What content and distance together add to the scores, [B, H, T, S], `scale` already applied."""
        return None

    def opens(self, *doors: Door) -> bool:
        """Whether this scheme does something at one of the doors."""
        return any(getattr(type(self), door) is not getattr(Position, door) for door in doors)

    def fits(self, owner: str, *doors: Door) -> Position:
        """This scheme, or `UnmaskError` where it opens only doors that `owner` never calls and would be lost."""
        every: tuple[Door, ...] = ("embed", "rotate", "bias", "score")
        opened = [door for door in every if self.opens(door)]
        if opened and not set(opened) & set(doors):
            place = {"embed": "the Embedding", "bias": "the Stack"}.get(opened[0], "each Attention")
            raise UnmaskError(f"{type(self).__name__} does nothing in {owner}; hand it to {place} instead.")
        return self


class Learned(Position):
    """One learned vector a place (Gehring et al. 2017; BERT, section 3.2).

    length  number of places a sequence may have
    offset  unused rows before the first place: RoBERTa has 2, and stores length + 2 rows
    """

    def __init__(self, length: int, dim: int, offset: int = 0):
        super().__init__()
        self.length, self.offset = length, offset
        self.table = nn.Embedding(length + offset, dim)

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        """x + table[offset + position]. Raises `UnmaskError` for a place beyond the table (not checked on a GPU)."""
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


class Sinusoidal(Position):
    """Sine in the even features, cosine in the odd ones (Vaswani et al. 2017, section 3.5)."""

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
    """The same features in another order, sines first and then cosines, as tensor2tensor and Marian have them.

    The numbers are those of the table that `transformers` computes in float64 and stores in float32: an angle of
    float32 is off by up to 1e-4 at place 1,000.
    """

    def embed(self, x_BTD: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        place = torch.arange(x_BTD.shape[1], device=x_BTD.device) if positions_BT is None else positions_BT
        exponent = torch.arange(0, self.dim, 2, device=place.device).double() / self.dim
        angle = place[..., None].double() / self.base**exponent
        return x_BTD + self.arrange(angle.sin(), angle.cos()).float().to(x_BTD.dtype)

    def arrange(self, sin: Tensor, cos: Tensor) -> Tensor:
        return torch.cat([sin, cos], dim=-1)


class Rotary(Position):
    """Queries and keys turned by an angle that grows with the place, so that their product knows the distance.

    Su et al. 2021, equation 34; feature i is paired with feature i + K/2, the order that Llama and ModernBERT store.
    """

    def __init__(self, head_dim: int, base: float = 10_000.0):
        super().__init__()
        self.head_dim, self.base = _even(head_dim, "width of a head"), base

    def rotate(self, q_BHTK: Tensor, k_BNSK: Tensor, positions_BS: Tensor | None = None) -> tuple[Tensor, Tensor]:
        T, S, width = q_BHTK.shape[-2], k_BNSK.shape[-2], q_BHTK.shape[-1]
        if width != self.head_dim:
            raise UnmaskError(f"Rotary was made for heads {self.head_dim} wide, but these are {width} wide.")
        place = torch.arange(S, device=k_BNSK.device)[None] if positions_BS is None else positions_BS
        angle = _angles(place, self.head_dim, self.base, q_BHTK.dtype)[:, None]
        cos, sin = angle.cos().to(q_BHTK.dtype), angle.sin().to(q_BHTK.dtype)
        return _turn(q_BHTK, cos[..., -T:, :], sin[..., -T:, :]), _turn(k_BNSK, cos, sin)


class T5Bias(Position):
    """A learned number for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    buckets   half of them for each direction, or all for the past if causal; half of those hold one distance each
    furthest  distances from here on share the last bucket
    causal    keys after the query share bucket 0, as in T5's decoder
    """

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, causal: bool = False):
        super().__init__()
        exact = buckets // (2 if causal else 4)
        if not 0 < exact < furthest:
            raise UnmaskError(
                f"{buckets} buckets cannot reach {furthest} places; take 4 or more, and further than {exact}."
            )
        self.buckets, self.furthest, self.causal = buckets, furthest, causal
        self.table = nn.Embedding(buckets, heads)

    def bias(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        return self.table(self.bucket(distances(T, S, self.table.weight.device))).permute(2, 0, 1)

    def bucket(self, distance: Tensor) -> Tensor:
        """Key place minus query place -> bucket: exact while near, logarithmic up to `furthest`."""
        if self.causal:
            buckets, first, far = self.buckets, torch.zeros_like(distance), -distance.clamp(max=0)
        else:
            buckets = self.buckets // 2
            first, far = (distance > 0) * buckets, distance.abs()
        exact = buckets // 2
        # The order of these operations is T5's own: another one rounds a few distances into the next bucket.
        share = torch.log(far.clamp(min=exact).float() / exact) / math.log(self.furthest / exact)
        wide = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(far < exact, far, wide)


class ALiBi(Position):
    """A penalty that grows with the distance, at a fixed slope for each head (Press et al. 2022, section 3).

    Slopes are 2^(-8/H), 2^(-16/H), …; if H is no power of two, those of the power below and then every other one
    of the power above. Both directions are penalised alike; a causal mask leaves the published one-sided form.
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
    """Relative sinusoids: (q + v)·Wr + u·k beside q·k (Dai et al. 2019, section 3.3, equation 5, terms b, c and d)."""

    def __init__(self, dim: int, heads: int, base: float = 10_000.0):
        super().__init__()
        self.dim, self.heads, self.base = _even(dim, "width"), heads, base
        self.project = nn.Linear(dim, dim, bias=False)
        self.u = nn.Parameter(torch.zeros(heads, dim // heads))
        self.v = nn.Parameter(torch.zeros(heads, dim // heads))

    def score(self, q_BHTK: Tensor, k_BNSK: Tensor, scale: float) -> Tensor:
        T, S = q_BHTK.shape[-2], k_BNSK.shape[-2]
        apart_L = torch.arange(S - 1, -T, -1, device=q_BHTK.device)  # query place minus key place, far past first
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
    """Key place minus query place, [T, S]."""
    return torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]


def _angles(places: Tensor, dim: int, base: float, dtype: torch.dtype) -> Tensor:
    """place / base^(2i / dim), [..., dim / 2], in float32 at least: bfloat16 cannot tell place 257 from 258."""
    dtype = torch.promote_types(dtype, torch.float32)
    speed = 1.0 / base ** (torch.arange(0, dim, 2, device=places.device).to(dtype) / dim)
    return places[..., None].to(dtype) * speed


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _even(dim: int, what: str) -> int:
    if dim % 2:
        raise UnmaskError(f"Sine and cosine come in pairs, so the {what} must be even, not {dim}.")
    return dim
