"""Sampling: texts drawn from the model's distribution: temperature, top-k, top-p, min-p.

Shapes: B sources, A unfinished sources; n samples of each; N = A * n rows of the model; V vocabulary; K tokens on the
shortlist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.generate.rules import Blocking, Limits, Rules, bounds, largest, remaining
from unmask.generate.trace import Hypothesis, Step, Trace, answers
from unmask.kernels.threads import go_on
from unmask.models.writer import Writer
from unmask.types import Batch


@dataclass(frozen=True, kw_only=True)
class Sampling(Config):
    """Each token is drawn from softmax(logits / temperature), restricted by top_k, top_p and min_p, in this order.

    samples      texts drawn for each source, independently
    temperature  above 0; below 1 is closer to greedy search, above 1 closer to uniform
    top_k        keep only the k most probable tokens (Fan et al. 2018, section 5.1); 0 keeps all
    top_p        of these, keep only the smallest set with this probability (Holtzman et al. 2020, section 3.1)
    min_p        of these, keep tokens with at least this fraction of the highest probability (Nguyen et al. 2024)
    seed         seed of the draws if no generator is passed
    limits       fewest and most tokens          blocking  tokens that may not come next
    """

    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    blocking: Blocking = field(default_factory=Blocking)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UnmaskError(f"The number of samples must be at least 1, not {self.samples}.")
        if not 0 < self.temperature < math.inf:
            raise UnmaskError(
                f"The temperature must be above 0, not {self.temperature}; for the most probable tokens use Search() "
                "(--search, or no --sample)."
            )
        if self.top_k < 0:
            raise UnmaskError(f"top_k (--top-k) must be at least 0 (all tokens), not {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise UnmaskError(f"top_p (--top-p) must be above 0 and at most 1 (all tokens), not {self.top_p:g}.")
        if not 0 <= self.min_p <= 1:
            raise UnmaskError(f"min_p (--min-p) must be from 0 (all tokens) to 1, not {self.min_p:g}.")

    def generator(self, device: torch.device) -> torch.Generator:
        """A new generator with the seed."""
        return torch.Generator(device).manual_seed(self.seed)

    def shortlist(self, logits_NV: Tensor) -> tuple[Tensor, Tensor | None]:
        """(logits [N, K] to draw from, -inf for excluded tokens; their ids [N, K], None for 0 ... V - 1)."""
        logits_NK, tokens_NK = logits_NV / self.temperature, None
        if 0 < self.top_k < logits_NV.shape[1]:
            logits_NK, tokens_NK = largest(logits_NK, self.top_k)
        if self.top_p < 1:
            logits_NK, order_NK = logits_NK.sort(dim=1, descending=True, stable=True)
            tokens_NK = order_NK if tokens_NK is None else tokens_NK.gather(1, order_NK)
            p_NK = logits_NK.softmax(1)
            logits_NK = logits_NK.masked_fill(p_NK.cumsum(1) - p_NK >= self.top_p, -math.inf)
        if self.min_p > 0:
            least_N1 = logits_NK.amax(1, keepdim=True) + math.log(self.min_p)
            logits_NK = logits_NK.masked_fill(logits_NK < least_N1, -math.inf)
        return logits_NK, tokens_NK

    def draw(self, logits_NV: Tensor, generator: torch.Generator) -> Tensor:
        """A token for each row [N]: argmax(logits + Gumbel noise) is a draw from the softmax (Gumbel 1954)."""
        logits_NK, tokens_NK = self.shortlist(logits_NV)
        noise_NK = torch.empty_like(logits_NK).exponential_(generator=generator).clamp_(min=1e-30).log_()
        drawn_N1 = (logits_NK - noise_NK).argmax(1, keepdim=True)
        return (drawn_N1 if tokens_NK is None else tokens_NK.gather(1, drawn_N1)).squeeze(1)


def sample(
    model: Writer,
    sources: Batch,
    sampling: Sampling,
    *,
    end: int,
    generator: torch.Generator | None = None,
    trace: Trace | None = None,
) -> list[list[Hypothesis]]:
    """The samples of each source, in the order of the draws. See `generate`."""
    device, B, n = sources.tokens.device, len(sources.tokens), sampling.samples
    generator = sampling.generator(device) if generator is None else generator
    state = model.prefill(sources, n)
    tokens_N = state.first
    least_B, most_A = bounds(model, sources, sampling.limits)
    rules = Rules.of(sampling.blocking, model, sources, least_B, n, end)
    trace = Trace() if trace is None else trace
    trace.begin(1, lambda length: 1.0)
    sources_A, own_n = torch.arange(B, device=device), torch.arange(n, device=device)
    totals_An, going_An = torch.zeros((B, n), device=device), torch.ones((B, n), dtype=torch.bool, device=device)
    scores_Bn = torch.full((B, n), -math.inf, device=device)
    codes_Bn = torch.zeros((B, n), dtype=torch.long, device=device)
    for length in range(1, int(most_A.max()) + 1):
        go_on()
        logits_NV = model.decode_step(tokens_N, state).float()
        if length == 1:
            rules.check(logits_NV.shape[1])
        tokens_N, said_N = _draw(logits_NV, rules, sampling, generator)
        tokens_An, said_An = tokens_N.view(-1, n), said_N.view(-1, n)
        totals_An = (totals_An + said_An).masked_fill(~going_An, -math.inf)
        over_An = going_An & ((tokens_An == end) | (most_A[:, None] == length))
        every_An = own_n.expand_as(tokens_An)
        trace.steps.append(Step(sources_A, every_An, tokens_An, said_An, totals_An, every_An, over_An))

        scores_Bn[sources_A] = torch.where(over_An, totals_An, scores_Bn[sources_A])
        codes_Bn[sources_A] = torch.where(over_An, (length - 1) * n + every_An, codes_Bn[sources_A])
        going_An = going_An & ~over_An
        on_A = remaining(~going_An.any(1))  # the only synchronisation with the device
        if not len(on_A):
            break
        rows_N = None
        if len(on_A) < len(sources_A):
            rows_N = (on_A[:, None] * n + own_n).flatten()
            state.select(rows_N)
            tokens_N, sources_A, most_A = tokens_N[rows_N], sources_A[on_A], most_A[on_A]
            totals_An, going_An = totals_An[on_A], going_An[on_A]
        rules.advance(rows_N, tokens_N)
    return answers(trace, scores_Bn, codes_Bn, end)


@torch.inference_mode()
def draws(model: Writer, sources: Batch, sampling: Sampling) -> Iterator[Tensor]:
    """Tokens [N] that follow the sources, step by step and without an end, such as the levels of the samples of a
    recording. `limits` and `blocking` have no effect."""
    state = model.prefill(sources, sampling.samples)
    tokens_N, generator = state.first, sampling.generator(sources.tokens.device)
    while True:
        go_on()
        tokens_N = sampling.draw(model.decode_step(tokens_N, state).float(), generator)
        yield tokens_N


def _draw(logits_NV: Tensor, rules: Rules, sampling: Sampling, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(tokens [N], their log-probabilities [N] in the model's full distribution)."""
    log_p_NV = logits_NV.log_softmax(-1)
    ends_N = logits_NV[:, rules.end].clone()
    allowed_NV = rules.apply(logits_NV)
    stuck_N = allowed_NV.amax(1) == -math.inf  # every token is blocked: allow the end
    allowed_NV[:, rules.end] = torch.where(stuck_N, ends_N, allowed_NV[:, rules.end])
    tokens_N = sampling.draw(allowed_NV, generator)
    return tokens_N, log_p_NV.gather(1, tokens_N[:, None]).squeeze(1)
