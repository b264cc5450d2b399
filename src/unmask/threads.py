"""a_thread_each: several batches at once, each computed by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def a_thread_each(
    function: Callable[[Item], Result], items: Sequence[Item], device: torch.device | str = "cpu"
) -> Iterator[Result]:
    """`function(item)` of each item, in order: on a CPU as many at once as PyTorch has threads, each by one of them.

    Threads that share one small product wait for one another between any two; those that have a batch each do not. A
    single item has all threads, and elsewhere than on a CPU items come one after another. The function runs in the
    modes of the caller (gradients, inference, autocast) and must bear being called several times at once.
    """
    threads = torch.get_num_threads()
    if len(items) < 2 or threads < 2 or torch.device(device).type != "cpu":
        return map(function, items)
    return _pool(threads).map(_in_modes(function), items)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """As many threads, in each of which PyTorch has one; all who call in this process share them."""
    pool = ThreadPoolExecutor(threads, "a-thread-each", initializer=_take_one)
    all_begun = threading.Barrier(threads)
    wait([pool.submit(all_begun.wait) for _ in range(threads)])
    torch.set_num_threads(threads)  # what was set last, here by the pool, is what threads of others would begin with
    return pool


def _take_one() -> None:
    torch.get_num_threads()  # a thread takes what was set last when it is first asked, which may be later than this
    torch.set_num_threads(1)


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
