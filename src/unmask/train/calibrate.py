"""Measures steps on the real model and data, and restores all state: the steps that fit a time, the cost of a run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from unmask.errors import plural
from unmask.kernels.devices import peak_memory, random_state, restore_random_state
from unmask.train import distributed
from unmask.train.engine import Engine
from unmask.train.metrics import Meter

WARMUP, MEASURED = 3, 10  # steps
LARGEST_SHARE = 0.05  # largest share of the time budget for the measured steps
EVALUATIONS_SHARE = 0.2  # largest share of the time budget for evaluations, if there are more than one
FEW = 100  # steps below which a run with a budget in minutes has hardly learned anything
DISK_BYTES_PER_SECOND = 200e6  # an ordinary disk, including checksums and flushing


@dataclass(frozen=True)
class Pace:
    """Seconds of a step and of a checkpoint, real tokens of a step, and the memory that steps add, in bytes."""

    step: float
    saving: float
    tokens: int
    memory: int


Phases = Sequence[tuple[float, Iterator]]
"""The phases of a run, whose steps take different times: (share of the steps, micro-batches) of each."""


def phases_of(data: Any) -> Phases:
    """The phases of a run on this data: `data.phases()`, or a single phase if the data has no such method."""
    return data.phases() if hasattr(data, "phases") else [(1.0, data.batches(None))]


def calibrate(engine: Engine, phases: Phases, totals: Callable, budget: float | None) -> Pace:
    """Time steps of each phase (the median of ten, after a warm-up), and average over the phases by their shares.

    phases  the phases of the run, with its own micro-batches
    totals  micro-batches -> (targets of each loss term, real tokens, ...)
    budget  seconds of the whole run; the measurement takes at most LARGEST_SHARE of it, and at least one step a phase

    Restores the model, the optimizer and the random state.
    """
    tensors = {name: x.clone() for name, x in engine.tensors().items()}
    random, carried = random_state(engine.device), engine.carried()
    before = peak_memory(engine.device, reset=True)
    limit = float("inf") if budget is None else LARGEST_SHARE * budget / len(phases)
    seconds, tokens = 0.0, 0.0
    for share, batches in phases:
        times, real = _timed_steps(engine, batches, totals, limit)
        seconds, tokens = seconds + share * statistics.median(times), tokens + share * real
        if hasattr(batches, "close"):
            batches.close()
    memory = max(0, peak_memory(engine.device) - before)
    engine.load(tensors)
    engine.carry(carried)
    restore_random_state(random, engine.device)
    saving = checkpoint_bytes(engine) / DISK_BYTES_PER_SECOND
    return Pace(seconds, saving, round(tokens), memory)


def _timed_steps(engine: Engine, batches: Iterator, totals: Callable, limit: float) -> tuple[list[float], int]:
    """Seconds of each step after the warm-up, and real tokens of the last one. No step starts after `limit` seconds."""
    batches = chain([next(batches, None)], batches)  # the first one waits until all worker processes have started
    began = time.perf_counter()
    times: list[float] = []
    tokens = 0
    for _ in range(WARMUP + MEASURED):
        start = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            break
        counts, tokens, _ = totals(batch[0])
        meter = Meter()
        engine.step(batch[0], counts, 0.0, meter)
        meter.drain()  # waits for the device
        times.append(time.perf_counter() - start)
        if distributed.from_main(time.perf_counter() - began) > limit:
            break
    return times[WARMUP:] or times[-1:] or [0.0], tokens


def fitting_steps(seconds: float, step: float, costs: Sequence[tuple[float, float | None]]) -> int:
    """The number of steps that fit into `seconds`, at least 1.

    step   seconds of a step
    costs  periodic costs (seconds, interval): the interval in steps, as a fraction of the run below 1, or None for once
           at the end
    """
    each, fixed = step, 0.0
    for cost, interval in costs:
        if interval is None or interval <= 0:
            fixed += cost
        elif interval < 1:
            fixed += cost * round(1 / interval)
        else:
            each += cost / interval
            fixed += cost
    return max(1, int((seconds - fixed) / max(each, 1e-9)))


def too_few(steps: int, minutes: float | None, *, further: bool = False) -> str | None:
    """A sentence, with advice, for a run by minutes that takes hardly any steps; None for any other.

    further  whether the run has ended, and can be trained further
    """
    if minutes is None or steps >= FEW:
        return None
    enough = max(1, math.ceil(minutes * (FEW - steps if further else FEW) / max(1, steps)))
    more = f"continue with --resume --minutes {enough:,}" if further else f"raise --minutes to about {enough:,}"
    return (
        f"Only {plural(steps, 'step')} fitted into {plural(minutes, 'minute')}, too few for a model to learn much: "
        f"{more}, for {FEW} steps, or train a smaller model."
    )


def affordable(
    evaluation: float, interval: int | float | None, minutes: float | None
) -> tuple[int | float | None, list[str]]:
    """The interval of evaluations, or a longer one if they would take more than EVALUATIONS_SHARE of the minutes, and a
    sentence that says so. An interval in steps is returned unchanged.

    evaluation  seconds of one      interval  as in `fitting_steps`
    """
    count = round(1 / interval) if interval is not None and 0 < interval < 1 else 0
    most = count if minutes is None else max(1, int(EVALUATIONS_SHARE * 60 * minutes / max(evaluation, 1e-9)))
    if count <= most:
        return interval, []
    leave = "leaves" if most == 1 else "leave"
    said = f"An evaluation takes {evaluation:.3g} s: {most} in place of {count} {leave} more of the time to training."
    return (1 / most if most > 1 else None), [said]


def in_steps(interval: int | float | None, total: int) -> int:
    """An interval in steps; below 1, it is a fraction of the run. None is longer than the run."""
    if interval is None or interval <= 0:
        return total + 1
    return max(1, round(interval * total)) if interval < 1 else int(interval)


def describe(engine: Engine, pace: Pace, steps: int, keep: int, minutes: float | None) -> dict[str, Any]:
    """The cost of a run from its measured pace, as `Trainer.plan` returns it."""
    parameters = dict(engine.model.named_parameters())
    trainable = [p for p in parameters.values() if p.requires_grad]
    parts: dict[str, int] = {}
    for name, p in parameters.items():
        part = name.split(".")[0]
        parts[part] = parts.get(part, 0) + p.numel()
    weights = sum(p.numel() * p.element_size() for p in parameters.values())
    gradients = sum(p.numel() * p.element_size() for p in trainable)
    moments = engine.config.kept(engine.model)
    activations = max(0, pace.memory - gradients - moments)
    memory = {"weights": weights, "gradients": gradients, "optimizer": moments, "activations": activations}
    return {
        "parameters": sum(parts.values()),
        "trainable": sum(p.numel() for p in trainable),
        "parts": parts,
        "device": str(engine.device),
        "precision": engine.settled.precision,
        "note": engine.settled.note,
        "ranks": distributed.ranks(),
        "steps": steps,
        "too_few": too_few(steps, minutes),
        "tokens_per_step": pace.tokens,
        "seconds_per_step": pace.step,
        "seconds": steps * pace.step,
        "memory_bytes": {**memory, "total": sum(memory.values())},
        "disk_bytes": (keep + 1) * checkpoint_bytes(engine),
    }


def checkpoint_bytes(engine: Engine) -> int:
    """Bytes of a checkpoint: the weights, the optimizer state, and the model's own file."""
    whole = sum(p.numel() * p.element_size() for p in engine.model.parameters())
    return 2 * whole + engine.config.kept(engine.model)
