"""Lets the tests of this folder import `finetune_toy`; a trunk and rows that they share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """(folder of a trunk, folder of rows)"""
    from finetune_toy import write_sets, write_trunk

    folder = tmp_path_factory.mktemp("toy")
    return write_trunk(folder / "trunk"), write_sets(folder / "rows")
