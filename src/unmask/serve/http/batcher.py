"""Batcher: answers waiting requests to a model in batches, in the one thread that runs the model."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from unmask.errors import UnmaskError
from unmask.kernels.threads import until

SMOOTH = 0.2  # weight of the newest batch in the moving average of the speed


@dataclass(frozen=True)
class Ask:
    """The work of one request.

    items  inputs, each of which gets an answer
    work   items -> answers, in order
    key    requests with equal keys may share a batch: their `work` is the same
    read   tokens of the items
    cost   tokens of the items, and tokens that the model may write
    """

    items: Sequence[Any]
    work: Callable[[list[Any]], list[Any]]
    key: Hashable
    read: int
    cost: int


class Answers(Future[list[Any]]):
    """A future of answers; `left`: whether the request was cancelled, even while the model answers it."""

    left = False

    def cancel(self) -> bool:
        self.left = True
        return super().cancel()


@dataclass(eq=False)
class Job:
    """A request in the queue, and the future of its answers."""

    ask: Ask
    future: Answers = field(default_factory=Answers)


class Full(Exception):
    """The queue is full; `seconds`: when to try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = max(1, math.ceil(seconds))


class Observer(Protocol):
    """Records every batch."""

    def batch(self, requests: int, read: int, seconds: float) -> None: ...


class Batcher:
    """A queue and a thread, which answers requests in batches with equal keys, the oldest request first.

    tokens    most tokens of a batch (`Ask.cost`); a request is never split, so a single one may have more
    wait      seconds that the oldest request waits for others, unless the batch is full before
    room      most tokens in the queue
    patience  most seconds until a new request is answered, estimated from the speed
    observer  records the size and time of every batch
    """

    def __init__(self, *, tokens: int, wait: float, room: int, patience: float, observer: Observer) -> None:
        self.tokens, self.wait, self.room, self.patience = tokens, wait, room, patience
        self.observer = observer
        self.speed = 0.0  # tokens a second, a moving average; 0 before the first batch
        self._waiting: deque[Job] = deque()
        self._running = 0  # tokens of the batch that is being answered
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="unmask-batcher", daemon=True)
        self._thread.start()

    def submit(self, ask: Ask) -> Answers:
        """Add a request to the queue, and return the future of its answers. Cancelling the future removes the request
        from the queue; a batch ends early when all its requests are cancelled (`threads.go_on`). Raises Full if the
        queue is full."""
        job = Job(ask)
        with self._changed:
            waiting = self.waiting
            seconds = (waiting + self._running) / self.speed if self.speed else 0.0
            if waiting and (waiting + ask.cost > self.room or seconds > self.patience):
                raise Full(seconds / 2)
            self._waiting.append(job)
            self._changed.notify_all()
        job.future.add_done_callback(lambda _: self._forget(job))
        return job.future

    @property
    def waiting(self) -> int:
        """Tokens in the queue."""
        with self._changed:
            return sum(job.ask.cost for job in self._waiting)

    @property
    def requests(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def close(self) -> None:
        """End the thread once the queue is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _forget(self, job: Job) -> None:
        """Remove a cancelled request from the queue at once."""
        with self._changed:
            if job.future.cancelled() and job in self._waiting:
                self._waiting.remove(job)

    # -- in the thread

    def _run(self) -> None:
        while (jobs := self._gather()) is not None:
            if jobs:
                self._running = sum(job.ask.cost for job in jobs)
                begin = time.perf_counter()
                self._answer(jobs)
                seconds = time.perf_counter() - begin
                if not all(job.future.left for job in jobs):  # a batch that ended early does not measure the speed
                    self._measure(self._running / max(seconds, 1e-9))
                    self.observer.batch(len(jobs), sum(job.ask.read for job in jobs), seconds)
                self._running = 0
            del jobs  # a reference here would keep a model in memory that the pool unloads

    def _gather(self) -> list[Job] | None:
        """Take the next batch out of the queue, without cancelled requests; None when the thread must end."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            deadline = time.monotonic() + self.wait
            while self._waiting and not self._full() and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            chosen = self._chosen()
            for job in chosen:
                self._waiting.remove(job)
        return [job for job in chosen if job.future.set_running_or_notify_cancel()]

    def _chosen(self) -> list[Job]:
        """The oldest request, and others with the same key that fit into its batch."""
        chosen: list[Job] = []
        cost = 0
        for job in self._waiting:
            if not chosen or (job.ask.key == chosen[0].ask.key and cost + job.ask.cost <= self.tokens):
                chosen.append(job)
                cost += job.ask.cost
        return chosen

    def _full(self) -> bool:
        """Whether the next batch is full."""
        oldest = self._waiting[0].ask
        return sum(job.ask.cost for job in self._waiting if job.ask.key == oldest.key) >= self.tokens

    def _answer(self, jobs: list[Job]) -> None:
        """Answer requests together; if that fails, one by one, so that an invalid request does not fail the others."""
        try:
            with until(lambda: all(job.future.left for job in jobs)):
                found = jobs[0].ask.work([item for job in jobs for item in job.ask.items])
        except Exception as error:
            if isinstance(error, CancelledError):
                for job in jobs:
                    job.future.set_exception(error)
                return
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
                return
            if not isinstance(error, UnmaskError):
                logging.getLogger(__name__).exception("A batch could not be answered.")
            jobs[0].future.set_exception(error)
            return
        begin = 0
        for job in jobs:
            end = begin + len(job.ask.items)
            job.future.set_result(found[begin:end])
            begin = end

    def _measure(self, speed: float) -> None:
        self.speed = speed if not self.speed else (1 - SMOOTH) * self.speed + SMOOTH * speed
