"""Soak test: `unmask serve` at twice the request rate of its capacity. Only 200 and 429 may come; memory stays flat.

First, clients that wait for their answers measure the capacity. Then requests are sent at twice that rate, by the clock
and not by the answers; their latency counts from the time at which they were due. The client shares the machine with
the service. If it cannot send at this rate, or sends late, the test fails, because the service had less load than
intended.

    python benchmarks/soak.py --minutes 10 --out soak.json
    python benchmarks/soak.py --minutes 2 --model runs/encoder

Memory is measured every second. The first WARM of the time does not count (buffers grow to the largest batch, the
allocator settles). After that, a line through the measurements must not rise by more than LEAK a minute. Runs of less
than a minute do not judge memory.

Ends with status 1 if another status came, a connection broke, memory grew, or the client was too slow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bench import common
from unmask.huggingface.table import as_heads

TEXT = "the of a model reads text and answers what it has learned from many sentences"
TEXTS = 8  # of a request
BODIES = 256  # different requests, made before the first is sent: it is not the client that is measured
CLIENTS = 32  # that wait for their answers, while the capacity is measured
OPEN = 800  # requests that are under way at a time; one that is due beyond these is not sent
FACTOR = 2.0  # of the capacity, at which requests are sent
LEAST = 0.95  # share of that rate that must be reached
LATE = 0.5  # seconds after its time that a request may be sent, at the 99th percentile
WARM = 0.4  # share of the run that memory is not judged by
LEAK = 0.01  # share of the memory that may come on top in a minute
TIMEOUT = 90.0


class Load:
    """Requests to one address, and their results. Connections are kept, and the work for each request is small."""

    def __init__(self, address: str, seed: int) -> None:
        place = urlsplit(address)
        self.host, self.port = place.hostname, place.port
        self.idle: deque[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = deque()
        self.texts = _texts(np.random.default_rng(seed))
        self.requests = [_request(f"{self.host}:{self.port}", texts) for texts in self.texts]
        self.reset()

    def reset(self) -> None:
        """Forget all results so far."""
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []  # of what was answered, from the time when it was due
        self.lags: list[float] = []  # from the time when a request was due until it was sent
        self.unsent = 0

    async def ask(self, number: int, due: float) -> None:
        """One request of texts of 3 to 40 words."""
        self.lags.append(time.perf_counter() - due)
        try:
            async with asyncio.timeout(TIMEOUT):
                status, body = await self._exchange(self.requests[number % BODIES])
        except Exception as error:  # whatever breaks a connection is a finding
            status = type(error).__name__
        self.statuses[status] += 1
        if status == "200":
            self.seconds.append(time.perf_counter() - due)
            self.keep(number % BODIES, body)

    def keep(self, number: int, body: bytes) -> None:
        """Called with the answer to the texts of this number."""

    async def _exchange(self, request: bytes) -> tuple[str, bytes]:
        while self.idle and self.idle[-1][0].at_eof():  # the service closes connections that rest for long
            self.idle.pop()[1].close()
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(self.host, self.port)
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        if b"connection: close" in head:
            writer.close()
        else:
            self.idle.append((reader, writer))
        status = head[9:12].decode("ascii")
        return ("429 without Retry-After" if status == "429" and b"retry-after:" not in head else status), body

    async def closed(self, seconds: float, clients: int = CLIENTS) -> float:
        """Requests answered a second, by clients that wait for their answers."""
        self.reset()
        begin = time.perf_counter()
        until = begin + seconds

        async def client(number: int) -> None:
            while (now := time.perf_counter()) < until:
                await self.ask(number := number + clients, now)

        await asyncio.gather(*map(client, range(clients)))
        return self.statuses["200"] / (time.perf_counter() - begin)

    async def steady(self, rate: float, seconds: float) -> float:
        """Send `rate` requests a second without waiting for responses; returns the rate that was reached."""
        self.reset()
        tasks: set[asyncio.Task[None]] = set()
        begin = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if len(tasks) >= OPEN:
                self.unsent += 1
                continue
            task = asyncio.create_task(self.ask(number, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        sent = len(self.lags) / (time.perf_counter() - begin)
        await asyncio.gather(*tasks)
        return sent

    def close(self) -> None:
        for _, writer in self.idle:
            writer.close()


def _texts(rng: np.random.Generator) -> list[list[str]]:
    words = TEXT.split()
    return [[" ".join(rng.choice(words, length)) for length in rng.integers(3, 40, TEXTS)] for _ in range(BODIES)]


def _request(host: str, texts: list[str]) -> bytes:
    body = json.dumps({"texts": texts}).encode("ascii")
    head = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`unmask serve` in a process, and its address; it must end well."""
    command = [sys.executable, "-m", "unmask", "serve", "--model", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            sys.exit("The service did not start.")
        yield process, found[0]
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            sys.exit(f"The service ended with status {process.returncode}.")
    finally:
        process.kill()
        process.wait()


def memory(process: subprocess.Popen[str]) -> float:
    """Resident memory in MiB; 0 where the system does not say."""
    place = Path(f"/proc/{process.pid}/status")
    found = re.search(r"VmRSS:\s+(\d+)", place.read_text()) if place.exists() else None
    return int(found[1]) / 1_024 if found else 0.0


def write_model(folder: Path, seed: int, *, dim: int = 256, layers: int = 4) -> Path:
    """An untrained classifier, by default of the size of BERT-mini."""
    from unmask import huggingface
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.models.bert import Bert

    tokenizer = Tokenizer.train([TEXT] * 3, 200)
    config = Bert(vocabulary=tokenizer.size, dim=dim, layers=layers, heads=dim // 64, hidden=4 * dim, length=128)
    huggingface.save(folder, config.build(as_heads({"classification": 2}), seed=seed), tokenizer, labels=("no", "yes"))
    return folder


async def soak(address: str, process: subprocess.Popen[str], options: argparse.Namespace) -> dict[str, Any]:
    used: list[tuple[float, float]] = []
    load = Load(address, options.seed)

    async def watch() -> None:
        while True:
            used.append((time.perf_counter(), memory(process)))
            await asyncio.sleep(1)

    await load.closed(2)  # warms
    capacity = await load.closed(min(10.0, options.minutes * 20))
    watching = asyncio.create_task(watch())
    rate = FACTOR * capacity
    begin = time.perf_counter()
    sent = await load.steady(rate, options.minutes * 60)
    seconds = time.perf_counter() - begin
    watching.cancel()
    load.close()
    return {
        "capacity": capacity,
        "wanted": rate,
        "sent": sent,
        "unsent": load.unsent,
        "lag": percentile(load.lags, 99),
        "answered": load.statuses["200"] / seconds,
        "statuses": dict(load.statuses),
        "p50": percentile(load.seconds, 50),
        "p99": percentile(load.seconds, 99),
        "minutes": options.minutes,
        "memory": grown([(at - begin, size) for at, size in used], WARM * seconds),
        "looks": [[round(at - begin, 1), round(size, 1)] for at, size in used],
    }


def percentile(values: list[float], share: float) -> float | None:
    return float(np.percentile(values, share)) if values else None


def grown(looks: list[tuple[float, float]], begin: float) -> dict[str, float]:
    """Memory from second `begin` on, by the line through the measurements (second, MiB): MiB at its begin and end, its
    slope in MiB a minute, and two standard errors of the slope."""
    later = np.array([look for look in looks if look[0] >= begin])
    if len(later) < 3:
        return {"before": looks[-1][1], "after": looks[-1][1], "slope": 0.0, "error": float("inf")}
    at, size = later.T
    (slope, start), residuals, *_ = np.polyfit(at, size, 1, full=True)
    spread = float(((at - at.mean()) ** 2).sum())
    error = 2 * np.sqrt(float(residuals.sum()) / max(1, len(at) - 2) / spread)
    before, after = start + slope * at[0], start + slope * at[-1]
    return {"before": float(before), "after": float(after), "slope": float(60 * slope), "error": float(60 * error)}


def verdicts(found: dict[str, Any]) -> list[str]:
    """The failed conditions, one sentence each."""
    wrong = []
    others = set(found["statuses"]) - {"200", "429"}
    if others:
        wrong.append(f"Other answers than 200 and 429 came: {', '.join(sorted(others))}.")
    if found["sent"] < LEAST * found["wanted"] or (found["lag"] or 0.0) > LATE:
        wrong.append(
            f"The client was too slow: it sent {found['sent'] / found['capacity']:.2f} times the capacity, not "
            f"{FACTOR:g} times, and was up to {found['lag'] or 0.0:.2f} s late."
        )
    memory = found["memory"]
    if found["minutes"] >= 1 and memory["slope"] - memory["error"] > LEAK * memory["before"]:
        wrong.append(f"Memory grew by {memory['slope']:.1f} MiB a minute after {WARM:.0%} of the time.")
    return wrong


def render(found: dict[str, Any]) -> str:
    memory, lag = found["memory"], 1_000 * (found["lag"] or 0)
    statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(found["statuses"].items()))
    slope = f"{memory['slope']:+.2f} ± {memory['error']:.2f} MiB a minute"
    said = slope if found["minutes"] >= 1 else "too short to say"
    return "\n".join(
        [
            f"capacity    {found['capacity']:,.0f} requests/s of {TEXTS} texts",
            f"sent        {found['sent']:,.0f} of {found['wanted']:,.0f} requests/s, {found['unsent']:,} not at all; "
            f"p99 {lag:,.0f} ms after their time",
            f"answered    {found['answered']:,.0f} requests/s; {statuses}",
            f"latency     p50 {1_000 * (found['p50'] or 0):,.0f} ms, p99 {1_000 * (found['p99'] or 0):,.0f} ms",
            f"memory      {memory['before']:,.0f} MiB after {WARM:.0%} of the time, {memory['after']:,.0f} MiB at the "
            f"end: {said}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--model", type=Path, help="folder that /predict can ask; default: an untrained BERT-mini")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the figures as JSON")
    options = parser.parse_args()
    common.need("starlette", "uvicorn")
    with tempfile.TemporaryDirectory(prefix="unmask-soak-") as place:
        folder = options.model or write_model(Path(place) / "mini", options.seed)
        with serving(folder) as (process, address):
            found = asyncio.run(soak(address, process, options))
    print(render(found))
    common.write(options.out, found)
    if wrong := verdicts(found):
        sys.exit(" ".join(wrong))


if __name__ == "__main__":
    common.command(main)
