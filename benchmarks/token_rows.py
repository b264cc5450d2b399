"""The update of a large token table: only the rows that were read, or the whole table, in turns.

    python benchmarks/token_rows.py --vocabulary 250002 --threads 4
    python benchmarks/token_rows.py --vocabulary 250002 --threads 4 --side rows     # and whole: the memory of each

A BERT of the size of BERT-base learns two classes from new weights, with 32 texts of 26 tokens a step, drawn from 8,000
tokens with the frequencies of words (the n-th most frequent with probability ~ 1/n), in bf16 where the processor has
it. Both sides start from the same weights; `train/rows.py` says what differs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bench import common
from unmask.errors import UnmaskError
from unmask.huggingface.table import as_heads

SIDES = ("rows", "whole")
TEXTS, TOKENS, USED = 32, 26, 8_000
UNTIMED = 2  # steps of each side


def check(vocabulary: int, size: str) -> None:
    """Raises UnmaskError for an unknown size, and for a table that is too small to be updated by rows."""
    from unmask.models.bert import SIZES
    from unmask.train.rows import LARGE

    if size not in SIZES:
        raise UnmaskError(f"There is no BERT of the size '{size}'; known are {', '.join(SIZES)}.")
    least = -(-LARGE // SIZES[size]["dim"])
    if vocabulary < least:
        raise UnmaskError(f"Fewer than {least:,} tokens of this size are moved as a whole: say a larger --vocabulary.")


def engine(vocabulary: int, size: str, side: str) -> Any:
    import torch

    from unmask.models.bert import SIZES, Bert
    from unmask.tasks.classification import Classification
    from unmask.train.engine import Engine
    from unmask.train.optim import Optimizer

    sizes = {**SIZES[size], "vocabulary": vocabulary, "length": 128}
    model = Bert().replace(**sizes).build(as_heads({"classification": 2}), seed=0)
    adamw, device = Optimizer(lr=1e-4), torch.device("cpu")
    found = Engine(model, Classification(("no", "yes")), adamw, device=device)
    if side == "whole":
        found.optimizer = adamw.build(model)
    return found


def batches(vocabulary: int, count: int) -> list[Any]:
    import numpy as np
    import torch

    from unmask.types import Batch, Target

    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, USED + 1)
    used, starts = rng.permutation(vocabulary)[:USED], torch.arange(TEXTS) * TOKENS

    def batch() -> Batch:
        tokens = used[rng.choice(USED, (TEXTS, TOKENS), p=chance / chance.sum())]
        labels = torch.from_numpy(rng.integers(2, size=TEXTS))
        return Batch(torch.from_numpy(tokens), starts=starts, targets={"classification": Target(starts, labels)})

    return [batch() for _ in range(count)]


def seconds(of: Any, batch: Any) -> float:
    from unmask.train.metrics import Meter

    began = time.perf_counter()
    of.step([batch], batch.counts, 1e-4, Meter())
    return time.perf_counter() - began


def resident() -> float:
    """GB of memory that this process holds (Linux)."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=250_002)
    parser.add_argument("--size", default="base", help="of a BERT: tiny, mini, … (default: base)")
    parser.add_argument("--side", choices=SIDES, help="one side alone, and the memory that it holds afterwards")
    parser.add_argument("--pairs", type=int, default=9, help="steps of each side")
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    import torch

    check(options.vocabulary, options.size)
    torch.set_num_threads(options.threads)
    common.introduce(common.machine(options.threads))
    steps = batches(options.vocabulary, UNTIMED + options.pairs)
    if options.side is not None:
        alone = engine(options.vocabulary, options.size, options.side)
        times = [seconds(alone, batch) for batch in steps][UNTIMED:]
        median = common.spread(times)["median"]
        print(f"{options.side}: {1e3 * median:.0f} ms a step, {resident():.1f} GB held")
        return
    sides = [engine(options.vocabulary, options.size, side) for side in SIDES]
    pairs = [[seconds(side, batch) for side in sides] for batch in steps][UNTIMED:]
    ours, theirs, ratio = common.compare_times(pairs)
    print(
        f"{options.vocabulary:,} tokens: {1e3 * ours:.0f} ms a step by rows, {1e3 * theirs:.0f} ms as a whole; "
        f"ratio {ratio}"
    )


if __name__ == "__main__":
    common.command(main)
