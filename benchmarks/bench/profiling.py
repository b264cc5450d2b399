"""Profile of a turn: the share of each kind of operation in its time, for `make bench ARGS=--profile`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from bench.common import Result

MARK = "bench: mark"
LEAST = 0.01  # share of the time below which a kind is not named
BUSY = 0.1  # share of the time that a thread must compute to be counted
BETWEEN = "between operations"
OTHERS = "other operations"
KINDS = {
    "products": "mm addmm linear linear_pointwise mkldnn_linear convolution mkldnn_convolution",
    "products of attention": "bmm baddbmm scaled_dot_product_flash_attention_for_cpu "
    "scaled_dot_product_flash_attention_for_cpu_backward",
    "softmax": "softmax softmax_backward_data log_softmax log_softmax_backward_data",
    "activations": "gelu gelu_backward relu threshold_backward silu silu_backward tanh sigmoid",
    "norms": "native_layer_norm native_layer_norm_backward",
    "random numbers": "random uniform normal bernoulli exponential randint randperm",
    "copies": "copy cat index index_select index_put_impl gather scatter embedding",
    "filling": "fill zero",
    "update": "fused_adamw linalg_vector_norm",
    "sums, masks and the like": "add sub mul div addcmul sum mean exp log pow clamp clamp_min where ge gt le lt eq ne "
    "masked_fill bitwise_and bitwise_right_shift embedding_dense_backward max amax min amin topk sort argmax cumsum "
    "tril neg rsqrt sqrt",
}
"""Kind -> operations of PyTorch, without leading and trailing underscores."""

_KIND = {name: kind for kind, names in KINDS.items() for name in names.split()}
_numbers = count()
_counted: list[int] = []  # the numbers of the two marks of the turn of this process


def mark() -> int:
    """Record a mark at this moment, and return its number."""
    from torch.profiler import record_function

    with record_function(MARK):
        return next(_numbers)


def between(first: int, last: int) -> None:
    """Declare the timed part of the turn: from the mark `first` to the mark `last`."""
    _counted[:] = first, last


@contextmanager
def counted() -> Iterator[None]:
    """Declare the body as the timed part of the turn."""
    first = mark()
    yield
    between(first, mark())


def profiled(turn: Callable[[], Result]) -> Result:
    """The result of a turn, with `where`: kind of operation -> its share of the timed part, the largest first. Threads
    of Python count separately, so that waiting for another thread is `BETWEEN`."""
    from torch._C._profiler import _ExperimentalConfig  # the only way to see all threads
    from torch.profiler import ProfilerActivity, profile

    numbered = next(_numbers) + 1
    with profile(
        activities=[ProfilerActivity.CPU], experimental_config=_ExperimentalConfig(profile_all_threads=True)
    ) as seen:
        result = turn()
    events = [
        Event(event.name, event.thread, event.time_range.start, event.self_cpu_time_total) for event in seen.events()
    ]
    first, last = (number - numbered for number in _counted)
    return {**result, "where": shares(events, first, last)}


class Event(NamedTuple):
    """An operation: its thread, its start, and its duration without nested operations, in microseconds."""

    name: str
    thread: int
    began: float
    took: float


def shares(events: list[Event], first: int, last: int) -> dict[str, float]:
    """Kind -> its share of the time between two marks, numbered in order of time. Threads that compute for less than a
    tenth of this time, such as one that prepares batches, are left out."""
    marks = sorted(event.began for event in events if event.name == MARK)
    begins, ends = marks[first], marks[last]
    within = [event for event in events if event.name != MARK and begins <= event.began < ends]
    busy: dict[int, float] = defaultdict(float)
    for event in within:
        busy[event.thread] += event.took
    threads = {thread for thread, spent in busy.items() if spent >= BUSY * (ends - begins)} or set(busy)
    took: dict[str, float] = defaultdict(float)
    for event in within:
        if event.thread in threads:
            took[kind_of(event.name)] += event.took
    whole = (ends - begins) * max(1, len(threads))
    took[BETWEEN] = max(0.0, whole - sum(spent for kind, spent in took.items() if kind != BETWEEN))
    return {kind: took[kind] / whole for kind in sorted(took, key=lambda kind: -took[kind])}


def kind_of(name: str) -> str:
    """The kind of an operation by its name: "aten::_softmax" is a softmax. Events that are not operations of PyTorch,
    such as the backward of a Python function, are `BETWEEN`."""
    if name.startswith("Optimizer."):
        return "update"
    own = name.partition("::")[2]
    if not own:
        return BETWEEN
    if own.startswith("_foreach"):
        return "update"
    return _KIND.get(own.strip("_"), OTHERS)


def sentence(found: Mapping[str, Any]) -> str:
    """The shares of a turn as a sentence, without the smallest."""
    named = {kind: share for kind, share in found.items() if share >= LEAST and kind != OTHERS}
    rest = 1 - sum(named.values())
    parts = [f"{kind} {share:.0%}" for kind, share in named.items()] + ([f"others {rest:.0%}"] if rest >= 0.005 else [])
    return f"Where the time of unmask goes, in a turn under PyTorch's profiler: {', '.join(parts)}."
