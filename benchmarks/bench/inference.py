"""Inference: sentence vectors a second, and the latency of one short sentence.

All sides have the same sentence encoder: unmask and sentence-transformers in float32 and bfloat16, unmask by its other
backends, ONNX Runtime with the graphs that `unmask export --fuse --int8` writes. benchmarks/README.md says what is
equal and what differs.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench import common, encoder, profiling
from bench.common import CLOCKS, Result, Settings
from bench.row import OURS, Measured, Plan, Unit
from unmask.config import Config
from unmask.errors import UnmaskError
from unmask.kernels.processor import Precision

SPEED = Unit("texts/s")
LATENCY = Unit("ms", digits=2, time=True)
SENTENCE = "How do I reset my password?"  # 9 tokens, special ones included
BATCH = 32  # texts, the default of sentence-transformers
TOKENS = 512  # of a batch of ONNX Runtime, for each of its threads, as in unmask
BACKENDS = ("onnx", "auto")  # of unmask, beside PyTorch
Embed = Callable[[Sequence[str]], Any]
"""N texts -> their vectors [N, D], tokenisation included."""


@dataclass(frozen=True, kw_only=True)
class Answering(Config):
    """The settings of an inference row.

    model      folder of a sentence encoder; None: all-MiniLM-L6-v2 as packaged, or a random one of its shape
    file       with one text a line; None: paragraphs of the documentation installed with Python
    texts      number of texts that are drawn from it
    sentences  how often the one sentence is embedded
    precision  of unmask; the names of the other sides have theirs
    clock      "wall", or "cpu" for one thread on a machine that is busy
    """

    model: Path | None = None
    file: Path | None = None
    texts: int = 4_096
    sentences: int = 300
    precision: Precision = "auto"
    clock: Literal["wall", "cpu"] = "wall"
    seed: int = 0


# ------------------------------------------------------------------------------------------------ the sides


def unmask(settings: Settings) -> Embed:
    """`vectors` of a Predictor, as in `unmask embed`; with a backend as the form, in the precision of the settings."""
    import numpy as np

    from unmask.serve import Predictor
    from unmask.serve.vectors import vectors

    backend: Any = settings["form"] if settings["form"] in BACKENDS else "torch"
    how = {"precision": settings["precision"]} if backend != "torch" else {"precision": settings["form"]}
    predictor = Predictor(settings["model"], backend=backend, **how)
    return lambda texts: np.concatenate(list(vectors(predictor, texts)))


def sentence_transformers(settings: Settings) -> Embed:
    """`SentenceTransformer.encode`, which sorts by length and pads each batch to its longest text."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(settings["model"], device="cpu")
    if settings["form"] == "bf16":
        model = model.bfloat16()
    return lambda texts: model.encode(list(texts), batch_size=BATCH, convert_to_tensor=True).float().numpy()


def transformers(settings: Settings) -> Embed:
    """`AutoModel` with the mean over tokens."""
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
    """An ONNX graph with `tokenizers`: texts sorted by length, in batches of as many tokens as in unmask."""
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
        vectors: dict[int, Any] = {}
        batch: list[int] = []
        for i in order:
            if batch and (len(batch) + 1) * len(tokens[i]) > most:
                vectors.update(zip(batch, run([tokens[j] for j in batch]), strict=True))
                batch = []
            batch.append(i)
        vectors.update(zip(batch, run([tokens[j] for j in batch]), strict=True))
        return np.stack([vectors[i] for i in range(len(tokens))])

    return embed


PACKAGES = {
    "sentence-transformers": ("sentence_transformers",),
    "transformers": ("transformers",),
    "ONNX Runtime": ("onnx", "onnxscript", "onnxruntime"),
}
MAKERS = {
    "unmask": unmask,
    "sentence-transformers": sentence_transformers,
    "transformers": transformers,
    "ONNX Runtime": onnxruntime,
}
OURS_FP32, EXACT = "unmask, fp32", "sentence-transformers, fp32"
BATCHED = [OURS, OURS_FP32, EXACT, "sentence-transformers, bf16", "ONNX Runtime, fp32", "ONNX Runtime, int8"]
ALONE = "transformers, fp32"  # takes part only where one text is embedded at a time


def parts(side: str) -> tuple[str, str]:
    """Package and precision of a side; "" for the precision of the settings."""
    name, _, form = side.partition(", ")
    return name, form


TEXTS = {side: PACKAGES.get(parts(side)[0], ()) for side in BATCHED}
ONE = {side: PACKAGES.get(parts(side)[0], ()) for side in (*BATCHED, ALONE)}
ONE |= {f"unmask, {backend}": PACKAGES["ONNX Runtime"] for backend in BACKENDS}


# ------------------------------------------------------------------------------------------------ a turn


