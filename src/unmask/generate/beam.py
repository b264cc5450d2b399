"""Search: greedy and beam search, with a length penalty, diverse groups and an exact rule for when to stop.

Shapes: B sources, A unfinished sources; G groups of a source's beam; R = A * G beams of w hypotheses; N = R * w rows of
the model; K candidates of a beam; V vocabulary; P finished hypotheses that a beam keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
class Search(Config):
    """Greedy search (beam_size 1) or beam search: the n best hypotheses of each source, by score.

    score(y) = log P(y) / penalty(|y|), where |y| counts the generated tokens, the end included, and the penalty is
    |y|^alpha for "power" and ((5 + |y|) / 6)^alpha for "gnmt" (Wu et al. 2016, section 7). `formula` prints it.

    beam_size       hypotheses in the beam of a source
    n_best          hypotheses returned for a source, at most beam_size
    length_penalty  alpha; 0 ranks by log-probability alone, a larger value favours longer texts
    penalty         form of the length penalty
    stop            when the search of a source ends, see below
    groups          groups of a diverse beam (Vijayakumar et al. 2018): each has beam_size / groups hypotheses and
                    avoids the tokens of the w best candidates of the previous groups in the same step
    diversity       subtracted from the log-probability of a token for each of these candidates (Hamming diversity). It
                    changes the order of the candidates, not their scores
    limits          fewest and most tokens        blocking  tokens that may not come next

    In one step, the 2 * w continuations of a beam with the highest log-probability are its candidates. A candidate that
    ends is finished if it is among the first w, else it is dropped. The first w that do not end continue. At the length
    limit, the first w are finished as they are. The search returns the n best finished hypotheses by score. The search
    of a source ends at its length limit, when no hypothesis continues, or

    "certain"   when no hypothesis can still become one of the n best. A total only falls, so the best possible score of
                a hypothesis is its total divided by the largest penalty, which for alpha >= 0 is that of the limit
    "estimate"  when beam_size hypotheses (in a group: w) have finished, and no other would beat the worst of them if it
                ended at its current length. This ends earlier than "certain", but with alpha > 0 it may miss a better
                longer text. In `transformers`, this is early_stopping=False, the default
    "full"      when beam_size hypotheses have finished (early_stopping=True)

    With one hypothesis (greedy search, and groups of one), the search ends with the text. Results equal those of
    `transformers` with penalty "power", one group, `max_new_tokens` = max_length and `min_new_tokens` = min_length, up
    to ties and rounding; early_stopping="never" is "certain". There is no forced last token.
    """

    beam_size: int = 1
    n_best: int = 1
    length_penalty: float = 1.0
    penalty: Literal["power", "gnmt"] = "power"
    stop: Literal["estimate", "certain", "full"] = "estimate"
    groups: int = 1
    diversity: float = 0.5
    limits: Limits = field(default_factory=Limits)
    blocking: Blocking = field(default_factory=Blocking)

    def __post_init__(self) -> None:
        if self.beam_size < 1 or self.groups < 1 or self.beam_size % self.groups:
            raise UnmaskError(
                f"A beam of {self.beam_size} cannot be searched in {self.groups} groups; "
                "choose a beam_size of at least 1 and groups that divide it."
            )
        if not 1 <= self.n_best <= self.beam_size:
            raise UnmaskError(
                f"A beam of {self.beam_size} has no {self.n_best} best; choose n_best from 1 to beam_size."
            )
        if not abs(self.length_penalty) <= 10:
            raise UnmaskError(
                f"length_penalty (--length-penalty) must be from -10 to 10, not {self.length_penalty:g}: other values "
                "give no useful ranking."
            )
        if not 0 <= self.diversity < math.inf:
            raise UnmaskError(f"diversity (--diversity) must be at least 0 and finite, not {self.diversity:g}.")

    @property
    def formula(self) -> str:
        """The formula of the score for a reader: log P(y) / |y|^0.6."""
        if self.length_penalty == 0:
            return "log P(y)"
        base = "|y|" if self.penalty == "power" else "((5 + |y|) / 6)"
        return f"log P(y) / {base}^{self.length_penalty:g}"

    def penalise(self, length: float) -> float:
        """The length penalty of `length` tokens, the divisor of their log-probability."""
        base = length if self.penalty == "power" else (5 + length) / 6
        return float(base**self.length_penalty)

    @property
    def width(self) -> int:
        """w, hypotheses of a beam."""
        return self.beam_size // self.groups

    @property
    def room(self) -> int:
        """P, the number of finished hypotheses that a beam keeps."""
        return -(-self.n_best // self.groups) if self.stop == "certain" else self.width


class Candidates(NamedTuple):
    """The best continuations of each beam, best first, and which of them continue."""

    slots_RK: Tensor  # the hypothesis of the beam that a candidate continues
    tokens_RK: Tensor
    said_RK: Tensor  # log-probability of the token
    totals_RK: Tensor
    kept_Rw: Tensor  # ranks of the candidates that continue
    live_Rw: Tensor  # their totals; -inf if fewer than w can continue


class Finished:
    """The best finished hypotheses of every beam, best first; with equal scores, the first to finish comes first.

    scores  [B * G, P], -inf for none      codes  [B * G, P] int64: step * K + rank among the candidates of the step
    """

    def __init__(self, beams: int, places: int, device: torch.device):
        self.scores = torch.full((beams, places), -math.inf, device=device)
        self.codes = torch.zeros((beams, places), dtype=torch.long, device=device)

    def add(self, beams_R: Tensor, scores_Rw: Tensor, codes_w: Tensor) -> Tensor:
        """Add finished candidates. Returns the scores [R] that a new hypothesis must beat; -inf while there is room."""
        scores = torch.cat([self.scores[beams_R], scores_Rw], 1)
        codes = torch.cat([self.codes[beams_R], codes_w.expand_as(scores_Rw)], 1)
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.scores.shape[1]]
        best = scores.gather(1, order)
        self.scores[beams_R], self.codes[beams_R] = best, codes.gather(1, order)
        return best[:, -1]


def beam_search(
    model: Writer, sources: Batch, search: Search, *, end: int, trace: Trace | None = None
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each source, best first; fewer if the search found fewer. See `generate`."""
    device, B, G, w = sources.tokens.device, len(sources.tokens), search.groups, search.width
    state = model.prefill(sources, search.beam_size)
    tokens_N = state.first
    least_B, most_B = bounds(model, sources, search.limits)
    rules = Rules.of(search.blocking, model, sources, least_B, G * w, end)
    trace = Trace() if trace is None else trace
    trace.begin(G, search.penalise)
    beams_R, most_R = torch.arange(B * G, device=device), most_B.repeat_interleave(G)
    roomiest_R = torch.tensor([search.penalise(length) for length in most_R.tolist()], device=device)
    finished = Finished(B * G, search.room, device)
    live_Rw = torch.full((B * G, w), -math.inf, device=device)
    live_Rw[:, 0] = 0  # at first all hypotheses of a beam are equal, so only one counts
    for length in range(1, int(most_B.max()) + 1):
        go_on()
        logits_NV = model.decode_step(tokens_N, state).float()
        if length == 1:
            rules.check(logits_NV.shape[1])
        new = _extend(logits_NV, live_Rw, rules, search)
        last_R = most_R == length
        over_RK = ((new.tokens_RK == end) | last_R[:, None]) & (new.totals_RK > -math.inf)
        over_RK[:, w:] = False
        trace.steps.append(Step(beams_R, *new[:5], over_RK))

        scores_Rw = (new.totals_RK / search.penalise(length)).masked_fill(~over_RK, -math.inf)[:, :w]
        codes_w = (length - 1) * new.tokens_RK.shape[1] + torch.arange(scores_Rw.shape[1], device=device)
        worst_R = finished.add(beams_R, scores_Rw, codes_w)
        done_R = last_R | _hopeless(search, new.live_Rw.amax(1), worst_R, length, roomiest_R)
        going_A = remaining(done_R.view(-1, G).all(1))  # the only synchronisation with the device
        if not len(going_A):
            break
        live_Rw = new.live_Rw.masked_fill(done_R[:, None], -math.inf)
        on_R = (going_A[:, None] * G + torch.arange(G, device=device)).flatten()
        kept_Rw = new.kept_Rw[on_R]
        rows_N = (on_R[:, None] * w + new.slots_RK[on_R].gather(1, kept_Rw)).flatten()
        tokens_N = new.tokens_RK[on_R].gather(1, kept_Rw).flatten()
        all_on = len(on_R) == len(beams_R)
        if w > 1 or not all_on:
            state.select(rows_N)
        rules.advance(None if w == 1 and all_on else rows_N, tokens_N)
        if not all_on:
            live_Rw, beams_R, most_R, roomiest_R = live_Rw[on_R], beams_R[on_R], most_R[on_R], roomiest_R[on_R]
    return _ranked(answers(trace, finished.scores, finished.codes, end), search)


