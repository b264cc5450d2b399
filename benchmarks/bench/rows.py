"""All rows of the table: what each measures, its peers and its goals."""

from __future__ import annotations

from collections.abc import Sequence

from bench import ceiling, decoding, finetuning, inference, pretraining, startup, time_to_loss
from bench.decoding import Decoding
from bench.finetuning import BY_LENGTH, PADDED, Tuned
from bench.inference import Answering
from bench.preparation import LENGTH
from bench.pretraining import Comparison
from bench.row import Row, at_least, at_most, times, within
from bench.startup import Startup
from bench.time_to_loss import TimeToLoss
from unmask.errors import unknown

TINY = {
    "size": "tiny",
    "packages": "python",
    "vocabulary": 2_048,
    "rows": 4,
    "steps": 4,
    "warmup": 1,
    "square": 512,
    "seconds": 0.1,
}

ON_GPU = Comparison(
    size="base", text="lines", vocabulary=30_522, rows=256, steps=40, warmup=10, device="cuda", compile=True
)


def pretrain(name: str, work: str, settings: Comparison, goal: float) -> Row:
    return Row(
        name,
        work,
        pretraining.SPEED,
        pretraining.SIDES,
        settings,
        pretraining.measure,
        {"transformers": times(goal)},
        TINY,
    )


def share(name: str, work: str, settings: Comparison) -> Row:
    return Row(name, work, ceiling.SHARE, pretraining.SIDES, settings, ceiling.measure, {"": at_least(0.7)}, TINY)


def decode(name: str, work: str, settings: Decoding, goal: float) -> Row:
    quick = {"size": "tiny", "vocabulary": 1_000, "batch": 4, "sources": 8}
    return Row(
        name, work, decoding.SPEED, decoding.SIDES, settings, decoding.measure, {"transformers": times(goal)}, quick
    )


def start(name: str, work: str, sides: Sequence[str], goals: dict) -> Row:
    needs = {side: ("transformers",) if "transformers" in side else () for side in sides}
    return Row(name, work, startup.SECONDS, needs, Startup(), startup.measure, goals, {"repeats": 1})


ROWS = {
    row.name: row
    for row in (
        pretrain("pretrain-mini", "pre-training, BERT-mini, V 8,192, {precision}, grouped text", Comparison(), 3),
        pretrain(
            "pretrain-lines",
            "pre-training, BERT-mini, V 8,192, {precision}, a sentence a sequence",
            Comparison(text="lines"),
            12,
        ),
        pretrain(
            "pretrain-base",
            "pre-training, BERT-base, V 30,522, {precision}, grouped text",
            Comparison(size="base", vocabulary=30_522),
            2.5,
        ),
        Row(
            "pretrain-gpu",
            "pre-training, BERT-base, V 30,522, {precision}, a sentence a sequence, on one GPU",
            pretraining.SPEED,
            pretraining.SIDES,
            ON_GPU,
            pretraining.measure,
            {"": at_least(6_300 * LENGTH)},
            TINY,
        ),
        Row(
            "time-to-loss",
            "time to the held-out loss of two minutes of unmask, BERT-mini, V 8,192, {precision}",
            time_to_loss.SECONDS,
            time_to_loss.SIDES,
            TimeToLoss(),
            time_to_loss.measure,
            {time_to_loss.PUBLISHED: times(3)},
            {"size": "tiny", "vocabulary": 512, "rows": 4, "minutes": 0.02, "patience": 1.0, "packages": "python"},
        ),
        share("ceiling-mini", "share of the measured ceiling, pre-training BERT-mini, {precision}", Comparison()),
        share(
            "ceiling-base",
            "share of the measured ceiling, pre-training BERT-base, {precision}",
            Comparison(size="base", vocabulary=30_522),
        ),
        Row(
            "ceiling-gpu",
            "share of the published peak, pre-training BERT-base on one GPU, {precision}",
            ceiling.SHARE,
            pretraining.SIDES,
            ON_GPU,
            ceiling.measure,
            {"": at_least(0.45)},
            TINY,
        ),
        Row(
            "finetune-minilm",
            "fine-tuning MiniLM, {precision}, texts of natural length",
            finetuning.SPEED,
            finetuning.SIDES,
            Tuned(),
            finetuning.measure,
            {PADDED: times(3), BY_LENGTH: times(2)},
            {"rows": 48, "batch": 8, "length": 32, "warmup": 1},
        ),
        Row(
            "embed-texts",
            "sentence vectors of MiniLM, {precision}, texts of natural length",
            inference.SPEED,
            inference.TEXTS,
            Answering(),
            inference.measure_texts,
            {inference.EXACT: times(4), "ONNX Runtime, int8": times(1.3)},
            {"texts": 64},
        ),
        Row(
            "embed-sentence",
            "one sentence of 9 tokens, MiniLM, {precision}, p50",
            inference.LATENCY,
            inference.ONE,
            Answering(),
            inference.measure_sentence,
            {"ONNX Runtime, fp32": times(1)},
            {"sentences": 10},
        ),
        decode("decode-greedy", "decoding, Transformer-base, V 32,000, {precision}, batch 32, greedy", Decoding(), 2),
        decode(
            "decode-beam", "decoding, Transformer-base, V 32,000, {precision}, batch 32, beam of 5", Decoding(beam=5), 3
        ),
        start("start-help", "the command's help", ["unmask --help", "import torch"], {"": at_most(0.3)}),
        start(
            "start-import",
            "import of the package",
            ["import unmask", "import torch", "import transformers"],
            {"import torch": within(0.2)},
        ),
        start(
            "start-training",
            "import of what trains",
            ["unmask.runs.pretraining.run", "import torch", "transformers.Trainer"],
            {},
        ),
    )
}


def find(names: Sequence[str]) -> list[Row]:
    """The rows of these names or families (`pretrain`), or all rows without a name.

    Raises UnmaskError for an unknown name.
    """
    if not names:
        return list(ROWS.values())
    families = {row.family for row in ROWS.values()}
    for name in names:
        if name not in ROWS and name not in families:
            raise unknown("row", name, {*ROWS, *families})
    return [row for row in ROWS.values() if row.name in names or row.family in names]
