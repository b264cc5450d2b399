"""Dropout on a CPU: a training step with the dropout of `unmask.nn` and with that of PyTorch, taking turns.

    python benchmarks/dropout.py --threads 1

A BERT of the shape of MiniLM, 32 texts of random lengths packed into rows, bf16 autocast. The two sides differ only in
dropout: that of PyTorch is in the attention kernel, and `torch.nn.functional.dropout` elsewhere.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from bench import common
from unmask.huggingface.table import as_heads


@contextmanager
def of_pytorch() -> Iterator[None]:
    """A context in which dropout is PyTorch's."""
    import torch.nn.functional as F

    from unmask.kernels import attention
    from unmask.nn import dropout

    with (
        mock.patch.object(dropout, "dropout", F.dropout),
        mock.patch.object(attention, "plain_is_faster", return_value=False),
    ):
        yield


def step(texts: int, tokens: int, rate: float) -> Callable[[], None]:
    """One forward, backward and update on texts of about this many tokens."""
    import numpy as np
    import torch

    from unmask.data import collate
    from unmask.models import Bert
    from unmask.types import Example

    rng = np.random.default_rng(0)
    config = Bert(vocabulary=5_000, dim=384, layers=6, heads=12, hidden=1_536, dropout=rate, attention_dropout=rate)
    model = config.build(as_heads({"classification": 2})).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    lengths = rng.integers(tokens // 2, tokens * 3 // 2, texts)
    target = {"classification": (np.zeros(1, np.int64), np.ones(1, np.int64))}
    examples = [Example(rng.integers(5, 5_000, length), targets=target) for length in lengths]
    batch = collate.pack(examples, -(-int(lengths.max()) // 8) * 8, 0)

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model.answer("classification", model(batch), batch.targets["classification"].places)
        torch.nn.functional.cross_entropy(logits.float(), batch.targets["classification"].values).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[25, 50, 200], help="mean length of the texts")
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--pairs", type=int, default=9, help="turns of each side")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    common.introduce(common.machine(options.threads))
    for tokens in options.tokens:
        run = step(options.texts, tokens, options.rate)
        run()
        pairs = []
        for _ in range(options.pairs):
            ours = seconds(run)
            with of_pytorch():
                pairs.append((ours, seconds(run)))
        ours, theirs, ratio = common.compare_times(pairs)
        print(
            f"{tokens:4} tokens a text: {ours:.3f} s a step, with PyTorch's dropout {theirs:.3f} s; ratio {ratio}",
            flush=True,
        )


if __name__ == "__main__":
    common.command(main)
