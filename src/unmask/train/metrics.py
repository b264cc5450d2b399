"""Metrics of a run: adds up sums step by step, and writes the file metrics.jsonl."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from unmask.errors import UnmaskError, plural
from unmask.files import write_text, writing
from unmask.train import distributed
from unmask.train.events import Evaluated, Event, Measured, Opened


class Meter:
    """Sums and counts since the last `read`, over micro-batches, steps and ranks.

    The values of a step stay on the device until `drain`, so that the host does not wait. `drain` adds them step by
    step in float64, so the result does not depend on when it is called.
    """

    def __init__(self) -> None:
        self.pending: list[tuple[tuple[str, ...], Tensor, Mapping[str, float]]] = []
        self.sums: dict[str, float] = {}
        self.skipped = 0
        self.skipped_in_a_row = 0

    def add(self, names: Sequence[str], values: Tensor, known: Mapping[str, float]) -> None:
        """One step.

        values  [len(names) + 1], on the device: the sums, then 1 if the step was skipped, else 0
        known   sums that the host knows, equal on every rank
        """
        self.pending.append((tuple(names), values, known))

    def drain(self) -> None:
        """Copy the pending steps to the host and add them up. Skipped steps are counted, and their sums ignored."""
        pending, self.pending = self.pending, []
        same = len({names for names, _, _ in pending}) == 1
        rows = torch.stack([v for _, v, _ in pending]).tolist() if same else [v.tolist() for _, v, _ in pending]
        for (names, _, known), (*values, skip) in zip(pending, rows, strict=True):
            if skip:
                self.skipped += 1
                self.skipped_in_a_row += 1
                continue
            self.skipped_in_a_row = 0
            for name, value in [*zip(names, values, strict=True), *known.items()]:
                self.sums[name] = self.sums.get(name, 0.0) + value

    def read(self) -> dict[str, float]:
        """Means since the last read: `loss/<term>`, `<term>/<metric>`, `gradient_norm`, and `skipped` since the start.

        `loss/<term>` and `<term>/<metric>` are divided by `count/<term>`, names without a slash by `steps`.
        """
        sums = self.whole()
        self.sums = {}
        means = {}
        for name, value in sums.items():
            kind, _, rest = name.partition("/")
            if kind == "count" or name == "steps":
                continue
            count = f"count/{rest if kind == 'loss' else kind}" if rest else "steps"
            if sums.get(count):
                means[name] = value / sums[count]
        return {**means, "skipped": self.skipped}

    def whole(self) -> dict[str, float]:
        """The sums over all ranks; every rank must call it."""
        self.drain()
        first, *others = distributed.gather_json(self.sums)
        for other in others:
            for name, value in other.items():
                first[name] = first.get(name, 0.0) + value if _own(name) else value
        return first

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; every rank must call it."""
        return {"sums": self.whole(), "skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Sums that are split over the ranks go to the main rank."""
        self.sums = {k: v for k, v in state["sums"].items() if distributed.is_main() or not _own(k)}
        self.skipped, self.skipped_in_a_row = state["skipped"], state["skipped_in_a_row"]


def _own(name: str) -> bool:
    """Whether a sum is this rank's share, and not equal on every rank."""
    return "/" in name and not name.startswith("count/")


TIMED = frozenset({"seconds", "tokens_per_second", "waiting"})
"""The fields of a row of metrics that measure time; all others are equal in runs with equal settings."""


class Clock:
    """The time of a run, and the time of its steps alone, for tokens per second.

    earlier  seconds of the earlier parts of a resumed run
    """

    def __init__(self, earlier: float = 0.0) -> None:
        self.began, self.earlier = time.monotonic(), earlier
        self.start()

    def start(self) -> None:
        """Restart the measurement of the token rate."""
        self.tokens, self.since, self.idle = 0, time.monotonic(), 0.0

    def seconds(self) -> float:
        """Time of the whole run so far."""
        return self.earlier + self.spent()

    def spent(self) -> float:
        """Seconds since this process started or resumed the run."""
        return time.monotonic() - self.began

    def rates(self) -> dict[str, float]:
        """Since the last call: tokens_per_second, and waiting, the share of the time spent waiting for a batch."""
        seconds = max(1e-9, time.monotonic() - self.since)
        found = {"tokens_per_second": self.tokens / seconds, "waiting": self.idle / seconds}
        self.start()
        return found

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A context whose time counts as waiting for data."""
        began = time.monotonic()
        yield
        self.idle += time.monotonic() - began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context whose time does not count in the token rate."""
        began = time.monotonic()
        yield
        self.since += time.monotonic() - began


class Writer:
    """Appends rows to metrics.jsonl, flushing each row.

    Removes existing rows after `step` (written after the checkpoint that the run resumes from), and an incomplete last
    line from a crash.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [row for row in read(self.path) if row.get("step", 0) <= step] if step else []
        write_text(self.path, "".join(map(_line, kept)))
        with writing(self.path):
            self.file = self.path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """One row: `step`, `seconds`, `split`, and numbers by name."""
        with writing(self.path):
            self.file.write(_line(row))
            self.file.flush()

    def close(self) -> None:
        with suppress(OSError):  # a full disk has been reported by `write`
            self.file.close()


class Log:
    """A listener that writes metrics.jsonl into a folder. It opens the file at `Opened`, which gives the first step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: Writer | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Opened(step):
                self.writer = Writer(self.folder, step)
            case Measured() | Evaluated():
                assert self.writer is not None
                self.writer.write(event.row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()


def read(path: Path, split: str | None = None) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, of one split or all, without an incomplete last line. A missing file has no rows.

    Raises UnmaskError, with the number of the line, if another line is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror}.") from None
    rows = []
    for number, line in enumerate(lines[:-1], 1):  # the text after the last newline is empty or incomplete
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) - 1:
                continue
            raise UnmaskError(f"{path}, line {number} is not valid JSON; remove that line.") from None
        if not isinstance(row, dict):
            raise UnmaskError(f"{path}, line {number} must hold a JSON object; remove that line.")
        if split is None or row.get("split") == split:
            rows.append(row)
    return rows


