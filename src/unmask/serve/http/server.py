"""The server: serves an application at an address until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from unmask.errors import UnmaskError
from unmask.kernels import threads
from unmask.serve.http.connection import Connection, log_once
from unmask.serve.http.service import Service

WAITING = 2_048  # backlog: connections that wait in the system until they are accepted
BURST = 4  # connections that are accepted at a time
TURNS = 4  # turns of the event loop between two bursts, in which as many connections can be closed


class Listener(socket.socket):
    """Accepts a few connections at a time: the event loop would accept all waiting connections before it handles the
    first, and run out of descriptors."""

    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls = (self.calls + 1) % (BURST + TURNS)
        if self.calls >= BURST:
            raise BlockingIOError
        return super().accept()


class Server(uvicorn.Server):
    """At the first SIGTERM or Ctrl-C, finishes open requests, refuses new ones with 503, and ends; at the second, ends
    at once."""

    def __init__(self, app: Starlette, *, begun: Callable[[], object] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                backlog=WAITING,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,  # by then no request is open, or the time is up
            )
        )
        self.service: Service = app.state.service
        self.begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_failed)
        await super().startup(sockets=sockets)
        self.begun()

    async def on_tick(self, counter: int) -> bool:
        self.should_exit = self.should_exit or self.service.ended
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.ends_at is not None:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.service.end()


def _failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an error of the event loop: log one sentence if descriptors ran out."""
    if isinstance(context.get("exception"), OSError) and "socket.accept" in context.get("message", ""):
        log_once(f"The service cannot accept more connections at the moment: {context['exception'].strerror}.")
    else:
        loop.default_exception_handler(context)


def run(app: Starlette, host: str, port: int, begun: Callable[[str], None]) -> None:
    """Serve until a signal; calls `begun(address)` once the service answers. Raises UnmaskError if the address is in
    use."""
    bound = bind(host, port)
    serve(Server(app, begun=lambda: begun(address(bound))), bound)


def serve(server: Server, bound: socket.socket) -> None:
    """Serve at a socket until a signal."""
    threads.begin()
    gc.collect()
    gc.freeze()  # the objects so far stay: collecting them would stop all threads for a tenth of a second
    try:
        with threads.short_turns():  # so that the event loop gets the GIL soon, although other threads hold it
            asyncio.run(server.serve(sockets=[bound]))
    finally:
        threads.close()  # end work that is still running: its time is up


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0: any free port. Raises UnmaskError if the address cannot be used."""
    try:
        if not 0 <= port < 65_536:  # getaddrinfo would use the port modulo 65,536
            raise OverflowError("a port is a number from 0 to 65535")
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.create_server(place[:2], family=family, backlog=WAITING)
        return Listener(made.family, made.type, made.proto, fileno=made.detach())
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnmaskError(
            f"The service cannot use {host}, port {port}: {reason}; choose others with --host, --port."
        ) from None


def address(bound: socket.socket) -> str:
    """The address of a socket, as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
