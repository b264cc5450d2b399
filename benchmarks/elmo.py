"""Does ELMo pay? A tagger with the mix of its layers, and the same tagger without them, on the same rows.

    python benchmarks/elmo.py --model runs/elmo --train eng.train --dev eng.testa --seeds 3 --out elmo.json

Both have word vectors computed from characters, and a bidirectional LSTM over them. The language model of the first is
frozen (`--strategy frozen`), the second has none (`layers=0`). Rows, seeds, rate and epochs are the same.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench import common
from unmask import huggingface
from unmask.errors import UnmaskError
from unmask.models.elmo import Elmo
from unmask.runs.finetuning import FineTuning, finetune
from unmask.train.display import Terminal


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Summary of the dev scores of both taggers: metric -> mean, std and worst over the seeds."""
    loaded = huggingface.load(options.model)
    if not isinstance(loaded.model.config, Elmo):
        raise UnmaskError(f"{options.model} is no ELMo; make one with `unmask pretrain elmo-tiny`.")
    values = {
        "task": "tagging",
        "train": options.train,
        "dev": options.dev,
        "most": options.most,
        "seeds": options.seeds,
        "epochs": options.epochs,
        "lr": options.lr,
        "allow_overlap": True,
    }
    found: dict[str, Any] = {"settings": {name: str(value) for name, value in values.items()}}
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as name:
        folder = Path(name)
        bare = loaded.model.config.replace(layers=0).build({})
        huggingface.save(folder / "bare", bare, loaded.require_tokenizer(options.model))
        for way, start, strategy in (("elmo", Path(options.model), "frozen"), ("without", folder / "bare", "full")):
            config = FineTuning().override({**values, "model": start, "strategy": strategy})
            found[way] = finetune(config, folder / way, display=Terminal()).summary["dev"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a pre-trained ELMo")
    parser.add_argument("--train", required=True, help="tagged words, as CoNLL files have them")
    parser.add_argument("--dev", required=True)
    parser.add_argument("--most", type=int, default=None, help="training rows to use, the first ones")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=10.0)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--out", help="write the scores to this file")
    options = parser.parse_args()
    found = compare(options)
    for way in ("elmo", "without"):
        print(
            f"{way:8} " + "  ".join(f"{name} {row['mean']:.4f} ± {row['std']:.4f}" for name, row in found[way].items())
        )
    common.write(options.out, found)


if __name__ == "__main__":
    common.command(main)
