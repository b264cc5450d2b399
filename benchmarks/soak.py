"""Soak: `unmask serve` asked at twice the rate that it can answer. Only 200 and 429 may come, and memory stays flat.

First as many clients as answers are waited for tell the capacity; then requests are sent at twice that rate, by the
clock and not by the answers.

    python benchmarks/soak.py --minutes 10 --out soak.json
    python benchmarks/soak.py --minutes 0.3 --model runs/encoder

Ends with status 1 where another status came, a connection broke, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unmask.bench import common

TEXT = "the of a model reads text and answers what it has learned from many sentences"
TEXTS = 8  # of a request
CLIENTS = 32  # that wait for their answers, while the capacity is measured
OPEN = 1_024  # requests that are under way at a time; beyond these the load is late, and the report says how many
GROWTH = 1.05  # memory of the last quarter beside the second
TIMEOUT = 90.0


class Load:
    """Requests to one address, and what came of them."""

    def __init__(self, client: Any, seed: int) -> None:
        self.client = client
        self.rng = np.random.default_rng(seed)
        self.words = TEXT.split()
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []  # of what was answered
        self.late = 0

    async def ask(self) -> None:
        """One request: texts of 3 to 40 words."""
        lengths = self.rng.integers(3, 40, TEXTS)
        texts = [" ".join(self.rng.choice(self.words, length)) for length in lengths]
        begin = time.perf_counter()
        try:
            answer = await self.client.post("/predict", json={"texts": texts})
        except Exception as error:  # whatever breaks a connection is a finding
            self.statuses[type(error).__name__] += 1
            return
        status = str(answer.status_code)
        if status == "429" and "retry-after" not in answer.headers:
            status = "429 without Retry-After"
        self.statuses[status] += 1
        if status == "200":
            self.seconds.append(time.perf_counter() - begin)

    async def closed(self, seconds: float) -> float:
        """Requests answered a second, by clients that wait for their answers."""
        until = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < until:
                await self.ask()

        begin, before = time.perf_counter(), len(self.seconds)
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return (len(self.seconds) - before) / (time.perf_counter() - begin)

    async def steady(self, rate: float, seconds: float) -> None:
        """`rate` requests a second, whatever comes back."""
        tasks: set[asyncio.Task[None]] = set()
        begin = time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            if len(tasks) >= OPEN:
                self.late += 1
                continue
            task = asyncio.create_task(self.ask())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`unmask serve` in a process, and its address; it must end well."""
    command = [sys.executable, "-m", "unmask", "serve", "--model", str(folder), "--port", "0"]
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


def write_model(folder: Path, seed: int) -> Path:
    """An untrained classifier of the size of BERT-mini."""
    from unmask import huggingface
    from unmask.data.tokenizer import Tokenizer
    from unmask.models.bert import Bert

    tokenizer = Tokenizer.train([TEXT] * 3, 200)
    config = Bert(vocabulary=tokenizer.size, dim=256, layers=4, heads=4, hidden=1_024, length=128)
    huggingface.save(folder, config.build({"classification": 2}, seed=seed), tokenizer, labels=("no", "yes"))
    return folder


async def soak(address: str, process: subprocess.Popen[str], options: argparse.Namespace) -> dict[str, Any]:
    import httpx2

    limits = httpx2.Limits(max_connections=OPEN, max_keepalive_connections=OPEN)
    used: list[float] = []

    async def watch() -> None:
        while True:
            used.append(memory(process))
            await asyncio.sleep(1)

    async with httpx2.AsyncClient(base_url=address, timeout=TIMEOUT, limits=limits) as client:
        load = Load(client, options.seed)
        await load.closed(2)  # warms
        capacity = await load.closed(min(10.0, options.minutes * 20))
        load = Load(client, options.seed + 1)
        watching = asyncio.create_task(watch())
        begin = time.perf_counter()
        await load.steady(2 * capacity, options.minutes * 60)
        seconds = time.perf_counter() - begin
        watching.cancel()
    quarter = max(1, len(used) // 4)
    return {
        "capacity": capacity,
        "asked": sum(load.statuses.values()) / seconds,
        "answered": load.statuses["200"] / seconds,
        "statuses": dict(load.statuses),
        "late": load.late,
        "p50": float(np.percentile(load.seconds, 50)) if load.seconds else None,
        "p99": float(np.percentile(load.seconds, 99)) if load.seconds else None,
        "memory": [statistics.median(used[quarter : 2 * quarter] or used), statistics.median(used[-quarter:])],
    }


def render(found: dict[str, Any]) -> str:
    before, after = found["memory"]
    statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(found["statuses"].items()))
    return "\n".join(
        [
            f"capacity    {found['capacity']:,.0f} requests/s of {TEXTS} texts",
            f"asked       {found['asked']:,.0f} requests/s ({found['late']:,} more were not sent in time)",
            f"answered    {found['answered']:,.0f} requests/s; {statuses}",
            f"latency     p50 {1_000 * (found['p50'] or 0):,.0f} ms, p99 {1_000 * (found['p99'] or 0):,.0f} ms",
            f"memory      {before:,.0f} MiB in the second quarter, {after:,.0f} MiB in the last",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--model", type=Path, help="folder that /predict can ask; default: an untrained BERT-mini")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the figures as JSON")
    options = parser.parse_args()
    common.need("httpx2", "starlette", "uvicorn")
    with tempfile.TemporaryDirectory(prefix="unmask-soak-") as place:
        folder = options.model or write_model(Path(place) / "mini", options.seed)
        with serving(folder) as (process, address):
            found = asyncio.run(soak(address, process, options))
    print(render(found))
    common.write(options.out, found)
    wrong = set(found["statuses"]) - {"200", "429"}
    if wrong:
        sys.exit(f"Other answers than 200 and 429 came: {', '.join(sorted(wrong))}.")
    if found["memory"][1] > GROWTH * found["memory"][0]:
        sys.exit("Memory grew.")


if __name__ == "__main__":
    common.command(main)
