"""The share of the machine's peak that pre-training reaches: useful operations a second over those of square products.

Useful operations are the products of forward and backward (`unmask.runs.cost.training_flops`). For every real token,
these are 6 for each weight of the blocks and 12 L D T for attention among the T tokens of its sequence; for the 15 % of
the tokens that are masked, also 6 for each weight of the output layer. Padding and unused logits do not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import common
from bench.common import Result, Settings
from bench.pretraining import Comparison, compared
from bench.row import Measured, Plan, Unit
from unmask.runs.cost import training_flops

SHARE = Unit("of the ceiling", digits=2)
RATE = 0.15  # share of masked tokens
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""GPU (SXM) -> its published peak: operations a second of dense products in bfloat16."""


def product(settings: Settings) -> Result:
    """Operations a second of the fastest of many products of two square matrices, and the published peak of a GPU."""
    import torch

    from unmask.kernels import devices

    n, dtype = settings["square"], {"fp32": torch.float32, "bf16": torch.bfloat16}[settings["precision"]]
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, n, generator=generator).to(settings["device"], dtype) for _ in range(2))
    out = a @ b
    common.wait_for_gpu()
    times: list[float] = []
    ends = time.perf_counter() + settings["seconds"]
    while len(times) < 3 or time.perf_counter() < ends:
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        common.wait_for_gpu()
        times.append(time.perf_counter() - began)
    name = devices.name_of(a.device)
    peak = next((peak for known, peak in PEAKS.items() if known in name), None)
    return {"flops_per_second": 2 * n**3 / min(times), "products": len(times), "device": name, "peak": peak}


def measure(asked: Comparison, sides: Sequence[str], plan: Plan) -> Measured:
    """The share that each side reaches of the ceiling that was measured before its turn. On a GPU of `PEAKS`, the share
    of its published peak (MFU, Chowdhery et al. 2022, appendix B)."""
    from unmask.models.bert import SIZES, Bert

    turns, facts = compared(asked, sides, plan)
    model = Bert().replace(**SIZES[asked.size], vocabulary=max(asked.vocabulary, facts["corpus"]["vocabulary"]))

    def share(turn: Result) -> Result:
        seen = turn["tokens_seen"]  # T, the mean over tokens
        flops = turn["tokens_per_second"] * training_flops(model, seen, RATE * seen) / seen
        return {**turn, "flops_per_second": flops, "figure": flops / (turn.get("peak") or turn["ceiling"])}

    shares = {side: [share(turn) for turn in done] for side, done in turns.items()}
    found = common.spread(turn["ceiling"] / 1e9 for turn in turns[sides[0]])
    top = (
        f"Ceiling: {found['median']:,.0f} GFLOP/s ({found['least']:,.0f} to {found['greatest']:,.0f}), "
        f"products of {asked.square:,} x {asked.square:,} in {asked.precision}."
    )
    peak = turns[sides[0]][0].get("peak")
    said = (f"The shares are of the published peak of the GPU, {peak / 1e12:,.0f} TFLOP/s.",) if peak else ()
    return Measured(shares, facts, notes=(top, *said))


TRIALS = {"product": product}
