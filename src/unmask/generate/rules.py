"""Limits and Blocking: how long a text may become, and which tokens may not come next.

Shapes: B sources, N hypotheses, T tokens written so far, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.models.causal import left_aligned
from unmask.models.writer import Writer
from unmask.types import Batch


@dataclass(frozen=True, kw_only=True)
class Limits(Config):
    """How many tokens are written, each limit absolute and as a factor of the source's tokens; the stricter one holds.
    A source that is a vector has no tokens, and factors say nothing of it.

    min_length, min_factor  tokens that must come before the token that ends
    max_length, max_factor  tokens after which a text is cut, the one that ends it included; no factor by default
    """

    min_length: int = 0
    max_length: int = 256
    min_factor: float = 0.0
    max_factor: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_length < self.max_length:
            raise UnmaskError(
                f"A text of at least {self.min_length} and at most {self.max_length} tokens cannot be written; "
                "min_length must be at least 0 and below max_length."
            )
        if self.min_factor < 0 or (self.max_factor is not None and self.max_factor <= self.min_factor):
            raise UnmaskError(
                f"Lengths of {self.min_factor} to {self.max_factor} times the source's leave nothing to write; "
                "min_factor must be at least 0 and below max_factor."
            )

    def of(self, lengths_B: Tensor, positions: int | None = None) -> tuple[Tensor, Tensor]:
        """(fewest tokens before the end, most tokens with it), each [B] int64, for sources of these lengths.

        positions  the most that the model can write, if anything limits it
        """
        least_B = (lengths_B * self.min_factor).floor().long().clamp(min=self.min_length)
        most_B = torch.full_like(lengths_B, self.max_length if positions is None else min(self.max_length, positions))
        if self.max_factor is not None:
            most_B = torch.minimum(most_B, (lengths_B * self.max_factor).ceil().long().clamp(min=1))
        return torch.minimum(least_B, most_B - 1), most_B


def bounds(model: Writer, sources: Batch, limits: Limits) -> tuple[Tensor, Tensor]:
    """(fewest tokens before the end, most tokens with it), each [B] int64, for these sources and this model."""
    lengths_B = sources.lengths
    if sources.signal is not None:  # a vector has no length that a text could go by
        limits = limits.replace(min_factor=0.0, max_factor=None)
    if lengths_B is None:
        lengths_B = torch.full(sources.tokens.shape[:1], sources.tokens.shape[1], device=sources.tokens.device)
    least_B, most_B = limits.of(lengths_B, model.positions)
    room_B = model.room(lengths_B)
    if room_B is not None:
        if bool((room_B < 1).any()):
            row = int(room_B.argmin())
            raise UnmaskError(
                f"Beginning {row} of the batch has {int(lengths_B[row])} tokens, which leaves the model no place to "
                "write at; shorten it."
            )
        most_B = torch.minimum(most_B, room_B)
        least_B = torch.minimum(least_B, most_B - 1)
    return least_B, most_B


def beginnings(model: Writer, sources: Batch) -> Tensor | None:
    """The tokens that a language model continues from, [B, S], each row ending at the right, with -1 before it where it
    is shorter; None for a model whose sources are not part of what it writes."""
    if not model.continues_prompt:
        return None
    tokens_BS, lengths_B = left_aligned(sources)
    S = tokens_BS.shape[1]
    places_BS = torch.arange(S, device=tokens_BS.device) - (S - lengths_B[:, None])
    return tokens_BS.gather(1, places_BS.clamp(min=0)).masked_fill(places_BS < 0, -1)


@dataclass(frozen=True, kw_only=True)
class Blocking(Config):
    """Tokens that may not come next, by what was written so far, and by what a language model continues from. Where
    nothing is left, the token that ends the text is allowed after all.

    forbidden           ids that are never written: padding, the unknown token
    repetition_penalty  at least 1: what was written before is divided by it where positive, multiplied where negative
                        (Keskar et al. 2019, section 4.1). It acts on logits, but in a beam on log-probabilities, as
                        `transformers` has it
    no_repeat_ngram     no n-gram of this size is written twice (Paulus et al. 2018, section 2.5); 0 allows all
    """

    forbidden: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.repetition_penalty < math.inf:
            raise UnmaskError(f"A repetition penalty is at least 1, which is none, not {self.repetition_penalty}.")
        if self.no_repeat_ngram < 0:
            raise UnmaskError(f"No n-gram has {self.no_repeat_ngram} tokens; 0 allows every repetition.")

    @property
    def remembers(self) -> bool:
        """Whether what may come next depends on what came before."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram > 0


