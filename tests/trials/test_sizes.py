"""What a newcomer adds stays small: each trial is one file of at most 80 lines."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRIALS = [path for path in sorted(HERE.glob("*.py")) if not path.name.startswith(("test_", "conftest"))]


@pytest.mark.parametrize("path", TRIALS, ids=lambda path: path.name)
def test_a_trial_is_small(path):
    assert len(TRIALS) >= 4
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
