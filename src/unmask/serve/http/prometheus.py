"""Metrics of the service, in the text format of Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Mapping, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (16, 64, 256, 1_024, 4_096, 16_384, 65_536)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """Sums by labels; `Counter("unmask_requests_total", "Requests answered.", "route", "status")`."""

    kind = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels
        self._values: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def add(self, value: float, *labels: str) -> None:
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + value

    def lines(self) -> Iterable[str]:
        with self._lock:
            values = sorted(self._values.items())
        return [f"{self.name}{_braces(self.labels, labels)} {value:.12g}" for labels, value in values]


class Histogram:
    """The number of values up to each bound, by labels."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.help, self.bounds, self.labels = name, help, bounds, labels
        self._counts: dict[tuple[str, ...], list[int]] = {}  # for each bound, and for values above all
        self._sums: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(self.bounds) + 1))
            counts[bisect.bisect_left(self.bounds, value)] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + value

    def lines(self) -> Iterable[str]:
        with self._lock:
            found = sorted((labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items())
        for labels, counts, total in found:
            so_far = 0
            for bound, count in zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], counts, strict=True):
                so_far += count
                yield f"{self.name}_bucket{_braces((*self.labels, 'le'), (*labels, bound))} {so_far}"
            yield f"{self.name}_sum{_braces(self.labels, labels)} {total:.12g}"
            yield f"{self.name}_count{_braces(self.labels, labels)} {so_far}"


class Metrics:
    """The metrics of a service."""

    def __init__(self) -> None:
        self.requests = Counter("unmask_requests_total", "Requests answered.", "route", "status")
        self.seconds = Histogram("unmask_request_seconds", "From a request to its answer.", SECONDS, "route")
        self.read = Counter("unmask_tokens_total", "Tokens read by a model.", "model")
        self.batch_requests = Histogram("unmask_batch_requests", "Requests answered together.", REQUESTS, "model")
        self.batch_tokens = Histogram("unmask_batch_tokens", "Tokens of a batch.", TOKENS, "model")
        self.batch_seconds = Histogram("unmask_batch_seconds", "From a batch to its answers.", SECONDS, "model")

    def of(self, model: str) -> ModelMetrics:
        """The observer of the batches of a model."""
        return ModelMetrics(self, model)

    def text(self, gauges: Mapping[str, tuple[str, Mapping[str, float]]]) -> str:
        """All metrics as text; `gauges`: name -> (help, model -> current value), with "" for no model."""
        found: list[str] = []
        parts = (self.requests, self.seconds, self.read, self.batch_requests, self.batch_tokens, self.batch_seconds)
        for metric in parts:
            found += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        for name, (help, values) in gauges.items():
            found += [f"# HELP {name} {help}", f"# TYPE {name} gauge"]
            found += [
                f"{name}{_braces(('model',), (model,)) if model else ''} {value:.12g}"
                for model, value in values.items()
            ]
        return "\n".join(found) + "\n"


class ModelMetrics:
    """Counts the batches of one model."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.metrics, self.model = metrics, model

    def batch(self, requests: int, read: int, seconds: float) -> None:
        self.metrics.read.add(read, self.model)
        self.metrics.batch_requests.observe(requests, self.model)
        self.metrics.batch_tokens.observe(read, self.model)
        self.metrics.batch_seconds.observe(seconds, self.model)


def together(texts: Mapping[int, str]) -> str:
    """The metrics of several workers (number -> text) as one text; the label `worker` says whose each line is."""
    found: dict[str, list[str]] = {}  # "# HELP name ..." -> the other lines of that metric
    for worker, text in texts.items():
        for line in text.split("\n")[:-1]:
            if line.startswith("# HELP "):
                lines = found.setdefault(line, [])
            elif not line.startswith("# TYPE "):
                lines.append(_of_worker(worker, line))
            elif not lines:
                lines.append(line)
    return "".join(f"{line}\n" for help, lines in found.items() for line in (help, *lines))


def _of_worker(worker: int, line: str) -> str:
    """A line with the label `worker` before its own labels."""
    name, braces, rest = line.partition("{")
    if braces:
        return f'{name}{{worker="{worker}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{worker="{worker}"}} {value}'


def _braces(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
