"""The display of a run: live in a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self

from unmask.errors import harmless, plural
from unmask.train import distributed
from unmask.train.events import Evaluated, Event, Listener, Measured, Noted, Planned

SECONDS_BETWEEN_LINES = 5.0  # between lines of training metrics; evaluations and notes are always printed

ENDED = (
    "This run has ended: it has done all of its {}. To train further, resume it with a larger --steps, or with another "
    "number of --minutes than it had, which is counted from now."
)


class Display(Protocol):
    """The methods of a display of a run."""

    def start(self, step: int, total: int) -> None: ...
    def show(self, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class Silent:
    """A display that shows nothing."""

    def start(self, step: int, total: int) -> None: ...
    def show(self, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def on_main(display: Display | None) -> Display:
    """The display on the main process; `Silent` on other processes and for None."""
    return display if display is not None and distributed.is_main() else Silent()


class Audience:
    """A display together with listeners, which receive every event of every run that it shows, sentences included."""

    def __init__(self, display: Display | None, listeners: Sequence[Listener]) -> None:
        outer = display if isinstance(display, Audience) else None  # that of the run whose training this one hears
        self.display: Display = on_main(display) if outer is None else outer.display
        self.listeners: Sequence[Listener] = listeners if outer is None else (*outer.listeners, *listeners)

    def start(self, step: int, total: int) -> None:
        self.display.start(step, total)

    def show(self, row: dict[str, Any]) -> None:
        self.display.show(row)

    def note(self, text: str) -> None:
        self.hear(Noted(text))
        self.display.note(text)

    def close(self) -> None:
        self.display.close()

    def hear(self, event: Event) -> None:
        """Pass an event to the listeners."""
        for listener in self.listeners:
            listener(event)


class Shown:
    """A listener that passes events to a display, and closes it at the end."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.hear: Listener | None = getattr(display, "hear", None)  # of a display with listeners

    def __call__(self, event: Event) -> None:
        if self.hear is not None and not isinstance(event, Noted):  # `note` passes those on
            self.hear(event)
        match event:
            case Noted(text):
                self.display.note(text)
            case Planned(step, total):
                if 0 < total <= step:
                    self.display.note(ENDED.format(plural(total, "step")))
                self.display.start(step, total)
            case Measured() | Evaluated():
                self.display.show(event.row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.display.close()


class Terminal:
    """The display of a training run on standard output: live in a terminal, else lines."""

    def __init__(self) -> None:
        self._inner: Live | Lines = Live() if sys.stdout.isatty() else Lines()

    def start(self, step: int, total: int) -> None:
        """The run starts at `step` of `total`."""
        self._inner.start(step, total)

    def show(self, row: Mapping[str, Any]) -> None:
        """Show a row of metrics.jsonl."""
        self._inner.show(row)

    def note(self, text: str) -> None:
        """Show a sentence about the run."""
        self._inner.note(text)

    def close(self) -> None:
        """The run has ended, with or without an error."""
        self._inner.close()


class Lines:
    """One line for each row of metrics; rows of training at most every SECONDS_BETWEEN_LINES."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or (lambda line: print(line, flush=True))
        self._left = TimeLeft()
        self._last = float("-inf")

    def start(self, step: int, total: int) -> None:
        self._left.start(step, total)
        whole = f"Training {plural(total, 'step')}."
        self._write(whole if step == 0 else f"Training from step {step:,} to {total:,}.")

    def show(self, row: Mapping[str, Any]) -> None:
        training = row.get("split") == "train"
        left = self._left.at(row["step"])
        if training:
            now = time.monotonic()
            if now - self._last < SECONDS_BETWEEN_LINES and row["step"] != self._left.total:
                return
            self._last = now
        total = self._left.total
        place = f"step {row['step']:,}" + (f" of {total:,}" if total else "")
        parts = [f"{name} {value}" for name, value in readable(row)]
        head = place if training else f"{place}  held out:"
        self._write("  ".join([head, *parts, *([f"{duration(left)} left"] if training and left is not None else [])]))

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        self._left = TimeLeft()  # the next run is evaluated before its number of steps is known


class Live:
    """A progress bar and a table of the newest metrics, redrawn in place; notes scroll above them."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False)
        self._live: Any = None
        self._left = TimeLeft()
        self._rows: dict[str, Mapping[str, Any]] = {}

    def start(self, step: int, total: int) -> None:
        from rich.live import Live as RichLive

        self._left.start(step, total)
        self._live = RichLive(self._picture(step), console=self.console, refresh_per_second=4)
        self._live.start()

    def show(self, row: Mapping[str, Any]) -> None:
        self._rows[row["split"]] = row
        if self._live is not None:
            self._live.update(self._picture(row["step"]))

    def note(self, text: str) -> None:
        self.console.print(harmless(text), markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._left, self._rows = TimeLeft(), {}  # those of the run that has ended

    def _picture(self, step: int) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        total, left = self._left.total, self._left.at(step)
        bar = Table.grid(padding=(0, 1))
        share = f"{100 * step / max(1, total):.0f} %"
        remaining = "" if left is None else f"{duration(left)} left"
        bar.add_row(ProgressBar(total=total, completed=step, width=30), f"step {step:,} of {total:,}", share, remaining)
        numbers = Table.grid(padding=(0, 3))
        for column in ("left", "right", "right"):
            numbers.add_column(justify=column)
        splits = [dict(readable(self._rows.get(split, {}))) for split in ("train", "heldout")]
        numbers.add_row("", "training", "held out" if splits[1] else "", style="dim")
        for name in dict.fromkeys([*splits[0], *splits[1]]):
            numbers.add_row(name, *(split.get(name, "") for split in splits))
        return Group(bar, numbers)


class TimeLeft:
    """An estimate of the remaining seconds of a run, from the time of the steps since `start`."""

    def __init__(self) -> None:
        self.first = self.total = 0
        self.began = time.monotonic()

    def start(self, step: int, total: int) -> None:
        self.first, self.total, self.began = step, total, time.monotonic()

    def at(self, step: int) -> float | None:
        """The remaining seconds at a step; None before the first step is done."""
        done = step - self.first
        return None if done <= 0 else (time.monotonic() - self.began) / done * (self.total - step)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A function to call with (description, number done, total or None): one progress bar for each description, or
    plain lines outside a terminal."""
    if not sys.stdout.isatty():
        yield _Steps()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show


class _Steps:
    """Progress as plain lines: at the start, every SECONDS_BETWEEN_LINES, and at the end."""

    def __init__(self) -> None:
        self._printed: dict[str, float] = {}
        self._complete: set[str] = set()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        complete = total is not None and done >= total
        if what in self._complete or (not complete and now - self._printed.get(what, -1e9) < SECONDS_BETWEEN_LINES):
            return
        self._printed[what] = now
        if complete:
            self._complete.add(what)
        print(f"{what}: {done:,}" + (f" of {total:,}" if total is not None else ""), flush=True)


def render_plan(plan: Mapping[str, Any]) -> str:
    """The dry run of `Trainer.plan` as lines of text."""
    memory = plan["memory_bytes"]
    parts = ", ".join(f"{name} {count(n)}" for name, n in plan["parts"].items())
    kinds = ", ".join(f"{name} {size(n)}" for name, n in memory.items() if name != "total")
    ranks = f" on {plan['ranks']} processes" if plan["ranks"] > 1 else ""
    amount = f" ({plan['amount']})" if plan.get("amount") else ""
    seeds = f", for each of {plan['seeds']} seeds" if plan.get("seeds", 1) > 1 else ""
    in_all = count(plan["tokens_per_step"] * plan["steps"])
    frozen = plan["parameters"] - plan["trainable"]
    lines = {
        "parameters": f"{plan['parameters']:,} ({parts})" + (f", {frozen:,} of them frozen" if frozen else ""),
        "device": f"{plan['device']}, {plan['precision']}{ranks}",
        "steps": f"{plan['steps']:,}",
        "tokens": f"{plan['tokens_per_step']:,} a step{amount}, {in_all} in all",
        "memory": f"about {size(memory['total'])} ({kinds})",
        "disk": f"up to {size(plan['disk_bytes'])} for checkpoints",
        "time": f"{plan['seconds_per_step']:.3g} s a step, {duration(plan['seconds'])} in all{seeds}",
        **({"precision": plan["note"]} if plan.get("note") else {}),
    }
    shown = [f"{name:11} {text}" for name, text in lines.items()]
    return "\n".join([*shown, *filter(None, [plan.get("too_few")])])


def readable(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and formatted values of a row of metrics, without bookkeeping such as the step."""
    found = []
    for name, value in row.items():
        if name in ("step", "seconds", "split") or isinstance(value, (list, dict)) or (name == "skipped" and not value):
            continue
        found.append((_name(name), _value(name, value)))
    return found


def _name(name: str) -> str:
    words = {"tokens_per_second": "tokens/s", "gradient_norm": "gradient norm", "skipped": "skipped steps"}
    words |= {"words_per_second": "words/s", "waiting": "waiting for data"}
    return words.get(name) or " ".join(reversed(name.split("/")) if name.startswith("loss/") else name.split("/"))


def _value(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return "–" if value is None else harmless(value)
    if name == "waiting" or name.rsplit("/", 1)[-1].rsplit("_", 1)[-1] in ("correct", "accuracy", "chance", "used"):
        return f"{100 * value:.1f} %"
    if name.startswith("loss/"):
        return f"{value:.3f}"
    if name == "lr":
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(3723), duration(59.7)
    ('1:02:03', '1:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size(number: float) -> str:
    """A number of bytes with a unit.

    >>> size(1234), size(440_000_000)
    ('1.2 kB', '440 MB')
    """
    return f"{_scaled(number)}B"


def count(number: float) -> str:
    """A number with a decimal prefix.

    >>> count(110_000_000), count(1234), count(7)
    ('110 M', '1.2 k', '7')
    """
    return _scaled(number).strip()


def _scaled(number: float) -> str:
    units = ["", "k", "M", "G", "T"]
    while abs(number) >= 999.5 and len(units) > 1:
        number /= 1000
        units.pop(0)
    unit = units[0]
    return f"{number:.0f} {unit}" if number >= 100 or not unit else f"{number:.1f} {unit}"
