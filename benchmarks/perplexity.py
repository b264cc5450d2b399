"""Does a memory pay? Language models of one size: perplexity per word on the Penn Treebank, or on WikiText-2.

    python benchmarks/perplexity.py --data DATA --steps 3000 --threads 4 --out perplexity.json
    python benchmarks/perplexity.py --data DATA --steps 3000 --threads 4 --out perplexity.json --resume
    python benchmarks/perplexity.py --data DATA --text wikitext --steps 3000 --threads 4 --out wikitext.json
    python benchmarks/perplexity.py --data DATA --quick

DATA holds ptb/, in Mikolov's version. Of WikiText-2 it holds only the valid part (wikitext2/): systems that are scored
on it are trained on ten million words of books and reviews (books/, imdb/), without articles. Every system is trained
on the same tokens, with as many in a step and for as many steps, in a fresh process; another process scores the valid
and the test part, each read as one text. --out is written after every system, and --resume continues from it.
benchmarks/README.md says what is counted.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ten_million
import ten_million_text
from bench import common
from bench.common import Result, Settings
from bench.table import markdown
from unmask.errors import UnmaskError

VOCABULARY = 10_000
TOKENS = 2_048  # of a step
PASSAGE = 100  # sentences of a document
HELDOUT = 0.02
DROPOUT = 0.2
# Word pieces have no piece with brackets: the two marks of the Penn Treebank become characters of their own.
MARKS = {"<unk>": "§"}
END = " ¶"
PARTS = {"ptb": ("valid", "test"), "wikitext": ("valid",)}
# What its tokenizer made of hyphens, commas and points within words and numbers; <unk> without what no model can write.
WRITTEN = {" @-@ ": "-", " @,@ ": ",", " @.@ ": ".", "<unk>": "unk"}
SAME = ("steps", "seed", "quick", "threads", "text")


@dataclass(frozen=True)
class System:
    """A row of the table.

    row     tokens of a training row      fields  of the recipe, besides those of all systems
    window  tokens of a window in scoring; None: the whole text at once, carried by a memory or state
    stride  tokens between the starts of two windows
    """

    title: str
    recipe: str
    row: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = None
    stride: int | None = None


WIDTH = {
    **{"model.layers": 4, "model.dim": 256, "model.heads": 4, "model.hidden": 1_024, "model.std": 0.035},
    **{"training.optimizer.lr": 1e-3, "training.precision": "auto"},
}
CAUSAL = {"model.attention_dropout": DROPOUT, "model.embedding_dropout": DROPOUT, **WIDTH}

SYSTEMS = {
    "lstm": System("LSTM, 2 layers of 512", "lstm-lm-small", 128),
    "gpt-64": System("GPT-2, 64 tokens", "gpt2-mini", 64, {**CAUSAL, "model.length": 64}, window=64, stride=8),
    "gpt-128": System("GPT-2, 128 tokens", "gpt2-mini", 128, {**CAUSAL, "model.length": 128}, window=128, stride=16),
    "xl": System(
        "Transformer-XL, 64 tokens and a memory of 64",
        "transformer-xl-tiny",
        64,
        {**WIDTH, "model.attention_dropout": DROPOUT, "model.memory": 64},
    ),
    "xl-without": System(
        "the same, its memory unused",
        "transformer-xl-tiny",
        64,
        {**WIDTH, "model.attention_dropout": DROPOUT, "model.memory": 64, "objectives.written": "next"},
        window=64,
        stride=8,
    ),
}
HEADER = ("system", "parameters", "row", "tokens/s", "minutes")


# ------------------------------------------------------------------------------------------------ the text


def sentences(data: Path, part: str) -> list[str]:
    """The sentences of a part, each with its end. Raises UnmaskError where DATA does not hold it."""
    path = data / "ptb" / f"ptb.{part}.txt.gz"
    if not path.is_file():
        raise UnmaskError(f"There is no {path}; say with --data where the Penn Treebank is.")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [" ".join(MARKS.get(word, word) for word in line.split()) + END for line in file if line.strip()]


def parts(text: str, data: Path, quick: bool) -> dict[str, Result]:
    """Part -> its text, and its number of words as published. Raises UnmaskError where DATA does not hold it."""
    if text == "wikitext":
        path = data / "wikitext2" / "wiki.valid.tokens.gz"
        if not path.is_file():
            raise UnmaskError(f"There is no {path}; say with --data where WikiText-2 is.")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            given = "".join(line for _, line in zip(range(20 if quick else 10**9), file, strict=False))
        written = given
        for one, other in WRITTEN.items():
            written = written.replace(one, other)
        return {"valid": {"text": written, "words": len(given.split())}}
    found = {part: "\n".join(sentences(data, part)[: 20 if quick else None]) for part in PARTS[text]}
    return {part: {"text": whole, "words": len(whole.split())} for part, whole in found.items()}


def corpus(text: str, data: Path, folder: Path, quick: bool) -> Result:
    """The training text as a corpus of word pieces, built once: its folder, and facts about it."""
    if text == "wikitext":
        size = ten_million.QUICK if quick else ten_million.Size(vocabulary=VOCABULARY)
        found = ten_million_text.corpus(data, folder, size.words, size.vocabulary)
        return {"folder": found["folder"], "vocabulary": found["vocabulary"], "tokens": found["train"]["tokens"]}
    return _treebank(data, folder, quick)


def _treebank(data: Path, folder: Path, quick: bool) -> Result:
    """The training part of the Penn Treebank, in documents of some sentences."""
    from unmask.data.text.corpus import Corpus, build
    from unmask.data.text.reading import TextDocument

    place, size = folder / "corpus", 1_000 if quick else VOCABULARY
    lines = sentences(data, "train")[: 2_000 if quick else None]
    passages = ("\n".join(lines[first : first + PASSAGE]) for first in range(0, len(lines), PASSAGE))
    texts = [TextDocument(passage, "ptb") for passage in passages]
    kept = (place / "manifest.json").is_file()
    found = Corpus(place) if kept else build(texts, place, vocabulary_size=size, heldout=HELDOUT)
    return {"folder": str(place), "vocabulary": found.tokenizer.size, "tokens": found.split("train").tokens}


# ------------------------------------------------------------------------------------------------ turns


def score(settings: Settings) -> Result:
    """Perplexity of each part, per word as published; in the Penn Treebank, ends of sentences count as words."""
    from unmask.serve.likelihood import Scorer

    found: Result = {}
    for name, part in settings["parts"].items():
        window = settings["window"] or 2 * len(part["text"])  # more than it has tokens
        scored = Scorer(settings["folder"], window=window, stride=settings["stride"]).perplexity([part["text"]])
        per_word = math.exp(scored.nll / part["words"])
        found[name] = {**scored.to_dict(), "words": part["words"], "word_perplexity": per_word}
    return found


def measure(name: str, options: argparse.Namespace, text: Result, folder: Path) -> Result:
    """Pre-train one system in a fresh process, score it in another."""
    system = SYSTEMS[name]
    home = str(folder / "runs" / f"{options.text}-{name}-{options.steps}-s{options.seed}")
    fields = {
        **{"training.device": "cpu", "training.seed": options.seed, "training.steps": options.steps},
        **{"objectives.short": 0.0, "model.dropout": DROPOUT},
        **{"rows.tokens": system.row, "rows.batch": TOKENS // system.row, "rows.heldout": 32},
        **system.fields,
    }
    begin = {"folder": home, "corpus": text["folder"], "recipe": system.recipe, "fields": fields}
    place, threads = ten_million.__file__, options.threads
    learned = common.trial(place, "pretrain", {**begin, "resume": options.resume}, threads=threads)
    texts = parts(options.text, options.data, options.quick)
    asked = {"folder": home, "parts": texts, "window": system.window, "stride": system.stride}
    scored = common.trial(__file__, "score", asked, threads=threads)
    return {"title": system.title, "row": system.row, **learned, "perplexity": scored}


# ------------------------------------------------------------------------------------------------ the table


def cells(found: Result, text: str) -> list[str]:
    return [
        found["title"],
        f"{found['parameters'] / 1e6:.1f} M",
        f"{found['row']}",
        f"{found['tokens_per_second']:,.0f}",
        f"{found['seconds'] / 60:.1f}",
        *(f"{found['perplexity'][part]['word_perplexity']:.1f}" for part in PARTS[text]),
    ]


def main() -> None:
    options = parse()
    common.need("torch")
    asked = {key: getattr(options, key) for key in SAME}
    facts = common.begin(options, asked, systems={})
    kept = tempfile.TemporaryDirectory(prefix="unmask-benchmark-") if options.quick else nullcontext(options.folder)
    with kept as place:
        facts["text"] = corpus(options.text, options.data, Path(place), options.quick)
        failed = common.measure_systems(
            {name: SYSTEMS[name].title for name in options.systems},
            facts,
            options.out,
            lambda name: measure(name, options, facts["text"], Path(place)),
            lambda found: ", ".join(cells(found, options.text)[1:]),
        )
    if facts["systems"]:
        rows = [cells(found, options.text) for found in facts["systems"].values()]
        print("\n" + markdown([(*HEADER, *PARTS[options.text]), *rows]))
    common.leave_without(failed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with ptb/, or books/, imdb/ and wikitext2/")
    parser.add_argument("--text", choices=list(PARTS), default="ptb", help="what is scored (default: %(default)s)")
    parser.add_argument("--steps", type=int, help=f"of {TOKENS:,} tokens (default: 3,000)")
    parser.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="SYSTEM", help=", ".join(SYSTEMS)
    )
    parser.add_argument("--quick", action="store_true", help="a few steps and sentences: does everything run?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", default="runs/perplexity", help="keeps corpus and runs (default: %(default)s)")
    parser.add_argument("--out", help="write everything as JSON, after every system")
    parser.add_argument(
        "--resume", action="store_true", help="continue with the runs in --folder and the file of --out"
    )
    options = parser.parse_args()
    options.steps = options.steps or (4 if options.quick else 3_000)
    return options


if __name__ == "__main__":
    common.command(main, {"score": score})
