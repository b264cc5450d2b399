"""Settings for every test: one thread a process, and nothing is timed, since a busy machine is no defect."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Processes that each start a thread for every core wait for one another; torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(params=["own", "imitated"])
def bf16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in bfloat16 as this processor has them, and as on one that has none."""
    if request.param == "imitated":
        monkeypatch.setattr("unmask.processor.library_has_bf16", lambda: False)


@pytest.fixture
def three_threads() -> Iterator[None]:
    """PyTorch has three threads, whatever the machine has, so that batches are computed side by side."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)
