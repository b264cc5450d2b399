"""Limits and Blocking: the length of a text, and tokens that may not come next.

Shapes: B sources, S tokens of a prompt, N hypotheses, T tokens of the prompt and the text so far, V vocabulary.
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
    """The number of tokens to generate. Each limit is a number and a factor on the source's length; the stricter one
    applies. Factors do not apply to a source that is a vector.

    min_length, min_factor  tokens that must come before the end token
    max_length, max_factor  most tokens of a text, the end token included; no factor by default
    """

    min_length: int = 0
    max_length: int = 256
    min_factor: float = 0.0
    max_factor: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_length < self.max_length:
            raise UnmaskError(
                f"A text cannot have at least {self.min_length} and at most {self.max_length} tokens; "
                "min_length must be at least 0 and below max_length."
            )
        if self.min_factor < 0 or (self.max_factor is not None and self.max_factor <= self.min_factor):
            raise UnmaskError(
                f"A text cannot have {self.min_factor} to {self.max_factor} times the tokens of its source; "
                "min_factor must be at least 0 and below max_factor."
            )

    def of(self, lengths_B: Tensor, positions: int | None = None) -> tuple[Tensor, Tensor]:
        """(fewest tokens before the end, most tokens with the end), each [B] int64, for sources of these lengths.

        positions  the most tokens that the model can generate; None without a limit
        """
        least_B = (lengths_B * self.min_factor).floor().long().clamp(min=self.min_length)
        most_B = torch.full_like(lengths_B, self.max_length if positions is None else min(self.max_length, positions))
        if self.max_factor is not None:
            most_B = torch.minimum(most_B, (lengths_B * self.max_factor).ceil().long().clamp(min=1))
        return torch.minimum(least_B, most_B - 1), most_B


def bounds(model: Writer, sources: Batch, limits: Limits) -> tuple[Tensor, Tensor]:
    """(fewest tokens before the end, most tokens with the end), each [B] int64, for these sources and this model.

    Raises UnmaskError for a prompt that fills all positions of the model.
    """
    lengths_B = sources.lengths
    if sources.signal is not None:  # a vector has no length in tokens
        limits = limits.replace(min_factor=0.0, max_factor=None)
    if lengths_B is None:
        lengths_B = torch.full(sources.tokens.shape[:1], sources.tokens.shape[1], device=sources.tokens.device)
    least_B, most_B = limits.of(lengths_B, model.positions)
    room_B = model.room(lengths_B)
    if room_B is not None:
        if bool((room_B < 1).any()):
            row = int(room_B.argmin())
            raise UnmaskError(
                f"Prompt {row} of the batch has {int(lengths_B[row])} tokens, which leaves the model no position for a "
                "new token; shorten it."
            )
        most_B = torch.minimum(most_B, room_B)
        least_B = torch.minimum(least_B, most_B - 1)
    return least_B, most_B


def beginnings(model: Writer, sources: Batch) -> Tensor | None:
    """The prompts of a language model, [B, S], aligned to the right, with -1 before shorter ones. None for a model that
    does not continue its source."""
    if not model.continues_prompt:
        return None
    tokens_BS, lengths_B = left_aligned(sources)
    S = tokens_BS.shape[1]
    places_BS = torch.arange(S, device=tokens_BS.device) - (S - lengths_B[:, None])
    return tokens_BS.gather(1, places_BS.clamp(min=0)).masked_fill(places_BS < 0, -1)


@dataclass(frozen=True, kw_only=True)
class Blocking(Config):
    """Tokens that may not come next, by the text so far and the prompt of a language model. If every token is blocked,
    the end token is allowed.

    forbidden           ids that are never generated: padding, the unknown token
    repetition_penalty  at least 1: divides the positive scores of earlier tokens, and multiplies their negative scores
                        (Keskar et al. 2019, section 4.1). As in `transformers`, the scores are logits, or
                        log-probabilities in a beam
    no_repeat_ngram     no n-gram of this size is generated twice (Paulus et al. 2018, section 2.5); 0 allows all
    """

    forbidden: tuple[int, ...] = ()
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.repetition_penalty < math.inf:
            raise UnmaskError(f"The repetition penalty must be at least 1 (no penalty), not {self.repetition_penalty}.")
        if self.no_repeat_ngram < 0:
            raise UnmaskError(
                f"no_repeat_ngram must be at least 0 (every n-gram may repeat), not {self.no_repeat_ngram}."
            )

    @property
    def remembers(self) -> bool:
        """Whether the blocked tokens depend on the tokens so far."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram > 0


