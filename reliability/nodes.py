"""Two nodes under torchrun: one is killed in the middle of a step, and the run goes on without it, or with its return.

Each node is an agent of torchrun in a network namespace of its own, joined to the other by a veth pair, which needs
root and `ip`; without them, both agents are on the loopback interface. The nodes share the file system. Conditions:

- the node that is left restarts from the last checkpoint and finishes, without a command
- steps, losses and metrics agree to 1e-6 with those of one process: nothing is lost, nothing counted twice
- no process is left

    python reliability/nodes.py
    python reliability/nodes.py --cases returns --steps 400 --out nodes.json

`killed`: the second node is lost. `returns`: it is lost and comes back while the first trains. `sharded`: as `killed`,
with `--sharding full` (FSDP2). The rendezvous is on the first node, which must live. Ends with status 1 if a condition
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs import Process, far, prepare, trace, warm

ADDRESSES = ("10.213.0.1", "10.213.0.2")
NAMES, LINK = ("unmask-node-1", "unmask-node-2"), "between"
PORT = 29511
PATIENCE = 240.0  # seconds
CASES: dict[str, tuple[list[str], bool]] = {
    "killed": ([], False),
    "returns": ([], True),
    "sharded": (["--training.sharding", "full"], False),
}
"""Name -> further options of the run, and whether the lost node comes back."""
LAST_CALL = 2  # seconds that agents wait for more nodes, when one is enough


AGENT = """
import sys, time
from pathlib import Path
from torch.distributed.run import main
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
main(sys.argv[2:])
"""  # imported before it is needed, so that a node can come back at once


class Node:
    """A machine: the agent of torchrun and its process, with an address of its own if there are namespaces."""

    def __init__(self, number: int, namespaces: bool) -> None:
        self.number, self.namespace = number, NAMES[number] if namespaces else None
        self.address, self.host = (ADDRESSES[i] if namespaces else "127.0.0.1" for i in (number, 0))
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], log: Path, when: Path = Path("/")) -> None:
        """Start the agent, which waits until the file `when` exists, and then meets the other one at the address of the
        first node."""
        within = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        agent = [sys.executable, "-c", AGENT, str(when), "--nnodes", "1:2", "--nproc-per-node", "1"]
        agent += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.host}:{PORT}", "--rdzv-id", log.stem]
        agent += [
            "--rdzv-conf",
            f"last_call_timeout={LAST_CALL},is_host={int(self.number == 0)}",
            "--local-addr",
            self.address,
        ]
        agent += ["--max-restarts", "5", "--monitor-interval", "0.2", "-m", "unmask"]
        interface = LINK if self.namespace else "lo"
        own = {"GLOO_SOCKET_IFNAME": interface, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "MASTER_ADDR": self.address}
        with log.open("ab") as sink:
            output: dict[str, Any] = {"stdout": sink, "stderr": sink, "start_new_session": True}
            self.agent = subprocess.Popen([*within, *agent, *command], env={**os.environ, **own}, **output)

    def kill(self) -> None:
        """SIGKILL to all its processes at once, as if it lost its power."""
        for process in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self.agent is not None:
            self.agent.wait()

    def members(self) -> list[int]:
        """The agent and its descendants."""
        found = [self.agent.pid] if self.agent is not None and self.agent.poll() is None else []
        for process in found:
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split())
        return found


@contextlib.contextmanager
def nodes(namespaces: bool) -> Iterator[list[Node]]:
    """Two nodes, and the second one again, as it is when it comes back; at the end, their processes are killed and
    their namespaces removed."""
    with contextlib.ExitStack() as stack:
        if namespaces:
            for name in NAMES:
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", "name", LINK, "netns", NAMES[0], "type", "veth", "peer", "name", LINK, "netns", NAMES[1])
            for name, address in zip(NAMES, ADDRESSES, strict=True):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", LINK)
                for device in ("lo", LINK):
                    _ip("-n", name, "link", "set", device, "up")
        found = [Node(number, namespaces) for number in (0, 1, 1)]
        for node in found:
            stack.callback(node.kill)
        yield found


def can_isolate() -> bool:
    """Whether this process may make network namespaces."""
    return (
        os.geteuid() == 0
        and shutil.which("ip") is not None
        and shutil.which("unshare") is not None
        and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    )


def trial(name: str, command: Sequence[str], out: Path, expected: dict[str, Any], namespaces: bool) -> dict[str, Any]:
    """Run one case. Keys: seconds, after (seconds since the loss), notes (of the run), failures."""
    (more, returns), log = CASES[name], out.with_suffix(".log")
    began, failures = time.monotonic(), list[str]()
    back = out.with_suffix(".back")
    with nodes(namespaces) as (first, second, third):
        for node in (first, second):
            node.start([*command, *more, "--resume"], log)
        if returns:
            third.start([*command, *more, "--resume"], log, back)
        _await(lambda: len(_steps(out)) > 1, first)
        second.kill()
        lost = time.monotonic()
        if returns:
            _await(lambda: "continues with 1." in log.read_text(encoding="utf-8", errors="replace"), first)
            back.touch()
        assert first.agent is not None
        try:
            status = first.agent.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = -1
        text = log.read_text(encoding="utf-8", errors="replace")
        if status:
            failures.append(f"the first node ended with {status}, see {log}:\n{text[-2000:]}")
        elif first.members():
            failures.append("processes of the first node are left")
    notes = [line.strip(" ·") for line in text.splitlines() if "continues with" in line or "Resuming from" in line]
    failures += [f"the run never continued with {n}" for n in (1, 2)[: 1 + returns] if f"with {n}." not in text]
    if not status:
        failures += far(expected["metrics.jsonl"], trace(out)["metrics.jsonl"])
    ended = time.monotonic()
    return {"seconds": round(ended - began), "after": round(ended - lost), "notes": notes, "failures": failures}


def _steps(out: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*"))


def _await(condition: Callable[[], bool], node: Node) -> None:
    until = time.monotonic() + PATIENCE
    while not condition() and node.agent is not None and node.agent.poll() is None and time.monotonic() < until:
        time.sleep(0.01)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--loopback", action="store_true", help="both agents on one interface, without namespaces")
    arguments.add_argument("--out", type=Path, help="file for the results, as JSON")
    options = arguments.parse_args()
    namespaces = can_isolate() and not options.loopback
    print("two network namespaces" if namespaces else "two agents on the loopback interface", flush=True)
    warm()
    found: dict[str, Any] = {"namespaces": namespaces, "steps": options.steps}
    with tempfile.TemporaryDirectory(prefix="unmask-nodes-") as temporary:
        folder = Path(temporary)
        paced = ["--steps", str(options.steps), "--save_every", "10", "--evaluate_every", "50"]
        paced += ["--rows.batch", "128", "--algorithm", "adamw", "--lr", "1e-3"]  # whose rounding errors grow slowly
        begin = prepare(folder)["pretrain"].begin
        if Process([*begin(folder / "alone"), *paced]).wait():
            sys.exit("The run of one process failed.")
        expected = trace(folder / "alone")
        for name in options.cases:
            found[name] = trial(name, [*begin(folder / name), *paced], folder / name, expected, namespaces)
            print(
                f"{name:8} {found[name]['seconds']:4} s, {found[name]['after']} of them after the loss;",
                *found[name]["notes"],
            )
            print(*(found[name]["failures"] or ["as if nothing had happened"]), sep="\n", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(found[name]["failures"] for name in options.cases))


if __name__ == "__main__":
    sys.exit(main())