def answer_texts(settings: Settings) -> Result:
    """Embed all texts once, after a first part that does not count."""
    import numpy as np

    clock, texts = CLOCKS[settings["clock"]], settings["lines"]
    embed = MAKERS[settings["package"]](settings)
    embed(texts[: 4 * BATCH])
    began = clock()
    with profiling.counted():
        vectors = embed(texts)
    seconds = clock() - began
    np.save(settings["vectors"], np.asarray(vectors, np.float32))
    return {"seconds": seconds, "figure": len(texts) / seconds, "peak_memory_mb": common.peak_memory()}


def answer_sentence(settings: Settings) -> Result:
    """Embed one sentence many times: median and 99th percentile, in ms."""
    import numpy as np

    clock = CLOCKS[settings["clock"]]
    embed = MAKERS[settings["package"]](settings)
    for _ in range(10):
        embed([SENTENCE])
    times = []
    with profiling.counted():
        for _ in range(settings["sentences"]):
            began = clock()
            embed([SENTENCE])
            times.append(clock() - began)
    p50, p99 = (1e3 * float(np.percentile(times, p)) for p in (50, 99))
    return {"figure": p50, "p99_ms": p99, "peak_memory_mb": common.peak_memory()}


# ------------------------------------------------------------------------------------------------ the comparison


def measure_texts(asked: Answering, sides: Sequence[str], plan: Plan) -> Measured:
    """Texts a second, and the cosine of the vectors of each side with those of sentence-transformers in float32."""
    lines = read(asked)
    settings = {**prepared(asked, sides, plan), "lines": lines}
    places = {side: Path(settings["folder"]) / f"{number}.npy" for number, side in enumerate(sides)}
    turns = plan.alternate(
        sides, SPEED, lambda side, _: turn("texts", side, {**settings, "vectors": str(places[side])}, plan)
    )
    exact = EXACT if EXACT in sides else OURS_FP32
    near = {side: cosine(places[side], places[exact]) for side in sides}
    characters = common.spread(len(line) for line in lines)
    notes = (
        f"{len(lines):,} texts of {characters['least']:.0f} to {characters['greatest']:.0f} characters, "
        f"{characters['median']:.0f} in the middle.",
        f"Least cosine to {exact}: " + ", ".join(f"{side} {found['least']:.6f}" for side, found in near.items()) + ".",
    )
    return Measured(turns, {"model": settings["model"], "characters": characters, "cosine": near}, notes)


def measure_sentence(asked: Answering, sides: Sequence[str], plan: Plan) -> Measured:
    """Milliseconds of one sentence, the median of many."""
    settings = prepared(asked, sides, plan)
    turns = plan.alternate(sides, LATENCY, lambda side, _: turn("sentence", side, settings, plan))
    return Measured(turns, {"model": settings["model"]}, (f"The sentence is {SENTENCE!r}.",))


def prepared(asked: Answering, sides: Sequence[str], plan: Plan) -> Settings:
    """Prepare the encoder, and its graphs for ONNX Runtime. Returns the settings of all turns."""
    folder = Path(tempfile.mkdtemp(prefix="answering-", dir=plan.folder))
    model = shutil.copytree(asked.model or encoder.minilm(plan), folder / "model")
    settings: Settings = {**asked.to_dict(), "model": str(model), "folder": str(folder), "onnx": str(model / "onnx")}
    if any(parts(side)[0] == "ONNX Runtime" or parts(side)[1] in BACKENDS for side in sides):
        common.trial("inference", "graphs", settings, threads=plan.threads)
    return settings


def write_graphs(settings: Settings) -> Result:
    """Export the graphs for ONNX Runtime, in a process of its own."""
    from unmask.serve.onnx import export

    export(settings["model"], fuse=True, int8=True)
    return {}


def turn(kind: str, side: str, settings: Settings, plan: Plan) -> Result:
    """One turn of a side; kind is "texts" or "sentence"."""
    package, form = parts(side)
    own = {**settings, "package": package, "form": form or settings["precision"]}
    return common.trial("inference", kind, own, threads=plan.threads, ours=package == "unmask")


def cosine(first: Path, second: Path) -> dict[str, float]:
    """Mean and minimum cosine between the vectors of two files."""
    import numpy as np

    a, b = (np.load(path, allow_pickle=False).astype(np.float64) for path in (first, second))
    found = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return {"mean": float(found.mean()), "least": float(found.min())}


def read(asked: Answering) -> list[str]:
    """Lines of the file, or paragraphs of documentation, in random order. Raises UnmaskError if there are none."""
    import numpy as np

    if asked.file is None:
        lines = encoder.paragraphs()
    elif asked.file.is_file():
        lines = [line for line in asked.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    else:
        raise UnmaskError(f"There is no file {asked.file}.")
    if not lines:
        raise UnmaskError(f"{asked.file} has no text.")
    order = np.random.default_rng(asked.seed).permutation(len(lines))
    return [lines[i] for i in order[: asked.texts]]


TRIALS = {"texts": answer_texts, "sentence": answer_sentence, "graphs": write_graphs}
