"""The batcher: what waits together is answered together, the oldest first; who leaves leaves no trace."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.serve.http.batcher import Ask, Batcher, Full


class Seen:
    """An observer that remembers (requests, tokens) of each batch."""

    def __init__(self):
        self.batches = []

    def batch(self, requests, read, seconds):
        self.batches.append((requests, read))


class Gate:
    """Work that waits until it is let go, and remembers what it was given."""

    def __init__(self):
        self.free, self.begun, self.given = threading.Event(), threading.Event(), []

    def __call__(self, items):
        self.given.append(list(items))
        self.begun.set()
        assert self.free.wait(10)
        return [f"<{item}>" for item in items]


def batcher(seen=None, **changes):
    given = {"tokens": 10, "wait": 0.0, "room": 100, "patience": 1e9, "observer": seen or Seen()} | changes
    return Batcher(**given)


def ask(items, work, key="same", cost=None):
    return Ask(list(items), work, key, len(items), len(items) if cost is None else cost)


@pytest.fixture
def held():
    """A batcher whose thread is busy, and its gate."""
    gate, seen = Gate(), Seen()
    queue = batcher(seen)
    first = queue.submit(ask("0", gate))
    assert gate.begun.wait(10)
    yield queue, gate, seen, first
    gate.free.set()
    queue.close()


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_requests_that_wait_are_answered_in_one_batch(held):
    queue, gate, seen, first = held
    futures = [queue.submit(ask(items, gate)) for items in ("ab", "c", "def")]
    assert (queue.requests, queue.waiting) == (3, 6)
    gate.free.set()
    assert [future.result(10) for future in (first, *futures)] == [
        ["<0>"], ["<a>", "<b>"], ["<c>"], ["<d>", "<e>", "<f>"],
    ]  # fmt: skip
    assert gate.given == [["0"], list("abcdef")]
    wait_for(lambda: seen.batches == [(1, 1), (3, 6)])


def test_a_batch_has_one_key_and_so_many_tokens_the_oldest_first(held):
    queue, gate, _, _ = held
    asked = [("aa", "x", 4), ("b", "y", 1), ("cc", "x", 7), ("d", "x", 6), ("e", "x", 30), ("f", "y", 1)]
    futures = [queue.submit(ask(items, gate, key, cost)) for items, key, cost in asked]
    gate.free.set()
    for future in futures:
        future.result(10)
    # "cc" does not fit beside "aa", "d" does; "e" is larger than any batch and goes alone.
    assert ["".join(items) for items in gate.given] == ["0", "aad", "bf", "cc", "e"]


def test_who_leaves_while_waiting_is_not_answered_and_frees_the_room(held):
    queue, gate, seen, _ = held
    future, other = queue.submit(ask("a", gate, cost=90)), queue.submit(ask("b", gate))
    assert future.cancel()
    assert queue.waiting == 1
    gate.free.set()
    assert other.result(10) == ["<b>"]
    assert ["a"] not in gate.given
    wait_for(lambda: seen.batches == [(1, 1), (1, 1)])


def test_who_leaves_while_answered_harms_nobody(held):
    queue, gate, _, first = held
    assert not first.cancel()  # it is running
    gate.free.set()
    assert queue.submit(ask("z", gate)).result(10) == ["<z>"]


def test_a_full_queue_says_when_to_ask_again(held):
    queue, gate, _, _ = held
    queue.submit(ask("a", gate, cost=60))
    with pytest.raises(Full) as caught:
        queue.submit(ask("b", gate, cost=41))
    assert caught.value.seconds >= 1
    queue.submit(ask("c", gate, cost=40))


def test_a_request_as_large_as_the_room_passes_when_nothing_waits(held):
    queue, gate, _, _ = held
    future = queue.submit(ask("a", gate, cost=1_000))
    gate.free.set()
    assert future.result(10) == ["<a>"]


def test_what_would_wait_longer_than_its_patience_is_refused():
    gate = Gate()
    queue = batcher(room=10**9, patience=2.0)
    queue.speed = 100.0  # tokens a second
    futures = [queue.submit(ask("a", gate, cost=150))]
    assert gate.begun.wait(10)
    futures.append(queue.submit(ask("b", gate, cost=60)))  # 1.5 s are before it
    with pytest.raises(Full) as caught:  # 2.1 s
        queue.submit(ask("c", gate, cost=1))
    assert caught.value.seconds == 2
    gate.free.set()
    assert [future.result(10) for future in futures] == [["<a>"], ["<b>"]]
    queue.close()


def test_one_that_fails_fails_alone():
    def work(items):
        if "bad" in items:
            raise UnmaskError("Text 1 is bad.")
        return items

    queue = batcher(wait=0.2, tokens=100)
    futures = [queue.submit(ask([item], work)) for item in ("a", "bad", "b")]
    assert futures[0].result(10) == ["a"]
    assert futures[2].result(10) == ["b"]
    with pytest.raises(UnmaskError, match="Text 1 is bad"):
        futures[1].result(10)
    queue.close()


def test_a_full_batch_does_not_wait():
    queue = batcher(wait=30.0)
    futures = [queue.submit(ask("abcde", lambda items: items)) for _ in range(2)]
    assert [future.result(10) for future in futures] == [list("abcde")] * 2
    queue.close()


def test_a_closed_batcher_finishes_and_its_thread_ends(held):
    queue, gate, _, _ = held
    future = queue.submit(ask("a", gate))
    queue.close()
    gate.free.set()
    assert future.result(10) == ["<a>"]
    queue._thread.join(10)
    assert not queue._thread.is_alive()


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(), min_size=1, max_size=4), st.sampled_from("xy"), st.integers(1, 12), st.booleans()
        ),
        max_size=20,
    )
)
def test_everyone_gets_the_answers_to_what_he_asked(asked):
    batches = []

    def work(items):
        batches.append(items)
        return [item + 1 for item in items]

    queue = batcher(room=10**9)
    futures = []
    for items, key, cost, leaves in asked:
        future = queue.submit(ask(items, work, key, cost))
        futures.append((future, leaves and future.cancel()))
    for (future, gone), (items, *_) in zip(futures, asked, strict=True):
        assert gone or future.result(10) == [item + 1 for item in items]
    wait_for(lambda: queue.requests == 0)
    queue.close()
