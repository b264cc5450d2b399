"""Decoding speed: unmask against generate of Hugging Face transformers, with CTranslate2 as the mark to reach.

The same Transformer on all sides, read from the same weights; the same sources in the same batches; greedy search and
beam search with the same rule to stop. Sides take turns, each turn in a fresh process. CTranslate2 runs in
float32 (its package has no bfloat16 on a CPU), and once more in int8.

    python benchmarks/decoding.py --threads 1 --out decoding.json
    python benchmarks/decoding.py --threads 1 --precision bf16 --out decoding-bf16.json
    python benchmarks/decoding.py --quick

benchmarks/README.md says what is equal and what differs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import common
from common import Result, Settings

SIDES = ("unmask", "transformers", "ctranslate2", "ctranslate2-int8")
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LONGEST = 64  # tokens of a translation
Batch = list[list[int]]
Decode = Callable[[Batch], list[list[int]]]
"""Sources of a batch -> the best text for each, without the end."""


# ------------------------------------------------------------------------------------------------ the sides


def unmask(settings: Settings) -> Callable[[int], Decode]:
    """`generate` on a folder that `load_writer` reads, as `Translator` does it."""
    from unmask import huggingface
    from unmask.generate import Limits, Search, generate
    from unmask.generate.batching import rectangle
    from unmask.models.quick import quickened

    folder = Path(settings["folder"]) / "marian"
    model = quickened(huggingface.load_writer(folder).model, settings["precision"])
    end, pad = settings["end"], settings["pad"]

    def searched(beam: int) -> Decode:
        search = Search(beam_size=beam, stop="full", limits=Limits(max_length=LONGEST))
        return lambda batch: [best.tokens for best, *_ in generate(model, rectangle(batch, pad), search, end=end)]

    return searched


def transformers(settings: Settings) -> Callable[[int], Decode]:
    """`MarianMTModel.generate` on the same folder."""
    import torch
    from transformers import MarianMTModel

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[settings["precision"]]
    model = MarianMTModel.from_pretrained(Path(settings["folder"]) / "marian", dtype=dtype).eval()
    end, pad = settings["end"], settings["pad"]

    def searched(beam: int) -> Decode:
        stop = {"early_stopping": True, "length_penalty": 1.0} if beam > 1 else {}

        def decode(batch: Batch) -> list[list[int]]:
            longest = max(map(len, batch))
            tokens = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in batch])
            found = model.generate(
                tokens,
                attention_mask=(tokens != pad).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=LONGEST,
                max_length=None,
                bad_words_ids=None,
                **stop,
            )
            return [list(itertools.takewhile(lambda t: t not in (end, pad), row)) for row in found[:, 1:].tolist()]

        return decode

    return searched


def ctranslate2(settings: Settings) -> Callable[[int], Decode]:
    """`Translator.translate_batch` on the converted weights. Tokens are turned into names before the clock starts."""
    import ctranslate2

    from decoding_models import name

    folder, threads = Path(settings["folder"]), settings["threads"]
    form = settings["form"]
    model = ctranslate2.Translator(
        str(folder / form), device="cpu", compute_type=form, inter_threads=1, intra_threads=threads
    )
    names = {token: name(token) for token in range(settings["pad"])}

    def searched(beam: int) -> Decode:
        def decode(batch: Batch) -> list[list[int]]:
            found = model.translate_batch(
                [[names[token] for token in source] for source in batch],
                beam_size=beam,
                length_penalty=1.0,
                max_decoding_length=LONGEST,
                min_decoding_length=0,
            )
            return [[int(token[1:]) for token in one.hypotheses[0]] for one in found]

        return decode

    return searched


# ------------------------------------------------------------------------------------------------ a turn


def batches(sources: Sequence[list[int]], size: int) -> list[Batch]:
    """Sources of similar lengths together."""
    ordered = sorted(sources, key=len)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]


def measure(make: Callable[[Settings], Callable[[int], Decode]]) -> Callable[[Settings], Result]:
    """A turn of one side: every beam and batch on one model; the first batch is decoded once before the clock."""

    def turn(settings: Settings) -> Result:
        searched = make(settings)
        found = {}
        for beam, size in itertools.product(settings["beams"], settings["batches"]):
            decode, texts = searched(beam), []
            asked = batches(settings["sources"][: settings["counts"][str(size)]], size)
            decode(asked[-1])
            clock = CLOCKS[settings["clock"]]
            began = clock()
            for batch in asked:
                texts += decode(batch)
            found[f"{beam}/{size}"] = {"seconds": clock() - began, "texts": texts}
        return {"settings": found, "peak_memory_mb": common.peak_memory()}

    return turn


def compare(size: str, vocabulary: int, options: argparse.Namespace) -> Result:
    """Every side `pairs` times on one model, taking turns."""
    import decoding_models

    counts = {rows: max(options.sources // (1 if rows > 1 else 8), rows) for rows in options.batches}
    turns: dict[str, list[Result]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory(prefix="unmask-decoding-") as folder:
        parameters = decoding_models.write_folders(size, vocabulary, Path(folder), options.seed)
        print(f"\n{size}, vocabulary {vocabulary:,}, {parameters / 1e6:.1f} million parameters", flush=True)
        settings: Settings = {
            "folder": folder,
            "end": decoding_models.END,
            "pad": vocabulary - 1,
            "beams": options.beams,
            "batches": options.batches,
            "counts": counts,
            "clock": options.clock,
            "precision": options.precision,
            "sources": decoding_models.sources(max(counts.values()), vocabulary, options.seed),
        }
        for pair in range(options.pairs):
            for side in options.sides:
                form = {"form": "int8" if side.endswith("int8") else "float32"}
                done = common.trial(__file__, side, {**settings, **form}, threads=options.threads)
                turns[side].append(done)
                took = "  ".join(f"{name}: {one['seconds']:.2f} s" for name, one in done["settings"].items())
                print(f"  turn {pair + 1}  {side:17} {took}", flush=True)
    cells = [_cell(beam, rows, turns) for beam in options.beams for rows in options.batches]
    memory = {side: common.spread(one["peak_memory_mb"] for one in done) for side, done in turns.items()}
    return {"size": size, "vocabulary": vocabulary, "parameters": parameters, "cells": cells, "memory_mb": memory}


def _cell(beam: int, rows: int, turns: dict[str, list[Result]]) -> Result:
    """One beam and batch: speeds, ratios turn by turn, and how many texts of each side are those of unmask.

    Tokens are those of the answers, the end included, and the same for every side that agrees.
    """
    taken = {side: [one["settings"][f"{beam}/{rows}"] for one in done] for side, done in turns.items()}
    wanted = taken["unmask"][0]["texts"]
    found: Result = {"beam": beam, "batch": rows, "sources": len(wanted), "sides": {}}
    found["lengths"] = common.spread(len(text) + 1 for text in wanted)
    for side, done in taken.items():
        tokens = sum(len(text) + 1 for text in done[0]["texts"])
        ratios = [one["seconds"] / mine["seconds"] for one, mine in zip(done, taken["unmask"], strict=True)]
        found["sides"][side] = {
            "seconds": [one["seconds"] for one in done],
            "tokens": tokens,
            "tokens_per_second": common.spread(tokens / one["seconds"] for one in done),
            "ratio": common.spread(ratios),
            "agree": sum(a == b for a, b in zip(done[0]["texts"], wanted, strict=True)),
        }
    return found


# ------------------------------------------------------------------------------------------------ the table


def table(models: Sequence[Result], sides: Sequence[str]) -> str:
    """Tokens/s of each side, and how many times as fast as it unmask is, median (least to greatest)."""
    head = ["model", "search", "batch", "unmask", *itertools.chain.from_iterable((s, "ratio", "equal") for s in sides)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for model, cell in _cells(models):
        own = cell["sides"]["unmask"]
        row = [
            f"{model['size']}, {model['vocabulary'] // 1000}k",
            "greedy" if cell["beam"] == 1 else f"beam {cell['beam']}",
            f"{cell['batch']}",
            f"{own['tokens_per_second']['median']:,.0f}",
        ]
        for side in sides:
            one = cell["sides"][side]
            ratio = one["ratio"]
            row += [
                f"{one['tokens_per_second']['median']:,.0f}",
                f"**{ratio['median']:.2f}** ({ratio['least']:.2f} to {ratio['greatest']:.2f})",
                f"{one['agree']} of {cell['sources']}",
            ]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _cells(models: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    return ((model, cell) for model in models for cell in model["cells"])


def main() -> None:
    options = parse()
    common.need("torch", "transformers", "ctranslate2")
    facts: dict[str, Any] = {"machine": common.machine(options.threads), "models": []}
    facts["run"] = {key: value for key, value in vars(options).items() if key != "out"}
    common.introduce(facts["machine"])
    for size, vocabulary in itertools.product(options.sizes, options.vocabularies):
        facts["models"].append(compare(size, vocabulary, options))
        common.write(options.out, facts)
    others = [side for side in options.sides if side != "unmask"]
    print(f"\nTokens/s; ratio: how many times as fast unmask is.\n\n{table(facts['models'], others)}")
    lengths = [cell["lengths"] for _, cell in _cells(facts["models"])]
    print(
        f"\nTexts have {min(x['least'] for x in lengths)} to {max(x['greatest'] for x in lengths)} tokens, "
        f"{statistics.mean(x['median'] for x in lengths):.0f} in the middle."
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["small", "base"], help="tiny, small, base, big")
    parser.add_argument("--vocabularies", nargs="+", type=int, default=[8_000, 32_000])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sources", type=int, default=256, help="of batches; a batch of 1 gets an eighth of them")
    parser.add_argument("--pairs", type=int, default=5, help="turns of each side")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="unmask is always one")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu, with one thread, where others use the machine too"
    )
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of unmask and transformers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one small model, few sources, two turns: does it run?")
    parser.add_argument("--out", help="write every turn as JSON, after every model")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.vocabularies, options.sources, options.pairs = ["small"], [8_000], 64, 2
    options.sides = ["unmask", *(side for side in options.sides if side != "unmask")]
    return options


TRIALS = {
    "unmask": measure(unmask),
    "transformers": measure(transformers),
    "ctranslate2": measure(ctranslate2),
    "ctranslate2-int8": measure(ctranslate2),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        common.serve(TRIALS, sys.argv[2:])
    else:
        main()
