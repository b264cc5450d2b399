"""Load test of `unmask serve` with one and with several workers: requests a second, latency, errors, memory.

Clients send requests of eight texts and wait for the answers. Every answer is compared with that of one predictor.
Memory is the proportional set size (PSS) of all processes of the service under load, in which a page that several
processes share counts once.

    python benchmarks/serving.py --workers 1 2 --seconds 60 --out serving.json
    python benchmarks/serving.py --address http://127.0.0.1:8000 --model runs/sentiment --seconds 60

The second command measures a service that runs already, such as two behind a balancer, without its memory.
Ends with status 1 if a request got another status than 200, and if an answer differs by more than NEAR.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import soak
from bench import common

NEAR = 1e-4  # difference of a probability: the other rows of a batch change the last digits
PERCENTILES = (50, 95, 99)
SIZES = {"mini": {"dim": 256, "layers": 4}, "base": {"dim": 768, "layers": 12}}


class Checked(soak.Load):
    """Requests whose answers are kept."""

    def reset(self) -> None:
        super().reset()
        self.answers: dict[int, set[bytes]] = defaultdict(set)  # number of the texts -> all different answers

    def keep(self, number: int, body: bytes) -> None:
        self.answers[number].add(body)

    def wrong(self, predict: Any) -> int:
        """The number of different answers that are not near those of `predict`."""
        found = 0
        for number, bodies in self.answers.items():
            wanted = [answer["scores"] for answer in predict(self.texts[number])]
            found += sum(not _near([one["scores"] for one in json.loads(body)["answers"]], wanted) for body in bodies)
        return found


def _near(found: list[dict[str, float]], wanted: list[dict[str, float]]) -> bool:
    return len(found) == len(wanted) and all(
        one.keys() == other.keys() and all(abs(one[label] - other[label]) <= NEAR for label in one)
        for one, other in zip(found, wanted, strict=True)
    )


def pss(process: subprocess.Popen[str]) -> float:
    """PSS of a process and its children in MiB."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    sizes = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (process.pid, *children)]
    return sum(int(re.findall(r"^Pss:\s+(\d+)", size, re.MULTILINE)[0]) for size in sizes) / 1_024


def shares(address: str) -> dict[str, int]:
    """Worker -> requests to /predict that it answered; empty for a single one."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    pattern = r'unmask_requests_total\{worker="(\d+)",route="/predict",status="200"\} (\d+)'
    return {worker: int(count) for worker, count in re.findall(pattern, text)}


def measured(
    address: str, predict: Any, options: argparse.Namespace, process: subprocess.Popen[str] | None
) -> dict[str, Any]:
    load = Checked(address, options.seed)

    async def run() -> tuple[float, float | None]:
        await load.closed(2, options.clients)  # warms
        looking = asyncio.create_task(asyncio.sleep(options.seconds / 2, None))
        looking.add_done_callback(lambda _: size.append(pss(process)) if process else None)
        rate = await load.closed(options.seconds, options.clients)
        load.close()
        return rate, size[0] if size else None

    size: list[float] = []
    rate, memory = asyncio.run(run())
    return {
        "rate": rate,
        **{f"p{share}": soak.percentile(load.seconds, share) for share in PERCENTILES},
        "statuses": dict(load.statuses),
        "wrong": load.wrong(predict),
        "pss": memory,
        "shares": shares(address) if process else {},
    }


def render(name: str, found: dict[str, Any]) -> str:
    latency = ", ".join(f"p{share} {1_000 * (found[f'p{share}'] or 0):,.0f} ms" for share in PERCENTILES)
    statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(found["statuses"].items()))
    memory = f"; PSS {found['pss']:,.0f} MiB" if found["pss"] else ""
    by = f" ({' + '.join(f'{count:,}' for count in found['shares'].values())})" if found["shares"] else ""
    wrong = f"{found['wrong']} wrong answers"
    return f"{name:10}  {found['rate']:,.3g} requests/s; {latency}; {statuses}{by}; {wrong}{memory}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--threads", type=int, help="compute threads of each worker")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=soak.CLIENTS, help="requests that are open at a time")
    parser.add_argument("--model", type=Path, help="folder of a classifier; default: an untrained one")
    parser.add_argument("--size", choices=SIZES, default="mini", help="of the untrained one: as BERT-mini or BERT-base")
    parser.add_argument("--address", help="a service that runs already; give its --model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="write the figures as JSON")
    options = parser.parse_args()
    common.need("starlette", "uvicorn")
    from unmask.serve import Predictor

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="unmask-serving-") as place:
        folder = options.model or soak.write_model(Path(place) / options.size, options.seed, **SIZES[options.size])
        predict = Predictor(folder, precision="fp32")
        if options.address:
            found["address"] = measured(options.address, predict, options, None)
            print(render("address", found["address"]))
        for workers in [] if options.address else options.workers:
            how = ["--precision", "fp32", "--queue-seconds", "60", "--workers", str(workers)]
            how += ["--threads", str(options.threads)] if options.threads else []
            with soak.serving(folder, *how) as (process, address):
                found[str(workers)] = one = measured(address, predict, options, process)
            print(render(f"{workers} worker{'s' * (workers > 1)}", one), flush=True)
    common.write(options.out, found)
    if any(one["wrong"] or one["statuses"].keys() - {"200"} for one in found.values()):
        sys.exit("Some requests were not answered with 200, or wrongly.")


if __name__ == "__main__":
    common.command(main)
