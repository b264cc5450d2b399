"""The lineage of BERT on the same ten million words, for the same minutes: the gain of each system.

    python benchmarks/lineage.py --data DATA --minutes 20 --threads 4 --out lineage.json
    python benchmarks/lineage.py --data DATA --minutes 20 --threads 4 --out lineage.json --resume
    python benchmarks/lineage.py --data DATA --systems roberta electra --seed 1 --out again.json
    python benchmarks/lineage.py --data DATA --quick

DATA holds books/, imdb/, blimp/, sst2/, cola/ and mrpc/. Every system has the same tokens and about as many parameters
as a BERT of 4 layers of 256. Each is pre-trained in one fresh process, and scored in another: on minimal pairs (BLiMP)
and, after fine-tuning, on three tasks. --out is written after every system, and --resume continues from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ten_million
from bench import common
from bench.common import Result
from bench.table import markdown

TASKS = ("sst2", "cola", "mrpc")


@dataclass(frozen=True)
class System:
    """A row of the table.

    learned  the training objective, in words
    fields   of the recipe, which make it as large as the others
    fit      settings of fine-tuning that differ from those of the others
    """

    title: str
    learned: str
    recipe: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)


MINI = {
    "model.layers": 4,
    "model.dim": 256,
    "model.heads": 4,
    "model.hidden": 1_024,
    "model.std": 0.035,
    "training.precision": "auto",
}
WIDE = {**MINI, "model.dim": 576, "model.heads": 9, "model.hidden": 2_304, "model.std": 0.023, "model.factor": 128}
RATE = "training.optimizer.lr"
ADAMW = {"training.optimizer.algorithm": "adamw"}  # for all, so that only the objectives differ

SYSTEMS = {
    "bert": System("BERT", "hidden words, next sentence", "bert-mini", {**ADAMW, RATE: 1e-3}),
    "roberta": System("RoBERTa", "hidden words", "roberta-tiny", {**MINI, **ADAMW, RATE: 1e-3}),
    "albert": System(
        "ALBERT, as many weights", "hidden words, sentence order", "albert-tiny", {**WIDE, **ADAMW, RATE: 7e-4}
    ),
    "albert-narrow": System(
        "ALBERT, as wide",
        "hidden words, sentence order",
        "albert-tiny",
        {**MINI, **ADAMW, "model.factor": 128, RATE: 1e-3},
    ),
    "electra": System(
        "ELECTRA",
        "replaced words",
        "electra-tiny",
        {**MINI, "model.factor": 256, "model.generator": 0.25, RATE: 1e-3},
    ),
    "gpt": System("GPT", "next word", "gpt-mini"),
    "t5": System(
        "T5", "cut out words", "t5-mini", {"model.encoder_layers": 2, "model.decoder_layers": 2}, fit={"lr": 1e-2}
    ),
    "lstm": System("LSTM", "next word", "lstm-lm-small", fit={"lr": 1e-3}),
    # The result of fine-tuning without pre-training: one step at the lowest rate.
    "fresh": System(
        "BERT, one step",
        "nothing",
        "bert-mini",
        {**ADAMW, RATE: 1e-3, "training.minutes": None, "training.steps": 1},
    ),
}

HEADER = (
    *("system", "learned from", "parameters", "beside", "steps", "tokens/s", "minutes", "masked words", "BLiMP"),
    *("SST-2", "CoLA", "MRPC"),
)


WORDS = {"tf-idf": "TF-IDF, a regression", "one-hot": "one-hot words, a regression"}


def table(systems: Mapping[str, Result], words: Mapping[str, Mapping[str, float]]) -> str:
    """The systems as a Markdown table: parameters that are used afterwards, and auxiliary ones; loss of masked tokens
    in nats; BLiMP, accuracy of SST-2, Matthews correlation of CoLA and F1 of MRPC, x 100. The last rows are baselines
    on words, and of one constant answer."""
    first = next(iter(systems.values()))["tasks"]
    plain = [f"{one['masked']['frequencies']['loss/mlm']:.2f}" for one in systems.values() if one["masked"]][:1] or [""]
    answers = (f"{100 * first[name]['baseline']:.1f}" for name in TASKS)
    constant = ["word frequencies, one answer to all", *[""] * 6, *plain, "50.0", *answers]
    plain_rows = [[WORDS[way], *[""] * 8, *(f"{100 * words[way][name]:.1f}" for name in TASKS)] for way in WORDS]
    return markdown([HEADER, *map(cells, systems.values()), *plain_rows, constant])


def cells(system: Result) -> list[str]:
    masked = system["masked"]
    return [
        system["title"],
        system["learned"],
        f"{(system['parameters'] - system['beside']) / 1e6:.1f} M",
        f"{system['beside'] / 1e6:.1f} M" if system["beside"] else "",
        f"{system['steps']:,}",
        f"{system['tokens_per_second']:,.0f}",
        f"{system['seconds'] / 60:.1f}",
        f"{masked['loss']:.2f}" if masked else "",
        f"{100 * system['blimp']['accuracy']:.1f}",
        *(ten_million.percent(system["tasks"][name]) for name in TASKS),
    ]


def main() -> None:
    options = parse()
    common.need("torch", "sklearn", "scipy")
    facts = common.begin(options, ten_million.asked(options), systems={})
    with ten_million.place(options) as folder:
        bench = ten_million.Bench(options, Path(folder), TASKS)
        facts["text"] = bench.facts
        facts["words"] = bench.words()
        titles = {name: SYSTEMS[name].title for name in options.systems}
        failed = common.measure_systems(titles, facts, options.out, partial(measure, bench), line)
    if facts["systems"]:
        shown = table(facts["systems"], facts["words"])
        print("\n" + "\n\n".join([shown, *ten_million.sentences(facts["text"], facts["run"])]))
    common.leave_without(failed)


def measure(bench: ten_million.Bench, name: str) -> Result:
    """Pre-train and score one system."""
    system = SYSTEMS[name]
    found = bench.measure(name, system.recipe, system.fields, system.fit)
    return {"title": system.title, "learned": system.learned, **found}


def line(system: Result) -> str:
    """The result of one system in a line."""
    shown = zip(HEADER[2:], cells(system)[2:], strict=True)
    return ", ".join(f"{head} {cell}" for head, cell in shown if cell)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ten_million.add_options(parser, minutes=20.0, folder="runs/lineage")
    parser.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="SYSTEM", help=", ".join(SYSTEMS)
    )
    return ten_million.settle(parser.parse_args())


if __name__ == "__main__":
    common.command(main)
