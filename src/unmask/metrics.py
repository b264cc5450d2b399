"""Metrics of the field: accuracy, F1 and MCC of classes, correlations of scores, entities of tagged sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

PREFIXES = frozenset("BIESLU")
"""Begin, Inside, End or Last, Single or Unit: what stands before the dash of a tag in IOB1, IOB2, IOBES and BILOU."""


def of_classes(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """accuracy, macro F1 and Matthews' correlation of class ids [N]; with two classes, f1 of the second as well."""
    from sklearn.metrics import f1_score, matthews_corrcoef

    ids = list(range(len(labels)))
    found = {"accuracy": float((predicted == true).mean())}
    if len(labels) == 2:
        found["f1"] = float(f1_score(true, predicted, labels=[1], average="macro", zero_division=0))
    found["macro_f1"] = float(f1_score(true, predicted, labels=ids, average="macro", zero_division=0))
    varied = len({*true.tolist(), *predicted.tolist()}) > 1
    found["mcc"] = float(matthews_corrcoef(true, predicted)) if varied else 0.0
    return found


def per_class(predicted: np.ndarray, true: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Label -> precision, recall, f1, and support: the number of rows that bear it."""
    from sklearn.metrics import precision_recall_fscore_support

    ids = list(range(len(labels)))
    columns = precision_recall_fscore_support(true, predicted, labels=ids, zero_division=0)
    names = ("precision", "recall", "f1", "support")
    return {
        label: {name: float(c[i]) for name, c in zip(names, columns, strict=True)} for i, label in enumerate(labels)
    }


def of_scores(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation, and the root mean squared error, of scores [N].

    A correlation that does not exist, because one side is constant, is 0.
    """
    from scipy.stats import pearsonr, spearmanr

    varied = len(true) > 1 and np.ptp(predicted) > 0 and np.ptp(true) > 0
    return {
        "pearson": float(pearsonr(predicted, true).statistic) if varied else 0.0,
        "spearman": float(spearmanr(predicted, true).statistic) if varied else 0.0,
        "rmse": float(np.sqrt(np.mean((predicted - true) ** 2))),
    }


def of_tags(
    predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Word accuracy, and precision, recall and F1 of what is tagged in sentences.

    Where the tags are of the IOB kind, whole entities are counted, as conlleval does (Tjong Kim Sang & De Meulder
    2003). Otherwise words are, of every class but `outside`; where no class is that, accuracy alone is given.
    """
    predicted, true = list(predicted), list(true)
    pairs = [(p, t) for ps, ts in zip(predicted, true, strict=True) for p, t in zip(ps, ts, strict=True)]
    found = {"accuracy": sum(p == t for p, t in pairs) / max(1, len(pairs))}
    if are_iob(labels):
        guesses, facts = (_numbered(map(spans, sentences)) for sentences in (predicted, true))
        return {**_f1(len(guesses & facts), len(guesses), len(facts)), **found}
    rest = outside(labels)
    if rest is None:
        return found
    right = sum(p == t != rest for p, t in pairs)
    return {**_f1(right, sum(p != rest for p, _ in pairs), sum(t != rest for _, t in pairs)), **found}


def per_tag(
    predicted: Iterable[Sequence[str]], true: Iterable[Sequence[str]], labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Kind of entity, or tag, -> precision, recall, f1 and support."""
    cut = spans if are_iob(labels) else words_as_spans
    guesses, facts = (_numbered(map(cut, sentences)) for sentences in (predicted, true))
    right, guessed, support = (Counter(kind for *_, kind in found) for found in (guesses & facts, guesses, facts))
    kinds = sorted({*guessed, *support})
    return {kind: {**_f1(right[kind], guessed[kind], support[kind]), "support": support[kind]} for kind in kinds}


def are_iob(labels: Sequence[str]) -> bool:
    """Whether tags mark the begin and inside of entities: O, B-PER, I-PER and the like."""
    inside = [label for label in labels if label != "O"]
    return bool(inside) and all(label[:1] in PREFIXES and label[1:2] == "-" for label in inside)


def outside(labels: Sequence[str]) -> str | None:
    """The tag of words that are nothing special: "O", or the first of two."""
    return "O" if "O" in labels else labels[0] if len(labels) == 2 else None


def spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """(begin, end, kind) of the entities in the tags of a sentence; `end` is exclusive.

    An entity ends before O, B or S, before another kind, and after E or S; anything else but O begins or goes on
    with one. So IOB1, IOB2, IOBES and BILOU are read alike, and a stray I begins an entity, as in conlleval.
    """
    found = []
    begin, kind, last = -1, "", "O"
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, this = tag.partition("-")
        if begin >= 0 and (prefix in "OBSU" or this != kind or last in "ESLU"):
            found.append((begin, i, kind))
            begin = -1
        if begin < 0 and prefix != "O":
            begin, kind = i, this
        last = prefix
    return found


def words_as_spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Every word as an entity of its own tag."""
    return [(i, i + 1, tag) for i, tag in enumerate(tags)]


def _numbered(sentences: Iterable[list[tuple[int, int, str]]]) -> set[tuple[int, int, int, str]]:
    return {(i, *span) for i, found in enumerate(sentences) for span in found}


def _f1(right: int, guessed: int, true: int) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, guessed + true),
        "precision": right / max(1, guessed),
        "recall": right / max(1, true),
    }
