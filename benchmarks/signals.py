"""Models of electrocardiograms: training steps and inference, compared with a plain loop over the same model.

    python benchmarks/signals.py --threads 2 --out signals.json
    python benchmarks/signals.py --clock cpu --only train     # on a machine with other work

Both sides run in one process with the memory settings of `unmask finetune`, and take turns. They have the same weights,
windows, threads and precision; before the clock starts, their outputs in evaluation mode are compared in float32.

train  windows to updated weights: AdamW (fused kernel) with clipping. `unmask` is the task and the engine behind
       `unmask train`; the peer is the same model as people write it, with `nn.Conv1d`, `nn.LSTM` and `nn.BatchNorm1d`,
       batches of a `DataLoader` padded to their longest window, and the bands and knowledge features of MINA computed
       once, before the clock starts, as its authors do. `unmask` computes them in every step
infer  samples to probabilities, bands and features included, with the layout and the batching behind `unmask predict`

Windows have ten seconds or, with --whole, are records of 9 to 60 s. The peer counts their padding in batch
normalisation, `unmask` does not, so its steps do more there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import common
from bench.common import CLOCKS, Result
from bench.table import markdown
from vision import in_turns, timed

if TYPE_CHECKING:
    from unmask.data.signals.processor import SignalProcessor
    from unmask.kernels.processor import Precision
    from unmask.models.model import Model
    from unmask.types import Example

RATE, LEARNING_RATE, CLASSES = 300, 3e-3, 2
PLAIN = "plain loop"
GOALS = {"train": 1.0, "infer": 1.0}
Step = Callable[[], Any]


# ------------------------------------------------------------------------------------------------ plain models


class Attention(nn.Module):
    def __init__(self, dim: int, compared: int) -> None:
        super().__init__()
        self.project, self.score = nn.Linear(dim + 1, compared, bias=False), nn.Linear(compared, 1, bias=False)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        weights = self.score(torch.tanh(self.project(torch.cat([x, known], -1)))).softmax(1)
        return (weights * x).sum(1)


class Band(nn.Module):
    def __init__(self, page: Any) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, page.filters, page.kernel, page.stride)
        self.known = nn.Conv1d(1, 1, page.kernel, page.stride)
        self.beats = Attention(page.filters, page.compared)
        self.lstm = nn.LSTM(page.filters, page.hidden, batch_first=True, bidirectional=True)
        self.rhythm = Attention(2 * page.hidden, page.compared)
        self.output, self.dropout = nn.Linear(2 * page.hidden, page.outputs), nn.Dropout(page.dropout)
        self.segment = page.segment

    def forward(self, x: Tensor, steps: Tensor, deviations: Tensor) -> Tensor:
        places = F.relu(self.convolution(x.reshape(-1, 1, self.segment))).transpose(1, 2)
        known = F.relu(self.known(steps.reshape(-1, 1, self.segment))).transpose(1, 2)
        states, _ = self.lstm(self.beats(places, known).reshape(len(x), -1, places.shape[-1]))
        return self.dropout(F.relu(self.output(self.rhythm(states, deviations[..., None]))))


class PlainMina(nn.Module):
    """MINA on bands [B, F, N], with their steps, deviations [B, F, K] and powers [B, F]."""

    def __init__(self, page: Any) -> None:
        super().__init__()
        self.bands = nn.ModuleList(Band(page) for _ in page.low)
        self.attention = Attention(page.outputs, page.band_compared)
        self.classes = nn.Linear(page.outputs, CLASSES)

    def forward(self, x: Tensor, steps: Tensor, deviations: Tensor, powers: Tensor) -> Tensor:
        found = [band(x[:, f], steps[:, f], deviations[:, f]) for f, band in enumerate(self.bands)]
        return self.classes(self.attention(torch.stack(found, 1), powers[..., None]))


class Block(nn.Module):
    def __init__(self, page: Any, channels: int, dim: int, index: int) -> None:
        super().__init__()
        self.stride, self.more = 1 + index % 2, dim - channels
        self.before = nn.BatchNorm1d(channels) if index else None
        self.down = nn.Conv1d(channels, dim, page.kernel, self.stride)
        self.between, self.dropout = nn.BatchNorm1d(dim), nn.Dropout(page.dropout)
        self.convolution = nn.Conv1d(dim, dim, page.kernel)

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.before is None else F.relu(self.before(x))
        y = same(self.convolution, self.dropout(F.relu(self.between(same(self.down, y)))))
        return y + F.pad(F.max_pool1d(x, self.stride), (0, 0, 0, self.more))


class PlainEcg(nn.Module):
    """The deep network on samples [B, N]; its states are averaged."""

    def __init__(self, page: Any) -> None:
        super().__init__()
        widths = [page.filters << max(i, 0) // page.doubled for i in range(-1, page.blocks)]
        self.convolution, self.norm = nn.Conv1d(1, page.filters, page.kernel), nn.BatchNorm1d(page.filters)
        self.blocks = nn.ModuleList(Block(page, widths[i], widths[i + 1], i) for i in range(page.blocks))
        self.last, self.classes = nn.BatchNorm1d(widths[-1]), nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(same(self.convolution, x[:, None])))
        for block in self.blocks:
            y = block(y)
        return self.classes(F.relu(self.last(y)).mean(-1))


def same(convolution: nn.Conv1d, x: Tensor) -> Tensor:
    kernel, stride = convolution.kernel_size[0], convolution.stride[0]
    return convolution(F.pad(x, ((kernel - stride) // 2, kernel - stride - (kernel - stride) // 2)))


def samples_of(page: Any, window_N: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the deep network reads of a window."""
    return (window_N,)


