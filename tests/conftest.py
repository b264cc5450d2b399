"""Settings for every test: one thread for each test process, and nothing is timed, since a busy machine is no defect."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # processes that each start a thread for every core wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings  # noqa: E402 (torch reads the number of threads when it is imported)

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
