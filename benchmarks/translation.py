"""Translation: the BLEU of a fixed vector, attention, convolutions and the Transformer within one budget.

    python benchmarks/translation.py --data DATA --out translation.json --plot docs/images/bleu_by_length.svg
    python benchmarks/translation.py --data DATA --out translation.json --resume
    python benchmarks/translation.py --data DATA --full --device cuda --out converged.json
    python benchmarks/translation.py --data DATA --quick

DATA holds multi30k/ (train, val and test_2016_flickr, each .en.gz, .de.gz and .fr.gz) and tatoeba-en-fr/ (fra.txt.gz).
Every system trains in a fresh process for the same minutes, on the same pairs in the same order, with the same
vocabulary, tokens of a step and seed; the weights that translated the first dev pairs best, by greedy search, are kept.
Dev and test are then translated in another fresh process with a beam of 5. --out is written after every system, and
--resume continues from it. benchmarks/README.md says how the pairs are split and what is counted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import translation_tables
from bench import common
from bench.common import Result, Settings

DROPOUT = 0.3  # to convergence: 29,000 captions are soon known by heart
FULL = {"minutes": None, "steps": 16_000, "tokens": 4_096}
QUICK = {"minutes": None, "steps": 4, "tokens": 512, "most": 300}
BRIEF = {"search.limits.max_length": 20, "texts.scored": 10}  # a model that has learned nothing does not end by itself
HELDOUT = 1_000  # pairs of Tatoeba that are held out for dev, and again for test


@dataclass(frozen=True)
class Run:
    """A system on a corpus, as the tables name it."""

    title: str
    system: str
    corpus: str = "multi30k"
    languages: tuple[str, str] = ("en", "de")
    fields: tuple[tuple[str, Any], ...] = ()


RUNS = {
    "fixed": Run("LSTM, a fixed vector", "seq2seq"),
    # Sutskever et al. 2014, section 3.3: what reading the source from its end is worth.
    "forward": Run("LSTM, a fixed vector, source not reversed", "seq2seq", fields=(("model.reverse", False),)),
    "attention": Run("LSTM, general attention", "seq2seq-attention"),
    "dot": Run("LSTM, dot attention", "seq2seq-attention", fields=(("model.attention", "dot"),)),
    "additive": Run("GRU, additive attention", "seq2seq-bahdanau"),
    "convs2s": Run("ConvS2S", "convs2s-small"),
    "transformer": Run("Transformer", "transformer-tiny"),
    # The network of "attention" with nothing else changed: what attention alone is worth.
    "without": Run("LSTM, its attention left out", "seq2seq-attention", fields=(("model.attention", "none"),)),
    "transformer-fr": Run("Transformer, en-fr", "transformer-tiny", languages=("en", "fr")),
    "tatoeba-fr": Run("Transformer, Tatoeba en-fr", "transformer-tiny", "tatoeba-en-fr", ("en", "fr")),
}


# ------------------------------------------------------------------------------------------------ trials


def train(settings: Settings) -> Result:
    """Pairs to a finished folder with `TrainTranslation`, as `unmask train` does it."""
    from unmask.data.loader import Collated
    from unmask.runs.translation import TrainTranslation, systems
    from unmask.train import checkpoint
    from unmask.train.metrics import read

    config = systems.find(settings["system"]).override(settings["fields"])
    resume = settings["resume"] and checkpoint.is_begun(Path(settings["folder"]))
    run = TrainTranslation(config, settings["folder"], recipe=settings["system"], resume=resume)
    result = run.run()
    if result.stopped is not None:
        raise RuntimeError(f"stopped by {result.stopped}; --resume goes on")
    path = Path(settings["folder"]) / "metrics.jsonl"
    rates = [row["tokens_per_second"] for row in read(path, "train")]
    data = cast(Any, run.data)
    return {
        "parameters": run.model.parameters_total,
        "vocabulary": {"size": run.processor.size, "sha256": _digest(Path(settings["folder"]) / "source.spm")},
        "pairs": len(cast(Collated, data.blocks).order.source.cost),
        "steps": result.step,
        "epochs": result.step / data.steps(),
        "seconds": result.seconds,
        "tokens_per_second": statistics.median(rates),
        "device": str(run.trainer.device),
        "precision": run.trainer.engine.settled.precision,
        "curve": read(path, "heldout"),
        "config": run.config.to_dict(),
        "notes": run.notes,
    }


def score(settings: Settings) -> Result:
    """Dev and test pairs, translated by the folder, with their scores; for test also a confidence interval."""
    from unmask.data.bitext import reading as bitext
    from unmask.metrics.significance import confidence_interval
    from unmask.runs.translation import evaluate_pairs

    found: Result = {}
    for split in ("dev", "test"):
        written = Path(settings["folder"]) / f"{split}.translations"
        found[split] = evaluate_pairs(settings["folder"], settings[split], out=written, force=True)
    said = written.read_text(encoding="utf-8").splitlines()
    sure = confidence_interval(said, bitext.read(*settings["test"]).targets, force=True)
    found["test"]["interval"] = {name: sure.details[name] for name in ("low", "high", "margin")}
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


# ------------------------------------------------------------------------------------------------ the pairs


def splits(run: Run, data: Path, folder: Path, most: int | None) -> dict[str, list[str]]:
    """Files of sources and targets for train, dev and test. Exits with a sentence if they are missing."""
    if run.corpus == "multi30k":
        names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
        files = {
            split: [str(data / run.corpus / f"{name}.{language}.gz") for language in run.languages]
            for split, name in names.items()
        }
    else:
        files = _held_out(data / run.corpus / "fra.txt.gz", folder, run.languages)
    missing = [name for pair in files.values() for name in pair if not Path(name).is_file()]
    if missing:
        sys.exit(f"There is no {missing[0]}; say with --data where the pairs are.")
    if most is None:
        return files
    return {split: _first(pair, folder, most if split == "train" else most // 10) for split, pair in files.items()}


def _held_out(table: Path, folder: Path, languages: tuple[str, str]) -> dict[str, list[str]]:
    """Tatoeba, split: all pairs of an English sentence (capitals and spaces aside) go to one split, drawn with seed 1
    for test and seed 2 for dev, `HELDOUT` pairs each."""
    from unmask.data.bitext.pairs import hold_out
    from unmask.data.bitext.reading import read

    if not table.is_file():
        sys.exit(f"There is no {table}; say with --data where the pairs are.")
    rest, test = hold_out(read(table, columns=("1", "2"), format="tsv"), HELDOUT, seed=1)
    kept, dev = hold_out(rest, HELDOUT, seed=2)
    files = {}
    for split, pairs in (("train", kept), ("dev", dev), ("test", test)):
        files[split] = [str(folder / f"tatoeba.{split}.{language}") for language in languages]
        for name, texts in zip(files[split], (pairs.sources, pairs.targets), strict=True):
            Path(name).write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return files


def _first(pair: list[str], folder: Path, most: int) -> list[str]:
    """The first pairs alone, for --quick."""
    from unmask.data.bitext import reading as bitext

    found = bitext.read(*pair)
    names = [str(folder / f"first.{Path(name).name}.txt") for name in pair]
    for name, texts in zip(names, (found.sources, found.targets), strict=True):
        Path(name).write_text("".join(text + "\n" for text in texts[:most]), encoding="utf-8")
    return names


# ------------------------------------------------------------------------------------------------ one system


def measure(name: str, options: argparse.Namespace, folder: Path) -> Result:
    """Train and score one system."""
    run = RUNS[name]
    files = splits(run, options.data, folder, options.most)
    home = Path(options.folder or folder) / name
    shared = {"folder": str(home), **files}
    gpu = options.device != "cpu"
    fields = {**dict(run.fields), **_fields(options), "texts.train": files["train"], "texts.dev": files["dev"]}
    settings = {**shared, "system": run.system, "resume": options.resume, "fields": fields}
    learned = common.trial(__file__, "train", settings, threads=options.threads, gpu=gpu)
    scored = common.trial(__file__, "score", shared, threads=options.threads)
    return {
        "title": run.title,
        "system": run.system,
        "corpus": run.corpus,
        "languages": run.languages,
        **learned,
        **scored,
    }


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of training that are the same for all systems."""
    fields = {
        "training.minutes": options.minutes,
        "training.steps": options.steps,
        "training.seed": options.seed,
        "training.precision": options.precision,
        "training.device": options.device,
        "texts.tokens": options.tokens,
        "vocabulary.size": options.vocabulary,
        "learning.average": options.average,
    }
    if options.dropout is not None:
        fields["model.dropout"] = options.dropout
    return {**fields, **BRIEF} if options.quick else fields


