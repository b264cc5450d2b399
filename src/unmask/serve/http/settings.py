"""Settings of the service: how much it takes at once, and who may ask."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from pathlib import Path

from unmask.config import Config
from unmask.errors import UnmaskError


@dataclass(frozen=True, kw_only=True)
class Settings(Config):
    """What the service takes at once; each limit is answered with a status and one sentence.

    payload        bytes of the body of a request (413)
    values         commas and brackets of a body, which bound the number of its JSON values (413)
    texts          of a request (413)
    characters     of all texts of a request (413), counted before any is cut into tokens
    tokens         of a request (413), read, and for models that write also those that may be written
    view           characters of a request to a view of the page (413)
    written        tokens that a model may be asked to write for a text
    answer         bytes of the body of an answer (413)
    held           bytes that the long bodies of requests and answers may take together (429)
    batch_tokens   that are answered together; a request is never torn apart, so one alone may have more
    wait           milliseconds that a request waits for others to share its batch
    queue_tokens   of the requests of a model that wait (429)
    queue_seconds  that the requests before a new one will take, by the speed of late (429)
    requests       that are open at a time (429)
    connections    that are open at a time, fewer where the system allows fewer descriptors; when there are so many, a
                   new one takes the place of the one that has gone without a request for the longest time
    headers        lines of the head of a request (431)
    seconds        from the request to its answer (503)
    head_seconds   in which the head of a request must have arrived (408)
    body_seconds   in which its body must have arrived (408)
    read_seconds   that a client may lag behind while it reads an answer; one that is slower is cut off
    drain_seconds  that open requests get after SIGTERM
    """

    payload: int = 4_194_304
    values: int = 131_072
    texts: int = 2_048
    characters: int = 1_048_576
    tokens: int = 131_072
    view: int = 20_000
    written: int = 512
    answer: int = 67_108_864
    held: int = 268_435_456
    batch_tokens: int = 16_384
    wait: float = 3.0
    queue_tokens: int = 524_288
    queue_seconds: float = 5.0
    requests: int = 512
    connections: int = 1_024
    headers: int = 100
    seconds: float = 60.0
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    read_seconds: float = 20.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            if value < (0 if name == "wait" else 1) or not math.isfinite(value):
                raise UnmaskError(f"The setting {name} of the service must be at least 1, not {value}.")
        if self.wait > 1_000:
            raise UnmaskError(f"Requests must not wait {self.wait:g} milliseconds for others; choose 2 to 5.")


@dataclass(frozen=True)
class Access:
    """Who may send requests.

    keys     a request must bring one (`Authorization: Bearer KEY`); none: every client that reaches the address may
    origins  of pages elsewhere that may read answers, as `https://example.org`
    hosts    names that the Host header may have, so that no page elsewhere can pass for this one by a name of its own
             that leads here (DNS rebinding); none: any
    """

    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.origins:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest or "*" in rest:
                raise UnmaskError(f"'{origin}' is not the origin of a page; give it as https://example.org.")


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys of a file, one a line. Raises UnmaskError where it has none, or one that no header can carry."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} must hold keys of plain ASCII characters, one a line.") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise UnmaskError(f"{path} holds no key; write one into it, such as: openssl rand -hex 32 > {path}.")
    for number, key in enumerate(keys, 1):
        if not key.isprintable() or " " in key:
            raise UnmaskError(f"Key {number} of {path} has a space or a character that cannot be printed.")
    return keys
