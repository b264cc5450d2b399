"""Reading JSON bodies of requests, and writing answers and refusals as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from unmask.serve.http.aside import LONG, MUCH, aside
from unmask.serve.http.refusals import Refusal, clipped, too_busy

DEEPEST = 64  # deepest nesting of brackets
DIGITS = 1_000  # most digits of a whole number; the time to read one grows with the square
SHORT = 2_000  # values of an answer that takes about a millisecond to write
RUN = 1_024  # values that are encoded at a time: no other thread runs during that time
PIECE = 65_536  # bytes that are sent at a time

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


# ------------------------------------------------------------------------------------------------ reading


async def read_json(request: Request) -> Any:
    """The JSON body of a request. Raises Refusal: 415 for another content type, charset or encoding, and as `parse`
    does."""
    kind = request.headers.get("content-type", "")
    name, _, rest = kind.partition(";")
    if name.strip().lower() != "application/json":
        said = f"not {clipped(name.strip(), 60)!r}" if name.strip() else "and the request has no Content-Type"
        raise Refusal(415, f"The body must be JSON, with the header Content-Type: application/json, {said}.")
    charset = re.search(r"charset\s*=\s*\"?([^\s\";]+)", rest, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Refusal(415, f"The body must be UTF-8, not {clipped(charset[1], 40)}.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "The body must not be compressed.")
    body, most = await request.body(), request.app.state.service.settings.values
    return parse(body, most) if len(body) < MUCH else await aside(partial(parse, body, most), LONG)


def parse(body: bytes, most: int) -> Any:
    """Parse JSON with at most `most` commas and brackets.

    Raises Refusal: 413 for more; 400 for invalid JSON and for too deep nesting; 422 for NUL, lone surrogates, and
    numbers that are too large or have too many digits.
    """
    marks = sum(map(body.count, (b",", b"[", b"{")))
    if marks > most:
        raise Refusal(
            413, f"The body has {marks:,} commas and brackets, at most {most:,} are allowed; send several requests."
        )
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"The body is not UTF-8: byte {error.start} is invalid.") from None
    try:
        value = json.loads(text, parse_constant=_no_number, parse_int=_whole)
    except RecursionError:
        raise Refusal(400, f"The body is nested deeper than {DEEPEST} brackets.") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"The body is not valid JSON: {error.msg}, at character {error.pos}.") from None
    _check(value, 1)
    return value


def _no_number(name: str) -> Any:
    raise Refusal(400, f"The body is not valid JSON: {name} is not a number in JSON.")


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise Refusal(422, "A number in the body has too many digits.")
    return int(digits)


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise Refusal(400, f"The body is nested deeper than {DEEPEST} brackets.")
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise Refusal(422, "A text has half of a surrogate pair, which is not a character.") from None
        if "\0" in value:
            raise Refusal(422, "A text has the character NUL; leave it out.")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            _check(name, depth)
            _check(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check(one, depth + 1)
    elif isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise Refusal(422, "A number in the body is too large.")


# ------------------------------------------------------------------------------------------------ answering


class Written(Response):
    """A JSON response, sent in pieces, as fast as the client reads them."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for begin in range(0, len(self.body), PIECE):
            piece = bytes(self.body[begin : begin + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": begin + PIECE < len(self.body)})


async def answered(request: Request, make: Callable[[], Any], executor: Executor = LONG) -> Response:
    """The response with what `make` returns, computed and encoded in a thread of the executor.

    Raises Refusal: 413 for an answer beyond the limit, 429 if the service holds too many bytes, 500 for numbers that
    are not finite.
    """
    service = request.app.state.service
    body = await aside(lambda: encoded(make(), service.settings.answer), executor)
    if len(body) > MUCH and service.held + len(body) > service.settings.held:
        raise too_busy(429, "Too many long answers are being sent; try again in a second.", 1)
    return Written(memoryview(body))


def written(request: Request, value: Any) -> Response:
    """The response with a short value, encoded at once. Raises Refusal as `encoded` does."""
    return Written(memoryview(encoded(value, request.app.state.service.settings.answer)))


def is_short(value: Any) -> bool:
    """Whether a value is short enough to be encoded in the event loop."""
    left, waiting = SHORT, [value]
    while waiting and left > 0:
        one = waiting.pop()
        if isinstance(one, (dict, list, tuple)):
            left -= len(one)
            if left > 0:
                waiting.extend(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, str):
            left -= len(one) // 16
    return left > 0


def encoded(value: Any, most: int) -> bytearray:
    """A value as JSON in ASCII, equal to the output of `json.dumps`, but encoded in pieces so that other threads can
    run.

    Raises Refusal 413 for more than `most` bytes, and 500 for numbers that are not finite.
    """
    found = bytearray()
    try:
        for piece in _pieces(value):
            found += piece.encode("ascii")
            if len(found) > most:
                raise Refusal(413, f"The answer has more than {most:,} bytes; request less at a time.")
    except ValueError:
        raise Refusal(500, "The model answered with numbers that are not finite: its weights are damaged.") from None
    return found


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and _holds_more(value.values()):
        for i, (name, one) in enumerate(value.items()):
            yield f"{',' if i else '{'}{_encode(name)}:"
            yield from _pieces(one)
        yield "}"
    elif isinstance(value, (list, tuple)) and _holds_more(value):
        for i, one in enumerate(value):
            yield "," if i else "["
            yield from _pieces(one)
        yield "]"
    elif isinstance(value, (list, tuple)) and len(value) > RUN:
        for begin in range(0, len(value), RUN):
            yield "," if begin else "["
            yield _encode(value[begin : begin + RUN])[1:-1]
        yield "]"
    else:
        yield _encode(value)


def _holds_more(values: Any) -> bool:
    """Whether some of the values are lists or objects."""
    return any(isinstance(one, (dict, list, tuple)) for one in values)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The response with a value that is known to be short and to have only finite numbers."""
    return Written(_encode(value).encode("ascii"), status, dict(headers or {}))


def refusal(path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal in the format of the path: {"error": sentence}, or OpenAI's {"error": {"message": sentence, …}}."""
    sentence = clipped(sentence)
    if not path.startswith("/v1/"):
        return reply({"error": sentence}, status, headers)
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": sentence, "type": kind, "param": None, "code": None}
    return reply({"error": error}, status, headers)
