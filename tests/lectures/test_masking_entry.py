"""What becomes of a masked token: the shares of the paper."""

from __future__ import annotations

import math

from unmask.runs.lectures import masking


def test_shares_are_those_of_the_paper():
    shown = masking.masking.show(True)
    [table] = shown.tables
    chosen = int(shown.finding.split("chosen in ")[1].split(":")[0].replace(",", ""))
    assert abs(chosen - 2_000 / 4) < 5 * math.sqrt(2_000 * 3 / 16)  # one of four tokens
    assert math.isclose(sum(row[3] for row in table.rows), 1)
    for _, example, share, expected in table.rows:
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / chosen)
        assert len(example.split()) == 4
    masked, random, same = (row[1] for row in table.rows)
    assert masked.split()[3] == "[MASK]"
    assert random.split()[3] not in ("[MASK]", "hairy")
    assert same.split()[3] == "hairy"
