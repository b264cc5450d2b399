"""Settings of the service: limits on requests, and who may send them."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from pathlib import Path

from unmask.config import Config
from unmask.errors import UnmaskError


@dataclass(frozen=True, kw_only=True)
class Settings(Config):
    """Limits of the service. A request beyond a limit gets the status in brackets and one sentence.

    payload         most bytes of the body of a request (413)
    values          most commas and brackets of a body, which limit the number of its JSON values (413)
    texts           most texts of a request (413)
    characters      most characters of all texts of a request (413), counted before tokenization
    tokens          most tokens of a request (413): those that it reads and, for models that write, may write
    view            most characters of a request to a view of the page (413)
    written         most tokens that a request may have written for a text
    answer          most bytes of the body of an answer (413)
    held            most bytes of all long bodies of requests and answers together (429)
    batch_tokens    most tokens of a batch; a request is never split, so a single one may have more
    wait            milliseconds that a request waits for others to share its batch
    queue_tokens    most tokens of the waiting requests to a model (429)
    queue_seconds   most seconds that the requests before a new one will take, estimated from the speed (429)
    requests        most open requests (429)
    connections     most open connections, fewer if the system allows fewer descriptors; at the limit, a new connection
                    closes the longest idle one
    headers         most headers of a request (431)
    seconds         most seconds from a request to its answer (503)
    head_seconds    most seconds until the head of a request has arrived (408)
    body_seconds    most seconds until the body of a request has arrived (408)
    read_seconds    most seconds that a client may lag behind while it reads an answer; slower ones are disconnected
    notice_seconds  seconds after SIGTERM in which new requests are still answered while /ready says 503, so that a
                    balancer sends no more
    drain_seconds   seconds that open requests get after that
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
    notice_seconds: float = 0.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            least = 0 if name in ("wait", "notice_seconds") else 1
            if value < least or not math.isfinite(value):
                raise UnmaskError(f"The setting {name} of the service must be at least {least}, not {value}.")
        if self.wait > 1_000:
            raise UnmaskError(
                f"The setting wait of the service must be at most 1,000 milliseconds, not {self.wait:g}; choose 2 to 5."
            )


@dataclass(frozen=True)
class Access:
    """Who may send requests.

    keys     a request must have one (`Authorization: Bearer KEY`); empty: any client that reaches the address may
    origins  origins of other pages that may read answers, such as `https://example.org`
    hosts    names that the Host header may have, against DNS rebinding, by which another page passes for this one;
             empty: any
    data     whether clients see data of the training: dev rows, texts of the corpus, and the runs
    """

    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    data: bool = True

    def __post_init__(self) -> None:
        for origin in self.origins:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or not rest or "/" in rest or "*" in rest:
                raise UnmaskError(f"'{origin}' is not an origin; write it like https://example.org.")


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys in a file, one a line. Raises UnmaskError for a file without keys, and for a key that a header
    cannot hold."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise UnmaskError(f"There is no file {path}.") from None
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} must hold keys of plain ASCII characters, one a line.") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise UnmaskError(f"{path} holds no key; write one into it, for example: openssl rand -hex 32 > {path}.")
    for number, key in enumerate(keys, 1):
        if not key.isprintable() or " " in key:
            raise UnmaskError(f"Key {number} of {path} has a space or a character that cannot be printed.")
    return keys