def chosen(evaluations: int, step: int, last: str | None) -> str:
    """A note for the score of chosen weights: the number of evaluations, the step, and the last score; None: the last
    evaluation is the best.

    >>> chosen(12, 60, "0.5200"), chosen(1, 60, None)
    ('the best of 12 evaluations, at step 60 (the last: 0.5200)', 'the only evaluation, at step 60')
    """
    if evaluations == 1:
        return f"the only evaluation, at step {step:,}"
    end = "the last one" if last is None else f"the last: {last}"
    return f"the best of {plural(evaluations, 'evaluation')}, at step {step:,} ({end})"


def require_run(folder: Path) -> None:
    """Raises UnmaskError for a folder without metrics.jsonl, with what it holds and the command to view it."""
    if (folder / "metrics.jsonl").is_file():
        return
    if not folder.is_dir():
        raise UnmaskError(f"There is no folder {folder}.")
    look = f"`unmask show embeddings --model {folder} --out FILE.html`"
    if (folder / "vectors.safetensors").is_file():
        raise UnmaskError(f"{folder} holds word vectors, which have no curves: view them with {look}.")
    if (folder / "config.json").is_file():
        raise UnmaskError(f"{folder} holds a model but not the run that trained it: view it with {look}.")
    within = min(folder.glob("*/metrics.jsonl"), default=None)
    if within is not None:
        raise UnmaskError(f"{folder} is not a run, but holds runs: name one of them, such as {within.parent}.")
    raise UnmaskError(f"{folder} holds no run: there is no metrics.jsonl in it.")


def thin(items: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of the items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _line(row: Mapping[str, Any]) -> str:
    """A line of JSON; NaN and infinity, which JSON does not have, become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    return json.dumps(plain, ensure_ascii=False) + "\n"