# ------------------------------------------------------------------------------------------------ the run


def main() -> None:
    options = parse()
    common.need("torch", "sentencepiece", "sacrebleu", *(["matplotlib"] if options.plot else []))
    if not options.data.is_dir():
        sys.exit(f"There is no folder {options.data}; say with --data where the pairs are.")
    facts = common.begin(options, _asked(options), systems={})
    with tempfile.TemporaryDirectory(prefix="unmask-benchmark-") as folder:
        failed = common.measure_systems(
            {name: RUNS[name].title for name in options.runs},
            facts,
            options.out,
            lambda name: measure(name, options, Path(folder)),
            translation_tables.line,
        )
    if facts["systems"]:
        print(f"\n{translation_tables.render(facts['systems'])}")
        if options.plot:
            print(f"\nDrawn in {translation_tables.plot(facts['systems'], options.plot)}.")
    common.leave_without(failed)


SAME = ("minutes", "steps", "tokens", "vocabulary", "average", "dropout", "precision", "seed", "most", "threads")


def _asked(options: argparse.Namespace) -> Result:
    """The settings that all systems of a table share."""
    return {**{key: getattr(options, key) for key in SAME}, "device": options.device, "quick": options.quick}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with multi30k/ and tatoeba-en-fr/")
    parser.add_argument(
        "--runs", nargs="+", choices=list(RUNS), default=list(RUNS), metavar="RUN", help=", ".join(RUNS)
    )
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--minutes", type=float, help="of training, each system (default: 20)")
    budget.add_argument("--steps", type=int, help="of each system, instead of minutes")
    budget.add_argument("--full", action="store_true", help="to convergence: 16,000 steps of 4,096 tokens, dropout 0.3")
    budget.add_argument("--quick", action="store_true", help="a few steps on a few pairs: does everything run?")
    parser.add_argument("--tokens", type=int, help="target tokens of a step (default: 1,024)")
    parser.add_argument("--dropout", type=float, help="of all systems (default: each has its own)")
    parser.add_argument("--vocabulary", type=int, default=8_000, help="subwords, of both languages together")
    parser.add_argument("--average", type=int, default=0, help="last checkpoints whose mean weights are tried")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--device", default="cpu", help="where the systems train; they translate on the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", help="keep the runs here; an interrupted one continues with --resume")
    parser.add_argument("--out", help="write everything as JSON, after every system")
    parser.add_argument("--resume", action="store_true", help="skip the systems that the file of --out holds")
    parser.add_argument("--plot", type=Path, help="draw BLEU by the length of the source (.svg or .png)")
    options = parser.parse_args()
    usual = {"minutes": None if options.steps else 20.0, "steps": None, "tokens": 1_024, "most": None}
    for key, value in {**usual, **(FULL if options.full else QUICK if options.quick else {})}.items():
        if getattr(options, key, None) is None:
            setattr(options, key, value)
    options.dropout = DROPOUT if options.full and options.dropout is None else options.dropout
    options.vocabulary = 500 if options.quick else options.vocabulary
    return options


if __name__ == "__main__":
    common.command(main, {"train": train, "score": score})