def knowledge_of(page: Any, window_N: np.ndarray) -> tuple[np.ndarray, ...]:
    """What MINA reads: the bands, |x_n - x_(n-1)|, the deviations of segments, and the sums of the periodograms."""
    from scipy.signal import butter, lfilter, periodogram

    bounds = list(zip(page.low, page.high, strict=True))
    x_FN = np.stack([lfilter(*butter(1, one, "band", fs=RATE), window_N) if any(one) else window_N for one in bounds])
    steps_FN = np.abs(np.diff(x_FN, prepend=x_FN[:, :1]))
    deviations_FK = x_FN.reshape(len(bounds), -1, page.segment).std(-1)
    powers_F = periodogram(x_FN, RATE)[1].sum(-1)
    return tuple(one.astype(np.float32) for one in (x_FN, steps_FN, deviations_FK, powers_F))


# ------------------------------------------------------------------------------------------------ both sides


@dataclass(frozen=True)
class Sides:
    """The same model on both sides, the task that trains it, and windows: as examples, and as arrays of the peer."""

    model: Model
    task: Any
    processor: SignalProcessor
    theirs: nn.Module
    features: Callable[[Any, np.ndarray], tuple[np.ndarray, ...]]
    windows: list[np.ndarray]
    examples: list[Example]


PLAINS = {"mina": (PlainMina, knowledge_of), "ecg-cnn": (PlainEcg, samples_of)}
"""Name of a recipe -> the plain model, and what it reads of a window."""


def prepared(name: str, options: argparse.Namespace) -> Sides:
    """Build a model, and the plain one with its weights. Exits with a sentence where their outputs differ."""
    from unmask.data.signals.processor import SignalProcessor
    from unmask.runs import supervised_recipes
    from unmask.tasks.signal_classification import SignalClassification

    page: Any = supervised_recipes.find(name).page
    plain, features = PLAINS[name]
    task = SignalClassification([str(i) for i in range(CLASSES)])
    processor, model = SignalProcessor().for_model(page), page.build(task.heads, seed=0)
    theirs = plain(page)
    for own, other in zip(theirs.parameters(), model.parameters(), strict=True):
        own.data.copy_(other.data)
    rng, count = np.random.default_rng(0), 4 * options.batch
    seconds = rng.uniform(9, 60, count) if options.whole else np.full(count, 10.0)
    windows = [processor.values(rng.normal(size=(int(one * RATE), 1)))[:, 0] for one in seconds]
    examples = []
    for i, window in enumerate(windows):
        target = {task.name: (np.zeros(1, np.int64), np.array([i % CLASSES]))}
        examples.append(replace(processor.segmented(window[:, None]), targets=target))
    batch = processor.collate([examples[0]])
    with torch.inference_mode():
        found = model.eval().answer(task.name, model(batch), task.places(batch), batch)
        wanted = theirs.eval()(*padded([features(page, windows[0])]))
    if not float((found - wanted).abs().max()) < 1e-3:
        raise SystemExit(f"The outputs of both sides differ by {float((found - wanted).abs().max()):.2g}.")
    return Sides(model, task, processor, theirs, features, windows, examples)


def padded(read: Sequence[tuple[np.ndarray, ...]]) -> list[Tensor]:
    """One tensor for each array, with zeros behind those whose last axis is shorter."""
    found = []
    for parts in zip(*read, strict=True):
        rows = torch.zeros(len(parts), *np.max([part.shape for part in parts], axis=0))
        for row, part in zip(rows, parts, strict=True):
            row[..., : part.shape[-1]] = torch.from_numpy(part)
        found.append(rows)
    return found


