"""The rows of a pre-training run, drawn by the objective: training rows, which may grow longer, and held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from unmask.data.loader import EqualRows, Loader
from unmask.data.source import Sharded
from unmask.errors import UnmaskError, plural
from unmask.objectives import Objective
from unmask.objectives.objective import StreamOptions
from unmask.runs.pretraining.config import Rows
from unmask.train import distributed
from unmask.types import Batch, concatenate

Steps = Iterator[tuple[list[Batch], dict[Any, Any]]]
"""The micro-batches of this process for each step, and the position after it."""


class PretrainingRows:
    """The data of a pre-training run.

    objective  samples sequences, and chooses their targets
    rows       how sequences become batches
    tokens     tokens of a full row
    seed       seed of the order of the rows, and of their targets
    total      steps of the whole run, set when they are known; rows that grow longer need it

    Raises UnmaskError for batches or partitions that the processes cannot share, and for evaluations without rows.
    """

    def __init__(
        self, objective: Objective, train: Sequence[Any], heldout: Sequence[Any], rows: Rows, tokens: int, seed: int
    ) -> None:
        """train, heldout: the training split and the held-out split of each corpus."""
        self.objective, self.train, self.rows, self.tokens, self.seed = objective, train, rows, tokens, seed
        self.total = 0
        self.micro_batch = _micro_batch(rows)
        self.parts = _own_partitions(rows)
        _check_shards(train, rows, self.parts)
        self.heldout = self._heldout(heldout)

    def batches(self, position: dict[str, Any] | None) -> Steps:
        """The steps from a position on; None is the start.

        A position is that of the loader, or of the loader of each partition, with the number of the step and the length
        of the rows. When the rows grow longer, the loaders continue with the next epoch, since a block has other rows
        for each length.
        """
        step, length = (0, 0) if position is None else (position["step"], position["length"])
        places = {} if position is None else self._places(position)
        while True:
            if places and length != self._length_at(step):
                places = {part: {"epoch": place["epoch"] + 1, "block": 0, "row": 0} for part, place in places.items()}
            length = self._length_at(step)
            for micro, after in self._steps(length, places):
                step, places = step + 1, after
                here = dict(places[0]) if self.rows.partitions == 1 else {"partitions": places}
                yield micro, {**here, "step": step, "length": length}
                if self._length_at(step) != length:
                    break

    def gathered(self, position: dict[str, Any] | None) -> dict[str, Any] | None:
        """The position of all processes, from those of each; all must call it."""
        if position is None or "partitions" not in position:
            return position
        found = distributed.gather_json({str(part): place for part, place in position["partitions"].items()})
        return {**position, "partitions": {part: place for one in found for part, place in one.items()}}

    def _places(self, position: Mapping[str, Any]) -> dict[int, dict[str, int]]:
        """The place of the loader of each partition of this process. Raises UnmaskError for another number of them."""
        kept = position.get("partitions", {"0": {key: position.get(key) for key in ("epoch", "block", "row")}})
        if len(kept) != self.rows.partitions:
            raise UnmaskError(f"The run has {plural(len(kept), 'partition')}, and continues only with as many.")
        return {part: kept[str(part)] for part in self.parts}

    def _steps(self, length: int, places: Mapping[int, dict[str, int]]) -> Steps:
        """The micro-batches of each step, from the partitions of this process, and their places after it."""
        loaders = [self.loader(length, part).batches(places.get(part)) for part in self.parts]
        cut = self._cut(length)
        for steps in zip(*loaders, strict=True):
            batches = steps[0].batches
            if self.rows.partitions > 1:
                whole = concatenate([batch for step in steps for batch in step.batches])
                if whole.streams is not None:  # each partition numbers its own rows
                    whole = replace(whole, streams=torch.arange(len(whole.tokens)))
                batches = cut.micro_batches(whole)
            yield batches, {part: step.position for part, step in zip(self.parts, steps, strict=True)}

    def phases(self) -> list[tuple[float, Steps]]:
        """For each length of rows, its share of the steps, and an iterator over such steps."""
        first = min(self.rows.first_share, 1.0) if self.rows.first else 0.0
        shares = ((first, self.rows.first or self.tokens), (1 - first, self.tokens))
        return [(share, self._steps(length, {})) for share, length in shares if share > 0]

    def loader(self, length: int, part: int = 0) -> Loader:
        """The loader of a partition for rows of this length; a step has as many tokens as with rows of full length."""
        count, cut, splits = self.rows.partitions, self._cut(length), self.train
        if count > 1:
            cut = EqualRows(self.rows.batch * (self.tokens // length) // count)
            splits = [split.partition(part, count) for split in self.train]
        options: StreamOptions = {
            "length": length,
            "cut": cut,
            "seed": self.seed + part,
            "workers": self.rows.workers,
            "alpha": self.rows.alpha,
            "window": self.rows.shards,
        }
        return self.objective.stream(splits, options)

    def _cut(self, length: int) -> EqualRows:
        """The rows of this process in a step, and in a micro-batch."""
        times, ranks = self.tokens // length, distributed.ranks()
        return EqualRows(self.rows.batch * times // ranks, distributed.rank(), ranks, self.micro_batch * times)

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


def _own_partitions(rows: Rows) -> range:
    """The partitions that this process reads."""
    count, ranks = rows.partitions, distributed.ranks()
    if count == 1:
        return range(1)
    if count < 1 or count % ranks or rows.batch % count:
        fitting = [str(n) for n in range(ranks, rows.batch + 1, ranks) if rows.batch % n == 0]
        such = f", such as {', '.join(fitting[:4])}" if fitting else ""
        raise UnmaskError(
            f"{plural(ranks, 'process', 'processes')} and a batch of {plural(rows.batch, 'row')} cannot have {count} "
            f"partitions: --rows.partitions must be a multiple of the processes that divides the batch{such}."
        )
    own = count // ranks
    return range(distributed.rank() * own, (distributed.rank() + 1) * own)


def _check_shards(splits: Sequence[Any], rows: Rows, parts: range) -> None:
    """Raises UnmaskError for partitions of data without shards of text, and for shards that the cache cannot hold."""
    chosen = rows.partitions > 1 or rows.shards is not None
    sharded = [split for split in splits if isinstance(split, Sharded)]
    if chosen and len(sharded) < len(splits):
        raise UnmaskError("Only corpora of texts are read by shards: leave --rows.partitions and --rows.shards out.")
    remote = [split for split in sharded if not split.near]
    if not remote:
        return
    most = None if rows.shards is None else rows.shards + len(remote)  # some are begun while others end
    each = [sorted(size for split in remote for size in split.bytes[part :: rows.partitions]) for part in parts]
    readers = distributed.ranks_here() if rows.partitions > 1 else 1
    mixed = readers * sum(sum(sizes[-most:] if most else sizes) for sizes in each)
    if mixed > rows.cache_gb * 1e9:
        raise UnmaskError(
            f"The shards that this machine reads at a time have {mixed / 1e9:.3g} GB, and the cache "
            f"{rows.cache_gb:g}: give it more with --rows.cache-gb, or mix fewer shards with --rows.shards."
        )


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
