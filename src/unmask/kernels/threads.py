"""Threads: a_thread_each computes several batches at once, one in each thread; short_turns shortens the switch interval
of Python while another thread prepares batches."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

TURN = 0.0005  # seconds; it slows down threads that all compute
_POOLS: dict[int, ThreadPoolExecutor] = {}  # by number of threads; all callers in this process share them
_LOCK = threading.Lock()  # guards _POOLS
_CLOSED = threading.Event()
_JOB = threading.local()  # `left`: whether the caller of this thread's job has gone

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)  # a forked process has none of the threads


def a_thread_each(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    device: torch.device | str = "cpu",
    *,
    most: int | None = None,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order. On a CPU, as many items as PyTorch has threads run at once, each
    in one thread.

    Threads that share small products wait for each other after every product; threads with a batch each do not. A
    single item uses all threads, and on other devices items run one after another. The function runs in the modes of
    the caller (gradients, inference, autocast) and must be safe to call from several threads at once. A long function
    calls `go_on` from time to time, so that it ends when the caller, or the caller's own client (`until`), has gone.

    most  maximum number of items at once, to limit memory
    """
    threads = workers(device) or 1
    at_once = min(threads, len(items), threads if most is None else most)
    if at_once < 2:
        return _one_by_one(function, items)
    ahead = 2 * threads if at_once == threads else at_once  # so that no thread waits for results to be taken in order
    return _ordered(_in_modes(function), items, ahead, _pool(threads))


def workers(device: torch.device | str) -> int | None:
    """Number of threads that can each compute a batch: those of PyTorch on a CPU. None for a device that computes one
    batch after another."""
    return torch.get_num_threads() if torch.device(device).type == "cpu" else None


@contextmanager
def short_turns() -> Iterator[None]:
    """Set Python's switch interval to half a millisecond instead of five, within the block.

    A training step needs Python's lock between any two operations, and the thread that prepares the next batch holds
    the lock for a whole interval, which slows down a small model (docs/log.md).
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def begin() -> None:
    """Start the threads now, in a process that will start others: a thread that first uses PyTorch while the pool
    starts would keep a single compute thread for ever."""
    if (threads := torch.get_num_threads()) > 1:
        _pool(threads)


@contextmanager
def until(left: Callable[[], bool]) -> Iterator[None]:
    """Within the block, `go_on` raises CancelledError once `left()` is true, in this thread and in its workers."""
    before = getattr(_JOB, "left", None)
    _JOB.left = left
    try:
        yield
    finally:
        _JOB.left = before


def go_on() -> None:
    """Raises CancelledError once the caller has gone, in a thread of the pool or within `until`."""
    left: Callable[[], bool] | None = getattr(_JOB, "left", None)
    if left is not None and (_CLOSED.is_set() or left()):
        raise CancelledError


def close() -> None:
    """Cancel running and waiting jobs, and return when all threads have ended. Callers that wait for a result get
    CancelledError. A later call of `a_thread_each` starts new threads."""
    with _LOCK:
        _CLOSED.set()
        for pool in _POOLS.values():
            pool.shutdown(cancel_futures=True)
        _POOLS.clear()
        _CLOSED.clear()


def _one_by_one(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    for item in items:
        go_on()
        yield function(item)


def _ordered(
    function: Callable[[Item], Result], items: Sequence[Item], ahead: int, pool: ThreadPoolExecutor
) -> Iterator[Result]:
    """Results in order; at most `ahead` items are in the pool at a time, because other callers share it."""
    left, under_way = threading.Event(), set[Future[Result]]()
    above: Callable[[], bool] | None = getattr(_JOB, "left", None)

    def run(item: Item) -> Result:
        _JOB.left = lambda: left.is_set() or (above is not None and above())
        go_on()
        return function(item)

    def submit(item: Item) -> Future[Result]:
        try:
            future = pool.submit(run, item)
        except RuntimeError:  # the pool was closed meanwhile
            raise CancelledError from None
        under_way.add(future)
        future.add_done_callback(under_way.discard)
        return future

    try:
        yield from in_order(submit, items, ahead)
    finally:
        left.set()
        wait(under_way.copy())  # running jobs read the caller's model


def in_order(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int
) -> Generator[Result, None, None]:
    """Results in the order of the items, with at most `ahead` items running or waiting at a time. When the caller stops
    the iteration, items that have not started are cancelled."""
    under_way: deque[Future[Result]] = deque()
    try:
        for item in items:
            under_way.append(submit(item))
            if len(under_way) == ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def _pool(threads: int) -> ThreadPoolExecutor:
    """A pool of `threads` threads, each with one thread of PyTorch."""
    with _LOCK:
        if threads not in _POOLS:
            pool = ThreadPoolExecutor(threads, "a-thread-each", initializer=_take_one)
            all_begun = threading.Barrier(threads, timeout=60)
            wait([pool.submit(all_begun.wait) for _ in range(threads)])
            torch.set_num_threads(threads)  # new threads take the number that was set last, here by the pool
            _POOLS[threads] = pool
        return _POOLS[threads]


def _take_one() -> None:
    torch.get_num_threads()  # a thread's first call takes the number that was set last; it must precede the next line
    torch.set_num_threads(1)
    # A thread that leaves the outermost autocast clears the cached bfloat16 weights, which the caller still needs.
    torch.autocast_increment_nesting()


def _in_modes(function: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The function, wrapped in the modes of this thread: PyTorch has separate modes for each thread."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(item: Item) -> Result:
        with ExitStack() as modes:
            modes.enter_context(torch.inference_mode(inference))
            modes.enter_context(torch.set_grad_enabled(gradients))
            modes.enter_context(torch.autocast("cpu", dtype, enabled=autocast))
            return function(item)

    return run