def training_of_unmask(sides: Sides, options: argparse.Namespace, precision: Precision) -> Step:
    """A step of the training behind `unmask train`."""
    from unmask.data.collate import pack
    from unmask.train.engine import Engine
    from unmask.train.metrics import Meter
    from unmask.train.optim import Optimizer

    optimizer, meter = Optimizer(lr=LEARNING_RATE), Meter()
    engine = Engine(sides.model, sides.task, optimizer, device=torch.device("cpu"), precision=precision)
    rng, length = np.random.default_rng(0), max(len(one.tokens) for one in sides.examples)

    def step() -> None:
        drawn = [sides.examples[i] for i in rng.integers(0, len(sides.examples), options.batch)]
        batch = pack(drawn, length, sides.processor.pad)
        engine.step([batch], batch.counts, LEARNING_RATE, meter)

    return step


def plain_training(sides: Sides, options: argparse.Namespace, precision: Precision) -> Step:
    """A step of a plain loop over a `DataLoader`."""
    from torch.utils.data import DataLoader

    page, model = sides.model.config, sides.theirs
    rows = [(sides.features(page, window), i % CLASSES) for i, window in enumerate(sides.windows)]

    def collate(rows: Any) -> tuple[list[Tensor], Tensor]:
        return padded([read for read, _ in rows]), torch.tensor([label for _, label in rows])

    loader: Any = DataLoader(rows, batch_size=options.batch, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01, fused=True)
    batches = (batch for _ in iter(int, 1) for batch in loader)  # without an end

    def step() -> None:
        read, labels = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(*read), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def train(sides: Sides, options: argparse.Namespace, precision: Precision) -> dict[str, Step]:
    """A step of both sides."""
    sides.model.train(), sides.theirs.train()
    makes = {"unmask": training_of_unmask, PLAIN: plain_training}
    return {name: make(sides, options, precision) for name, make in makes.items()}


def infer(sides: Sides, options: argparse.Namespace, precision: Precision) -> dict[str, Step]:
    """The answers of both sides to a batch."""
    from unmask.data import collate
    from unmask.models.inference_encoder import inference_layout
    from unmask.tasks.batching import answered

    layout, theirs = inference_layout(sides.model.eval(), precision), sides.theirs.eval()
    windows, targets = sides.windows[: options.batch], sides.examples[0].targets

    def ours() -> None:
        examples = [replace(sides.processor.segmented(window[:, None]), targets=targets) for window in windows]

        def read(places: list[int]) -> list[np.ndarray]:
            batch = collate.pad([examples[i] for i in places], sides.processor.pad, multiple=1)
            return sides.task.answers(layout, batch)

        with torch.inference_mode():
            answered(read, [len(one.tokens) for one in examples], layout.device, sides.task.tokens_at_once)

    def peer() -> None:
        read = padded([sides.features(sides.model.config, window) for window in windows])
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            theirs(*read).float().softmax(-1).numpy()

    return {"unmask": ours, PLAIN: peer}


# ------------------------------------------------------------------------------------------------ tables


MEASURES = {"train": train, "infer": infer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(MEASURES), default=list(MEASURES))
    parser.add_argument("--models", nargs="+", choices=tuple(PLAINS), default=list(PLAINS))
    parser.add_argument("--whole", action="store_true", help="records of 9 to 60 s instead of windows of ten seconds")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps, or batches, of a turn")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: time of the process, one thread")
    parser.add_argument("--out", help="a file for the seconds of every turn (JSON)")
    options = parser.parse_args()
    from unmask.cli import process
    from unmask.kernels.processor import settle

    process.start(["finetune"])
    torch.set_num_threads(options.threads)
    precision = settle(options.precision, "cpu").precision
    run = {name: vars(options)[name] for name in ("threads", "clock", "steps", "batch", "whole")}
    facts: Result = {"machine": common.machine(options.threads), "run": run | {"precision": precision}, "seconds": {}}
    common.introduce(facts["machine"])
    table: list[Sequence[str]] = [("work", "unmask, s", f"{PLAIN}, s", "times as fast (range)", "goal")]
    clock = CLOCKS[options.clock]
    for kind in options.only:
        for name in options.models:
            steps = MEASURES[kind](prepared(name, options), options, precision)
            found = in_turns(
                {side: partial(timed, step, options.steps, clock) for side, step in steps.items()}, options.turns
            )
            facts["seconds"][f"{kind}-{name}"] = found
            ours, theirs, ratio = common.compare_times(list(zip(found["unmask"], found[PLAIN], strict=True)))
            table.append((f"{kind}: {name}", f"{ours:.3f}", f"{theirs:.3f}", ratio, f"{GOALS[kind]:g}"))
            print(" | ".join(table[-1]), flush=True)
    print(f"\n{precision}\n\n{markdown(table)}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
