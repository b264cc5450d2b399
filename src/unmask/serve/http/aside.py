"""Work in threads outside the event loop, which ends when its client disconnects or its time is up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from unmask.errors import plural
from unmask.kernels import threads
from unmask.serve.http.refusals import too_busy

T = TypeVar("T")
MUCH = 20_000  # bytes of a long body
LONG = ThreadPoolExecutor(2, "unmask-long")
"""Threads for long bodies and long answers, so that short ones do not wait for them."""


class Gone(Exception):
    """The client disconnected before its answer was ready."""


async def aside(work: Callable[[], T], executor: Executor | None = None) -> T:
    """What `work` returns, computed in a thread. `threads.go_on` ends it once its caller is cancelled.

    All tokenization runs here, even of short texts: the library has its own threads, and a call may wait for the work
    that they do for other calls.
    """
    left = threading.Event()

    def run() -> T:
        with threads.until(left.is_set):
            return work()

    try:
        return await asyncio.get_running_loop().run_in_executor(executor, run)
    finally:
        left.set()


async def while_there(request: Request, work: Awaitable[T]) -> T:
    """What `work` returns. If the client disconnects first, cancels it and raises Gone. Read the body of the request
    before."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(_disconnected(request))
    try:
        either: list[asyncio.Future[Any]] = [task, gone]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """A context with a time limit: raises Refusal 503, with Retry-After, after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise too_busy(503, f"The answer took longer than {plural(seconds, 'second')}.", 5) from None


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
