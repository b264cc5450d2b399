"""The verdicts of the soak: slow clients, growing memory and broken answers are told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
from serve_toy import serving

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import soak


def found(**changes):
    memory = {"before": 500.0, "after": 500.0, "slope": 0.0, "error": 0.1}
    fine = {"statuses": {"200": 9, "429": 9}, "capacity": 10.0, "wanted": 20.0, "sent": 20.0, "lag": 0.01, "minutes": 2}
    return {**fine, "memory": memory, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sent": 11.0}, "sent 1.10 times the capacity, not 2 times"),
        ({"lag": 3.0}, "up to 3.00 s late"),
        ({"statuses": {"200": 1, "503": 2}}, "Other answers than 200 and 429 came: 503."),
        (
            {"memory": {"before": 585.0, "after": 700.0, "slope": 64.0, "error": 9.0}},
            "Memory grew by 64.0 MiB a minute",
        ),
    ],
)
def test_what_does_not_hold_is_told(changes, words):
    assert soak.verdicts(found()) == []
    [sentence] = soak.verdicts(found(**changes))
    assert words in sentence


def test_memory_is_a_line_after_the_beginning():
    looks = [(float(second), 300.0 + min(second, 40)) for second in range(100)]
    flat = soak.grown(looks, 40.0)
    assert flat["slope"] == pytest.approx(0, abs=1e-6)
    rising = soak.grown([(at, size + at) for at, size in looks], 40.0)
    assert rising["slope"] == pytest.approx(60)
    assert soak.verdicts(found(memory=rising))
    assert not soak.verdicts(found(memory={"before": 300.0, "after": 302.0, "slope": 9.0, "error": 20.0}))


def test_the_load_is_what_it_says(models):
    with serving(models.classifier) as served:
        load = soak.Load(str(served.http.base_url), 0)

        async def asked():
            assert await load.closed(0.1) > 0
            return await load.steady(40.0, 0.5)

        assert asyncio.run(asked()) == pytest.approx(40, rel=0.5)
        assert sum(load.statuses.values()) == len(load.lags) == 20
        assert load.statuses["200"] == len(load.seconds) == 20
