"""Settings for every test: one thread a process, "auto" computes in float32 on every processor, and nothing is timed,
since a busy machine is no defect."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator

import pytest

# Processes that each start a thread for every core wait for one another; torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def exact() -> Iterator[pytest.MonkeyPatch]:
    """Numbers do not depend on the processor, unless a test asks for bfloat16 or for `by_processor`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.kernels.processor.fastest", lambda device: "fp32")
        yield patch


@pytest.fixture
def by_processor(exact: pytest.MonkeyPatch) -> Iterator[None]:
    """What is asked for as "auto" is what is fastest on the processor, or on that of `processor.abilities`."""
    exact.undo()
    yield
    exact.setattr("unmask.kernels.processor.fastest", lambda device: "fp32")


@pytest.fixture(params=["own", "imitated"])
def bf16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in bfloat16 as this processor has them, and as on one that has none."""
    if request.param == "imitated":
        monkeypatch.setattr("unmask.kernels.processor.library_has_bf16", lambda: False)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """The garbage collector passes over what is alive when a file begins: libraries, tests, what the session shares.

    Fine-tuning collects garbage after every seed, which would walk over millions of objects of other files each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def three_threads() -> Iterator[None]:
    """PyTorch has three threads, whatever the machine has, so that batches are computed side by side."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def one_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes that prepare data are forks of a server that has imported PyTorch once, for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unmask.data.parallel"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: context)
