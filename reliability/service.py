"""Hostile clients of `unmask serve`: /health must be answered within 0.2 s, at the 99th percentile, under every attack.

The service runs in a separate process on 127.0.0.1, with small untrained models. A second process requests /health on
new connections and measures the latency. Each attack takes --seconds with a few connections, after the same time
without an attack; both latencies are reported, because on a busy machine both are slow. The report also has the
lateness of the measuring process: if it is more than LATE, a slow service is not a failure.

    python reliability/service.py
    python reliability/service.py --seconds 3 --attacks slow_readers unfinished_heads

Ends with status 1 if the limit was exceeded, if the service took more memory than MEMORY, or if work for clients that
hung up delayed its end after SIGTERM. Every attack is limited in connections, bytes and time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unmask.huggingface.table import as_heads
from unmask.types import Head

os.environ.setdefault("OMP_NUM_THREADS", "1")

LIMIT = 0.2  # seconds until /health is answered, at the 99th percentile
LATE = 0.05  # seconds that the measuring process may be late, at the 99th percentile, to say anything
MEMORY = 1_500  # MiB that an attack may add
ENDS = 0.5  # seconds that the end after SIGTERM may take longer for work of clients that hung up
EVERY = 0.02  # seconds between two questions
CLIENTS = 4  # that attack at a time
IDLE = 600  # connections with an unfinished head
TEXT = "the function returns a list of strings and the film was good with people who talk"

Place = tuple[str, int]
Attack = Callable[[Place, threading.Event], None]


# ------------------------------------------------------------------------------------------------ attacks


def post(place: Place, path: str, body: bytes, *, read: bool = True, head: bytes = b"") -> socket.socket | None:
    """One request on a new connection; returns the connection if the answer is not to be read."""
    lines = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    lines += f"Content-Length: {len(body)}\r\n"
    client = socket.create_connection(place, timeout=20)
    try:
        client.sendall(lines.encode() + head + b"Connection: close\r\n\r\n" + body)
        if not read:
            return client
        while client.recv(65_536):
            pass
    except OSError:  # it may refuse before it has read everything
        pass
    client.close()
    return None


def posting(path: str, body: Callable[[], bytes]) -> Attack:
    """CLIENTS send the same body repeatedly."""

    def attack(place: Place, over: threading.Event) -> None:
        made = body()

        def send() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    post(place, path, made)

        side_by_side(send, CLIENTS)

    return attack


def asking(**fields: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(fields, ensure_ascii=False).encode()


def side_by_side(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def slow_readers(place: Place, over: threading.Event) -> None:
    """Three clients request long answers and do not read them."""
    body = asking(texts=["the"] * 2_048, model="encoder")()
    open_ = []
    for _ in range(3):
        with contextlib.suppress(OSError):
            open_.append(post(place, "/embed", body, read=False))
    over.wait()
    for client in open_:
        if client is not None:
            client.close()


def unfinished_heads(place: Place, over: threading.Event) -> None:
    """Many connections begin a request and do not finish it; a line a second keeps each of them alive."""
    open_: list[socket.socket] = []
    while not over.is_set():
        with contextlib.suppress(OSError):
            while len(open_) < IDLE and not over.is_set():
                client = socket.create_connection(place, timeout=5)
                client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n")
                open_.append(client)
        for client in [*open_]:
            try:
                client.sendall(b"X-More: 1\r\n")
            except OSError:
                client.close()
                open_.remove(client)
        over.wait(1)
    for client in open_:
        client.close()


def aborted_writing(place: Place, over: threading.Event) -> None:
    """Clients request long texts, and hang up at once."""
    body = asking(texts="the", model="lm", sampling={"max_length": 512, "samples": 16})()
    while not over.is_set():
        with contextlib.suppress(OSError):
            client = post(place, "/generate", body, read=False)
            over.wait(0.05)
            if client is not None:
                client.close()


def overload(place: Place, over: threading.Event) -> None:
    """Overload: short requests from many connections."""
    body = asking(texts=[TEXT] * 8, model="classifier")()

    def send() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                post(place, "/predict", body)

    side_by_side(send, 4 * CLIENTS)


def many_headers(place: Place, over: threading.Event) -> None:
    head = b"".join(b"X-%d: 1\r\n" % i for i in range(5_000))
    while not over.is_set():
        with contextlib.suppress(OSError):
            post(place, "/predict", b"{}", head=head)


CHINESE = "漢字"
ATTACKS: dict[str, Attack] = {
    "wordpiece_4_MB": posting("/wordpiece", asking(model="classifier", text="a b " * 1_000_000)),
    "wordpiece_longest": posting("/wordpiece", asking(model="classifier", text="." * 19_000)),
    "alignment_longest": posting("/alignment", asking(model="writer", text="the " * 2_400, pair="the " * 2_400)),
    "million_texts": posting("/predict", lambda: b'{"texts": [' + b'"a",' * 1_000_000 + b'"a"]}'),
    "million_lists": posting("/predict", lambda: b'{"texts": [' + b"[]," * 1_300_000 + b"[]]}"),
    "most_values": posting("/predict", lambda: b'{"texts": "a", "model": [' + b"{}," * 65_000 + b"{}]}"),
    "most_names": posting("/inside", lambda: b"{" + b",".join(b'"%d":[1]' % i for i in range(65_000)) + b"}"),
    "long_name": posting("/predict", asking(texts="a", model="m" * 4_000_000)),
    "tokenize_4_MB_of_Chinese": posting("/tokenize", asking(model="classifier", texts=CHINESE * 650_000)),
    "tokenize_longest": posting("/tokenize", asking(model="classifier", texts=CHINESE * 65_000)),
    "masks_longest": posting("/predict", asking(model="bert", texts="[MASK] " + "a " * 60_000)),
    "choices": posting(
        "/predict", asking(model="chooser", texts={"context": "a " * 100_000, "choices": ["b"] * 100_000})
    ),
    "slow_readers": slow_readers,
    "unfinished_heads": unfinished_heads,
    "many_headers": many_headers,
    "aborted_writing": aborted_writing,
    "overload": overload,
}


# ------------------------------------------------------------------------------------------------ the service


def write_models(place: Path) -> list[Path]:
    """Folders of untrained models; the encoder has long vectors."""
    from unmask import huggingface
    from unmask.data.text.subwords import train as train_subwords
    from unmask.data.text.tokenizer import Tokenizer
    from unmask.models.bert import Bert
    from unmask.models.recurrent import RecurrentNetwork
    from unmask.models.seq2seq import Seq2Seq

    tokenizer = Tokenizer.train([TEXT] * 3, 150)
    words = train_subwords([TEXT] * 3, 40, kind="word")

    def bert(name: str, heads: dict[str, Head], dim: int = 64, **more: Any) -> None:
        config = Bert(vocabulary=tokenizer.size, length=128, layers=2, dim=dim, heads=2, hidden=2 * dim)
        huggingface.save(place / name, config.build(heads=heads, seed=1), tokenizer, **more)

    bert("classifier", as_heads({"classification": 3}), labels=("bad", "fair", "good"))
    bert("bert", as_heads({"mlm": 0}))
    bert("chooser", as_heads({"choice": 1}))
    bert("encoder", {}, dim=768, settings={"pooling": "mean", "normalise": False})
    writer = Seq2Seq(vocabulary=words.size, dim=8, hidden=8, padding=words.pad, start=words.start, end=words.end)
    huggingface.save(place / "writer", writer.build(seed=2), words)
    network = RecurrentNetwork(vocabulary=tokenizer.size, dim=64, hidden=256, padding=tokenizer.pad)
    huggingface.save(place / "lm", network.build(None, seed=4), tokenizer)
    return [place / name for name in ("classifier", "bert", "chooser", "encoder", "writer", "lm")]


@contextlib.contextmanager
def serving(folders: list[Path]) -> Iterator[tuple[subprocess.Popen[str], Place]]:
    command = [sys.executable, "-m", "unmask", "serve", "--port", "0", "--loaded", "9", "--model", *map(str, folders)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
        if found is None:
            sys.exit("The service did not start.")
        yield process, (found[1], int(found[2]))
    finally:
        process.kill()
        process.wait()


def memory(process: subprocess.Popen[str], name: str) -> float:
    """Resident memory of the process in MiB: the present one (VmRSS) or the maximum so far (VmHWM)."""
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1_024 if found else 0.0


def probe(place: Place, seconds: float) -> None:
    """Request /health for `seconds`, and print the latencies and the lateness of this process, in seconds."""
    waits, late, failures = [], [], 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        due = time.perf_counter() + EVERY
        time.sleep(EVERY)
        begin = time.perf_counter()
        late.append(begin - due)
        try:
            with socket.create_connection(place, timeout=10) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b""
                while part := client.recv(4_096):
                    answer += part
                failures += b" 200 " not in answer.split(b"\r\n")[0]
        except OSError:
            failures += 1
        waits.append(time.perf_counter() - begin)
    print(json.dumps({"waits": waits, "late": late, "failures": failures}))


def probed(place: Place, seconds: float) -> dict[str, Any]:
    """The results of `probe` in another process."""
    command = [sys.executable, __file__, "--probe", f"{place[0]}:{place[1]}", "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds + 60)
    found = json.loads(done.stdout)
    return {
        "asked": len(found["waits"]),
        "failures": found["failures"],
        "p50": percentile(found["waits"], 50),
        "p99": percentile(found["waits"], 99),
        "most": max(found["waits"]),
        "late": percentile(found["late"], 99),
    }


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share / 100 * len(values)))]


def attacked(name: str, place: Place, process: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    """Latencies of /health without the attack and with it, and the memory that was added."""
    before, held = probed(place, seconds), memory(process, "VmRSS")
    over = threading.Event()
    attacker = threading.Thread(target=ATTACKS[name], args=(place, over))
    attacker.start()
    time.sleep(0.5)
    during = probed(place, seconds)
    over.set()
    attacker.join(60)
    return {"before": before, "during": during, "added": memory(process, "VmHWM") - held}


def ending(folders: list[Path], aborted: int) -> float:
    """Seconds from SIGTERM to the end of the service, with pending work for `aborted` clients that hung up."""
    with serving(folders) as (process, place):
        body = asking(texts="the", model="lm", sampling={"max_length": 512, "samples": 16})()
        post(place, "/health", b"")
        for _ in range(aborted):
            client = post(place, "/generate", body, read=False)
            time.sleep(0.2)
            if client is not None:
                client.close()
        begin = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        return time.perf_counter() - begin


def verdict(found: dict[str, Any]) -> str:
    """The failure in words; empty if there is none."""
    during, before = found["during"], found["before"]
    if found["added"] > MEMORY:
        return "too much memory"
    if during["failures"]:
        return f"{during['failures']} were not answered"
    if during["p99"] <= LIMIT:
        return ""
    return "undecided: this machine is too busy" if max(during["late"], before["p99"] / 4) > LATE else "too slow"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack, and before it")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="NAME")
    parser.add_argument("--out", help="file for the results, as JSON")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        host, port = options.probe.split(":")
        probe((host, int(port)), options.seconds)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * IDLE)), hard))
    found: dict[str, Any] = {}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="unmask-service-") as temporary:
        folders = write_models(Path(temporary))
        print(f"{'':26} {'p99 before':>10} {'p99':>8} {'most':>8} {'late':>8} {'memory':>9}")
        for name in options.attacks:
            with serving(folders) as (process, place):
                found[name] = one = attacked(name, place, process, options.seconds)
            said = verdict(one)
            wrong += [name] if said and not said.startswith("undecided") else []
            numbers = (one["before"]["p99"], one["during"]["p99"], one["during"]["most"], one["during"]["late"])
            shown = " ".join(f"{1_000 * value:5.0f} ms" for value in numbers)
            print(f"{name:26}   {shown} {one['added']:5.0f} MiB  {said or 'holds'}", flush=True)
        idle, busy = found["ending"] = ending(folders, 0), ending(folders, 3)
        print(f"ended {busy:.2f} s after SIGTERM with work for clients that hung up under way, {idle:.2f} s without")
        wrong += ["ending"] if busy - idle > ENDS else []
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if wrong:
        sys.exit(f"These did not hold: {', '.join(wrong)}.")


if __name__ == "__main__":
    main()
