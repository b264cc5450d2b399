"""The training loop, as events: accumulate sums, divide once, step, measure, evaluate, save; resume exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from unmask.config import Config
from unmask.errors import UnmaskError, plural
from unmask.files import sweep
from unmask.kernels.devices import random_state, reading_waits, restore_random_state
from unmask.kernels.processor import Precision
from unmask.kernels.threads import short_turns
from unmask.train import checkpoint, distributed, trackers
from unmask.train.calibrate import Pace, affordable, calibrate, describe, fitting_steps, in_steps, phases_of
from unmask.train.display import Display, Shown, on_main
from unmask.train.engine import Data, Engine, Minimised
from unmask.train.events import (
    Began,
    Evaluated,
    Evaluation,
    Event,
    Events,
    Listener,
    Measured,
    Noted,
    Opened,
    Planned,
    Result,
    Saved,
    Step,
    listen,
)
from unmask.train.interrupt import Cut, Interrupt
from unmask.train.metrics import Clock, Log, Meter
from unmask.train.optim import Optimizer, Schedule, Tuning
from unmask.types import Batch

MOST_SKIPPED = 20  # consecutive steps without a finite loss and gradient; then the run ends with an error


@dataclass(frozen=True, kw_only=True)
class Training(Config):
    """How a model is trained.

    steps, minutes  length of the run; with both, the shorter one
    precision       format of the forward pass: "auto" is bf16 where a device has it, fp16 is for GPUs; weights are fp32
    seed            of the weights, the order of the data and dropout
    device          where it runs: cpu, cuda, cuda:1; "auto" takes a GPU if there is one
    log_every       steps between rows of metrics
    evaluate_every  steps, or below 1 a fraction of all steps; also before the first step. None: only at the end
    save_every      steps between checkpoints, likewise; no checkpoint before the first step
    keep            number of checkpoints to keep     compile  torch.compile the model
    recompute       compute activations again in backward instead of keeping them: less memory, about a third slower
    sharding        "full" splits a model that is too large for one device over the processes (FSDP2)
    track           trackers of the run: tensorboard, wandb, mlflow, trackio     tensorboard  --track tensorboard
    """

    steps: int | None = None
    minutes: float | None = None
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    precision: Precision = "auto"
    seed: int = 0
    device: str = "auto"
    log_every: int = 10
    evaluate_every: int | float | None = 0.1
    save_every: int | float | None = 0.1
    keep: int = 2
    compile: bool = False
    recompute: bool = False
    sharding: Literal["none", "full"] = "none"
    track: tuple[trackers.Name, ...] = ()
    tensorboard: bool = False


class Trainer:
    """Trains `model` on `data` with `objective`, and yields events; checkpoints are written to the folder `out`.

    evaluate  (model, step) -> Evaluation; called on every rank in evaluation mode without gradients; rank 0's is used
    save      writes the model's own files into a folder; they become part of every checkpoint. With sharding, it sees
              the full parameters, but not in `state_dict`
    tuning    chooses the trained parameters and their rates; None trains all that require a gradient, at one rate. A
              parameter that it freezes in a later step must require a gradient now, so that the optimizer has it
    resume    continue from the newest intact checkpoint in `out`, bit for bit; without one, start from the beginning

    It writes no file before the first event. Raises UnmaskError for a missing length, and for a number not above 0.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Minimised,
        data: Data,
        config: Training,
        out: Path | str,
        *,
        evaluate: Callable[[nn.Module, int], Evaluation] | None = None,
        save: Callable[[Path], None] | None = None,
        tuning: Tuning | None = None,
        resume: bool = False,
    ) -> None:
        if config.steps is None and config.minutes is None:
            raise UnmaskError("The length of the training is missing: give a number of steps or of minutes.")
        if any(n is not None and n <= 0 for n in (config.steps, config.minutes, config.log_every)):
            raise UnmaskError("The numbers of steps, of minutes and of --log-every must be above 0.")
        self.model, self.data, self.config, self.out = model, data, config, Path(out)
        self.evaluate, self.save, self.tuning, self.resume = evaluate, save, tuning, resume
        self.device = distributed.init(config.device)
        self.engine = Engine(
            model,
            objective,
            config.optimizer,
            scale=None if tuning is None else tuning.scale,
            device=self.device,
            precision=config.precision,
            sharding=config.sharding,
            compile=config.compile,
            recompute=config.recompute,
        )
        self.terms = sorted(objective.weights)
        self.meter, self.clock, self.step, self.total = Meter(), Clock(), 0, 0
        self.position: dict[str, Any] | None = None
        self.heldout: dict[str, float] = {}
        self.stopped: str | None = None
        self.evaluate_every, self.timed_from, self._saved = config.evaluate_every, 0, -1

    def train(self, *listeners: Listener, display: Display | None = None) -> Result:
        """Run to the end. On the main process, each event also goes to metrics.jsonl and the display."""
        if not distributed.is_main():
            return listen(self.events(), *listeners)
        with Shown(on_main(display)) as shown, Log(self.out) as log:
            return listen(self.events(), *listeners, log, shown)

    def events(self) -> Events:
        """Run to the last step, or until a signal or `stop`, and yield events; the last one is the `Result`.

        Each rank yields the same events. However the run ends, its last checkpoint is intact. A caller that stops early
        must close the iterator, which unlocks the folder (`listen` does).
        """
        self.clock = Clock()
        torch.manual_seed(self.config.seed + distributed.rank())  # dropout
        with ExitStack() as stack:
            if distributed.is_main():
                stack.enter_context(checkpoint.Lock(self.out))
            interrupt = stack.enter_context(Interrupt())
            yield from self._begin()
            yield Planned(self.step, self.total)
            yield from self._loop(interrupt)
            if distributed.is_main():  # checkpoints that could not be removed earlier, for example on a full disk
                checkpoint.prune(self.out / "checkpoints", self.config.keep)
        yield Result(self.step, self.total, self.clock.seconds(), self.stopped, self.heldout)

    def stop(self, reason: str) -> None:
        """End the run after this step, with a checkpoint. Call it from a listener. At `Evaluated` a call on one rank is
        enough; at other events every rank must call it."""
        self.stopped = reason

    def plan(self) -> dict[str, Any]:
        """A dry run: the cost of the run, measured on a few steps that change no state and write no file.

        Keys: parameters, trainable, parts (by name), device, precision, note (on the precision), ranks, steps, too_few
        (a sentence or None), tokens_per_step, seconds_per_step, seconds, memory_bytes (weights, gradients, optimizer,
        activations, total) and disk_bytes.
        """
        pace = self._pace()
        return describe(self.engine, pace, self._length(pace, 0.0, 0.0), self.config.keep, self.config.minutes)

    # Before the first step

    def _begin(self) -> Events:
        """Load the checkpoint to resume from, evaluate before the first step, and determine the number of steps."""
        config, found = self.config, (yield from self._found())
        if found is None:
            yield Began()
        if self.engine.settled.note:
            yield Noted(self.engine.settled.note)
        if found is not None and config.steps is not None and config.steps < found.step:
            raise UnmaskError(
                f"The run in {self.out} has done {found.step:,} steps already, more than the {config.steps:,} of "
                "--steps: give the total number of steps, or omit --steps."
            )
        known = found is not None and not {"steps", "minutes"} & (yield from self._changes(found.state["config"]))
        pace = None
        if config.minutes is not None and not known:
            yield Noted("Measuring the time of a step.")
            pace = self._pace()
        if found is not None:
            yield from self._load(found)
        yield Opened(self.step)
        evaluation, began = 0.0, time.monotonic()
        if self.evaluate is not None and config.evaluate_every is not None and self.step == 0:
            yield from self._evaluated()
            evaluation = distributed.from_main(time.monotonic() - began)
            self.evaluate_every, notes = affordable(evaluation, self.evaluate_every, None if known else config.minutes)
            yield from map(Noted, notes)
        self.timed_from = found.state.get("timed_from", 0) if known and found else self.step
        self.total = found.state["total"] if known and found else self._length(pace, evaluation, self.clock.spent())
        if self.evaluate is not None and found is not None and found.state.get("owed"):
            yield from self._evaluated()
            yield from self._save()

    def _found(self) -> Generator[Event, None, checkpoint.Checkpoint | None]:
        folder = self.out / "checkpoints"
        if distributed.is_main():
            checkpoint.tidy(folder)
            for place in (self.out, *self.out.glob("*/")):
                sweep(place)
        distributed.barrier()
        if not self.resume:
            if checkpoint.steps(folder):
                raise checkpoint.taken(self.out)
            return None
        notes: list[str] = []
        try:
            found = checkpoint.latest(folder, notes.append)
        finally:  # even if all are damaged
            yield from map(Noted, notes)
        if found is None:
            yield Noted(f"{self.out} has no checkpoint yet: the run begins from the start, with its settings.")
        distributed.barrier()
        if found is not None and distributed.is_main():
            checkpoint.set_aside(folder, after=found.step)
            checkpoint.prune(folder, self.config.keep)
        return found

    def _changes(self, before: dict[str, Any]) -> Generator[Event, None, set[str]]:
        """Names of the settings that differ from those of the resumed run. Yields a note for each."""
        was, now = Training.from_dict(before).places(), self.config.places()
        changed = {name for name in now if was[name] != now[name]}
        for name in sorted(changed):
            yield Noted(f"Continuing with {name} {now[name]}; it was {was[name]}.")
        return changed

    def _pace(self) -> Pace:
        """Measure the time and memory of a step."""
        return calibrate(self.engine, phases_of(self.data), self._totals, 60 * (self.config.minutes or 0) or None)

    def _length(self, pace: Pace | None, evaluation: float, spent: float) -> int:
        """The number of steps of the whole run, the same on every rank; `evaluation` and `spent` are in seconds."""
        config = self.config
        if config.minutes is None or pace is None:
            assert config.steps is not None
            return config.steps
        costs = [(evaluation, self.evaluate_every), (pace.saving, config.save_every)]
        steps = self.step + int(distributed.from_main(fitting_steps(60 * config.minutes - spent, pace.step, costs)))
        return steps if config.steps is None else min(steps, config.steps)

    def _load(self, found: checkpoint.Checkpoint) -> Events:
        state, tensors = found.state, found.tensors()
        self.engine.load(tensors)
        self.meter.load(state["meter"])
        self.step, self.position, self.heldout = found.step, state["position"], state["heldout"]
        self.clock.earlier = state["seconds"]
        if state["config"].get("evaluate_every") == self.config.evaluate_every:
            self.evaluate_every = state.get("evaluate_every", self.evaluate_every)
        self._saved = -1 if state.get("owed") else self.step
        if state["ranks"] == distributed.ranks():
            kinds = random_state(self.device)
            random = {kind: tensors.get(f"random.{distributed.rank()}.{kind}", kinds[kind]) for kind in kinds}
            restore_random_state(random, self.device)
            own = f"carried.{distributed.rank()}."
            self.engine.carry({name.removeprefix(own): x for name, x in tensors.items() if name.startswith(own)})
        else:
            torch.manual_seed(self.config.seed + self.step * distributed.ranks() + distributed.rank())
            before = plural(state["ranks"], "process", "processes")
            yield Noted(f"The run had {before} and continues with {distributed.ranks()}.")
        yield Noted(f"Resuming from step {self.step}.")

    # The loop

    def _loop(self, interrupt: Interrupt) -> Events:
        config = self.config
        evaluate_every, save_every = (in_steps(n, self.total) for n in (self.evaluate_every, config.save_every))
        check_every = min(config.log_every, MOST_SKIPPED) if reading_waits(self.device) else 1
        cutting = interrupt.cutting if distributed.ranks() == 1 else nullcontext  # else the other ranks would wait
        batches = self.data.batches(self.position)
        self.clock.start()
        while self.step < self.total and self.stopped is None:
            interrupted = self._one_step(batches, interrupt)
            yield Step(self.step)
            last = self.step == self.total
            if last or self.step % check_every == 0:
                self._give_up_if_stuck()
            if last or self.step % config.log_every == 0:
                yield self._measured()
            with self.clock.paused():
                if (due := self.evaluate is not None and (last or self.step % evaluate_every == 0)) and not interrupted:
                    interrupted = not (yield from self._evaluated(cutting()))
                if last or interrupted or self.stopped is not None or self.step % save_every == 0:
                    yield from self._save(owed=due and interrupted)

    @short_turns()
    def _one_step(self, batches: Iterator, interrupt: Interrupt) -> bool:
        """One update. Returns whether a signal asked to stop the run."""
        try:
            with self.clock.waiting():
                micro, position = next(batches)
        except StopIteration:
            raise UnmaskError(f"The data ended at step {self.step} of {self.total}.") from None
        totals, tokens, signals = self._totals(micro, interrupt.name is not None)
        if self.tuning is not None:
            self.tuning.on_step(self.step, self.total)
        self.engine.on_step(self.step, self.total)
        self.engine.step(micro, totals, self._lr(self.step), self.meter)
        self.step, self.position = self.step + 1, position
        self.clock.tokens += tokens
        if signals:
            self.stopped = interrupt.name or "a signal to another process"
        return signals > 0

    def _totals(self, batches: list[Batch], signal: bool = False) -> tuple[dict[str, int], int, int]:
        """Sums over all micro-batches and ranks: targets of each loss term, real tokens, ranks with a signal."""
        counts = [b.counts for b in batches]
        numbers = [sum(c.get(name, 0) for c in counts) for name in self.terms]
        numbers += [sum(b.real_tokens for b in batches), int(signal)]
        if distributed.ranks() > 1:
            numbers = distributed.sum_over_ranks(torch.tensor(numbers)).tolist()
        *found, tokens, signals = numbers
        return dict(zip(self.terms, found, strict=True)), tokens, signals

    def _lr(self, step: int) -> float:
        return self.config.optimizer.rate * self.config.schedule.at(step, self.total)

    def _give_up_if_stuck(self) -> None:
        self.meter.drain()
        if (row := self.meter.skipped_in_a_row) >= MOST_SKIPPED:
            kept = checkpoint.steps(self.out / "checkpoints")
            intact = f"the checkpoint of step {kept[-1]} is intact" if kept else "there is no checkpoint yet"
            raise UnmaskError(
                f"The loss or its gradient was not finite for {row} steps in a row, up to step {self.step}; "
                f"lower the learning rate or lengthen the warm-up ({intact})."
            )

    # Measured, evaluated, saved

    def _measured(self) -> Measured:
        numbers = {**self.meter.read(), "lr": self._lr(self.step - 1), **self.clock.rates()}
        return Measured(self.step, round(self.clock.seconds(), 3), numbers)

    def _evaluated(self, cutting: AbstractContextManager[None] | None = None) -> Generator[Event, None, bool]:
        """Evaluate. Returns False if a signal cut the evaluation short; the resumed run then makes it up."""
        try:
            with cutting or nullcontext():
                found = self._evaluation()
        except Cut as cut:
            self.stopped = str(cut)
            return False
        self.heldout = dict(found.numbers)
        yield Evaluated(self.step, round(self.clock.seconds(), 3), self.heldout, found.samples)
        if distributed.sum_over_ranks(torch.tensor(int(self.stopped is not None))) and self.stopped is None:
            self.stopped = "another process"
        return True

    def _evaluation(self) -> Evaluation:
        """The result of the caller's `evaluate`. Restores the model's mode and the random state."""
        assert self.evaluate is not None
        random, training = random_state(self.device), self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self.engine.autocast():
                return self.engine.in_full(partial(self.evaluate, self.model, self.step))
        finally:
            self.model.train(training)
            restore_random_state(random, self.device)

    def _save(self, *, owed: bool = False) -> Events:
        if self._saved == self.step:
            return
        state = {
            "total": self.total,
            "timed_from": self.timed_from,  # the step from which the minutes count
            "evaluate_every": self.evaluate_every,  # longer than that of the config if evaluations take long
            "config": self.config.to_dict(),
            "seconds": self.clock.seconds(),
            "position": getattr(self.data, "gathered", lambda place: place)(self.position),
            "ranks": distributed.ranks(),
            "heldout": self.heldout,
            "owed": owed,  # the resumed run makes the evaluation of this step up: a signal leaves little time
            "meter": self.meter.state(),
        }
        tensors = self.engine.tensors()
        for kind, x in random_state(self.device).items():
            tensors.update({f"random.{rank}.{kind}": part for rank, part in enumerate(distributed.gather(x))})
        for name, x in self.engine.carried().items():
            parts = enumerate(distributed.gather(x.flatten().cpu()))
            tensors.update({f"carried.{rank}.{name}": part.view(x.shape) for rank, part in parts})
        folder, keep = self.out / "checkpoints", self.config.keep
        write = partial(checkpoint.write, folder, self.step, state=state, tensors=tensors, save=self.save, keep=keep)
        self.engine.on_main(write)
        self._saved = self.step
        yield Saved(self.step, checkpoint.folder_of(folder, self.step))
