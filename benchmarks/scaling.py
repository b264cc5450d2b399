"""Pre-training by 1, 2 and 4 processes on one machine, compared with the cost model of docs/scaling.md.

    python benchmarks/scaling.py --out scaling.json --plot docs/images/scaling.svg

Every run is `unmask pretrain` in processes of one thread that `torchrun` starts; gradients travel over gloo. Two
parameters of the cost model, operations a second and the fixed seconds of a step, are fitted on one process with two
batch sizes, and two, bandwidth and latency, on all-reduce of 1 to 64 MB. The times of 2 and 4 processes are predicted,
not fitted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import common
from bench.common import Result
from bench.run import Places
from unmask.errors import UnmaskError
from unmask.kernels.processor import settle

LENGTH = 128  # tokens of a row
RATE = 0.15  # share of masked tokens
SIZES = (1, 4, 16, 64)  # MB of an all-reduce


# ------------------------------------------------------------------------------------------------ measuring


def launch(processes: int, threads: int, arguments: list[str]) -> None:
    """Run `python -m ...` or a script in this many processes; exits with a sentence if it fails."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if "Error" in line or line.startswith("unmask:")]
        sys.exit(f"{processes} processes failed: {(said or ['no message'])[0]}")


def seconds_per_step(options: argparse.Namespace, processes: int, threads: int, rows: int) -> float:
    """Mean seconds of a step of `unmask pretrain`, over the second half of the steps."""
    from unmask.train.metrics import read

    with tempfile.TemporaryDirectory(prefix="unmask-scaling-") as folder:
        fields = {
            "rows.batch": rows,
            "rows.first": "none",
            "rows.tokens": LENGTH,
            "rows.partitions": options.partitions,
            "objectives.sentences": "none",
            "training.steps": options.steps,
            "training.minutes": "none",
            "training.evaluate_every": "none",
            "training.save_every": "none",
            "training.log_every": 1,
            "training.precision": options.precision,
            "training.optimizer.algorithm": "adamw",  # whose update the model of docs/scaling.md counts
            "training.optimizer.lr": 1e-3,
        }
        given = [text for name, value in fields.items() for text in (f"--{name}", str(value))]
        run = ["-m", "unmask", "pretrain", f"bert-{options.size}", "--corpus", options.corpus, "--out", f"{folder}/run"]
        launch(processes, threads, [*run, *given])
        times = [row["seconds"] for row in read(Path(folder) / "run" / "metrics.jsonl", "train")]
    half = len(times) // 2
    return (times[-1] - times[half]) / (len(times) - 1 - half)


def exchange(processes: int) -> dict[str, float]:
    """Seconds of an all-reduce over the processes, by its MB."""
    with tempfile.TemporaryDirectory(prefix="unmask-scaling-") as folder:
        path = Path(folder) / "seconds.json"
        launch(processes, 1, [__file__, "--exchange", str(path)])
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def measure_exchange(path: str) -> None:
    """The work of each process of `exchange`."""
    import time

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    seconds = {}
    for size in SIZES:
        x = torch.zeros(size * (1 << 20) // 4)
        turns = []
        for _ in range(8):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(x)
            turns.append(time.perf_counter() - began)
        seconds[str(size)] = statistics.median(turns[1:])
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(seconds), encoding="utf-8")
    dist.destroy_process_group()


# ------------------------------------------------------------------------------------------------ the model


def fit(facts: Result) -> Result:
    """Fit the parameters of the cost model, from runs of one process and from the exchange alone."""
    small, large = (statistics.median(facts["steps"][f"1 x 1, {rows}"]) for rows in facts["rows_of_one"])
    fewer, more = facts["rows_of_one"]
    per_row = (large - small) / (more - fewer)
    sums = facts["exchange"]
    found: Result = {"flops": facts["flops_per_row"] / per_row, "fixed": large - more * per_row, "links": {}}
    for processes, seconds in sums.items():
        messages = 2 * (int(processes) - 1)
        first, last = SIZES[0], SIZES[-1]
        slope = (seconds[str(last)] - seconds[str(first)]) / (last - first) / (1 << 20)
        latency = max(0.0, seconds[str(first)] - slope * first * (1 << 20)) / messages
        found["links"][processes] = {"bandwidth": messages / int(processes) / slope, "latency": latency}
    return found


def expected(facts: Result, processes: int, rows: int) -> float:
    """Seconds of a step by the cost model, without overlap of computation and exchange."""
    from unmask.runs.cost import Cluster

    machine = facts["machine_model"]
    link = machine["links"].get(str(processes), {"bandwidth": 1.0, "latency": 0.0})
    cluster = Cluster(machine["flops"], **link, fixed=machine["fixed"])
    return cluster.step(rows * facts["flops_per_row"], facts["gradient_bytes"] if processes > 1 else 0.0, processes)


def table(facts: Result) -> str:
    """Every run: seconds of a step, tokens per second, speed as a multiple of one process, and the expected seconds."""
    lines = ["| processes x threads | rows of a step | step, s (range) | tokens/s | times one | expected step, s |"]
    lines.append("|---|---|---|---|---|---|")
    one = statistics.median(facts["steps"][f"1 x 1, {facts['rows_of_one'][1]}"]) / facts["rows_of_one"][1]
    for name, values in facts["steps"].items():
        processes, threads, rows = (int(text) for text in name.replace(" x ", ",").split(","))
        seen = common.spread(values)
        ahead = expected(facts, processes, rows) if threads == 1 else None
        said = "" if ahead is None else f"{ahead:.3f}"
        lines.append(
            f"| {processes} x {threads} | {rows} | {seen['median']:.3f} ({seen['least']:.3f} to {seen['greatest']:.3f})"
            f" | {rows * LENGTH / seen['median']:,.0f} | {one * rows / seen['median']:.2f} | {said} |"
        )
    return "\n".join(lines)