def _extend(logits_NV: Tensor, live_Rw: Tensor, rules: Rules, search: Search) -> Candidates:
    """The candidates of every beam. Greedy search compares logits, which round less than log-probabilities."""
    w, G, V = search.width, search.groups, logits_NV.shape[1]
    log_p_NV = logits_NV.log_softmax(-1)
    ends_N = log_p_NV[:, rules.end].clone()
    allowed_NV = rules.apply(logits_NV if w == 1 else log_p_NV)
    if G == 1:
        return _candidates(allowed_NV, log_p_NV, ends_N, live_Rw, rules.end)
    chosen_AV = allowed_NV.new_zeros((len(live_Rw) // G, V))
    parts = []
    for g in range(G):
        own_NV, said_NV = (x.view(-1, G, w, V)[:, g].flatten(0, 1) for x in (allowed_NV, log_p_NV))
        away_NV = (search.diversity * chosen_AV).repeat_interleave(w, 0)
        live_Aw = live_Rw.view(-1, G, w)[:, g]
        new = _candidates(own_NV, said_NV, ends_N.view(-1, G, w)[:, g].flatten(), live_Aw, rules.end, away_NV)
        parts.append(new)
        possible_Aw = (new.totals_RK[:, :w] > -math.inf).to(chosen_AV.dtype)
        chosen_AV.scatter_add_(1, new.tokens_RK[:, :w], possible_Aw)
    return Candidates(*(torch.stack(tensors, 1).flatten(0, 1) for tensors in zip(*parts, strict=True)))


def _candidates(
    allowed_NV: Tensor, log_p_NV: Tensor, ends_N: Tensor, live_Rw: Tensor, end: int, away_NV: Tensor | None = None
) -> Candidates:
    """The candidates of beams, best first: the k best tokens of each hypothesis, then the best of all of these.

    allowed_NV  scores of tokens, -inf for blocked tokens             log_p_NV  their log-probabilities
    ends_N      score of the end, blocked or not                      away_NV   diversity penalty of each token
    """
    R, w = live_Rw.shape
    k = 1 if w == 1 else min(2 * w, allowed_NV.shape[1])  # at most w of the 2 * w candidates end, so w can continue
    order_Nk, tokens_Nk = largest(allowed_NV if away_NV is None else allowed_NV - away_NV, k)
    stuck_N = order_Nk[:, 0] == -math.inf  # every token is blocked: allow the end
    order_Nk[:, 0] = torch.where(stuck_N, ends_N, order_Nk[:, 0])
    tokens_Nk[:, 0] = torch.where(stuck_N, end, tokens_Nk[:, 0])
    for scores_NV in (allowed_NV, log_p_NV):
        scores_NV[:, end] = torch.where(stuck_N, ends_N, scores_NV[:, end])
    said_Nk = log_p_NV.gather(1, tokens_Nk)
    gains_Nk = said_Nk if w == 1 else allowed_NV.gather(1, tokens_Nk)
    gains_Nk = gains_Nk.masked_fill(order_Nk == -math.inf, -math.inf)

    def of_beams(x_Nk: Tensor) -> Tensor:
        return x_Nk.view(R, w * k)

    before_Rwk = live_Rw[:, :, None].expand(R, w, k)
    order_RK = (
        of_beams(order_Nk.view(R, w, k) + before_Rwk).sort(dim=1, descending=True, stable=True).indices[:, : 2 * w]
    )
    totals_RK = of_beams(gains_Nk.view(R, w, k) + before_Rwk).gather(1, order_RK)
    tokens_RK, said_RK = of_beams(tokens_Nk).gather(1, order_RK), of_beams(said_Nk).gather(1, order_RK)
    ended_RK = tokens_RK == end
    kept_Rw = ended_RK.sort(dim=1, stable=True).indices[:, :w]
    live_Rw = totals_RK.masked_fill(ended_RK, -math.inf).gather(1, kept_Rw)
    return Candidates(order_RK // k, tokens_RK, said_RK, totals_RK, kept_Rw, live_Rw)


def _hopeless(search: Search, best_R: Tensor, worst_R: Tensor, length: int, roomiest_R: Tensor) -> Tensor:
    """[R] bool: whether, by the rule `search.stop`, no continuing hypothesis can change the result.

    best_R    highest total of a continuing hypothesis, -inf for none
    worst_R   score to beat, -inf while there is room
    length    number of generated tokens
    roomiest_R  length penalty at the limit
    """
    if search.stop == "full":
        return (worst_R > -math.inf) | (best_R == -math.inf)
    if search.stop == "estimate":
        return ~(best_R / search.penalise(length) > worst_R)
    return ~(best_R / roomiest_R.clamp(min=search.penalise(length + 1)) > worst_R)


def _ranked(found: list[list[Hypothesis]], search: Search) -> list[list[Hypothesis]]:
    """The n best hypotheses of each source: first the best of every group, then the second best of every group, ..."""
    G = search.groups
    if G == 1:
        return [hypotheses[: search.n_best] for hypotheses in found]
    answers = []
    for first in range(0, len(found), G):
        places = [(place, -h.score, g) for g in range(G) for place, h in enumerate(found[first + g])]
        answers.append([found[first + g][place] for place, _, g in sorted(places)[: search.n_best]])
    return answers
