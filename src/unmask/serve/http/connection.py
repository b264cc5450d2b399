"""Connection: one client at a socket, with limits on the time to send a request and to read its answer, and on the
number of connections."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from unmask.serve.http.service import Service
from unmask.serve.http.wire import PIECE

RATE = 131_072  # bytes a second that a client must read on average
RECEIVED = 16_384  # bytes that are read from a socket and parsed at a time
PROBE = 0.05  # seconds until the first probe of a client that has shut down its sending side; later ones wait longer
SPARE = 64  # descriptors reserved for files, models and connections that are being closed
NONE = 2**31  # descriptors if the system sets no limit
LOG = logging.getLogger(f"{__name__}.defects")
LOG.setLevel(logging.ERROR)  # invalid requests are answered, and not logged
LOGGED = 60.0  # seconds between equal lines in the log


class Connection(H11Protocol):
    """uvicorn's connection, and in addition:

    - the head of a request must arrive within `head_seconds`, and a client that reads an answer must not lag behind by
      more than `read_seconds`, or the connection is closed;
    - a client that shuts down its sending side after a request still gets the answer. A client that disconnected looks
      the same, so the server sends "100 Continue" from time to time, which clients skip: after a disconnect, sending
      fails;
    - if the limit of connections is reached, a new connection closes the longest idle one.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = LOG
        self.service: Service = self.config.app.state.service  # type: ignore[union-attr]
        self.patience: asyncio.TimerHandle | None = None  # until the head has arrived
        self.reading: asyncio.TimerHandle | None = None  # until the client has read the sent bytes
        self.probing: asyncio.TimerHandle | None = None
        self.paused_at = 0.0
        self.lag = 0.0  # seconds that the client is behind
        self.ended = False  # whether the client has shut down its sending side

    # -- begin and end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # paused then means: the client has not read all bytes
        if hasattr(transport, "max_size"):
            transport.max_size = RECEIVED
        if not self._is_room():
            self._full()
            return
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self.service.idle.pop(self, None)
        for timer in (self.patience, self.reading, self.probing):
            if timer is not None:
                timer.cancel()
        self.patience = self.reading = self.probing = None
        super().connection_lost(exc)

    def _is_room(self) -> bool:
        """Whether this connection may stay; closes the longest idle one if the limit is reached."""
        if len(self.connections) <= min(self.service.settings.connections, descriptors()):
            return True
        oldest = next(iter(self.service.idle), None)
        if oldest is not None:
            del self.service.idle[oldest]
            oldest.transport.abort()
        return oldest is not None

    def _full(self) -> None:
        log_once("All connections are busy; the service refuses new ones.")
        self._refuse(503, "Too many connections are open; try again in a second.")

    # -- the client sends

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_idle():
            self._rest()
        else:
            self._wake()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        self.ended = True
        if self._is_idle() or self.cycle.more_body:
            return None  # there is no complete request: the connection ends
        if self.probing is None:
            self._probe(PROBE)
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.ended and self.cycle.response_complete:
            self.transport.close()
        elif self._is_idle() and not self.transport.is_closing():
            self.service.idle[self] = None

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _rest(self) -> None:
        """Mark the connection as idle: the next request must begin in time, and a new connection may close this one."""
        self.service.idle.setdefault(self)
        if self.patience is None:
            self.patience = self.loop.call_later(self.service.settings.head_seconds, self._too_late)

    def _wake(self) -> None:
        self.service.idle.pop(self, None)
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def _too_late(self) -> None:
        self.patience = None
        if self._is_idle() and self.conn.trailing_data[0]:
            self._refuse(408, "The head of the request did not arrive in time.")
        elif self._is_idle():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "The request is not valid HTTP, or its head has more than 16 KiB.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Send an error without the application, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps({"error": sentence}).encode("ascii")
            headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
            headers += [("connection", "close"), *([("retry-after", "1")] if status == 503 else [])]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # -- the client reads

    def pause_writing(self) -> None:
        super().pause_writing()
        self.paused_at = self.loop.time()
        left = self.service.settings.read_seconds - self.lag + PIECE / RATE
        self.reading = self.loop.call_later(max(0.0, left), self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None
        self.lag = max(0.0, self.lag + self.loop.time() - self.paused_at - PIECE / RATE)

    def _probe(self, seconds: float) -> None:
        """Find out whether a client that has shut down its sending side is still connected."""
        self.probing = None
        if self._is_idle() or self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if self.conn.our_state is h11.SEND_RESPONSE and self.cycle.scope["http_version"] != "1.0":
            event = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(event) or b"")
        self.probing = self.loop.call_later(seconds, self._probe, min(2 * seconds, 2.0))


def descriptors() -> int:
    """Number of descriptors for connections: the limit of the system less a reserve."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return NONE
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NONE if most == resource.RLIM_INFINITY else most - min(SPARE, most // 2)


def log_once(sentence: str) -> None:
    """Log a warning, unless the same warning was logged within the last minute."""
    now = time.monotonic()
    if now - _LOGGED.get(sentence, -LOGGED) >= LOGGED:
        _LOGGED[sentence] = now
        logging.getLogger(__name__).warning(sentence)


_LOGGED: dict[str, float] = {}
