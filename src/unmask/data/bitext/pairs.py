"""Bitext: pairs of sentences and their translations; pairs within limits, pairs held out, and what was left out.

Limits on lengths: Koehn et al., "Moses", ACL 2007 (its clean-corpus-n).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np

from unmask.data.labelled.dataset import MOST_OVERLAP
from unmask.data.labelled.rows import listed
from unmask.errors import UnmaskError, plural


@dataclass(frozen=True)
class Report:
    """The statistics of reading.

    name      the files, for messages
    read      number of pairs in the files
    left_out  reason -> numbers of the lines (rows, in a table) that are not in the Bitext
    noted     peculiarity -> numbers of the lines that are in the Bitext
    remarks   sentences on the whole, such as the columns that were used
    """

    name: str
    read: int
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    noted: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The report in sentences, with counts and the first lines of each case."""
        return (
            *self.remarks,
            *(f"Pairs {what}: {_counted(at)}." for what, at in self.noted.items() if at),
            *(f"Pairs left out, {why}: {_counted(at)}." for why, at in self.left_out.items() if at),
        )


@dataclass(frozen=True)
class Bitext:
    """Pairs: number i is sources[i] and targets[i], from line lines[i]. `report` has the lines that were left out, and
    others[i] further targets that are right; it is empty if no pair has any."""

    sources: list[str]
    targets: list[str]
    report: Report
    lines: list[int]
    others: list[tuple[str, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    def take(self, indices: Iterable[int]) -> Bitext:
        """The pairs with these indices, in this order."""
        at = [int(i) for i in indices]
        sources, targets = [self.sources[i] for i in at], [self.targets[i] for i in at]
        others = [self.others[i] for i in at] if self.others else []
        return Bitext(sources, targets, self.report, [self.lines[i] for i in at], others)

    @property
    def references(self) -> list[list[str | None]]:
        """[R][N]: all targets that are right, in as many lists as a pair has at most; None where it has fewer."""
        return [list(self.targets), *map(list, zip_longest(*self.others))]

    @property
    def description(self) -> str:
        """The number of pairs, their files and the notes, without the last full stop."""
        sentences = (f"{self.report.name}: {plural(len(self), 'pair')}", *self.report.notes)
        return ". ".join(sentence.removesuffix(".") for sentence in sentences)


def fitting(
    bitext: Bitext,
    source_sizes: Sequence[int],
    target_sizes: Sequence[int],
    *,
    longest: int | None = None,
    ratio: float | None = None,
    unit: str = "tokens",
) -> tuple[Bitext, np.ndarray]:
    """The pairs within limits, and their indices [kept] in the given bitext; the report counts the others.

    source_sizes, target_sizes  [pairs] lengths in any unit, such as tokens or words
    longest                     largest length of a side; None: no limit
    ratio                       largest ratio of the longer side to the shorter one (Moses has 9); None: no limit

    Raises UnmaskError if no pair is left.
    """
    source, target = np.asarray(source_sizes, np.int64), np.asarray(target_sizes, np.int64)
    if source.shape != (len(bitext),) or target.shape != (len(bitext),):
        raise UnmaskError(
            f"{bitext.report.name} has {len(bitext):,} pairs; give the sizes of both sides for each pair."
        )
    faults: dict[str, np.ndarray] = {}
    long, short = np.maximum(source, target), np.minimum(source, target)
    if longest is not None:
        faults[f"longer than {longest:,} {unit}"] = long > longest
    if ratio is not None:
        uneven = long > ratio * np.maximum(short, 1)
        faults[f"one side more than {ratio:g} times as long as the other"] = uneven & ~np.any([*faults.values()], 0)
    kept = np.flatnonzero(~np.any([np.zeros(len(bitext), bool), *faults.values()], 0))
    left_out = {why: tuple(bitext.lines[i] for i in np.flatnonzero(bad)) for why, bad in faults.items()}
    report = replace(bitext.report, left_out={**bitext.report.left_out, **left_out})
    if not len(kept):
        raise UnmaskError(f"No pair of {report.name} is within the limits. {' '.join(report.notes)}")
    return replace(bitext.take(kept), report=report), kept


# ------------------------------------------------------------------------------------------------ train and dev


def check_apart(train: Bitext, dev: Bitext) -> tuple[str, ...]:
    """Sentences on pairs and sources of `dev` that are also in `train`, ignoring case and whitespace; else empty.

    Raises UnmaskError if more than 10 % of the pairs are: the score would not measure generalisation.
    """
    pairs = {(_key(source), _key(target)) for source, target in train}
    sources = {source for source, _ in pairs}
    common = [line for line, pair in zip(dev.lines, dev, strict=True) if (_key(pair[0]), _key(pair[1])) in pairs]
    known = [line for line, source in zip(dev.lines, dev.sources, strict=True) if _key(source) in sources]
    if len(common) > MOST_OVERLAP * len(dev):
        raise UnmaskError(
            f"{dev.report.name} shares {len(common):,} of its {plural(len(dev), 'pair')} with {train.report.name} (the "
            f"first is line {common[0]:,}), so its score would not measure generalisation; remove them, or set "
            "--allow-overlap yes."
        )
    cases = {"Pairs": common, "Sources": known}
    return tuple(f"{what} of {dev.report.name} also in training: {_counted(at)}." for what, at in cases.items() if at)


def hold_out(bitext: Bitext, count: int, seed: int = 0) -> tuple[Bitext, Bitext]:
    """(train, dev): about `count` pairs are drawn for dev. All pairs of a source go to the same side, because a source
    may have several translations. Raises UnmaskError if no pairs are left for training."""
    _, group = np.unique([_key(source) for source in bitext.sources], return_inverse=True)
    order = np.random.default_rng(seed).permutation(int(group.max()) + 1)
    sizes = np.bincount(group)[order]
    chosen = np.isin(group, order[np.cumsum(sizes) - sizes < count])
    if chosen.all() or count < 1:
        raise UnmaskError(
            f"{bitext.report.name} has {plural(len(bitext), 'pair')}, too few to hold some out; give others with --dev."
        )
    return bitext.take(np.flatnonzero(~chosen)), bitext.take(np.flatnonzero(chosen))


def _key(text: str) -> str:
    return " ".join(text.split()).casefold()


def _counted(lines: Sequence[int]) -> str:
    """ "2,004 (lines 3, 9, 14, …)"."""
    return f"{len(lines):,} ({'lines' if len(lines) > 1 else 'line'} {listed([f'{n:,}' for n in lines])})"
