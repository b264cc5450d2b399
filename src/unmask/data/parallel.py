"""Results in order from a background thread or a pool of processes, with bounded look-ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from unmask.errors import UnmaskError
from unmask.kernels.threads import in_order

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, *, ahead: int = 1
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    workers  0: one background thread of this process; N: a pool of N new processes. The function is sent to each of
             them once; like the items and the results, it must be picklable
    ahead    number of results that are prepared in advance, in addition to one for each worker

    Raises the errors of the function, and UnmaskError if a worker process dies.
    """
    pool, call = _pool(function, workers)
    try:
        yield from in_order(lambda item: pool.submit(call, item), items, max(workers, 1) + ahead)
    except BrokenProcessPool:
        raise UnmaskError(
            "A worker process ended unexpectedly, most likely because memory ran out; use fewer workers, or 0."
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _pool(function: Callable[[Item], Result], workers: int) -> tuple[Executor, Callable[[Item], Result]]:
    if workers == 0:
        return ThreadPoolExecutor(1), function
    # New processes instead of forks: a fork of a process with threads (torch, tokenizers) can hang.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, _begin, (function,)), _call


_function: Callable[[Any], Any]  # the function of this worker process


def _begin(function: Callable[[Any], Any]) -> None:
    """Prepare a worker process. It ignores signals, because its parent may want to shut down in order, and exits when
    its parent ends for any reason. It uses one thread, because the processes share the cores."""
    global _function
    _function = function
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    return _function(item)
