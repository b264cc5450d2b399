"""Hypothesis: a result of a search. Trace: every step of a search, for results and search trees.

Shapes: R beams (a beam is a source, or one of a source's groups), w hypotheses of a beam, K candidates of a step (w of
them continue); M hypotheses to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that a model generated for a source.

    tokens                   ids, without the end token
    score                    the ranking score: the log-probability divided by the length penalty
    log_probability          natural logarithm of the model's probability of the tokens, the end included
    token_log_probabilities  its terms, one for each token, and one more for the end of a finished text
    finished                 whether the text has an end token; False if the length limit cut it
    """

    tokens: list[int]
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    finished: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate of a recorded search: a hypothesis that continues another one by one token.

    step             number of tokens
    token            the last token
    parent           index of the parent in the nodes of the source, None for a first token
    log_probability  log-probability of the last token
    total            log-probability of all tokens as the search adds it up: with the repetition penalty, without the
                     diversity penalty
    score            the total divided by the length penalty
    fate             "kept": one of the w candidates that may continue; "finished": it ended or was cut, and may be
                     returned; "dropped": ranked too low
    group            group of a diverse beam, else 0
    """

    step: int
    token: int
    parent: int | None
    log_probability: float
    total: float
    score: float
    fate: Literal["kept", "finished", "dropped"]
    group: int


class Step(NamedTuple):
    """One step of a search. Candidates are in order, best first."""

    beams_R: Tensor  # the unfinished beams
    slots_RK: Tensor  # the hypothesis of the beam that a candidate continues
    tokens_RK: Tensor
    said_RK: Tensor  # log-probability of the token
    totals_RK: Tensor
    kept_Rw: Tensor  # ranks of the candidates that continue
    over_RK: Tensor  # whether a candidate is finished


class Arrays(NamedTuple):
    """A `Step` in NumPy; `rows` maps the number of a beam to its row."""

    rows: dict[int, int]
    slots: np.ndarray
    tokens: np.ndarray
    said: np.ndarray
    totals: np.ndarray
    kept: np.ndarray
    over: np.ndarray


@dataclass(slots=True)
class Trace:
    """Every candidate of every step of a search, whether it continued, ended, or was dropped.

    Candidates are the 2 * w best continuations of a beam (1 in greedy search); the others are not recorded.

    >>> trace = Trace()                                               # doctest: +SKIP
    >>> generate(model, batch, Search(beam_size=4), end=2, trace=trace)   # doctest: +SKIP
    >>> [node for node in trace.nodes(0) if node.fate == "dropped"]   # doctest: +SKIP
    """

    steps: list[Step] = field(default_factory=list)
    groups: int = 1
    penalty: Callable[[int], float] = float
    _arrays: list[Arrays] = field(default_factory=list)

    def begin(self, groups: int, penalty: Callable[[int], float]) -> None:
        """Prepare for a search. Raises UnmaskError if the trace already holds one."""
        if self.steps:
            raise UnmaskError("This Trace already holds a search; make a new Trace for each search.")
        self.groups, self.penalty = groups, penalty

    def nodes(self, source: int) -> list[Node]:
        """All candidates for a source with a probability above 0, those of earlier steps first."""
        nodes: list[Node] = []
        for group in range(self.groups):
            before: dict[int, int] = {}  # slot -> index of its node
            for number, step in enumerate(self.arrays(), start=1):
                row = step.rows.get(source * self.groups + group)
                if row is None:
                    break
                kept = step.kept[row].tolist()
                places: dict[int, int] = {}
                for rank, total in enumerate(step.totals[row].tolist()):
                    if total == -math.inf:
                        continue
                    places[rank] = len(nodes)
                    over = bool(step.over[row, rank])
                    nodes.append(
                        Node(
                            step=number,
                            token=int(step.tokens[row, rank]),
                            parent=before.get(int(step.slots[row, rank])),
                            log_probability=float(step.said[row, rank]),
                            total=total,
                            score=total / self.penalty(number),
                            fate="finished" if over else "kept" if rank in kept else "dropped",
                            group=group,
                        )
                    )
                before = {slot: places[rank] for slot, rank in enumerate(kept) if rank in places}
        return nodes

    def paths(self, beams_M: np.ndarray, steps_M: np.ndarray, ranks_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, log-probability of each), both [M, T], of candidates, traced back to their first tokens.

        beams_M, steps_M, ranks_M  [M]: the beam of each candidate, its step (from 0), and its rank in that step
        """
        arrays = self.arrays()[: int(steps_M.max(initial=-1)) + 1]
        tokens_MT = np.zeros((len(beams_M), len(arrays)), np.int64)
        said_MT = np.zeros((len(beams_M), len(arrays)), np.float32)
        slots_M = np.zeros(len(beams_M), np.int64)
        for t in reversed(range(len(arrays))):
            live = np.flatnonzero(steps_M >= t)
            step = arrays[t]
            rows = np.array([step.rows[beam] for beam in beams_M[live].tolist()], np.int64)
            ranks = np.where(steps_M[live] == t, ranks_M[live], step.kept[rows, slots_M[live]])
            tokens_MT[live, t], said_MT[live, t] = step.tokens[rows, ranks], step.said[rows, ranks]
            slots_M[live] = step.slots[rows, ranks]
        return tokens_MT, said_MT

    def arrays(self) -> list[Arrays]:
        """The steps in NumPy."""
        for step in self.steps[len(self._arrays) :]:
            beams, *parts = (part.cpu().numpy() for part in step)
            self._arrays.append(Arrays({beam: row for row, beam in enumerate(beams.tolist())}, *parts))
        return self._arrays


def answers(trace: Trace, scores_RP: Tensor, codes_RP: Tensor, end: int) -> list[list[Hypothesis]]:
    """The hypotheses of each beam.

    scores_RP  scores of the finished hypotheses, -inf for none
    codes_RP   where each hypothesis ended: step * K + rank of the candidate

    Raises UnmaskError for a beam without a hypothesis: the model returned NaN, or every token was blocked.
    """
    scores, codes = scores_RP.cpu().numpy(), codes_RP.cpu().numpy()
    beams_M, places_M = np.nonzero(scores > -np.inf)
    steps_M, ranks_M = np.divmod(codes[beams_M, places_M], trace.steps[0].tokens_RK.shape[1])
    tokens_MT, said_MT = trace.paths(beams_M, steps_M, ranks_M)
    found: list[list[Hypothesis]] = [[] for _ in scores]
    for m, beam in enumerate(beams_M.tolist()):
        tokens, said = tokens_MT[m, : steps_M[m] + 1].tolist(), said_MT[m, : steps_M[m] + 1].tolist()
        finished = tokens[-1] == end
        score = float(scores[beam, places_M[m]])
        found[beam].append(Hypothesis(tokens[:-1] if finished else tokens, score, math.fsum(said), said, finished))
    for beam, hypotheses in enumerate(found):
        if not hypotheses:
            raise UnmaskError(
                f"The model can generate nothing for source {beam // trace.groups} of the batch: no token, not even "
                "the end, has a probability above 0; look for NaN in its weights, or allow more tokens."
            )
    return found
