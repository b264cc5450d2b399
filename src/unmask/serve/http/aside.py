"""Aside: work in threads, beside the event loop, which is given up when its client goes or its time is over."""

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
"""Where long bodies are read and long answers written, so that they do not keep short ones waiting."""


class Gone(Exception):
    """The client went away before its answer was there."""


async def aside(work: Callable[[], T], executor: Executor | None = None) -> T:
    """What `work` returns, computed in a thread. `threads.go_on` ends it once its caller has gone.

    Texts are cut into tokens nowhere else, be they ever so short: the library has its own threads, and what they do for
    others comes first.
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
    """What `work` returns. Raises Gone, and cancels it, when the client goes before; the body must have been read."""
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
    """Raises Refusal 503, which says when to ask again, where what is within takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise too_busy(503, f"The answer took longer than {plural(seconds, 'second')}.", 5) from None


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
