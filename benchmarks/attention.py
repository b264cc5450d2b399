"""Attention on a CPU, in training: PyTorch's fused kernel against plain products, by the length of the rows.

    python benchmarks/attention.py --threads 1

Forward and backward of softmax(scale q k^T + bias) v without dropout, 4 heads of 64, as many rows as make `--tokens`
tokens; both ways take turns in one process. The thresholds of `kernels/attention.py` come from these times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from bench import common


def once(attend: Callable, length: int, tokens: int, dtype: str, masked: bool) -> Callable[[], float]:
    """A forward and backward on new numbers; returns the seconds of the process."""
    import torch

    from unmask.nn import Bias

    rows = max(1, tokens // length)
    kind = getattr(torch, dtype)
    q, k, v = (torch.randn(rows, length, 4, 64, dtype=kind).transpose(1, 2).requires_grad_() for _ in range(3))
    hidden = torch.rand(rows, 1, length, length) < 0.3
    bias = Bias(torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf).to(kind)) if masked else Bias()

    def run() -> float:
        began = time.process_time()
        said = attend(q, k, v, bias, scale=0.125)
        said.backward(said.detach())
        return time.process_time() - began

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=4_096)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 256, 384, 512, 1_024, 2_048])
    options = parser.parse_args()
    import torch

    from unmask.kernels.attention import fused as by_kernel
    from unmask.nn import Bias
    from unmask.nn.attention import attention

    torch.set_num_threads(options.threads)
    common.introduce(common.machine(options.threads))

    def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: Bias, *, scale: float) -> torch.Tensor:
        return by_kernel(q, k, v, bias.added(q.dtype), scale=scale)

    print(
        "| dtype | mask | tokens of a row | fused, ms | plain, ms | fused / plain (range) |\n|---|---|---|---|---|---|"
    )
    for dtype in ("bfloat16", "float32"):
        for masked in (False, True):
            for length in options.lengths:
                ways = [once(way, length, options.tokens, dtype, masked) for way in (kernel, attention)]
                for way in ways:
                    way()
                pairs = [[way() for way in ways][::-1] for _ in range(options.turns)]
                plain, fused, ratio = common.compare_times(pairs)
                times = f"{1e3 * fused:.1f} | {1e3 * plain:.1f}"
                print(f"| {dtype} | {'yes' if masked else 'no'} | {length:,} | {times} | {ratio} |", flush=True)


if __name__ == "__main__":
    common.command(main)
