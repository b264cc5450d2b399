"""How much to mask, and what the other side is worth: two claims of the BERT papers on ten million words.

    python benchmarks/masking.py --data DATA --steps 2000 --threads 1 --out masking.json
    python benchmarks/masking.py --data DATA --steps 2000 --threads 1 --seed 1 --out again.json
    python benchmarks/masking.py --data DATA --quick

DATA holds books/, imdb/, blimp/, sst2/ and cola/. A BERT of two layers of 128 learns from 5, 15 and 40 % of the
tokens, and a GPT of the same size from the next one, for the same steps of the same rows. All of them then guess the
same 15 % of the held-out tokens: the BERTs from both sides, the GPT from those before the hidden one. --out is written
after every system, and --resume continues from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ten_million
from bench import common
from bench.common import Result, Settings
from unmask.types import Batch

TASKS = ("sst2", "cola")
HEADER = ("system", "context", "targets", "steps", "loss", "right", "BLiMP", "SST-2", "CoLA")


@dataclass(frozen=True)
class System:
    """A row of the table: recipe and fields, and where the context of a hidden token is."""

    recipe: str
    context: str
    targets: str
    fields: tuple[tuple[str, Any], ...] = ()


SYSTEMS = {
    f"masked-{percent}": System("roberta-tiny", "both sides", f"{percent} %", (("objective.rate", percent / 100),))
    for percent in (5, 15, 40)
} | {"next": System("gpt-tiny", "left", "100 %")}


def from_the_left(settings: Settings) -> Result:
    """Loss in nats and accuracy of a causal model on the tokens that `speedrun.masked_tokens` hides."""
    import torch

    from unmask import huggingface
    from unmask.data.text.corpus import Corpus
    from unmask.objectives.cross_entropy import cross_entropy
    from unmask.runs.speedrun import hidden_tokens

    model = huggingface.load(Path(settings["folder"])).model.eval()
    total, correct, count = 0.0, 0.0, 0
    with torch.inference_mode():
        for batch in hidden_tokens(Corpus(settings["corpus"]), settings["heldout"])[1]:
            target = batch.targets["mlm"]
            seen = uncovered(batch)
            logits = model.logits("next", model(seen), target.places - 1, seen)
            loss, _, right = cross_entropy(logits, target.values)
            total, correct, count = total + float(loss), correct + float(right), count + target.values.numel()
    return {"loss": total / count, "correct": correct / count, "targets": count}


def uncovered(batch: Batch) -> Batch:
    """The batch with the true tokens where some are hidden."""
    target = batch.targets["mlm"]
    tokens = batch.tokens.flatten().clone()
    tokens[target.places] = target.values
    return replace(batch, tokens=tokens.view_as(batch.tokens))


def measure(bench: ten_million.Bench, name: str) -> Result:
    """Pre-train and score one system."""
    system = SYSTEMS[name]
    length = {} if bench.options.quick else {"training.minutes": None, "training.steps": bench.options.steps}
    found = bench.measure(f"{name}-{bench.options.steps}", system.recipe, {**length, **dict(system.fields)})
    if found["masked"] is None:
        asked = {"folder": found["folder"], "corpus": bench.facts["folder"], "heldout": bench.size.heldout}
        found["masked"] = common.trial(__file__, "left", asked, threads=bench.options.threads)
    return {"title": name, "context": system.context, "targets": system.targets, **found}


def cells(system: Result) -> list[str]:
    return [
        system["recipe"],
        system["context"],
        system["targets"],
        f"{system['steps']:,}",
        f"{system['masked']['loss']:.3f}",
        f"{100 * system['masked']['correct']:.1f}",
        f"{100 * system['blimp']['accuracy']:.1f}",
        *(ten_million.percent(system["tasks"][name]) for name in TASKS),
    ]


def main() -> None:
    options = ten_million.parse_steps(__doc__ or "", "runs/masking", list(SYSTEMS))
    ten_million.compare(options, TASKS, HEADER, cells, measure)


if __name__ == "__main__":
    common.command(main, {"left": from_the_left})
