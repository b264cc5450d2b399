"""Sentinels: pieces such as <extra_id_0> that replace removed spans of a text (Raffel et al. 2020, 3.1.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping

SENTINELS = 100
"""Number of sentinels of a published T5; one less is the largest number of spans that can be removed."""
SENTINEL = re.compile(r"(<extra_id_[0-9]{1,4}>)")


def sentinel(number: int) -> str:
    """The piece that replaces the removed span of this number: <extra_id_0> …"""
    return f"<extra_id_{number}>"


def sentinel_ids(vocabulary: Mapping[str, int]) -> list[int]:
    """Ids of the sentinels of a vocabulary, that of <extra_id_0> first; empty if it has none."""
    ids: list[int] = []
    while (piece := sentinel(len(ids))) in vocabulary:
        ids.append(vocabulary[piece])
    return ids
