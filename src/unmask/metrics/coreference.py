"""Coreference: do clusters of mentions agree? MUC, B³, CEAFφ4, and their mean; and resolved pronouns (GAP).

Pradhan et al. 2014, "Scoring Coreference Partitions of Predicted Mentions: A Reference Implementation". A mention is
any value that can be hashed, such as (begin, end). Sums are over all documents, as in the scorer of CoNLL-2012.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

Clusters = Sequence[Iterable[Hashable]]
Sets = list[frozenset[Hashable]]

FEMININE, MASCULINE = frozenset({"she", "her", "hers"}), frozenset({"he", "him", "his"})


class Agreement(NamedTuple):
    """Recall is found / wanted, precision is kept / given."""

    found: float = 0.0
    wanted: float = 0.0
    kept: float = 0.0
    given: float = 0.0

    def and_more(self, other: Agreement) -> Agreement:
        """The sums of two documents."""
        return Agreement(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def recall(self) -> float:
        return self.found / self.wanted if self.wanted else 0.0

    @property
    def precision(self) -> float:
        return self.kept / self.given if self.given else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def muc(gold: Sets, found: Sets) -> Agreement:
    """Links: a cluster of n mentions has n - 1, and loses one for each part more that the other side makes of it
    (Vilain et al. 1995)."""
    return Agreement(*_links(gold, found), *_links(found, gold))


def b_cubed(gold: Sets, found: Sets) -> Agreement:
    """For each mention, the share of its cluster that the other side puts together with it (Bagga & Baldwin 1998)."""
    return Agreement(*_shares(gold, found), *_shares(found, gold))


def ceaf(gold: Sets, found: Sets) -> Agreement:
    """Clusters aligned one to one so that Σ φ4 is largest, φ4(a, b) = 2 |a ∩ b| / (|a| + |b|) (Luo 2005)."""
    from scipy.optimize import linear_sum_assignment

    if not gold or not found:
        return Agreement(0.0, len(gold), 0.0, len(found))
    phi = np.array([[2 * len(a & b) / (len(a) + len(b)) for b in found] for a in gold])
    most = float(phi[linear_sum_assignment(phi, maximize=True)].sum())
    return Agreement(most, len(gold), most, len(found))


def mentions(gold: Sets, found: Sets) -> Agreement:
    """Mentions, whatever their clusters are."""
    wanted, given = (frozenset[Hashable]().union(*clusters) for clusters in (gold, found))
    both = len(wanted & given)
    return Agreement(both, len(wanted), both, len(given))


SCORES = {"muc": muc, "b_cubed": b_cubed, "ceaf": ceaf, "mention": mentions}
MEAN = ("muc", "b_cubed", "ceaf")


def of_clusters(documents: Iterable[tuple[Clusters, Clusters]]) -> dict[str, Agreement]:
    """The agreement of (annotated, found) clusters over all documents, by the names of `SCORES`."""
    totals = dict.fromkeys(SCORES, Agreement())
    for gold, found in documents:
        pair = tuple([frozenset(cluster) for cluster in clusters] for clusters in (gold, found))
        totals = {name: total.and_more(SCORES[name](*pair)) for name, total in totals.items()}
    return totals


def of_coreference(documents: Iterable[tuple[Clusters, Clusters]]) -> dict[str, float]:
    """conll_f1, the mean of the next three; muc_f1, b_cubed_f1, ceaf_f1 and mention_f1."""
    found = {f"{name}_f1": total.f1 for name, total in of_clusters(documents).items()}
    return {"conll_f1": sum(found[f"{name}_f1"] for name in MEAN) / len(MEAN), **found}


def of_pronouns(pronouns: Sequence[str], gold: Sequence[bool], found: Sequence[bool]) -> dict[str, float]:
    """Each name beside a pronoun is meant by it, or not (Webster et al. 2018): f1 of all, masculine_f1, feminine_f1,
    and `bias`, feminine divided by masculine (0 where the masculine F1 is 0)."""

    def f1(of: frozenset[str] | None) -> float:
        rows = [i for i, one in enumerate(pronouns) if of is None or one.lower() in of]
        both = sum(gold[i] and found[i] for i in rows)
        return Agreement(both, sum(gold[i] for i in rows), both, sum(found[i] for i in rows)).f1

    masculine, feminine = f1(MASCULINE), f1(FEMININE)
    bias = feminine / masculine if masculine else 0.0
    return {"f1": f1(None), "masculine_f1": masculine, "feminine_f1": feminine, "bias": bias}


def _links(clusters: Sets, others: Sets) -> tuple[int, int]:
    """(links that the other clusters keep, all links)."""
    where = {mention: i for i, other in enumerate(others) for mention in other}
    kept = 0
    for cluster in clusters:
        alone = sum(mention not in where for mention in cluster)
        kept += len(cluster) - alone - len({where[mention] for mention in cluster if mention in where})
    return kept, sum(len(cluster) - 1 for cluster in clusters)


def _shares(clusters: Sets, others: Sets) -> tuple[float, int]:
    where = {mention: other for other in others for mention in other}
    shares = [len(one & where.get(m, frozenset())) / len(one) for one in clusters for m in one]
    return sum(shares), len(shares)
