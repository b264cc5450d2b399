"""The rows of a pre-training run, drawn by the objective: training rows, which may grow longer, and held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unmask.data.loader import EqualRows, Loader
from unmask.errors import UnmaskError, plural
from unmask.objectives import Objective
from unmask.objectives.objective import StreamOptions
from unmask.runs.pretraining.config import Rows
from unmask.train import distributed
from unmask.types import Batch

Steps = Iterator[tuple[list[Batch], dict[str, Any]]]
"""The micro-batches of this process for each step, and the position after it."""


class PretrainingRows:
    """The data of a pre-training run.

    objective  samples sequences, and chooses their targets
    rows       how sequences become batches
    tokens     tokens of a full row
    seed       seed of the order of the rows, and of their targets
    total      steps of the whole run, set when they are known; rows that grow longer need it

    Raises UnmaskError for batches that the processes cannot share, and for evaluations without rows.
    """

    def __init__(
        self, objective: Objective, train: Sequence[Any], heldout: Sequence[Any], rows: Rows, tokens: int, seed: int
    ) -> None:
        """train, heldout: the training split and the held-out split of each corpus."""
        self.objective, self.train, self.rows, self.tokens, self.seed = objective, train, rows, tokens, seed
        self.total = 0
        self.micro_batch = _micro_batch(rows)
        self.heldout = self._heldout(heldout)

    def batches(self, position: dict[str, Any] | None) -> Steps:
        """The steps from a position on; None is the start.

        A position is that of the loader, with the number of the step and the length of the rows. When the rows grow
        longer, the loader continues with the next block, since a block has other rows for each length.
        """
        step, length = (0, 0) if position is None else (position["step"], position["length"])
        place = None if position is None else {key: position[key] for key in ("epoch", "block", "row")}
        while True:
            if place is not None and length != self._length_at(step):
                place = {"epoch": place["epoch"] + 1, "block": 0, "row": 0}
            length = self._length_at(step)
            for micro, after in self.loader(length).batches(place):
                step, place = step + 1, after
                yield micro, {**after, "step": step, "length": length}
                if self._length_at(step) != length:
                    break

    def phases(self) -> list[tuple[float, Steps]]:
        """For each length of rows, its share of the steps, and an iterator over such steps."""
        first = min(self.rows.first_share, 1.0) if self.rows.first else 0.0
        shares = ((first, self.rows.first or self.tokens), (1 - first, self.tokens))
        return [(share, self.loader(length).batches()) for share, length in shares if share > 0]

    def loader(self, length: int) -> Loader:
        """The loader of this process for rows of this length; a step has as many tokens as with rows of full length."""
        times, ranks = self.tokens // length, distributed.ranks()
        options: StreamOptions = {
            "length": length,
            "cut": EqualRows(self.rows.batch * times // ranks, distributed.rank(), ranks, self.micro_batch * times),
            "seed": self.seed,
            "workers": self.rows.workers,
            "alpha": self.rows.alpha,
        }
        return self.objective.stream(self.train, options)

    def _length_at(self, step: int) -> int:
        """Tokens of a row in the step after `step` steps."""
        first = self.rows.first
        return first if first and step < self.rows.first_share * self.total else self.tokens

    def _heldout(self, splits: Sequence[Any]) -> list[Batch]:
        """The rows of every evaluation, with fixed targets; empty if no row has a target."""
        limit = self.rows.heldout
        if limit < 1:
            raise UnmaskError(f"Evaluations need rows of held-out text: --heldout must be at least 1, not {limit}.")
        sizes = {"length": self.tokens, "rows": self.micro_batch, "limit_rows": limit}
        found = self.objective.evaluation_rows(splits, **sizes)
        return found if any(any(batch.counts.values()) for batch in found) else []


def _micro_batch(rows: Rows) -> int:
    """Rows of a forward pass of this process."""
    ranks = distributed.ranks()
    if rows.batch < 1:
        raise UnmaskError(f"--batch-size must be at least 1, not {rows.batch}.")
    if rows.batch % ranks:
        raise UnmaskError(
            f"{ranks} processes cannot share a batch of {plural(rows.batch, 'row')}: use a multiple of {ranks}."
        )
    share = rows.batch // ranks
    if rows.micro_batch is not None and rows.micro_batch < 1:
        raise UnmaskError("--micro-batch must be at least 1.")
    return min(rows.micro_batch or share, share)