class Rules:
    """Applies limits and blocking to the hypotheses of one batch: the scores of blocked tokens become -inf.

    least_N    [N] int64: tokens that must come before the end      end  id of the token that ends a text
    before_NS  [N, S] int64: the prompt of each hypothesis, see `beginnings`; None without prompts
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
        """The rules for `width` hypotheses of each source."""
        before_BS = beginnings(model, sources) if blocking.remembers else None
        before_NS = None if before_BS is None else before_BS.repeat_interleave(width, 0)
        return cls(blocking, least_B.repeat_interleave(width), end, before_NS)

    def check(self, vocabulary: int) -> None:
        """Raises UnmaskError for an id outside the vocabulary, and if the end token is forbidden."""
        if vocabulary < 2:
            raise UnmaskError("A vocabulary of one token leaves nothing to choose; the model must know at least two.")
        for kind, token in [("end", self.end), *(("forbidden", token) for token in self.blocking.forbidden)]:
            if not 0 <= token < vocabulary:
                raise UnmaskError(f"The {kind} token {token} is not one of the model's {vocabulary} ids; use another.")
        if self.end in self.blocking.forbidden:
            raise UnmaskError(f"Token {self.end} ends every text and cannot be forbidden; use Limits for its length.")

    def apply(self, scores_NV: Tensor) -> Tensor:
        """[N, V] logits or log-probabilities with -inf for blocked tokens. Changes its argument in place."""
        if self.history_NT is not None and self.history_NT.shape[1]:
            scores_NV = self._repetition(scores_NV, self.history_NT)
            self._ngrams(scores_NV, self.history_NT)
        if len(self.forbidden):
            scores_NV.index_fill_(1, self.forbidden, -math.inf)
        if self.written < self.longest_least:
            scores_NV[:, self.end].masked_fill_(self.least_N > self.written, -math.inf)
        return scores_NV

    def advance(self, rows_N: Tensor | None, tokens_N: Tensor) -> None:
        """Record that hypothesis i continues hypothesis rows_N[i] (None: itself) with the token tokens_N[i]."""
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
        history_NT = torch.where(history_NT < 0, history_NT[:, -1:], history_NT)  # the last entry of a row is a token
        said_NT = scores_NV.gather(1, history_NT)
        return scores_NV.scatter(1, history_NT, torch.where(said_NT > 0, said_NT / penalty, said_NT * penalty))

    def _ngrams(self, scores_NV: Tensor, history_NT: Tensor) -> None:
        """Block the tokens that followed an earlier occurrence of the last n - 1 tokens."""
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
    """The indices of unfinished sources. Each keeps its place; sources from the end fill the places of finished ones.

    So a cache moves only as many rows as there are gaps.
    """
    done = done_A.cpu()
    going = (~done).nonzero().squeeze(1)
    order = torch.arange(len(going))
    order[done[: len(going)]] = going[going >= len(going)]
    return order.to(done_A.device)


def largest(scores_NV: Tensor, k: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """(values, indices) [N, k] of the k largest of each row, in order, like `topk` but faster on wide rows.

    The k largest values lie in the k blocks with the largest maxima, so only these blocks are sorted. With k = 1, the
    first of equal values is chosen.
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
