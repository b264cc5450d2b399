"""ModernBERT beside BERT on the same ten million words, after the same steps of the same rows: the gain of its parts.

    python benchmarks/modernbert.py --data DATA --steps 2000 --threads 1 --out modernbert.json
    python benchmarks/modernbert.py --data DATA --steps 10000 --device cuda --out modernbert.json --resume
    python benchmarks/modernbert.py --data DATA --quick

DATA holds books/, imdb/, blimp/, sst2/, cola/ and mrpc/. A BERT of 4 layers of 256 and a ModernBERT of 6 layers of 256
have about as many weights in their blocks. Both learn masked tokens alone, in the same steps of rows of the same
lengths, with the same optimizer and learning rate, and with the masking rates of both papers. --out is written after
every system, and --resume continues from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ten_million
from bench import common
from bench.common import Result

TASKS = ("sst2", "cola", "mrpc")
HEADER = ("system", "masked", "weights", "steps", "tokens/s", "masked words", "BLiMP", "SST-2", "CoLA", "MRPC")


@dataclass(frozen=True)
class System:
    """A row of the table: its title, the share of the tokens that is masked, and the recipe with its fields."""

    title: str
    masked: float
    recipe: str
    fields: Mapping[str, Any]


MINI = {"model.layers": 4, "model.dim": 256, "model.heads": 4, "model.hidden": 1_024, "model.std": 0.035}
RATE = {"training.optimizer.lr": 2e-3}
PARTS: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "bert": ("BERT", "roberta-tiny", {**MINI, **RATE}),
    "modern": ("ModernBERT", "modern-mini", RATE),
    "global": ("ModernBERT, all layers global", "modern-mini", {**RATE, "model.every": 1}),
    "narrow": ("ModernBERT, windows of 16", "modern-mini", {**RATE, "model.local": 16}),
}
SYSTEMS = {
    f"{name}-{percent}": System(title, percent / 100, recipe, {**fields, "objective.rate": percent / 100})
    for name, (title, recipe, fields) in PARTS.items()
    for percent in (15, 30)
}


def measure(bench: ten_million.Bench, name: str) -> Result:
    """Pre-train and score one system."""
    system, options = SYSTEMS[name], bench.options
    length = {} if options.quick else {"training.minutes": None, "training.steps": options.steps}
    found = bench.measure(f"{name}-{options.steps}", system.recipe, {**length, **system.fields})
    return {"title": system.title, "rate": system.masked, **found}


def cells(system: Result) -> list[str]:
    return [
        system["title"],
        f"{100 * system['rate']:.0f} %",
        f"{system['parameters'] / 1e6:.2f} M",
        f"{system['steps']:,}",
        f"{system['tokens_per_second']:,.0f}",
        f"{system['masked']['loss']:.3f}",
        f"{100 * system['blimp']['accuracy']:.1f}",
        *(ten_million.percent(system["tasks"][name]) for name in TASKS),
    ]


def main() -> None:
    options = ten_million.parse_steps(__doc__ or "", "runs/modernbert", list(SYSTEMS))
    ten_million.compare(options, TASKS, HEADER, cells, measure)


if __name__ == "__main__":
    common.command(main)
