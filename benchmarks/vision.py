"""Picture models: training steps, inference and data loading of a ViT, compared with `transformers`.

    python benchmarks/vision.py --threads 2 --out vision.json
    python benchmarks/vision.py --device cuda --only train infer --steps 30

All sides run in one process with the memory settings of `unmask finetune`, and take turns. They have the same weights,
pictures, threads and precision; before the clock starts, their logits are compared in float32.

train   ViT-tiny (12 layers of 192) and ViT-small (12 of 384), 10 classes, AdamW (fused kernel) with clipping, pictures
        of 32 pixels (patches of 4, 65 places) and of 64 (patches of 8, 65 places, and of 4, 257 places). Decoded
        pictures to updated weights: `unmask` is the engine and the loader behind `unmask finetune`; the peers are a
        plain loop over `ViTForImageClassification`, and `transformers.Trainer`
infer   ViT-small, 224 pixels, patches of 16 (197 places). Normalised pixels to probabilities: `unmask` is the layout
        and the batching behind `unmask predict`, the peer is `ViTForImageClassification` in inference mode. In bf16
        it runs under autocast, which keeps norms and sums in float32 as `unmask` does, and with all in bfloat16
load    JPEG files to rows of a batch, with a random crop and flip: time of each part for a picture, and their share of
        a training step that waits for them (in a run, a thread loads the next step while the model computes)
"""

from __future__ import annotations

import argparse
import copy
import io
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import common, trainer
from bench.common import CLOCKS, Result
from bench.table import markdown

if TYPE_CHECKING:
    import numpy as np

    from unmask.data.pictures.processor import ImageProcessor
    from unmask.kernels.processor import Precision
    from unmask.models.model import Model
    from unmask.tasks import Task

