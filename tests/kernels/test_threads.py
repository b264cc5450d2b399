"""Batches side by side: in order, each by one thread, in the modes of the caller; and what comes of it is the same."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import CancelledError

import pytest
import torch

from unmask.kernels.threads import TURN, a_thread_each, begin, close, go_on, short_turns


def modes(_: int) -> tuple[bool, bool, bool, torch.dtype]:
    return (
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
    )


@pytest.mark.usefixtures("three_threads")
def test_results_come_in_order_from_several_threads_at_once() -> None:
    at_once = threading.Barrier(3, timeout=60)  # breaks where fewer than three are under way

    def double(item: int) -> tuple[int, int]:
        at_once.wait()
        return 2 * item, torch.get_num_threads()

    assert list(a_thread_each(double, range(9))) == [(2 * item, 1) for item in range(9)]


@pytest.mark.usefixtures("three_threads")
def test_others_keep_their_threads() -> None:
    """PyTorch gives a new thread the number that was set last, wherever that was."""
    close()
    begin()
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert (torch.get_num_threads(), later) == (3, [3])


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_modes_are_those_of_the_caller(mode: type, autocast: bool) -> None:
    with mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        assert set(a_thread_each(modes, range(5))) == {modes(0)}


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("items", "device"), [([1], "cpu"), ([1, 2, 3], "meta"), ([], "cpu")])
def test_one_item_and_other_devices_stay_in_the_thread_of_the_caller(items: list[int], device: str) -> None:
    found = list(a_thread_each(lambda _: (threading.get_ident(), torch.get_num_threads()), items, device))
    assert found == [(threading.get_ident(), 3)] * len(items)


@pytest.mark.usefixtures("three_threads")
def test_inside_an_item_no_more_threads_are_begun() -> None:
    nested = a_thread_each(lambda _: set(a_thread_each(lambda _: threading.get_ident(), range(4))), range(4))
    assert all(len(threads) == 1 for threads in nested)


@pytest.mark.usefixtures("three_threads")
def test_what_an_item_raises_is_raised_in_its_place() -> None:
    found = a_thread_each(lambda item: 1 // item, [1, 0, 1])
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(a_thread_each(lambda item: 1 // item, [1, 1])) == [1, 1]


@pytest.mark.usefixtures("three_threads")
def test_no_more_at_once_than_asked_for() -> None:
    at_once, most = [0], [0]
    lock = threading.Lock()

    def count(item: int) -> int:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.005)
        with lock:
            at_once[0] -= 1
        return item

    assert list(a_thread_each(count, range(20), most=2)) == list(range(20))
    assert most[0] == 2


def until_told(_: int) -> None:
    for _ in range(60_000):  # a minute, lest a defect should hang
        time.sleep(0.001)
        go_on()


@pytest.mark.usefixtures("three_threads")
def test_who_goes_leaves_nothing_behind() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item:
            until_told(item)
        return item

    found = a_thread_each(work, range(30))
    assert isinstance(found, Generator)
    assert next(found) == 0
    found.close()
    after = list(begun)
    assert len(after) <= 7
    assert list(a_thread_each(lambda item: item, range(3))) == [0, 1, 2]
    assert begun == after


@pytest.mark.usefixtures("three_threads")
def test_closing_ends_what_is_under_way_and_later_calls_begin_anew() -> None:
    raised: list[type] = []
    under_way = threading.Event()

    def work(item: int) -> None:
        under_way.set()
        until_told(item)

    def wait_for_it() -> None:
        try:
            list(a_thread_each(work, range(30)))
        except CancelledError as error:
            raised.append(type(error))

    caller = threading.Thread(target=wait_for_it)
    caller.start()
    assert under_way.wait(timeout=60)
    close()
    caller.join(timeout=60)
    assert raised == [CancelledError]
    assert list(a_thread_each(lambda item: item, range(3))) == [0, 1, 2]


def test_short_turns_end_with_the_step_whatever_happens_in_it() -> None:
    before, within = sys.getswitchinterval(), []

    @short_turns()
    def step() -> None:
        with short_turns():
            within.append(sys.getswitchinterval())
        within.append(sys.getswitchinterval())
        raise CancelledError

    with pytest.raises(CancelledError):
        step()
    assert within == pytest.approx([TURN, TURN])
    assert sys.getswitchinterval() == before
