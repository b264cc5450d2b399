"""The server: an application at an address, until a signal asks it to end."""

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

WAITING = 2_048  # connections that wait in the system until they are taken
BURST = 4  # connections that are taken at a time
TURNS = 4  # of the event loop between two bursts, in which as many others are closed where there are too many


class Listener(socket.socket):
    """Takes a few connections at a time: the event loop would take all that wait, before it has looked at the first,
    and run out of descriptors."""

    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls = (self.calls + 1) % (BURST + TURNS)
        if self.calls >= BURST:
            raise BlockingIOError
        return super().accept()


class Server(uvicorn.Server):
    """At the first SIGTERM or Ctrl-C, finishes what is open and refuses what is new with 503, then ends; at the
    second, ends at once."""

    def __init__(self, app: Starlette, *, begun: Callable[[], None] = lambda: None) -> None:
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
                timeout_graceful_shutdown=1,  # by then nothing is open, or its time is up
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
    """What the event loop could not do: where descriptors ran out, one sentence."""
    if isinstance(context.get("exception"), OSError) and "socket.accept" in context.get("message", ""):
        log_once(f"No more connections can be taken for now: {context['exception'].strerror}.")
    else:
        loop.default_exception_handler(context)


def run(app: Starlette, host: str, port: int, begun: Callable[[str], None]) -> None:
    """Serve until a signal; `begun` is told the address once it answers. Raises UnmaskError where it is taken."""
    bound = bind(host, port)
    server = Server(app, begun=lambda: begun(address(bound)))
    threads.begin()
    gc.collect()
    gc.freeze()  # what is there stays: to look through it for garbage would take all threads a tenth of a second
    try:
        with threads.short_turns():  # the event loop asks for Python between any two steps, beside threads that keep it
            asyncio.run(server.serve(sockets=[bound]))
    finally:
        threads.close()  # its time is up: end what is still under way


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is any that is free. Raises UnmaskError where it cannot be had."""
    try:
        if not 0 <= port < 65_536:  # getaddrinfo would take the remainder
            raise OverflowError("a port is a number from 0 to 65535")
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.create_server(place[:2], family=family, backlog=WAITING)
        return Listener(made.family, made.type, made.proto, fileno=made.detach())
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnmaskError(
            f"{host}, port {port}, cannot be served: {reason}; choose others with --host, --port."
        ) from None


def address(bound: socket.socket) -> str:
    """The address of a socket, as a browser takes it."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
