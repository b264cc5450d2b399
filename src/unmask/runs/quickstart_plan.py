"""The plan of the quickstart: how its minutes are shared out, from the measured time of each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.errors import plural
from unmask.runs.label_efficiency import COUNTS, Pace, steps

COMPARISONS: tuple[tuple[int, tuple[int, ...], int], ...] = (
    (3, COUNTS, 1_000),
    (2, COUNTS, 1_000),
    (2, COUNTS[:3], 1_000),
    (1, COUNTS[:3], 500),
    (1, COUNTS[:2], 300),
    (1, COUNTS[:1], 100),
)
"""(seeds, label counts, test sentences) that the comparison may have, the fullest first."""

SHARE = 0.5  # of the time that is left, at most, for the comparison
RESERVE = 0.06  # of all the time, for what is not measured: opening files, guesses, the page, a slower minute
OPENING = 10  # steps that a fine-tuning takes as long as, besides its own: the model is opened, its weights are kept
LEAST_SHARE, LEAST = 0.25, 45.0  # of all the time, and seconds: with less of both, pre-training shows nothing


@dataclass(frozen=True)
class Plan:
    """What the minutes of a quickstart are spent on; times in seconds.

    minutes      asked for
    spent        before the plan was made: building the corpus, measuring
    pretraining  of the whole run of pre-training
    comparison   of all fine-tunings, the reference, and the answers to the test sentences
    reserve      for the rest
    """

    minutes: float
    spent: float
    pretraining: float
    comparison: float
    reserve: float
    seeds: int
    counts: tuple[int, ...]
    sentences: int

    @property
    def seconds(self) -> float:
        """Of the whole quickstart."""
        return self.spent + self.pretraining + self.comparison + self.reserve

    @property
    def fits(self) -> bool:
        """Whether all of it is done within the minutes."""
        return self.seconds <= 60 * self.minutes * (1 + 1e-9)

    @property
    def notes(self) -> list[str]:
        """What a reader is to know of it, in sentences."""
        given = plural(self.minutes, "minute")
        found = [
            f"Of {given}, {_time(self.spent)} went into the corpus and measuring; pre-training has "
            f"{_time(self.pretraining)}, and the comparison about {_time(self.comparison)}."
        ]
        seeds, counts, _ = COMPARISONS[0]
        if (self.seeds, self.counts) != (seeds, counts):
            found.append(
                f"The comparison has {plural(self.seeds, 'seed')} and {plural(len(self.counts), 'label count')} in "
                f"place of {seeds} and {len(counts)}, for {given} allow no more on this machine."
            )
        if not self.fits:
            verb = "is" if self.minutes == 1 else "are"
            found.append(
                f"{given} {verb} too few on this machine: the least that shows anything takes about "
                f"{_time(self.seconds)}."
            )
        return found


def plan(minutes: float, spent: float, pace: Pace, labelled: int, tested: int) -> Plan:
    """The fullest comparison that takes no more than its share of the time left, and leaves enough of it for
    pre-training, which has all the rest.

    spent             seconds that are gone
    pace              of the parts of the comparison
    labelled, tested  sentences that there are

    Where not even the smallest comparison leaves enough for pre-training, the plan takes longer than the minutes.
    """
    whole = 60 * minutes
    least = min(LEAST_SHARE * whole, LEAST)
    reserve = RESERVE * whole
    left = whole - spent - reserve
    for seeds, counts, sentences in COMPARISONS:
        counts = tuple(count for count in counts if count <= labelled)
        sentences = min(sentences, tested)
        cost = comparison_seconds(pace, seeds, counts, sentences)
        if cost <= SHARE * left and left - cost >= least:
            break
    return Plan(minutes, spent, max(left - cost, least), cost, reserve, seeds, counts, sentences)


def comparison_seconds(pace: Pace, seeds: int, counts: Sequence[int], sentences: int) -> float:
    """Seconds of fine-tuning from both starts, of the reference, and of answering the test sentences."""
    runs = seeds * len(counts)
    tuned = 2 * seeds * sum(steps(count) for count in counts)
    return tuned * pace.step + runs * (2 * (OPENING * pace.step + sentences * pace.answer) + pace.lexical)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"
