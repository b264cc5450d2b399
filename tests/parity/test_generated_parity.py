"""Generated parity of every family: see generated.py.

The suite draws a few cases of each family, always the same. The long form draws new ones each time:

    python -m pytest -m slow tests/parity/test_generated_parity.py --draws 2000

draws 2000 of each family. A case that fails is printed as it can be pinned below.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from families import albert, bert, electra, mobilebert, roberta
from generated import Case, Family, cases, check
from hypothesis import HealthCheck, Phase, given, settings

FAMILIES = {module.FAMILY.name: module.FAMILY for module in (bert, roberta, albert, electra, mobilebert)}
DRAWS = 12  # of each family in the suite


def drawn(family: Family, number: int, *, always_the_same: bool) -> Counter[str]:
    """Check so many cases of a family. Returns how many came out which way."""
    came = Counter[str]()

    @settings(
        max_examples=number,
        derandomize=always_the_same,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(cases(family))
    def one(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            came[check(case, family, Path(folder))] += 1

    one()
    return came


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_the_reference_is_drawn_or_excused(name: str) -> None:
    family = FAMILIES[name]
    assert family.fields <= family.covered


@pytest.mark.parametrize("name", FAMILIES)
def test_a_few_configurations_are_equal_or_refused(name: str) -> None:
    came = drawn(FAMILIES[name], DRAWS, always_the_same=True)
    assert came["equal"] >= DRAWS // 2, came


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_many_configurations_are_equal_or_refused(name: str, draws: int) -> None:
    came = drawn(FAMILIES[name], draws, always_the_same=False)
    print(name, dict(came))  # shown by -s
    assert came["equal"] >= draws // 2, came
