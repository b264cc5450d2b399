"""Speed of answering: sentence vectors a second, and the time that one short sentence takes.

The same sentence encoder on all sides: unmask in float32 and bfloat16, sentence-transformers in both, and ONNX Runtime
with the graphs that `unmask export --fuse --int8` writes. Sides take turns, each turn in a fresh process.

    python benchmarks/inference.py --threads 4 --out inference.json
    python benchmarks/inference.py --threads 1 --clock cpu --quick

benchmarks/README.md says what is equal and what differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import common
from common import Result, Settings

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SENTENCE = "How do I reset my password?"  # 9 tokens, special ones included
BATCH = 32  # texts, as sentence-transformers has it by default
TOKENS = 512  # of a batch for ONNX Runtime, for each thread, as unmask has it
Embed = Callable[[Sequence[str]], Any]
"""Texts -> vectors [N, D], in order; tokenisation included."""


# ------------------------------------------------------------------------------------------------ the sides


def unmask(settings: Settings) -> Embed:
    """`vectors` of a Predictor, as `unmask embed` has it."""
    import numpy as np

    from unmask.serve import Predictor
    from unmask.serve.vectors import vectors

    predictor = Predictor(settings["model"], precision=settings["form"])
    return lambda texts: np.concatenate(list(vectors(predictor, texts)))


def sentence_transformers(settings: Settings) -> Embed:
    """`SentenceTransformer.encode`, which sorts by length and pads each batch to its longest text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(settings["model"], device="cpu")
    if settings["form"] == "bf16":
        model = model.bfloat16()
    return lambda texts: model.encode(list(texts), batch_size=BATCH, convert_to_tensor=True).float().numpy()


