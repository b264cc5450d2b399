"""Hypothesis, what a search answers with; Trace, every step of a search, from which answers and trees are read.

Shapes: R beams (a beam is a source, or one of a source's groups), w hypotheses of a beam, K candidates of a step, of
which w go on; M hypotheses that are read.
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
    """A text that was written for a source.

    tokens                   ids, without the one that ended it
    score                    what it was ranked by: the log-probability through the length penalty
    log_probability          natural logarithm of the model's probability of the tokens, the end included
    token_log_probabilities  its parts, one for each token, and one more for the end of a finished text
    finished                 it ended by itself; False where the limit of the length cut it
    """

    tokens: list[int]
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    finished: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate of a recorded search: a hypothesis that continues from another by one token.

    step             tokens that it has
    token            the last of them
    parent           its place among the nodes of the source, None for a first token
    log_probability  of the last token
    total            of all tokens, as the search added them up (blocking included, the diversity penalty not)
    score            the total through the length penalty
    fate             "kept": among the w that may go on; "finished": it ended or was cut, and may be an answer;
                     "dropped": too low among the candidates
    group            of a diverse beam, else 0
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
    """What a search did in one step. Candidates come in their order, best first."""

    beams_R: Tensor  # which beams were still searched
    slots_RK: Tensor  # which hypothesis of the beam a candidate continues from
    tokens_RK: Tensor
    said_RK: Tensor  # log-probability of the token
    totals_RK: Tensor
    kept_Rw: Tensor  # which candidates go on, by their rank
    over_RK: Tensor  # which candidates became answers


class Arrays(NamedTuple):
    """A `Step` in NumPy, and where each beam is found in it."""

    rows: dict[int, int]
    slots: np.ndarray
    tokens: np.ndarray
    said: np.ndarray
    totals: np.ndarray
    kept: np.ndarray
    over: np.ndarray


@dataclass(slots=True)
class Trace:
    """Every candidate of every step of a search: those that went on, those that ended, and those that were dropped.

    Candidates are the 2 * w best continuations of a beam (1 in greedy search): what lies below is not kept.

    >>> trace = Trace()                                               # doctest: +SKIP
    >>> generate(model, batch, Search(beam_size=4), end=2, trace=trace)   # doctest: +SKIP
    >>> [node for node in trace.nodes(0) if node.fate == "dropped"]   # doctest: +SKIP
    """

    steps: list[Step] = field(default_factory=list)
    groups: int = 1
    penalty: Callable[[int], float] = float
    _arrays: list[Arrays] = field(default_factory=list)

    def begin(self, groups: int, penalty: Callable[[int], float]) -> None:
        """Get ready for a search. Raises UnmaskError where one was recorded already."""
        if self.steps:
            raise UnmaskError("A Trace holds one search and this one is full; make a new Trace for the next.")
        self.groups, self.penalty = groups, penalty

    def nodes(self, source: int) -> list[Node]:
        """All candidates for a source, those of earlier steps first. Hypotheses that cannot be are left out."""
        nodes: list[Node] = []
        for group in range(self.groups):
            before: dict[int, int] = {}  # slot -> place of the node that lies there
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
        """(tokens, log-probability of each), both [M, T], of candidates, followed back to their first tokens.

        beams_M, steps_M, ranks_M  [M]: the beam of each, the step (from 0) it was made in, its place there
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
    """The hypotheses of each beam, from where they ended: scores, -inf for none, and codes: step * K + candidate.

    Raises UnmaskError for a beam that wrote nothing: the model said NaN, or nothing was possible.
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
                f"Nothing could be written for source {beam // trace.groups} of the batch: the model gives no token "
                "a probability above 0, not even the end; look for NaN in its weights, or allow more tokens."
            )
    return found
