"""Speech models: training steps and inference of wav2vec 2.0, compared with `transformers`.

    python benchmarks/speech.py --threads 2 --out speech.json
    python benchmarks/speech.py --device cuda --only pretrain-base ctc-base infer --steps 20

Both sides run in one process with the memory settings of `unmask finetune`, and take turns. They have the same weights,
recordings, threads and precision; before the clock starts, their logits for one recording are compared in float32.

pretrain  samples to updated weights: masked frames, negatives, quantiser, AdamW (fused kernel) with clipping. `unmask`
          is the objective and the engine behind `unmask pretrain wav2vec2-tiny`; the peer is a plain loop over
          `Wav2Vec2ForPreTraining`, with the masks and negatives of `transformers` and padded batches
ctc       samples to updated weights: `unmask` is the task and the engine behind `unmask finetune --task
          speech-recognition`; the peer is a plain loop over `Wav2Vec2ForCTC` with padded batches
infer     samples to probabilities of characters, with the layout and the batching behind `unmask predict`; in bf16 the
          peer runs under autocast, and with all in bfloat16

Recordings have natural lengths (log-normal, median 4 s, 1 to 15 s) or, with --equal, 5 s each. A batch is drawn at
random; the peer pads it to its longest recording, unmask packs it.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bench import common
from bench.common import CLOCKS, Result
from bench.table import markdown
from vision import in_turns, timed

if TYPE_CHECKING:
    import numpy as np

    from unmask.data.recordings.processor import RecordingProcessor
    from unmask.kernels.processor import Precision
    from unmask.models.model import Model
    from unmask.train.engine import Engine

RATE, LEARNING_RATE = 16_000, 1e-4
PLAIN = "transformers, plain loop"
GOALS = {"pretrain": 1.5, "ctc": 1.5, "infer": 1.3}
TINY = {
    "channels": (128,) * 7, "dim": 192, "layers": 4, "heads": 4, "hidden": 768, "position_kernel": 64,
    "position_groups": 8, "entries": 64, "codes": 128, "compared": 128,
}  # fmt: skip
PAGES: dict[str, dict[str, Any]] = {"tiny": TINY, "base": {}}
CHARACTERS = tuple("abcdefghijklmnopqrstuvwxyz'|")
A_SECOND = 12  # characters of a transcript, about as in English
Step = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """What is measured: a size of PAGES on batches of recordings."""

    size: str
    batch: int

    @property
    def says(self) -> str:
        return f"wav2vec 2.0 {self.size}, batch {self.batch}"


WORKS = {
    "pretrain-tiny": Work("tiny", 16),
    "pretrain-base": Work("base", 4),
    "ctc-tiny": Work("tiny", 16),
    "ctc-base": Work("base", 4),
    "infer-tiny-1": Work("tiny", 1),
    "infer-tiny-16": Work("tiny", 16),
    "infer-base-1": Work("base", 1),
    "infer-base-16": Work("base", 16),
}


@dataclass(frozen=True)
class Sides:
    """The same model on both sides, what trains it, and recordings, normalised, with transcripts as labels."""

    model: Model
    objective: Any
    processor: RecordingProcessor
    theirs: Any
    recordings: list[np.ndarray]
    labels: list[np.ndarray]

    def drawn(self, rng: np.random.Generator, count: int) -> list[int]:
        """The recordings of a batch."""
        return rng.integers(0, len(self.recordings), count).tolist()


def recordings(count: int, equal: bool, rng: np.random.Generator) -> list[np.ndarray]:
    """Noise in bursts, as loud and silent as syllables, of natural lengths or of 5 s each."""
    import numpy as np

    seconds = np.full(count, 5.0) if equal else np.clip(rng.lognormal(np.log(4), 0.6, count), 1, 15)
    found = []
    for N in (seconds * RATE).astype(int):
        loud = np.interp(
            np.arange(N), np.arange(0, N + RATE, RATE // 8), rng.random(len(range(0, N + RATE, RATE // 8)))
        )
        found.append((rng.normal(size=N) * loud).astype(np.float32))
    return found


def prepared(kind: str, work: Work, options: argparse.Namespace) -> Sides:
    """Build a model, and open it on both sides. Exits with a sentence where their outputs differ."""
    import numpy as np
    import torch
    import transformers

    from unmask import huggingface
    from unmask.data.recordings.processor import RecordingProcessor
    from unmask.models.wav2vec2 import Wav2Vec2
    from unmask.objectives.masked_contrastive import MaskedContrastiveConfig
    from unmask.tasks import TASKS

    transformers.logging.set_verbosity_error()
    rng = np.random.default_rng(0)
    page = Wav2Vec2(vocabulary=len(CHARACTERS) + 1).replace(**PAGES[work.size])
    processor = RecordingProcessor(rate=RATE).for_model(page)
    if kind == "pretrain":
        objective: Any = MaskedContrastiveConfig(projection=page.compared).build(processor)
        opened: Any = transformers.Wav2Vec2ForPreTraining
    else:
        objective = TASKS["speech-recognition"].of_labels(("<pad>", *CHARACTERS))
        opened = transformers.Wav2Vec2ForCTC
    with tempfile.TemporaryDirectory(prefix="unmask-speech-") as folder:
        huggingface.save(
            folder, page.build(objective.heads, seed=0), processor, labels=getattr(objective, "labels", ())
        )
        model = huggingface.load(folder).model
        theirs = opened.from_pretrained(folder)
    found = [processor.values(one) for one in recordings(max(16, 2 * work.batch), options.equal, rng)]
    labels = [rng.integers(1, len(CHARACTERS), max(1, A_SECOND * len(one) // RATE)) for one in found]
    sides = Sides(model, objective, processor, theirs, found, labels)
    batch = processor.collate([processor.framed(found[0])])
    with torch.inference_mode():
        trunk = theirs.eval().wav2vec2(torch.from_numpy(found[0])[None]).last_hidden_state
        difference = float((model.eval()(batch) - trunk).abs().max())
    if not difference < 1e-3:
        raise SystemExit(f"The hidden states of both sides differ by {difference:.2g}.")
    return sides


def padded(sides: Sides, drawn: Sequence[int], device: str) -> dict[str, Any]:
    """Samples [N, S] and their mask, as the feature extractor of `transformers` makes them."""
    import numpy as np
    import torch

    parts = [sides.recordings[i] for i in drawn]
    values = np.zeros((len(parts), max(map(len, parts))), np.float32)
    mask = np.zeros(values.shape, np.int64)
    for row, part in enumerate(parts):
        values[row, : len(part)], mask[row, : len(part)] = part, 1
    return {"input_values": torch.from_numpy(values).to(device), "attention_mask": torch.from_numpy(mask).to(device)}


# ------------------------------------------------------------------------------------------------ training


def engine_of(sides: Sides, precision: Precision, device: str) -> Engine:
    """The engine of a training run."""
    import torch

    from unmask.train.engine import Engine
    from unmask.train.optim import Optimizer

    optimizer = Optimizer(lr=LEARNING_RATE, eps=1e-8)
    return Engine(sides.model, sides.objective, optimizer, device=torch.device(device), precision=precision)


def pretraining_of_unmask(sides: Sides, work: Work, precision: Precision, device: str) -> Step:
    """A step of the training behind `unmask pretrain`: packed rows as long as the longest recording."""
    import numpy as np

    from unmask.train.metrics import Meter

    engine, meter, rng = engine_of(sides, precision, device), Meter(), np.random.default_rng(0)
    length = sides.processor.frames(max(map(len, sides.recordings)))

    def step() -> None:
        drawn = [sides.recordings[i] for i in sides.drawn(rng, work.batch)]
        batch = sides.objective.rows(length, drawn, rng)
        engine.step([batch], batch.counts, LEARNING_RATE, meter)

    return step


def ctc_of_unmask(sides: Sides, work: Work, precision: Precision, device: str) -> Step:
    """A step of the training behind `unmask finetune`."""
    from dataclasses import replace

    import numpy as np

    from unmask.data import collate
    from unmask.train.metrics import Meter

    engine, meter, rng = engine_of(sides, precision, device), Meter(), np.random.default_rng(0)
    length = sides.processor.frames(max(map(len, sides.recordings)))
    name, first = sides.objective.name, np.zeros(1, np.int64)

    def step() -> None:
        examples = [
            replace(
                sides.processor.framed(sides.recordings[i]),
                targets={name: (first, sides.labels[i], np.array([len(sides.labels[i])]))},
            )
            for i in sides.drawn(rng, work.batch)
        ]
        batch = collate.pack(examples, length, sides.processor.pad)
        engine.step([batch], batch.counts, LEARNING_RATE, meter)

    return step


def in_a_loop(loss_of: Callable[[Any, list[int]], Any]) -> Callable[..., Step]:
    """A plain loop over a model of `transformers`; `loss_of` maps (Sides, drawn) to the loss."""

    def made(sides: Sides, work: Work, precision: Precision, device: str) -> Step:
        import numpy as np
        import torch

        model = sides.theirs.to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.01, fused=True)
        rng = np.random.default_rng(0)

        def step() -> None:
            drawn = sides.drawn(rng, work.batch)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(sides, drawn)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return made


def their_pretraining(sides: Sides, drawn: list[int]) -> Any:
    """As in the pre-training example of `transformers`."""
    import torch
    from transformers.models.wav2vec2.modeling_wav2vec2 import _compute_mask_indices, _sample_negative_indices

    model = sides.theirs
    given = padded(sides, drawn, str(model.device))
    lengths = model._get_feat_extract_output_lengths(given["attention_mask"].sum(1))
    shape = (len(drawn), int(lengths.max()))
    seen = (torch.arange(shape[1], device=model.device) < lengths[:, None]).long()
    masked = _compute_mask_indices(shape, 0.65, 10, attention_mask=seen, min_masks=2)
    others = _sample_negative_indices(shape, sides.objective.negatives, mask_time_indices=masked)
    indices = {"mask_time_indices": masked, "sampled_negative_indices": others}
    found = model(**given, **{name: torch.from_numpy(one).to(model.device) for name, one in indices.items()})
    return found.loss / masked.sum()


def their_ctc(sides: Sides, drawn: list[int]) -> Any:
    """Labels padded with -100, as its data collators do."""
    import torch

    labels = [torch.from_numpy(sides.labels[i]) for i in drawn]
    rows = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    return sides.theirs(**padded(sides, drawn, str(sides.theirs.device)), labels=rows.to(sides.theirs.device)).loss


MAKES = {
    "pretrain": {"unmask": pretraining_of_unmask, PLAIN: in_a_loop(their_pretraining)},
    "ctc": {"unmask": ctc_of_unmask, PLAIN: in_a_loop(their_ctc)},
}


def train(kind: str, work: Work, options: argparse.Namespace, precision: Precision) -> dict[str, list[float]]:
    """Seconds of a step, by side, in each turn."""
    sides = prepared(kind, work, options)
    sides.model.train()
    runs = {name: make(sides, work, precision, options.device) for name, make in MAKES[kind].items()}
    clock = CLOCKS[options.clock]
    return in_turns({name: partial(timed, run, options.steps, clock) for name, run in runs.items()}, options.turns)


# ------------------------------------------------------------------------------------------------ inference


def infer(kind: str, work: Work, options: argparse.Namespace, precision: Precision) -> dict[str, list[float]]:
    """Seconds of a batch, by side, in each turn."""
    import numpy as np
    import torch

    from unmask.data import collate
    from unmask.models.inference_encoder import inference_layout
    from unmask.tasks.batching import answered

    sides = prepared(kind, work, options)
    layout = inference_layout(sides.model.to(options.device).eval(), precision)
    theirs = sides.theirs.to(options.device).eval()
    lowered = copy.deepcopy(theirs).bfloat16() if precision == "bf16" else None
    batches = [sides.drawn(np.random.default_rng(seed), work.batch) for seed in range(options.steps)]

    def ours() -> None:
        for drawn in batches:
            examples = [sides.processor.framed(sides.recordings[i]) for i in drawn]

            def read(places: list[int], examples: list[Any] = examples) -> list[np.ndarray]:
                batch = collate.pad([examples[i] for i in places], sides.processor.pad, multiple=1)
                return sides.objective.answers(layout, batch.to(options.device))

            answered(read, [len(one.tokens) for one in examples], options.device, sides.objective.tokens_at_once)

    def peer(model: Any, autocast: bool) -> None:
        for drawn in batches:
            given = padded(sides, drawn, options.device)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
                found = model(given["input_values"].to(model.dtype), attention_mask=given["attention_mask"]).logits
            found.float().log_softmax(-1).cpu()

    runs: dict[str, Step] = {"unmask": ours, "transformers": lambda: peer(theirs, False)}
    if lowered is not None:
        rounded = {"transformers, all in bf16": lambda: peer(lowered, False)}
        runs = {"unmask": ours, "transformers, autocast": lambda: peer(theirs, True), **rounded}
    clock = CLOCKS[options.clock]
    with torch.inference_mode():
        return in_turns({name: partial(timed, run, 1, clock) for name, run in runs.items()}, options.turns)


# ------------------------------------------------------------------------------------------------ tables


MEASURES = {"pretrain": train, "ctc": train, "infer": infer}


def compared(kind: str, work: Work, found: dict[str, list[float]]) -> list[Sequence[str]]:
    """Lines of the table: seconds of both sides, and how many times as fast unmask is."""
    lines: list[Sequence[str]] = []
    for peer in [name for name in found if name != "unmask"]:
        ours, theirs, ratio = common.compare_times(list(zip(found["unmask"], found[peer], strict=True)))
        lines.append((f"{kind}: {work.says}", peer, f"{ours:.3f}", f"{theirs:.3f}", ratio, f"{GOALS[kind]:g}"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*MEASURES, *WORKS], help="some of the measurements")
    parser.add_argument("--equal", action="store_true", help="recordings of 5 s each instead of natural lengths")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps, or batches, of a turn")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="auto")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: time of the process, one thread")
    parser.add_argument("--out", help="a file for the seconds of every turn (JSON)")
    options = parser.parse_args()
    common.need("transformers")
    from unmask.cli import process

    process.start(["finetune"])
    import torch

    from unmask.kernels.processor import settle

    torch.set_num_threads(options.threads)
    precision = settle(options.precision, options.device).precision
    run = {name: vars(options)[name] for name in ("threads", "clock", "steps", "device", "equal")}
    facts: Result = {"machine": common.machine(options.threads), "run": run | {"precision": precision}, "seconds": {}}
    common.introduce(facts["machine"])
    table: list[Sequence[str]] = [("work", "peer", "unmask, s", "peer, s", "times as fast (range)", "goal")]
    for name, work in WORKS.items():
        kind = name.partition("-")[0]
        if options.only and not {name, kind} & set(options.only):
            continue
        found = MEASURES[kind](kind, work, options, precision)
        facts["seconds"][name] = found
        lines = compared(kind, work, found)
        table += lines
        print("\n".join(" | ".join(line) for line in lines), flush=True)
    print(f"\n{precision}\n\n{markdown(table)}")
    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
