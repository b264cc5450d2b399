"""What goes over the wire: JSON that may be read, answers, and refusals of one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

DEEPEST = 64  # brackets within brackets
LONGEST = 600  # characters of a sentence that refuses


class Refusal(Exception):
    """A request that is not answered: a status, one plain sentence, headers."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def too_busy(status: int, sentence: str, seconds: int) -> Refusal:
    """A refusal (429, 503) that says when to ask again."""
    return Refusal(status, sentence, retry_after=str(max(1, seconds)))


async def read_json(request: Request) -> Any:
    """The body of a request. Raises Refusal: 415 for another type, 400 for what is no JSON, 422 for JSON that no text
    can come of."""
    kind = request.headers.get("content-type", "")
    name, _, rest = kind.partition(";")
    if name.strip().lower() != "application/json":
        said = f"not {clipped(name.strip(), 60)!r}" if name.strip() else "and the request does not say what its body is"
        raise Refusal(415, f"The body must be JSON, with the header Content-Type: application/json, {said}.")
    charset = re.search(r"charset\s*=\s*\"?([^\s\";]+)", rest, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Refusal(415, f"The body must be UTF-8, not {clipped(charset[1], 40)}.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "The body must not be compressed.")
    return parse(await request.body())


def parse(body: bytes) -> Any:
    """JSON from bytes. Raises Refusal: 400 for what is none, or nested too deep; 422 for NUL, lone surrogates, and
    numbers that are none or too large to hold."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"The body is not UTF-8: byte {error.start} fits no character.") from None
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise Refusal(400, f"The body is nested deeper than {DEEPEST} brackets.") from None
    except json.JSONDecodeError as error:
        raise Refusal(400, f"The body is not valid JSON: {error.msg}, at character {error.pos}.") from None
    except ValueError:  # a whole number of more digits than Python converts
        raise Refusal(422, "A number in the body has too many digits.") from None
    _check(value, 1)
    return value


def _no_number(name: str) -> Any:
    raise Refusal(400, f"The body is not valid JSON: {name} is no number there.")


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise Refusal(400, f"The body is nested deeper than {DEEPEST} brackets.")
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise Refusal(422, "A text holds half of a surrogate pair, which is no character.")
        if "\0" in value:
            raise Refusal(422, "A text holds the character NUL; leave it out.")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            _check(name, depth)
            _check(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check(one, depth + 1)
    elif isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise Refusal(422, "A number in the body is too large.")


def clipped(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning and an ellipsis; on one line."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer, ASCII characters alone so that it is the same in every encoding.

    Raises ValueError for numbers that are not finite.
    """
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    return Response(body, status, dict(headers or {}), media_type="application/json")


def refusal(path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal as clients of the path read it: {"error": sentence}, OpenAI's {"error": {"message": sentence, …}}."""
    sentence = clipped(sentence)
    if not path.startswith("/v1/"):
        return reply({"error": sentence}, status, headers)
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": sentence, "type": kind, "param": None, "code": None}
    return reply({"error": error}, status, headers)