CLASSES, RATE = 10, 1e-4
PLAIN, TRAINER = "transformers, plain loop", "transformers.Trainer"
GOALS = {"train": 1.5, "infer": 1.3}
Step = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """What is measured: a size of `unmask.models.vit.SIZES` on pictures of this side, in patches, in batches."""

    size: str
    side: int
    patch: int
    batch: int

    @property
    def says(self) -> str:
        places = (self.side // self.patch) ** 2 + 1
        return f"ViT-{self.size}, {self.side} px, patches of {self.patch} ({places} places), batch {self.batch}"


TRAIN = {
    "train-tiny-32": Work("tiny", 32, 4, 64),
    "train-tiny-64": Work("tiny", 64, 8, 64),
    "train-tiny-64-fine": Work("tiny", 64, 4, 32),
    "train-small-32": Work("small", 32, 4, 64),
    "train-small-64": Work("small", 64, 8, 64),
    "train-small-64-fine": Work("small", 64, 4, 16),
}
INFER = {f"infer-{batch}": Work("small", 224, 16, batch) for batch in (1, 8, 32)}
LOAD = {"load-32": Work("tiny", 32, 4, 64), "load-224": Work("tiny", 224, 16, 16)}


@dataclass(frozen=True)
class Sides:
    """The same model on both sides, and pictures [N, side, side, 3] uint8 with their classes [N]."""

    model: Model
    task: Task
    processor: ImageProcessor
    theirs: Any
    pictures: np.ndarray
    classes: np.ndarray


def smooth(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A picture [height, width, 3] uint8 that JPEG compresses about as well as a photograph."""
    import numpy as np
    from PIL import Image

    coarse = Image.fromarray(rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8))
    noise = rng.integers(-12, 13, (height, width, 3))
    found = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)) + noise
    return np.clip(found, 0, 255).astype(np.uint8)


def prepared(work: Work, count: int) -> Sides:
    """Build a model, and open it on both sides. Exits with a sentence where their logits differ."""
    import numpy as np
    import torch
    import transformers

    from unmask import huggingface
    from unmask.data import collate
    from unmask.data.pictures.processor import ImageProcessor
    from unmask.models.vit import SIZES, Vit
    from unmask.tasks import TASKS
    from unmask.types import Kind

    transformers.logging.set_verbosity_error()
    rng = np.random.default_rng(0)
    labels = [f"class {i}" for i in range(CLASSES)]
    task = TASKS["image-classification"].of_labels(labels)
    page = Vit(size=work.side, patch=work.patch).replace(**SIZES[work.size])
    processor = ImageProcessor(size=work.side, patch=work.patch)
    with tempfile.TemporaryDirectory(prefix="unmask-vision-") as folder:
        huggingface.save(folder, page.build(task.heads, seed=0), processor, labels=labels)
        model = huggingface.load(folder).model
        theirs = transformers.ViTForImageClassification.from_pretrained(folder)
    pictures = np.stack([smooth(rng, work.side, work.side) for _ in range(count)])
    pixels = [processor.pixels(one) for one in pictures[:2]]
    batch = collate.pad([processor.patches(one) for one in pixels], Kind.PADDING, multiple=1)
    with torch.inference_mode():
        ours = model.eval().answer(task.name, model(batch), batch.starts, batch)
        difference = float((ours - theirs.eval()(torch.from_numpy(np.stack(pixels))).logits).abs().max())
    if not difference < 1e-4:
        raise SystemExit(f"The logits of both sides differ by {difference:.2g}.")
    return Sides(model, task, processor, theirs, pictures, rng.integers(0, CLASSES, count))


# ------------------------------------------------------------------------------------------------ training


def training_of_unmask(sides: Sides, work: Work, precision: Precision, device: str) -> Step:
    """A step of the training behind `unmask finetune`."""
    import numpy as np
    import torch

    from unmask.data.examples import Groups, labelled
    from unmask.train.engine import Engine
    from unmask.train.metrics import Meter
    from unmask.train.optim import Optimizer

    first, name = np.zeros(1, np.int64), sides.task.name
    examples = [
        replace(sides.processor.example(picture), targets={name: (first, np.array([number]))})
        for picture, number in zip(sides.pictures, sides.classes, strict=True)
    ]
    data = labelled(Groups(examples), work.batch, pad=sides.processor.pad).batches(None)
    optimizer = Optimizer(lr=RATE, eps=1e-8)
    engine = Engine(sides.model, sides.task, optimizer, device=torch.device(device), precision=precision)
    meter = Meter()

    def step() -> None:
        batches, _ = next(data)
        totals = {name: sum(batch.counts[name] for batch in batches) for name in sides.task.weights}
        engine.step(batches, totals, RATE, meter)

    return step


def training_in_a_loop(sides: Sides, work: Work, precision: Precision, device: str) -> Step:
    """A step of a plain loop."""
    import numpy as np
    import torch

    model = sides.theirs.to(device).train()
    pixels = np.stack([sides.processor.pixels(one) for one in sides.pictures])
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01, fused=True)
    rng = np.random.default_rng(0)

    def step() -> None:
        drawn = rng.integers(0, len(pixels), work.batch)
        values, labels = (torch.from_numpy(one[drawn]).to(device) for one in (pixels, sides.classes))
        with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(pixel_values=values, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def training_by_trainer(sides: Sides, work: Work, options: argparse.Namespace, precision: Precision) -> Step:
    """Seconds of a step of `Trainer`, over `steps` steps after two that do not count."""
    import transformers

    steps, clock = options.steps, CLOCKS[options.clock]
    rows = [
        {"pixel_values": sides.processor.pixels(picture), "labels": int(number)}
        for picture, number in zip(sides.pictures, sides.classes, strict=True)
    ]
    settings = {"precision": precision, "lr": RATE, "seed": 0, "device": options.device}

    def run() -> float:
        times: list[float] = []

        class Timed(transformers.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
                if state.global_step in (2, steps + 2):  # waiting at every step would slow a GPU down
                    common.wait_for_gpu()
                times.append(clock())

        with tempfile.TemporaryDirectory(prefix="unmask-run-") as out:
            size = work.batch
            chosen = trainer.arguments(out, settings, max_steps=steps + 2, per_device_train_batch_size=size)
            timed = transformers.Trainer(
                model=sides.theirs, args=chosen, train_dataset=rows, callbacks=[Timed()],
                data_collator=transformers.DefaultDataCollator(),
            )  # fmt: skip
            timed.remove_callback(transformers.PrinterCallback)
            timed.train()
        return (times[-1] - times[1]) / steps

    return run


def train(work: Work, options: argparse.Namespace, precision: Precision) -> dict[str, list[float]]:
    """Seconds of a step, by side, in each turn."""
    sides = prepared(work, 4 * work.batch)
    makes = {"unmask": training_of_unmask, PLAIN: training_in_a_loop}
    runs = {name: make(sides, work, precision, options.device) for name, make in makes.items()}
    by_trainer = training_by_trainer(sides, work, options, precision)
    sides.model.train()
    both = {name: partial(timed, run, options.steps, CLOCKS[options.clock]) for name, run in runs.items()}
    return in_turns({**both, TRAINER: by_trainer}, options.turns)


# ------------------------------------------------------------------------------------------------ inference


def infer(work: Work, options: argparse.Namespace, precision: Precision) -> dict[str, list[float]]:
    """Seconds of a batch, by side, in each turn."""
    import numpy as np
    import torch

    from unmask.data.labelled.rows import Row
    from unmask.models.inference_encoder import inference_layout
    from unmask.tasks import Encoded

    sides = prepared(work, max(2, work.batch))
    pixels = [sides.processor.pixels(one) for one in sides.pictures[: work.batch]]
    layout = inference_layout(sides.model.to(options.device).eval(), precision)
    theirs = sides.theirs.to(options.device).eval()
    lowered = copy.deepcopy(theirs).bfloat16()
    rows, owners = [Row()] * work.batch, np.arange(work.batch)

    def ours() -> list[Any]:
        first = {sides.task.name: (np.zeros(1, np.int64), np.zeros(1, np.int64))}
        examples = [replace(sides.processor.patches(one), targets=first) for one in pixels]
        return sides.task.answer_all(layout, Encoded(examples, owners, rows, 0), sides.processor.pad)

    def peer(model: Any, autocast: bool) -> Any:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            logits = model(pixel_values=torch.from_numpy(np.stack(pixels)).to(model.device, model.dtype)).logits
        return logits.float().softmax(-1).cpu()

    sides_of = {"unmask": ours, "transformers": lambda: peer(theirs, False)}
    if precision == "bf16":
        exact, rounded = (lambda: peer(theirs, True)), (lambda: peer(lowered, False))
        sides_of = {"unmask": ours, "transformers, autocast": exact, "transformers, all in bf16": rounded}
    with torch.inference_mode():
        repeats = max(1, round(options.steps * 4 / work.batch))
        timing = {name: partial(timed, run, repeats, CLOCKS[options.clock]) for name, run in sides_of.items()}
        return in_turns(timing, options.turns)


# ------------------------------------------------------------------------------------------------ loading


def load(work: Work, options: argparse.Namespace, precision: Precision) -> dict[str, list[float]]:
    """Seconds of each part of loading a picture, and of its share of a training step, in each turn."""
    import numpy as np
    from PIL import Image

    from unmask.data import collate
    from unmask.data.augmentation import compose
    from unmask.data.pictures.augmentation import HorizontalFlip, PadAndCrop, RandomResizedCrop
    from unmask.data.pictures.decoding import decode
    from unmask.types import Kind

    sides = prepared(work, 4 * work.batch)
    rng, files = np.random.default_rng(0), []
    height, width = (work.side, work.side) if work.side < 64 else (375, 500)  # as CIFAR and ImageNet have them
    for _ in range(work.batch):
        file = io.BytesIO()
        Image.fromarray(smooth(rng, height, width)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    crop = PadAndCrop() if work.side < 64 else RandomResizedCrop(work.side)
    augment = compose(crop, HorizontalFlip())
    decoded = [decode(file) for file in files]
    augmented = [augment(one, rng) for one in decoded]
    examples = [sides.processor.example(one) for one in augmented]
    clock = CLOCKS[options.clock]
    parts: dict[str, Step] = {
        "decoding": lambda: [decode(file) for file in files],
        "crop and flip": lambda: [augment(one, rng) for one in decoded],
        "pixels and patches": lambda: [sides.processor.example(one) for one in augmented],
        "rows": lambda: collate.pad(examples, Kind.PADDING, multiple=1),
    }
    step = training_of_unmask(sides, work, precision, options.device)
    runs = {name: lambda run=run: timed(run, options.steps, clock) / work.batch for name, run in parts.items()}
    return in_turns({**runs, "training": lambda: timed(step, options.steps, clock) / work.batch}, options.turns)


# ------------------------------------------------------------------------------------------------ turns and tables


def timed(run: Step, times: int, clock: Callable[[], float]) -> float:
    """Seconds of a call, over several calls."""
    began = clock()
    for _ in range(times):
        run()
    common.wait_for_gpu()
    return (clock() - began) / times


def in_turns(runs: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """The seconds of each side in each turn, after one turn that does not count."""
    for run in runs.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            found[name].append(run())
    return found


MEASURES = {"train": train, "infer": infer, "load": load}
WORKS = {**TRAIN, **INFER, **LOAD}


def compared(work: Work, found: dict[str, list[float]], goal: float) -> list[Sequence[str]]:
    """Lines of the table: pictures a second of both sides, and how many times as fast unmask is."""
    lines: list[Sequence[str]] = []
    for peer in [name for name in found if name != "unmask"]:
        ours, theirs, ratio = common.compare_times(list(zip(found["unmask"], found[peer], strict=True)))
        speeds = (f"{work.batch / seconds:,.1f}" for seconds in (ours, theirs))
        lines.append((work.says, peer, *speeds, ratio, f"{goal:g}"))
    return lines


def shares(work: Work, found: dict[str, list[float]]) -> list[Sequence[str]]:
    """Lines of the table: milliseconds of each part for a picture, and its share of a step that waits for all parts."""
    middle = {name: common.spread(times)["median"] for name, times in found.items()}
    whole = math.fsum(middle.values())
    return [(work.says, name, f"{1e3 * middle[name]:.3f}", f"{middle[name] / whole:.1%}") for name in middle]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*MEASURES, *WORKS], help="some of the measurements")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: time of the process, one thread")
    parser.add_argument("--out", help="a file for the seconds of every turn (JSON)")
    options = parser.parse_args()
    common.need("transformers", "accelerate", "PIL")
    from unmask.cli import process

    process.start(["finetune"])
    import torch

    from unmask.kernels.processor import settle

    torch.set_num_threads(options.threads)
    precision = settle(options.precision, options.device).precision
    run = {name: vars(options)[name] for name in ("threads", "clock", "steps", "device")} | {"precision": precision}
    facts: Result = {"machine": common.machine(options.threads), "run": run, "seconds": {}}
    common.introduce(facts["machine"])
    tables: dict[str, list[Sequence[str]]] = {"compared": [], "loading": []}
    for name, work in WORKS.items():
        kind = name.partition("-")[0]
        if options.only and not {name, kind} & set(options.only):
            continue
        found = MEASURES[kind](work, options, precision)
        facts["seconds"][name] = found
        lines = compared(work, found, GOALS[kind]) if kind in GOALS else shares(work, found)
        tables["compared" if kind in GOALS else "loading"] += lines
        print("\n".join(" | ".join(line) for line in lines), flush=True)
    heads = {
        "compared": ("work", "peer", "unmask, pictures/s", "peer, pictures/s", "times as fast (range)", "goal"),
        "loading": ("work", "part", "ms a picture", "share of a step"),
    }
    for name in [name for name, lines in tables.items() if lines]:
        print(f"\n{precision}\n\n{markdown([heads[name], *tables[name]])}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
