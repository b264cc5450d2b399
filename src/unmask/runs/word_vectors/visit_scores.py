"""Scores of vectors of codes: do near codes have one group, which codes does the next visit have, and which item was
left out of a basket?

Shapes: V codes, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from unmask.data.files.lines import lines
from unmask.errors import UnmaskError
from unmask.runs.word_vectors.vectors import WordVectors, largest

VECTORS, REPEATED, FREQUENT = "vectors", "the same codes, then frequent ones", "the most frequent ones"


@dataclass(frozen=True)
class Neighbours:
    """How many of the nearest codes share the group of a code.

    precision  mean share of the `top` nearest codes with the group of the code
    chance     the same of `top` codes drawn at random
    codes      number of codes with a vector and a group
    unknown    number of codes with a group, but without a vector
    """

    precision: float
    chance: float
    codes: int
    unknown: int


def groups_in(path: str | Path, encoding: str | None = None) -> dict[str, str]:
    """Code -> group, from a file with a code and its group a line. Raises UnmaskError for a line of another form."""
    found = {}
    for number, line in lines(Path(path), encoding=encoding):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2:
            raise UnmaskError(f"{path}:{number} must be a code and its group, separated by a space or a tab.")
        found[fields[0]] = fields[1]
    return found


def neighbours(vectors: WordVectors, groups: Mapping[str, str], top: int = 5) -> Neighbours:
    """Score the nearest codes by cosine, among the codes with a group. Raises UnmaskError for fewer than two codes with
    a vector and a group, and for fewer than `top` + 1."""
    words = [word for word in vectors.words if word in groups]
    if len(words) < max(2, top + 1) or top < 1:
        raise UnmaskError(f"{len(words)} codes have a vector and a group: too few for the {top} nearest ones.")
    unit_VD = vectors.unit([vectors.place(word) for word in words])
    cosines_VV = unit_VD @ unit_VD.T
    np.fill_diagonal(cosines_VV, -np.inf)
    names = np.array([groups[word] for word in words])
    same_VV = names[:, None] == names
    nearest = np.argsort(-cosines_VV, 1, kind="stable")[:, :top]
    chance = (same_VV.sum(1) - 1) / (len(words) - 1)
    precision = float(np.take_along_axis(same_VV, nearest, 1).mean())
    return Neighbours(precision, float(chance.mean()), len(words), len(groups) - len(words))


def next_visits(
    vectors: WordVectors, patients: Iterable[Sequence[Sequence[str]]], top: int = 10
) -> dict[str, dict[str, float]]:
    """Method -> the mean recall at `top` of the codes of the next visit (`all`), and of those that are not codes of the
    visit before (`new`), over all visits of all patients but their last ones (Choi et al. 2016, Med2Vec).

    The method `vectors` ranks the codes by their cosine with the mean of the unit vectors of the visit; the others are
    plain references: the codes of the visit again, then the most frequent ones; and the most frequent ones alone. For
    `new`, no code of the visit is ranked, so that the two references are the same. Codes without a vector are left
    out. Raises UnmaskError for patients without two successive visits with codes.
    """
    if top < 1:
        raise UnmaskError(f"The number of codes must be at least 1, not {top}.")
    unit_VD, index = vectors.unit(), {word: i for i, word in enumerate(vectors.words)}
    usual_V = np.linspace(0.5, 0, len(index))  # the words are in order of their frequency
    recalls: dict[str, dict[str, list[float]]] = {}
    for patient in patients:
        visits = [sorted({index[code] for code in visit if code in index}) for visit in patient]
        for now, then in pairwise(visits):
            if not now or not then:
                continue
            same_V = np.zeros(len(index))
            same_V[now] = 1.0
            methods = {VECTORS: unit_VD @ unit_VD[now].mean(0), REPEATED: usual_V + same_V, FREQUENT: usual_V}
            new = sorted(set(then) - set(now))
            for name, scores_V in methods.items():
                of_method = recalls.setdefault(name, {"all": [], "new": []})
                of_method["all"].append(_recall(scores_V, then, top))
                if new:
                    of_method["new"].append(_recall(np.where(same_V > 0, -np.inf, scores_V), new, top))
    if not recalls:
        raise UnmaskError("No patient has two successive visits with codes that have vectors.")
    return {
        name: {kind: float(np.mean(values)) for kind, values in found.items() if values}
        for name, found in recalls.items()
    }


def left_out(vectors: WordVectors, baskets: Iterable[Iterable[str]], top: int = 10) -> dict[str, dict[str, float]]:
    """Method -> the share of items among the first `top` (`hit`), and the mean of 1 / log2(1 + rank), 0 beyond `top`
    (`ndcg`), where each item of each basket in turn is left out and ranked, given the others (item2vec; Barkan &
    Koenigstein 2016).

    The methods `vectors` and the most frequent items are those of `next_visits`; the given items are not ranked. Items
    without a vector are left out. Raises UnmaskError without a basket of two items with vectors.
    """
    if top < 1:
        raise UnmaskError(f"The number of items must be at least 1, not {top}.")
    unit_VD, index = vectors.unit(), {word: i for i, word in enumerate(vectors.words)}
    usual_V = np.linspace(0.5, 0, len(index))
    gains: dict[str, list[float]] = {VECTORS: [], FREQUENT: []}
    for basket in baskets:
        places = sorted({index[item] for item in basket if item in index})
        if len(places) < 2:
            continue
        for wanted in places:
            given = [place for place in places if place != wanted]
            for name, scores_V in ((VECTORS, unit_VD @ unit_VD[given].mean(0)), (FREQUENT, usual_V.copy())):
                scores_V[given] = -np.inf
                rank = np.flatnonzero(largest(scores_V, top) == wanted)
                gains[name].append(1 / np.log2(2 + rank[0]) if len(rank) else 0.0)
    if not gains[VECTORS]:
        raise UnmaskError("No basket has two items with vectors.")
    return {name: {"hit": float(np.mean(np.array(of) > 0)), "ndcg": float(np.mean(of))} for name, of in gains.items()}


def _recall(scores_V: np.ndarray, wanted: Sequence[int], top: int) -> float:
    return len(set(largest(scores_V, top).tolist()) & set(wanted)) / len(wanted)
