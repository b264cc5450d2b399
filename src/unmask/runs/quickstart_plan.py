"""The plan of the quickstart: how its minutes are divided, by the measured time of each part."""

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
"""Possible comparisons as (seeds, label counts, test sentences), the largest first."""

SHARE = 0.5  # most of the remaining time that the comparison may take
RESERVE = 0.06  # share of all time for what is not measured: opening files, predictions, the report, a slower minute
OPENING = 10  # overhead of a fine-tuning run in steps: opening the model and keeping its weights
LEAST_SHARE, LEAST = 0.25, 45.0  # least share of all time, and least seconds; the smaller is the least for pre-training


@dataclass(frozen=True)
class Plan:
    """How the minutes of a quickstart are spent; times in seconds.

    minutes      given minutes
    spent        time before the plan: building the corpus, measuring
    pretraining  time of the whole pre-training run
    comparison   time of all fine-tuning runs, the reference, and the predictions of the test sentences
    reserve      time for the rest
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
        """Seconds of the whole quickstart."""
        return self.spent + self.pretraining + self.comparison + self.reserve

    @property
    def fits(self) -> bool:
        """Whether the whole quickstart takes no longer than the given minutes."""
        return self.seconds <= 60 * self.minutes * (1 + 1e-9)

    @property
    def notes(self) -> list[str]:
        """Sentences on the plan for readers of the report."""
        given = plural(self.minutes, "minute")
        found = [
            f"Of {given}, the corpus and measuring took {_time(self.spent)}; pre-training has "
            f"{_time(self.pretraining)}, and the comparison about {_time(self.comparison)}."
        ]
        seeds, counts, _ = COMPARISONS[0]
        if (self.seeds, self.counts) != (seeds, counts):
            found.append(
                f"The comparison has {plural(self.seeds, 'seed')} and {plural(len(self.counts), 'label count')} "
                f"instead of {seeds} and {len(counts)}, because {given} allow no more on this machine."
            )
        if not self.fits:
            verb = "is" if self.minutes == 1 else "are"
            found.append(
                f"{given} {verb} too few on this machine: the shortest useful quickstart takes about "
                f"{_time(self.seconds)}."
            )
        return found


def plan(minutes: float, spent: float, pace: Pace, labelled: int, tested: int) -> Plan:
    """Choose the largest comparison that takes at most its share of the remaining time and leaves enough time for
    pre-training. Pre-training gets all the rest.

    minutes           minutes of the whole quickstart
    spent             seconds since the start
    pace              times of the parts of the comparison
    labelled, tested  number of labelled sentences and of test sentences

    If even the smallest comparison leaves too little time for pre-training, the plan takes longer than `minutes`.
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
    """Seconds of fine-tuning from both starts, of the reference, and of predicting the test sentences."""
    runs = seeds * len(counts)
    tuned = 2 * seeds * sum(steps(count) for count in counts)
    return tuned * pace.step + runs * (2 * (OPENING * pace.step + sentences * pace.answer) + pace.lexical)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"
