"""Coreference by string match: equal names, and pronouns by the nearest mention; no training."""

from __future__ import annotations

from collections.abc import Iterable

from unmask.data.labelled.rows import Clusters, Discourse, WordSpan

PRONOUNS = tuple(
    frozenset(words.split())
    for words in (
        "i me my mine myself",
        "you your yours yourself yourselves thou thee thy thine",
        "he him his himself",
        "she her hers herself",
        "it its itself",
        "we us our ours ourselves",
        "they them their theirs themselves",
    )
)
SPEAKERS = 2  # of these groups, the first: their first mention has no antecedent


def group_of(word: str) -> int | None:
    """The number of a pronoun's group in `PRONOUNS`; None for another word."""
    return next((i for i, words in enumerate(PRONOUNS) if word.lower() in words), None)


def mentions_in(row: Discourse) -> list[WordSpan]:
    """Pronouns, and runs of capitalised words. A word that begins a sentence counts as a name only if it is capitalised
    elsewhere too."""
    starts = set(row.starts)
    inner = {word for i, word in enumerate(row.words) if i not in starts and word[:1].isupper()}
    found: list[WordSpan] = []
    for i, word in enumerate(row.words):
        if group_of(word) is not None:
            found.append((i, i + 1))
        elif word[:1].isupper() and word in inner:
            follows = found and found[-1][1] == i and i not in starts and group_of(row.words[i - 1]) is None
            found.append((found.pop()[0] if follows else i, i + 1))
    return found


def string_match(row: Discourse, mentions: Iterable[WordSpan], *, singletons: bool = False) -> Clusters:
    """The clusters of some mentions. Equal strings, whatever their case, corefer, and pronouns of one group. The first
    pronoun of a group refers to the nearest mention before it that is no pronoun, except those of the speakers."""
    clusters: list[list[WordSpan]] = []
    of_key: dict[object, int] = {}
    nearest: int | None = None
    for begin, end in sorted(mentions):
        words = tuple(word.lower() for word in row.words[begin:end])
        group = group_of(words[0]) if len(words) == 1 else None
        key: object = words if group is None else group
        if key not in of_key:
            refers = nearest if group is not None and group >= SPEAKERS else None
            of_key[key] = len(clusters) if refers is None else refers
            if refers is None:
                clusters.append([])
        clusters[of_key[key]].append((begin, end))
        nearest = of_key[key] if group is None else nearest
    return tuple(tuple(cluster) for cluster in clusters if singletons or len(cluster) > 1)
