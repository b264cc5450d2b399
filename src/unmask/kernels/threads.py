"""a_thread_each: several batches at once, each computed by a thread of its own; short_turns: beside one that helps."""

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

TURN = 0.0005  # seconds; threads that all compute are slower for it
_POOLS: dict[int, ThreadPoolExecutor] = {}  # by their threads; all who call in this process share them
_LOCK = threading.Lock()  # of _POOLS
_CLOSED = threading.Event()
_JOB = threading.local()  # `left`: whether the caller of this thread's job has gone

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.clear)  # a process that is forked has none of the threads


def a_thread_each(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    device: torch.device | str = "cpu",
    *,
    most: int | None = None,
) -> Iterator[Result]:
    """`function(item)` of each item, in order: on a CPU as many at once as PyTorch has threads, each by one of them.

    Threads that share one small product wait for one another between any two; those that have a batch each do not. A
    single item has all threads, and elsewhere than on a CPU items come one after another. The function runs in the
    modes of the caller (gradients, inference, autocast) and must bear being called several times at once; where it
    takes long, it calls `go_on` now and then, so that it ends when the caller has gone, or whoever the caller works for
    (`until`).

    most  items at once, where that is fewer: what each of them holds in memory may matter
    """
    threads = workers(device) or 1
    at_once = min(threads, len(items), threads if most is None else most)
    if at_once < 2:
        return _one_by_one(function, items)
    ahead = 2 * threads if at_once == threads else at_once  # so that no thread waits for the order of the results
    return _ordered(_in_modes(function), items, ahead, _pool(threads))


def workers(device: torch.device | str) -> int | None:
    """Threads that can compute a batch each: those of PyTorch on a CPU. None for a device that computes one batch after
    the other."""
    return torch.get_num_threads() if torch.device(device).type == "cpu" else None


@contextmanager
def short_turns() -> Iterator[None]:
    """Within it, a thread that holds Python lets another one go on after half a millisecond, not after five.

    A step that learns asks for Python between any two of its operations, and the thread that prepares the next batch
    keeps it for as long as it may, which a small model feels (docs/log.md).
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def begin() -> None:
    """Begin the threads now, for a process that will have others: one that meets PyTorch for the first time while they
    begin would have a single thread for good."""
    if (threads := torch.get_num_threads()) > 1:
        _pool(threads)


@contextmanager
def until(left: Callable[[], bool]) -> Iterator[None]:
    """Within it, `go_on` raises CancelledError in this thread, and in those that work for it, once `left()` is true."""
    before = getattr(_JOB, "left", None)
    _JOB.left = left
    try:
        yield
    finally:
        _JOB.left = before


def go_on() -> None:
    """Raises CancelledError in a thread of the pool, or within `until`, once its caller has gone."""
    left: Callable[[], bool] | None = getattr(_JOB, "left", None)
    if left is not None and (_CLOSED.is_set() or left()):
        raise CancelledError


def close() -> None:
    """End what is under way, begin nothing that waits, and return when no thread is left; who waits for a result gets
    CancelledError. A later call begins with new threads."""
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
    """Results in order; no more than `ahead` items are handed to the pool, which others use as well."""
    left, under_way = threading.Event(), set[Future[Result]]()
    above: Callable[[], bool] | None = getattr(_JOB, "left", None)

    def run(item: Item) -> Result:
        _JOB.left = lambda: left.is_set() or (above is not None and above())
        go_on()
        return function(item)

    def submit(item: Item) -> Future[Result]:
        try:
            future = pool.submit(run, item)
        except RuntimeError:  # it was closed meanwhile
            raise CancelledError from None
        under_way.add(future)
        future.add_done_callback(under_way.discard)
        return future

    try:
        yield from in_order(submit, items, ahead)
    finally:
        left.set()
        wait(under_way.copy())  # what runs reads the model of the caller


def in_order(
    submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int
) -> Generator[Result, None, None]:
    """Results in the order of the items, at most `ahead` under way at a time. When the caller goes, items that have not
    begun are cancelled."""
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
            torch.set_num_threads(threads)  # threads of others would begin with what was set last, here by the pool
            _POOLS[threads] = pool
        return _POOLS[threads]


def _take_one() -> None:
    torch.get_num_threads()  # a thread takes what was set last when it is first asked, which may be later than this
    torch.set_num_threads(1)
    # The thread that leaves autocast for good forgets the weights in bfloat16: that is for the caller to do, not here.
    torch.autocast_increment_nesting()


def _in_modes(function: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The function in the modes of this thread, which PyTorch keeps for each thread apart."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(item: Item) -> Result:
        with ExitStack() as modes:
            modes.enter_context(torch.inference_mode(inference))
            modes.enter_context(torch.set_grad_enabled(gradients))
            modes.enter_context(torch.autocast("cpu", dtype, enabled=autocast))
            return function(item)

    return run
