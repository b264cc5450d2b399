"""Sentinels: pieces such as <extra_id_0> that stand for what was cut out of a text (Raffel et al. 2020, 3.1.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping

SENTINELS = 100
"""Sentinels of a published T5: as many places of a text can be cut out, less one."""
SENTINEL = re.compile(r"(<extra_id_[0-9]{1,4}>)")


def sentinel(number: int) -> str:
    """The piece that stands for the span of this number that was cut out of a text: <extra_id_0> …"""
    return f"<extra_id_{number}>"


def sentinel_ids(vocabulary: Mapping[str, int]) -> list[int]:
    """Ids of the sentinels of a vocabulary, that of <extra_id_0> first; there may be none."""
    ids: list[int] = []
    while (piece := sentinel(len(ids))) in vocabulary:
        ids.append(vocabulary[piece])
    return ids
