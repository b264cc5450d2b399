"""Connection: one client at a socket, who has so much time to ask, and to read; and how many of them there may be."""

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

RATE = 131_072  # bytes a second that a client must read in the long run
RECEIVED = 16_384  # bytes that are taken from a socket at a time, and parsed before anything else happens
PROBE = 0.05  # seconds until it is looked again whether a client that sends no more still reads; later there are more
SPARE = 64  # descriptors that connections leave to files, models and those that are about to be closed
NONE = 2**31  # descriptors where the system sets no limit
LOG = logging.getLogger(f"{__name__}.defects")
LOG.setLevel(logging.ERROR)  # what clients send wrongly is answered, and not logged
LOGGED = 60.0  # seconds between two lines in the log that say the same


class Connection(H11Protocol):
    """Beyond what uvicorn does:

    - the head of a request must arrive within `head_seconds`, and an answer be read without lagging behind by more than
      `read_seconds`, or the connection is closed;
    - a client that shuts down its sending side after a request still gets the answer. One that went away looks the
      same, so the server sends "100 Continue" now and then, which clients skip: if it went away, sending fails;
    - a new connection closes the one that has been idle for longest where there are as many as there may be.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = LOG
        self.service: Service = self.config.app.state.service  # type: ignore[union-attr]
        self.patience: asyncio.TimerHandle | None = None  # until the head has arrived
        self.reading: asyncio.TimerHandle | None = None  # until the client has read what was sent
        self.probing: asyncio.TimerHandle | None = None
        self.paused_at = 0.0
        self.lag = 0.0  # seconds that the client is behind
        self.ended = False  # whether it sends no more

    # -- begin and end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # paused means: something is not read yet
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
        """Whether this connection may stay, after the one that has been idle for longest was closed for it."""
        if len(self.connections) <= min(self.service.settings.connections, descriptors()):
            return True
        oldest = next(iter(self.service.idle), None)
        if oldest is not None:
            del self.service.idle[oldest]
            oldest.transport.abort()
        return oldest is not None

    def _full(self) -> None:
        log_once("All connections that there may be are busy; new ones are refused.")
        self._refuse(503, "Too many connections are open; ask again in a second.")

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
            return None  # nothing whole was asked: the connection ends
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
        """No request is under way: one must begin soon, and may have to make room before."""
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
        self._refuse(400, "This is no valid HTTP, or a head of more than 16 KiB.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer without the application, and close."""
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
        """Where the client of a request sends no more: find out whether it still reads."""
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
    """Descriptors that connections may take: of those that the system allows, some are left to others."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return NONE
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NONE if most == resource.RLIM_INFINITY else most - min(SPARE, most // 2)


def log_once(sentence: str) -> None:
    """Log a warning, unless the same was logged within the last minute."""
    now = time.monotonic()
    if now - _LOGGED.get(sentence, -LOGGED) >= LOGGED:
        _LOGGED[sentence] = now
        logging.getLogger(__name__).warning(sentence)


_LOGGED: dict[str, float] = {}
