"""Guard: checks the key, host, size and time of every request; every refusal is one sentence as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unmask.errors import UnmaskError, plural
from unmask.serve.http.aside import MUCH, Gone
from unmask.serve.http.pool import NoModel
from unmask.serve.http.refusals import Refusal, too_busy
from unmask.serve.http.service import Service
from unmask.serve.http.settings import Access
from unmask.serve.http.wire import refusal

OPEN = frozenset({"/health", "/ready"})
"""Need no key and no name in Host, which the checks of balancers lack, and answer while the service is ending."""
WATCHED = OPEN | {"/metrics"}
ONCE = ("authorization", "content-encoding", "content-length", "content-type", "host", "transfer-encoding")
"""Headers that a request may have only once: a proxy could use another one than this service."""
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SENTENCES = {404: "There is no path {path}; /openapi.json lists all paths.", 405: "{path} does not accept {method}."}


class Guard:
    """Middleware: refuses invalid requests, turns errors into sentences, adds headers, and counts requests.

    app     the application
    public  paths that need no key
    """

    def __init__(self, app: ASGIApp, *, service: Service, access: Access, public: frozenset[str]) -> None:
        self.app, self.service, self.access, self.public = app, service, access, public | OPEN
        self.keys = [_digest(key.encode()) for key in access.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._pass(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = time.perf_counter()
        sender, held = _Sender(send, self.service), _Held(self.service)
        self.service.open += 1
        try:
            self._check(scope)
            await self.app(scope, self._limited(receive, held), sender)
        except (Gone, ClientDisconnect):
            sender.status = 499  # the usual code in logs for a client that disconnected
        except Exception as error:
            if sender.status:
                raise  # part of the answer has been sent
            await refused(Request(scope), error)(scope, receive, sender)
        finally:
            self.service.open -= 1
            held.release()
            sender.held.release()
            route = getattr(scope.get("route"), "path", "") or "other"
            self.service.metrics.requests.add(1, route, str(sender.status))
            self.service.metrics.seconds.observe(time.perf_counter() - begin, route)

    def _check(self, scope: Scope) -> None:
        """Raises Refusal for a request that the service does not accept."""
        headers, path, settings = Headers(scope=scope), scope["path"], self.service.settings
        if len(headers) > settings.headers:
            raise Refusal(431, f"A request may have at most {settings.headers} headers.", connection="close")
        for name in ONCE:
            if len(headers.getlist(name)) > 1:
                raise Refusal(400, f"The request has more than one {name.title()} header.", connection="close")
        if "content-length" in headers and "transfer-encoding" in headers:
            sentence = "The request has both Content-Length and Transfer-Encoding headers: leave one out."
            raise Refusal(400, sentence, connection="close")
        if path not in OPEN and self.access.hosts and _host(headers.get("host", "")) not in self.access.hosts:
            raise Refusal(400, "The Host header does not name this service.")
        if self.keys and path not in self.public and not self._knows(headers.get("authorization", "")):
            raise Refusal(
                401, "The service needs a key: send the header Authorization: Bearer KEY.", www_authenticate="Bearer"
            )
        if self.service.closed and path not in WATCHED:
            raise too_busy(503, "The service is ending and accepts no new requests.", 5)
        if self.service.open > settings.requests and path not in WATCHED:
            raise too_busy(429, f"{settings.requests} requests are open already; try again in a second.", 1)
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 18 or int(length) > settings.payload):
            raise _too_large(settings.payload)

    def _knows(self, authorization: str) -> bool:
        """Whether the header has a valid key. Compares it with all keys, each in constant time."""
        scheme, _, key = authorization.partition(" ")
        given = _digest(key.strip().encode("utf-8", "surrogateescape"))
        return sum(hmac.compare_digest(given, known) for known in self.keys) > 0 and scheme.lower() == "bearer"

    def _limited(self, receive: Receive, held: _Held) -> Receive:
        """`receive` with limits on the bytes of a body and the seconds until it has arrived."""
        settings = self.service.settings
        until = time.monotonic() + settings.body_seconds
        size, whole = 0, False

        async def limited() -> Message:
            nonlocal size, whole
            try:
                async with asyncio.timeout(None if whole else max(0.0, until - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                patience = plural(settings.body_seconds, "second")
                raise Refusal(408, f"The body did not arrive within {patience}.", connection="close") from None
            size += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if size > settings.payload:
                raise _too_large(settings.payload)
            if not held.grow(size):
                raise too_busy(429, "Too many long requests are being read; try again in a second.", 1)
            return message

        return limited


class _Held:
    """The bytes of one long body, which count towards the limit of the service until they are released."""

    def __init__(self, service: Service) -> None:
        self.service, self.size = service, 0

    def grow(self, size: int) -> bool:
        """Record that the body has `size` bytes so far; returns whether they fit. Short bodies are not counted."""
        if size <= MUCH:
            return True
        if self.service.held + size - self.size > self.service.settings.held:
            return False
        self.service.held += size - self.size
        self.size = size
        return True

    def release(self) -> None:
        self.service.held -= self.size
        self.size = 0


class _Sender:
    """`send`, which adds the common headers, keeps the status, and counts a long answer as held."""

    def __init__(self, send: Send, service: Service) -> None:
        self.send, self.held, self.status = send, _Held(service), 0
        self.last = service.ends_at is not None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if headers.get("content-type", "").startswith("application/json"):
                headers.setdefault("cache-control", "no-store")
            if self.last:
                headers["connection"] = "close"
            self.held.grow(int(headers.get("content-length", "0")))
        await self.send(message)


def refused(request: Request, error: Exception) -> Response:
    """The response to an error: a status and one sentence. An unexpected error is logged."""
    path = request.url.path
    if isinstance(error, Refusal):
        return refusal(path, error.status, error.sentence, error.headers)
    if isinstance(error, UnmaskError):
        return refusal(path, 404 if isinstance(error, NoModel) else 422, str(error))
    if isinstance(error, HTTPException):
        sentence = SENTENCES.get(error.status_code, str(error.detail))
        sentence = sentence.format(path=path, method=request.method)
        return refusal(path, error.status_code, sentence, error.headers)
    logging.getLogger(__name__).error("%s %s failed.", request.method, path, exc_info=error)
    return refusal(path, 500, "The service could not answer because of an internal error; see its log.")


def _too_large(most: int) -> Refusal:
    return Refusal(
        413,
        f"The body of a request may have at most {most:,} bytes (--payload); send several requests.",
        connection="close",
    )


def _host(header: str) -> str:
    """The name in a Host header, without the port; empty if it is not a name or an address, with or without a port."""
    found = HOST.fullmatch(header.lower())
    return (found[1] or found[2]) if found else ""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