class Rules:
    """Limits and blocking at work: they follow the hypotheses of one batch, and write -inf where nothing may be.

    least_N    [N] int64: tokens that must come before the end      end  id of the token that ends a text
    before_NS  [N, S] int64: the tokens that each continues from, see `beginnings`; None: they begin with nothing
    """

    def __init__(self, blocking: Blocking, least_N: Tensor, end: int, before_NS: Tensor | None = None):
        self.blocking, self.end = blocking, end
        self.least_N, self.longest_least = least_N, int(least_N.max())
        self.forbidden = torch.tensor(blocking.forbidden, dtype=torch.long, device=least_N.device)
        before_NS = least_N.new_empty((len(least_N), 0)) if before_NS is None else before_NS
        self.history_NT = before_NS if blocking.remembers else None
        self.written = 0

    @classmethod
    def of(cls, blocking: Blocking, model: Writer, sources: Batch, least_B: Tensor, width: int, end: int) -> Rules:
        """Those for `width` hypotheses of each source."""
        before_BS = beginnings(model, sources) if blocking.remembers else None
        before_NS = None if before_BS is None else before_BS.repeat_interleave(width, 0)
        return cls(blocking, least_B.repeat_interleave(width), end, before_NS)

    def check(self, vocabulary: int) -> None:
        """Raise UnmaskError where an id is not one of the vocabulary."""
        if vocabulary < 2:
            raise UnmaskError("A vocabulary of one token leaves nothing to choose; the model must know at least two.")
        for kind, token in [("end", self.end), *(("forbidden", token) for token in self.blocking.forbidden)]:
            if not 0 <= token < vocabulary:
                raise UnmaskError(f"The {kind} token {token} is not among the model's {vocabulary}; name another id.")
        if self.end in self.blocking.forbidden:
            raise UnmaskError(f"Token {self.end} ends every text and cannot be forbidden; use Limits for its length.")

    def apply(self, scores_NV: Tensor) -> Tensor:
        """[N, V] logits or log-probabilities with -inf for what may not come next. Changes what it is given."""
        if self.history_NT is not None and self.history_NT.shape[1]:
            scores_NV = self._repetition(scores_NV, self.history_NT)
            self._ngrams(scores_NV, self.history_NT)
        if len(self.forbidden):
            scores_NV.index_fill_(1, self.forbidden, -math.inf)
        if self.written < self.longest_least:
            scores_NV[:, self.end].masked_fill_(self.least_N > self.written, -math.inf)
        return scores_NV

    def advance(self, rows_N: Tensor | None, tokens_N: Tensor) -> None:
        """Hypothesis i continues from hypothesis rows_N[i] (None: from itself) with a token more."""
        self.written += 1
        if rows_N is not None and self.longest_least:
            self.least_N = self.least_N[rows_N]
        if self.history_NT is not None:
            history_NT = self.history_NT if rows_N is None else self.history_NT[rows_N]
            self.history_NT = torch.cat([history_NT, tokens_N[:, None]], 1)

    def _repetition(self, scores_NV: Tensor, history_NT: Tensor) -> Tensor:
        penalty = self.blocking.repetition_penalty
        if penalty == 1:
            return scores_NV
        history_NT = torch.where(history_NT < 0, history_NT[:, -1:], history_NT)  # the last one is a token
        said_NT = scores_NV.gather(1, history_NT)
        return scores_NV.scatter(1, history_NT, torch.where(said_NT > 0, said_NT / penalty, said_NT * penalty))

    def _ngrams(self, scores_NV: Tensor, history_NT: Tensor) -> None:
        """Where the last n - 1 tokens were written before, what followed them then may not follow them now."""
        n, T = self.blocking.no_repeat_ngram, history_NT.shape[1]
        if not 0 < n <= T:
            return
        ngrams_NTn = history_NT.unfold(1, n, 1)
        last_NT = ngrams_NTn[..., -1]
        again_NT = (ngrams_NTn[..., :-1] == history_NT[:, None, T - n + 1 :]).all(-1) & (last_NT >= 0)
        barred_NT = torch.zeros(again_NT.shape, dtype=scores_NV.dtype, device=again_NT.device)
        barred_NT = barred_NT.masked_fill(again_NT, -math.inf).masked_fill(~again_NT, math.inf)
        scores_NV.scatter_reduce_(1, last_NT.clamp(min=0), barred_NT, "amin")


def remaining(done_A: Tensor) -> Tensor:
    """Which sources go on: each in its own place, but where one is done, one from the back takes its place.

    So no more is moved in a cache than there are gaps.
    """
    done = done_A.cpu()
    going = (~done).nonzero().squeeze(1)
    order = torch.arange(len(going))
    order[done[: len(going)]] = going[going >= len(going)]
    return order.to(done_A.device)


def largest(scores_NV: Tensor, k: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """(values, indices) [N, k] of the k largest of each row, in order, as `topk` finds them, but faster on wide rows.

    The k largest lie in the k blocks whose largest are largest, so all but k blocks are only looked through for their
    maximum. With k = 1 the first of equal values is taken.
    """
    whole = scores_NV.shape[1] // block
    if whole < 4 * k:
        return _top(scores_NV, k)
    blocks_NGb = scores_NV[:, : whole * block].unflatten(1, (whole, block))
    best_Nk = _top(blocks_NGb.amax(-1), k)[1].sort(1).values
    inside_Nkb = blocks_NGb.gather(1, best_Nk[..., None].expand(-1, -1, block))
    values_Nk, places_Nk = _top(torch.cat([inside_Nkb.flatten(1), scores_NV[:, whole * block :]], 1), k)
    rest_Nk = places_Nk - k * block
    inside_Nk = best_Nk.gather(1, (places_Nk // block).clamp(max=k - 1)) * block + places_Nk % block
    return values_Nk, torch.where(rest_Nk >= 0, rest_Nk + whole * block, inside_Nk)


def _top(scores_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    if k == 1:
        values_N1, indices_N1 = scores_NV.max(1, keepdim=True)
        return values_N1, indices_N1
    values_Nk, indices_Nk = scores_NV.topk(k)
    return values_Nk, indices_Nk
