"""Significance of translation scores: confidence intervals and paired tests by bootstrap resampling, like sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unmask.errors import UnmaskError
from unmask.metrics.hypotheses import References, Texts
from unmask.metrics.translation import BLEU, Metric, Score, score


@dataclass(frozen=True)
class Comparison:
    """The scores of two systems on the same sentences, and the p-value of their difference if both are equally good."""

    baseline: Score
    system: Score
    p_value: float

    @property
    def difference(self) -> float:
        """The gain of the system over the baseline, in points."""
        return self.system.value - self.baseline.value

    def __str__(self) -> str:
        return f"{self.difference:+.2f} {self.system.name} (p = {self.p_value:.3f}): {self.baseline} -> {self.system}"


def confidence_interval(
    hypotheses: Sequence[str],
    references: References,
    metric: Metric = BLEU,
    *,
    trials: int = 1000,
    seed: int = 12345,
    force: bool = False,
) -> Score:
    """The score with a 95 % confidence interval by bootstrap resampling (Koehn 2004).

    trials, seed  number of samples of the sentences, drawn with replacement, and the seed of the generator. The
                  signature has both, and the results equal those of sacrebleu

    `details` of the result has "mean", "low", "high" and "margin" (half of high - low): sacrebleu prints mean ± margin.
    Raises UnmaskError as `bleu` does, and for fewer than one trial.
    """
    texts = Texts.of(hypotheses, references, force=force)
    metric = metric.resolve(texts)
    scores = np.sort(_resampled([texts], metric, trials, seed)[0])
    low, high = float(scores[trials // 40]), float(scores[trials - trials // 40 - 1])
    interval = {"mean": float(scores.mean()), "low": low, "high": high, "margin": (high - low) / 2}
    found = score(texts, metric, bs=trials, seed=seed)
    return replace(found, details={**found.details, **interval})


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: References,
    metric: Metric = BLEU,
    *,
    trials: int = 1000,
    seed: int = 12345,
    force: bool = False,
) -> Comparison:
    """Test whether the system differs from the baseline by more than chance on these sentences (Koehn 2004).

    The same sentences are drawn for both systems, `trials` times. The p-value is the share of trials in which the
    absolute difference exceeds its mean by more than the observed difference, as in sacrebleu; 1 if the scores are
    equal. It does not cover the variation between training runs: for that, train with several seeds.

    Raises UnmaskError as `bleu` does, and for fewer than one trial.
    """
    both = [Texts.of(baseline, references, force=force), Texts.of(system, references, force=force)]
    metric = metric.resolve(both[0])
    before, after = (score(texts, metric, bs=trials, seed=seed) for texts in both)
    observed = abs(after.value - before.value)
    if not observed:
        return Comparison(before, after, 1.0)
    of_baseline, of_system = _resampled(both, metric, trials, seed)
    differences = np.abs(of_system - of_baseline)
    beyond = int((differences - differences.mean() > observed).sum())
    return Comparison(before, after, (beyond + 1) / (trials + 1))


def _resampled(systems: Sequence[Texts], metric: Metric, trials: int, seed: int) -> np.ndarray:
    """Scores [systems, trials] of sentences drawn with replacement, the same sentences for every system."""
    if trials < 1:
        raise UnmaskError(f"Resampling needs at least 1 trial, not {trials}; 1000 are usual.")
    rng = np.random.default_rng(seed)
    scorer = metric.scorer()
    # Counts of each sentence [N, K], whose sums determine the score. sacrebleu has no public function for them.
    counts = [np.array(scorer._extract_corpus_statistics(t.hypotheses, t.streams), dtype=np.float64) for t in systems]
    scores = np.empty((len(systems), trials))
    for trial in range(trials):
        drawn = rng.choice(len(counts[0]), size=len(counts[0]))
        scores[:, trial] = [scorer._compute_score_from_stats(one[drawn].sum(axis=0)).score for one in counts]
    return scores
