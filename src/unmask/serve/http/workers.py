"""Workers: processes that answer at one address, each a copy of one process that has loaded the models.

A copy (fork) shares the memory of its original until one of them writes to it, and weights are only read. So the models
are in memory once, whatever form they have for inference, and a worker that dies is replaced without reading its folder
again ([decision 56](../../../../docs/decisions/0056-workers-are-copies.md)).
"""

from __future__ import annotations

import gc
import logging
import mmap
import multiprocessing
import os
import signal
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkProcess
from types import FrameType

import torch
from starlette.applications import Starlette

from unmask.errors import UnmaskError, plural
from unmask.serve.http.prometheus import together
from unmask.serve.http.server import Server, address, bind, serve
from unmask.serve.http.service import Service

TICK = 0.1  # seconds between two looks at the workers
PAUSE = 1.0  # least seconds between the starts of a worker and of the one that replaces it
CLOSING = 5.0  # seconds that a worker gets beyond those of its requests
ROOM = 1 << 20  # bytes for the text of a worker; the system provides those that are used
HEAD = struct.Struct("<II")  # length and checksum of a text


def run(
    app: Starlette, host: str, port: int, begun: Callable[[str], None], *, workers: int, compute_threads: int
) -> None:
    """Serve by several processes until a signal; calls `begun(address)` once all of them answer. Load the models
    before, with one thread of PyTorch: compute threads do not survive a copy.

    Raises UnmaskError if the address is in use, and as `Crew.run` does.
    """
    bound, board = bind(host, port), Board(workers)
    service: Service = app.state.service

    def work(number: int) -> None:
        torch.set_num_threads(compute_threads)
        service.share = partial(board.share, number)
        serve(Worker(app), bound)

    gc.collect()
    gc.freeze()  # a collection writes to the objects, and would copy their memory
    seconds = service.settings.notice_seconds + service.settings.drain_seconds + CLOSING
    Crew(workers, work, board, seconds).run(lambda: begun(address(bound)))


class Worker(Server):
    """One of several servers. It ends at a signal, and when the process that started it is gone. That process sends the
    signal several times, so that all but the first change nothing."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(app)
        self.parent = os.getppid()
        self.begun = self.service.exposition

    async def on_tick(self, counter: int) -> bool:
        if os.getppid() != self.parent:
            self.service.end()
        if counter % 10 == 0:  # once a second
            self.service.exposition()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.end()


class Board:
    """A text of each worker (1, 2, ...) in memory that all of them share: each writes its own, and reads all."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.memory = mmap.mmap(-1, workers * ROOM)

    def write(self, number: int, text: str) -> None:
        """Replace the text of a worker; one that does not fit is left out."""
        body = text.encode()
        if len(body) <= ROOM - HEAD.size:
            begin = (number - 1) * ROOM
            self.memory[begin : begin + HEAD.size + len(body)] = HEAD.pack(len(body), zlib.crc32(body)) + body

    def read(self, number: int) -> str:
        """The text of a worker; empty if there is none, or if it is being written all the time."""
        begin = (number - 1) * ROOM
        for _ in range(100):
            length, checksum = HEAD.unpack_from(self.memory, begin)
            body = self.memory[begin + HEAD.size : begin + HEAD.size + length]
            if zlib.crc32(body) == checksum:
                return body.decode()
        return ""

    def share(self, number: int, text: str) -> str:
        """Write the metrics of a worker; returns those of all."""
        self.write(number, text)
        return together({one: self.read(one) for one in range(1, self.workers + 1)})


class Crew:
    """Processes that work side by side; one that ends is replaced. Use it in the main thread.

    count    number of processes
    work     number of the process (1, 2, ...) -> None, called in each: it writes to the board once it has begun, and
             ends after SIGTERM
    board    where each process shows that it has begun
    seconds  that the processes get to end after a signal
    """

    def __init__(self, count: int, work: Callable[[int], None], board: Board, seconds: float) -> None:
        self.count, self.work, self.board, self.seconds = count, work, board, seconds
        self.processes: dict[int, ForkProcess] = {}
        self.started: dict[int, float] = {}
        self.signals: list[int] = []  # that have come

    def run(self, begun: Callable[[], None]) -> None:
        """Work until SIGTERM or Ctrl-C, then pass SIGTERM on and wait for all processes; a second signal ends all of
        them at once. Calls `begun()` once all have begun.

        Raises UnmaskError if a process ends before all have begun, and if one does not end in time.
        """
        usual = {one: signal.signal(one, self._note) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            for number in range(1, self.count + 1):
                self._start(number)
            while not self.signals and not all(map(self.board.read, self.processes)):
                self._require_alive()
                time.sleep(TICK)
            if not self.signals:
                begun()
            while not self.signals:
                self._replace()
                time.sleep(TICK)
            self._end()
        finally:
            for process in self.processes.values():
                process.kill()
                process.join()
            for one, handler in usual.items():
                signal.signal(one, handler)

    def _note(self, sig: int, frame: FrameType | None) -> None:
        self.signals.append(sig)

    def _start(self, number: int) -> ForkProcess:
        process = multiprocessing.get_context("fork").Process(target=self.work, args=(number,), daemon=True)
        process.start()
        self.processes[number], self.started[number] = process, time.monotonic()
        return process

    def _require_alive(self) -> None:
        for number, process in self.processes.items():
            if process.exitcode is not None:
                raise UnmaskError(
                    f"Worker {number} {_ending(process.exitcode)} before it answered, so the service does not start; "
                    "is there enough memory?"
                )

    def _replace(self) -> None:
        """Start a process for each that has ended, at most one in PAUSE seconds for each number."""
        for number, process in list(self.processes.items()):
            if process.exitcode is not None and time.monotonic() - self.started[number] >= PAUSE:
                self.board.write(number, "")
                new = self._start(number)
                said = f"Worker {number} (process {process.pid}) {_ending(process.exitcode)}"
                logging.getLogger(__name__).warning("%s; process %d replaces it.", said, new.pid)

    def _end(self) -> None:
        until = time.monotonic() + self.seconds
        while any(process.is_alive() for process in self.processes.values()):
            for process in self.processes.values():
                process.terminate()  # again: a process that has just been started may not handle the first signal
            time.sleep(TICK)
            if len(self.signals) > 1:
                self._end_at_once(self.signals[1])
            if time.monotonic() > until:
                patience = plural(self.seconds, "second")
                raise UnmaskError(f"The workers did not end within {patience} after the signal, and were killed.")

    def _end_at_once(self, sig: int) -> None:
        for process in self.processes.values():
            process.kill()
        signal.signal(sig, signal.SIG_DFL)
        signal.raise_signal(sig)


def _ending(status: int) -> str:
    """How a process ended, by its exit code."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