def plot(facts: Result, counts: list[int], path: Path) -> None:
    """Tokens per second by processes, measured and expected, with one fixed batch and with one for each process."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    rows = facts["rows_of_one"][1]
    for title, colour, size in (
        ("one batch, split", "#0072b2", lambda n: rows),
        ("a batch each", "#d55e00", lambda n: rows * n),
    ):
        seen = [size(n) * LENGTH / statistics.median(facts["steps"][f"{n} x 1, {size(n)}"]) for n in counts]
        ahead = [size(n) * LENGTH / expected(facts, n, size(n)) for n in counts]
        axes.plot(counts, seen, "o-", color=colour, label=f"{title}: measured")
        axes.plot(counts, ahead, "--", color=colour, label=f"{title}: expected")
    axes.set(xticks=counts, xlabel="processes of one thread", ylabel="tokens per second", ylim=(0, None))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


# ------------------------------------------------------------------------------------------------ the run


def main() -> None:
    options = parse()
    if options.processes[:1] != [1] or options.processes != sorted(set(options.processes)):
        raise UnmaskError("--processes are numbers in ascending order, and the first is 1.")
    if options.rows < 4 or options.steps < 3 or options.turns < 1:
        raise UnmaskError("A batch needs 4 rows or more, a run 3 steps, and there must be a turn.")
    Places(options.out, plot=options.plot).check()
    facts: Result = {"machine": common.machine(1), "size": options.size, "precision": options.precision}
    common.introduce(facts["machine"])
    with tempfile.TemporaryDirectory(prefix="unmask-scaling-") as folder:
        facts.update(prepare(options, folder))
        facts["exchange"] = {str(n): exchange(n) for n in options.processes if n > 1}
        steps: dict[str, list[float]] = {}
        for turn in range(options.turns):
            for processes, threads, rows in runs(options.rows, options.processes):
                name = f"{processes} x {threads}, {rows}"
                seconds = seconds_per_step(options, processes, threads, rows)
                steps.setdefault(name, []).append(seconds)
                print(f"turn {turn + 1}: {name} rows: {seconds:.3f} s a step", flush=True)
    facts["steps"] = steps
    facts["rows_of_one"] = (options.rows // 4, options.rows)
    facts["machine_model"] = fit(facts)
    machine = facts["machine_model"]
    print(f"\n{table(facts)}\n")
    print(f"One process: {machine['flops'] / 1e9:,.0f} GFLOP/s while it computes, {machine['fixed']:.3f} s beside.")
    for processes, link in machine["links"].items():
        print(f"{processes} processes: {link['bandwidth'] / 1e9:.2f} GB/s, {link['latency'] * 1e3:.2f} ms a message.")
    common.write(options.out, facts)
    if options.plot:
        plot(facts, options.processes, options.plot)


def runs(rows: int, counts: list[int]) -> list[tuple[int, int, int]]:
    """(processes, threads of each, rows of a step): a quarter batch, one batch split, a batch each, threads instead."""
    split = [(n, 1, rows) for n in counts]
    each = [(n, 1, rows * n) for n in counts if n > 1]
    return [(1, 1, rows // 4), *split, *each, (1, counts[-1], rows)]


def prepare(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Build the embedded corpus if none is given; the cost of a row, and the size of the gradients."""
    from unmask.data.text import corpus, embedded
    from unmask.models.bert import SIZES, Bert
    from unmask.runs import cost

    if options.corpus is None:
        options.corpus = f"{folder}/corpus"
        shard = 50_000_000 if options.partitions == 1 else 50_000
        corpus.build(embedded.documents, options.corpus, vocabulary_size=8192, shard_tokens=shard)
    opened = corpus.Corpus(options.corpus)
    model = Bert(vocabulary=opened.tokenizer.size, length=LENGTH).replace(**SIZES[options.size])
    return {
        "vocabulary": model.vocabulary,
        "parameters": cost.parameters(model, LENGTH),
        "flops_per_row": cost.training_flops(model, LENGTH, RATE * LENGTH),
        "gradient_bytes": 4 * cost.parameters(model, LENGTH),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="folder that `unmask corpus build` wrote (default: the embedded text)")
    parser.add_argument("--size", default="mini", help="of the BERT (default: mini)")
    parser.add_argument("--rows", type=int, default=32, help="rows of 128 tokens in a batch (default: 32)")
    parser.add_argument("--steps", type=int, default=30, help="of a run; the second half counts (default: 30)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="in ascending order, from 1")
    parser.add_argument(
        "--partitions", type=int, default=1, help="--rows.partitions: with 4, no process prepares the rows of another"
    )
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--out", type=Path, help="write everything as JSON")
    parser.add_argument("--plot", type=Path, help="draw tokens per second by processes (.svg or .png)")
    options = parser.parse_args()
    options.precision = settle(options.precision).precision
    return options


if __name__ == "__main__":
    if sys.argv[1:2] == ["--exchange"]:
        measure_exchange(sys.argv[2])
    else:
        common.command(main)
