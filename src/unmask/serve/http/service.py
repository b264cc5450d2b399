"""Service: the state that endpoints share: models, a batcher for each, metrics, and whether the service is ending."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from unmask.errors import UnmaskError, plural
from unmask.serve.http.aside import LONG, MUCH, aside, while_there
from unmask.serve.http.batcher import Ask, Batcher, Full
from unmask.serve.http.pool import Pool, Served
from unmask.serve.http.prometheus import Metrics
from unmask.serve.http.refusals import too_busy
from unmask.serve.http.settings import Settings
from unmask.serve.http.verbs import Body, Verb

T = TypeVar("T")


class Service:
    """The state of one application. Call its methods in the event loop."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self.pool, self.settings = pool, settings
        self.metrics = Metrics()
        self.open = 0  # requests that are being answered
        self.held = 0  # bytes of long bodies of requests and answers
        self.idle: dict[Any, None] = {}  # connections without a request, the longest idle one first
        self.ends_at: float | None = None  # the latest time at which the service ends; None while it runs
        self.share: Callable[[str], str] = _alone  # own metrics -> those of all workers
        self._batchers: weakref.WeakKeyDictionary[Served, Batcher] = weakref.WeakKeyDictionary()
        self._reading: dict[str, asyncio.Task[Served]] = {}

    # -- one request

    async def model(self, name: str | None, *kinds: str) -> Served:
        """The model of this name; None: the first of these kinds. A thread loads it once for all requests.

        Raises NoModel for an unknown name, and Refusal 503 for a folder that cannot be read.
        """
        name = self.pool.name(name, *kinds)
        served = self.pool.peek(name)
        if served is not None:
            return served
        if name not in self._reading:
            task = asyncio.create_task(asyncio.to_thread(self.pool.get, name))
            self._reading[name] = task
            task.add_done_callback(lambda _: self._reading.pop(name, None))
        try:
            return await asyncio.shield(self._reading[name])
        except UnmaskError as error:
            raise too_busy(503, f"The model {name} cannot be read: {error}", 60) from None

    async def answer(self, request: Request, served: Served, verb: Verb, body: Body) -> tuple[Ask, list[Any]]:
        """A request as an `Ask`, and its answers, computed in a batch with other requests.

        Raises UnmaskError for a request that the model cannot answer, Refusal 429 if the queue is full, and Gone if the
        client disconnects.
        """
        ask = await self.prepare(request, verb, served, body)
        try:
            future = asyncio.wrap_future(self._batcher(served).submit(ask))
        except Full as full:
            sentence = f"The queue of {served.name} is full; try again in {plural(full.seconds, 'second')}."
            raise too_busy(429, sentence, full.seconds) from None
        return ask, await while_there(request, future)

    async def prepare(
        self, request: Request, work: Callable[[Served, Body, Settings], T], served: Served, body: Body
    ) -> T:
        """work(served, body, settings), in a thread. Raises Gone as `answer` does."""
        executor = None if len(await request.body()) < MUCH else LONG
        return await while_there(request, aside(partial(work, served, body, self.settings), executor))

    def _batcher(self, served: Served) -> Batcher:
        batcher = self._batchers.get(served)
        if batcher is None:
            batcher = Batcher(
                tokens=self.settings.batch_tokens,
                wait=self.settings.wait / 1_000,
                room=self.settings.queue_tokens,
                patience=self.settings.queue_seconds,
                observer=self.metrics.of(served.name),
            )
            self._batchers[served] = batcher
            weakref.finalize(served, batcher.close)  # once neither the pool nor a request uses the model
        return batcher

    # -- the whole

    @property
    def ready(self) -> bool:
        return self.pool.ready and self.ends_at is None

    def end(self) -> None:
        """Be no longer ready; after `notice_seconds`, finish open requests and accept no new ones. Safe to call from a
        signal handler; a second call changes nothing."""
        if self.ends_at is None:
            self.ends_at = time.monotonic() + self.settings.notice_seconds + self.settings.drain_seconds

    @property
    def closed(self) -> bool:
        """Whether the service is ending and accepts no new requests."""
        return self.ends_at is not None and time.monotonic() >= self.ends_at - self.settings.drain_seconds

    @property
    def ended(self) -> bool:
        """Whether the service is closed, and no request is open or the time is up."""
        return self.ends_at is not None and self.closed and (not self.open or time.monotonic() > self.ends_at)

    def exposition(self) -> str:
        """The metrics as text, with those of the other workers if there are any."""
        return self.share(self.metrics.text(self.gauges()))

    def gauges(self) -> Mapping[str, tuple[str, Mapping[str, float]]]:
        """The current gauges, for `Metrics.text`."""
        batchers = {served.name: batcher for served, batcher in list(self._batchers.items())}
        return {
            "unmask_open_requests": ("Requests that are being answered.", {"": self.open}),
            "unmask_queue_requests": (
                "Requests that wait for a model.",
                {name: one.requests for name, one in batchers.items()},
            ),
            "unmask_queue_tokens": (
                "Tokens that wait for a model.",
                {name: one.waiting for name, one in batchers.items()},
            ),
            "unmask_model_loaded": (
                "Whether the model is in memory.",
                {name: float(name in self.pool.loaded()) for name in self.pool.names()},
            ),
        }


def _alone(text: str) -> str:
    return text