def transformers(settings: Settings) -> Embed:
    """`AutoModel` and the mean over the tokens, one text after the other."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    model = AutoModel.from_pretrained(settings["model"]).eval()

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> Any:
        given = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        seen = given["attention_mask"][..., None]
        means = (model(**given).last_hidden_state * seen).sum(1) / seen.sum(1)
        return torch.nn.functional.normalize(means, dim=-1).numpy()

    return embed


def onnxruntime(settings: Settings) -> Embed:
    """A graph by itself: `tokenizers`, texts by length, batches of as many tokens as unmask has."""
    import json

    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    name = {"fp32": "model_optimized.onnx", "int8": "model_quantized.onnx"}[settings["form"]]
    session = onnxruntime.InferenceSession(Path(settings["onnx"]) / name, options)
    tokenizer = Tokenizer.from_file(str(Path(settings["model"]) / "tokenizer.json"))
    tokenizer.no_padding()
    length = json.loads((Path(settings["model"]) / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer.enable_truncation(length)
    most = TOKENS * settings["threads"]

    def run(tokens: list[list[int]]) -> Any:
        ids = np.zeros((len(tokens), len(tokens[-1])), np.int64)
        for row, own in zip(ids, tokens, strict=True):
            row[: len(own)] = own
        seen = (np.arange(ids.shape[1]) < np.array([len(own) for own in tokens])[:, None]).astype(np.int64)
        given = {"input_ids": ids, "attention_mask": seen, "token_type_ids": np.zeros_like(ids)}
        return session.run(["sentence_embedding"], given)[0]

    def embed(texts: Sequence[str]) -> Any:
        tokens = [found.ids for found in tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        vectors, batch = {}, []
        for i in order:
            if batch and (len(batch) + 1) * len(tokens[i]) > most:
                vectors.update(zip(batch, run([tokens[j] for j in batch]), strict=True))
                batch = []
            batch.append(i)
        vectors.update(zip(batch, run([tokens[j] for j in batch]), strict=True))
        return np.stack([vectors[i] for i in range(len(tokens))])

    return embed


SIDES: Mapping[str, tuple[Callable[[Settings], Embed], str]] = {
    "unmask bf16": (unmask, "bf16"),
    "unmask fp32": (unmask, "fp32"),
    "sentence-transformers fp32": (sentence_transformers, "fp32"),
    "sentence-transformers bf16": (sentence_transformers, "bf16"),
    "transformers fp32": (transformers, "fp32"),
    "ONNX Runtime fp32, fused": (onnxruntime, "fp32"),
    "ONNX Runtime int8, fused": (onnxruntime, "int8"),
}
FIRST, EXACT = "unmask bf16", "sentence-transformers fp32"
ALONE = "transformers fp32"  # answers one text at a time only


# ------------------------------------------------------------------------------------------------ a turn


def turn(make: Callable[[Settings], Embed]) -> Callable[[Settings], Result]:
    """Both measurements of one side: all texts once, after a part of them; then one sentence many times."""

    def measure(settings: Settings) -> Result:
        import numpy as np

        clock, texts = CLOCKS[settings["clock"]], settings["texts"]
        embed = make(settings)
        found: Result = {}
        if texts:
            embed(texts[: 4 * BATCH])
            began = clock()
            vectors = embed(texts)
            found["seconds"] = clock() - began
            np.save(settings["vectors"], np.asarray(vectors, np.float32))
        for _ in range(10):
            embed([SENTENCE])
        times = []
        for _ in range(settings["sentences"]):
            began = clock()
            embed([SENTENCE])
            times.append(clock() - began)
        found["p50_ms"], found["p99_ms"] = (1e3 * float(np.percentile(times, p)) for p in (50, 99))
        return {**found, "peak_memory_mb": common.peak_memory()}

    return measure


def cosine(first: Path, second: Path) -> dict[str, float]:
    """Mean and least cosine of the vectors in two files."""
    import numpy as np

    a, b = (np.load(path, allow_pickle=False).astype(np.float64) for path in (first, second))
    found = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return {"mean": float(found.mean()), "least": float(found.min())}


def compare(options: argparse.Namespace, texts: list[str]) -> Result:
    """Every side `pairs` times, taking turns."""
    from unmask.onnx import export

    turns: dict[str, list[Result]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="unmask-inference-") as folder:
        export(options.model, Path(folder) / "onnx", fuse=True, int8=True)
        places = {side: Path(folder) / f"{i}.npy" for i, side in enumerate(SIDES)}
        common_settings = {
            "model": str(options.model),
            "onnx": str(Path(folder) / "onnx"),
            "clock": options.clock,
            "sentences": options.sentences,
        }
        for pair in range(options.pairs):
            for side, (_, form) in SIDES.items():
                own = {"form": form, "vectors": str(places[side]), "texts": [] if side == ALONE else texts}
                done = common.trial(__file__, side, {**common_settings, **own}, threads=options.threads)
                turns[side].append(done)
                took = f"{len(texts) / done['seconds']:9.1f} texts/s" if "seconds" in done else " " * 17
                print(f"  turn {pair + 1}  {side:28} {took}  {done['p50_ms']:7.2f} ms", flush=True)
        near = {side: cosine(places[side], places[EXACT]) for side in SIDES if side != ALONE}
    return {side: _summary(done, turns[FIRST], len(texts), near.get(side)) for side, done in turns.items()}


def _summary(done: list[Result], own: list[Result], texts: int, near: Any) -> Result:
    """Speeds, and how many times as fast unmask in bfloat16 is, turn by turn."""
    pairs = list(zip(done, own, strict=True))
    found: Result = {"turns": done, "memory_mb": common.spread(one["peak_memory_mb"] for one in done)}
    for name in ("p50_ms", "p99_ms"):
        found[name] = common.spread(one[name] for one in done)
    found["latency_ratio"] = common.spread(one["p50_ms"] / mine["p50_ms"] for one, mine in pairs)
    if "seconds" in done[0]:
        found["texts_per_second"] = common.spread(texts / one["seconds"] for one in done)
        found["ratio"] = common.spread(one["seconds"] / mine["seconds"] for one, mine in pairs)
        found["cosine"] = near
    return found


# ------------------------------------------------------------------------------------------------ the table


def table(sides: Mapping[str, Result]) -> str:
    """Texts/s, ms of one sentence, and how many times as fast unmask in bfloat16 is, median (least to greatest)."""
    lines = [
        "| side | texts/s | ratio | least cosine | one sentence, p50 | p99 | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for side, found in sides.items():
        speed = (
            [f"{found['texts_per_second']['median']:,.0f}", _ratio(found["ratio"])] if "ratio" in found else ["", ""]
        )
        near = f"{found['cosine']['least']:.6f}" if "ratio" in found else ""
        times = [f"{found[name]['median']:.2f} ms" for name in ("p50_ms", "p99_ms")]
        lines.append(f"| {' | '.join([side, *speed, near, *times, _ratio(found['latency_ratio'])])} |")
    return "\n".join(lines)


def _ratio(found: Mapping[str, float]) -> str:
    return f"**{found['median']:.2f}** ({found['least']:.2f} to {found['greatest']:.2f})"


def read(options: argparse.Namespace) -> list[str]:
    """Lines of --file, or paragraphs of the documentation that is installed with Python, drawn evenly."""
    import numpy as np

    if options.file:
        lines = Path(options.file).read_text(encoding="utf-8").splitlines()
    else:
        from unmask.data import embedded

        lines = [line for document in embedded.documents(packages=("python",)) for line in document.text.split("\n")]
    lines = [line for line in lines if line.strip()]
    order = np.random.default_rng(options.seed).permutation(len(lines))
    return [lines[i] for i in order[: options.texts]]


def main() -> None:
    options = parse()
    common.need("torch", "transformers", "sentence_transformers", "onnxruntime", "onnxscript")
    options.model = options.model or common.packaged_model()
    facts: dict[str, Any] = {"machine": common.machine(options.threads)}
    facts["run"] = {
        key: str(value) if key == "model" else value for key, value in vars(options).items() if key != "out"
    }
    common.introduce(facts["machine"])
    texts = read(options)
    facts["texts"] = {"count": len(texts), "characters": common.spread(len(text) for text in texts)}
    facts["sides"] = compare(options, texts)
    common.write(options.out, facts)
    print(f"\nRatio: how many times as fast {FIRST} is.\n\n{table(facts['sides'])}")
    lengths = facts["texts"]["characters"]
    print(f"\n{len(texts):,} texts of {lengths['least']:.0f} to {lengths['greatest']:.0f} characters, ", end="")
    print(f"{lengths['median']:.0f} in the middle; one sentence: {SENTENCE!r}.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a sentence encoder; default: all-MiniLM-L6-v2, packaged")
    parser.add_argument("--file", help="a file with one text a line; default: paragraphs of documentation")
    parser.add_argument("--texts", type=int, default=4_096)
    parser.add_argument("--sentences", type=int, default=300, help="times that the one sentence is asked")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pairs", type=int, default=5, help="turns of each side")
    parser.add_argument(
        "--clock", choices=list(CLOCKS), default="wall", help="cpu, with one thread, where others use the machine too"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few texts, one turn: does it run?")
    parser.add_argument("--out", help="write every turn as JSON")
    options = parser.parse_args()
    if options.quick:
        options.texts, options.sentences, options.pairs = 128, 50, 1
    return options


TRIALS = {side: turn(make) for side, (make, _) in SIDES.items()}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        common.serve(TRIALS, sys.argv[2:])
    else:
        main()
