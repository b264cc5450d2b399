"""Decoding: tokens a second of one Transformer, compared with `generate` of transformers and with CTranslate2.

All sides have the same weights, sources and batches, and the same stopping rule in greedy search and beam search.
CTranslate2 runs in float32 (its package has no bfloat16 on a CPU) and in int8. benchmarks/README.md says what is equal
and what differs.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bench import common, profiling
from bench.common import CLOCKS, Result, Settings
from bench.row import OURS, Measured, Plan, Unit
from unmask.config import Config
from unmask.kernels.processor import Precision

SPEED = Unit("tokens/s")
CTRANSLATE2 = ("ctranslate2", "transformers")  # its converter needs transformers
SIDES: dict[str, tuple[str, ...]] = {
    OURS: (),
    "transformers": ("transformers",),
    "CTranslate2, fp32": CTRANSLATE2,
    "CTranslate2, int8": CTRANSLATE2,
}
LONGEST = 64  # tokens of a translation
Batch = list[list[int]]
Decode = Callable[[Batch], list[list[int]]]
"""Source ids of a batch -> the best target ids of each, without the end token."""


@dataclass(frozen=True, kw_only=True)
class Decoding(Config):
    """The settings of a decoding row.

    size        of `unmask.models.transformer.SIZES`
    beam        width of the beam; 1 is greedy search
    batch       sources in a batch
    sources     in all; with a batch of 1, an eighth of them
    precision   of unmask and transformers
    at_once     whether unmask and CTranslate2 search several batches at once, one in each thread, as `unmask translate`
                does; False: one after another with all threads. Batches of 1 always run alone
    clock       "wall", or "cpu" for one thread on a machine that is busy
    """

    size: Literal["tiny", "small", "base", "big"] = "base"
    vocabulary: int = 32_000
    beam: int = 1
    batch: int = 32
    sources: int = 256
    precision: Precision = "auto"
    at_once: bool = True
    clock: Literal["wall", "cpu"] = "wall"
    seed: int = 0


# ------------------------------------------------------------------------------------------------ the sides


def unmask(settings: Settings) -> Decode:
    """`generate` on a folder that `load` reads, as `Translator` does it."""
    from unmask import huggingface
    from unmask.generate import Limits, Search, generate
    from unmask.generate.batching import rectangle
    from unmask.models.inference_transformer import writer_layout

    folder = Path(settings["folder"]) / "marian"
    model = writer_layout(huggingface.load(folder, huggingface.ENCODER_DECODER).model, settings["precision"])
    end, pad = settings["end"], settings["pad"]
    search = Search(beam_size=settings["beam"], stop="full", limits=Limits(max_length=LONGEST))
    return lambda batch: [best.tokens for best, *_ in generate(model, rectangle(batch, pad), search, end=end)]


def transformers(settings: Settings) -> Decode:
    """`MarianMTModel.generate` on the same folder."""
    import torch
    from transformers import MarianMTModel

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[settings["precision"]]
    model = MarianMTModel.from_pretrained(Path(settings["folder"]) / "marian", dtype=dtype).eval()
    end, pad = settings["end"], settings["pad"]
    beam = settings["beam"]
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


def ctranslate2(settings: Settings) -> Decode:
    """`Translator.translate_batch` on the converted weights. Ids become token names before the clock starts."""
    import ctranslate2

    from bench.decoding_models import name

    folder, form, threads = Path(settings["folder"]), settings["form"], settings["threads"]
    shared = {"inter_threads": threads, "intra_threads": 1} if several(settings) else {"intra_threads": threads}
    model = ctranslate2.Translator(str(folder / form), device="cpu", compute_type=form, **shared)
    names = {token: name(token) for token in range(settings["pad"])}

    def decode(batch: Batch) -> list[list[int]]:
        found = model.translate_batch(
            [[names[token] for token in source] for source in batch],
            beam_size=settings["beam"],
            length_penalty=1.0,
            max_decoding_length=LONGEST,
            min_decoding_length=0,
        )
        return [[int(token[1:]) for token in one.hypotheses[0]] for one in found]

    return decode


# ------------------------------------------------------------------------------------------------ a turn


def batches(sources: Sequence[list[int]], size: int) -> list[Batch]:
    """Batches of sources of similar lengths, the longest first."""
    ordered = sorted(sources, key=len, reverse=True)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]


def several(settings: Settings) -> bool:
    """Whether sides that are able to search several batches at once do so."""
    return bool(settings["at_once"]) and settings["batch"] > 1


def decode_all(settings: Settings, make: Callable[[Settings], Decode], alone: bool = False) -> Result:
    """One turn. A batch for each thread comes first and does not count. Tokens include the ends of the targets.

    alone  whether the side cannot search several batches at once
    """
    from unmask.kernels.threads import a_thread_each

    decode = make(settings)
    each = map if alone or not several(settings) else a_thread_each
    asked = batches(settings["given"], settings["batch"])
    list(each(decode, asked[: settings["threads"]]))
    clock = CLOCKS[settings["clock"]]
    began = clock()
    with profiling.counted():
        texts = [text for found in each(decode, asked) for text in found]
    seconds = clock() - began
    tokens = sum(len(text) + 1 for text in texts)
    found = {"seconds": seconds, "tokens": tokens, "figure": tokens / seconds, "texts": texts}
    return {**found, "peak_memory_mb": common.peak_memory()}


# ------------------------------------------------------------------------------------------------ the comparison


def measure(asked: Decoding, sides: Sequence[str], plan: Plan) -> Measured:
    """Let all sides decode with one model, which is written and converted once."""
    count = max(asked.sources // (1 if asked.batch > 1 else 8), asked.batch)
    folder = tempfile.mkdtemp(prefix="decoding-", dir=plan.folder)
    forms = any(side.startswith("CTranslate2") for side in sides)
    given = {**asked.to_dict(), "folder": folder, "count": count, "convert": forms}
    settings = {**given, **common.trial("decoding", "model", given, threads=plan.threads)}

    def turn(side: str, number: int) -> Result:
        form = "int8" if side.endswith("int8") else "float32"
        return common.trial("decoding", side, {**settings, "form": form}, threads=plan.threads, ours=side == OURS)

    turns = plan.alternate(sides, SPEED, turn)
    texts = {side: [one.pop("texts") for one in done] for side, done in turns.items()}
    wanted = texts[OURS][0]
    equal = {side: sum(map(list.__eq__, said[0], wanted)) for side, said in texts.items()}
    lengths = common.spread(len(text) + 1 for text in wanted)
    shown = ", ".join(f"{side} {agreed}" for side, agreed in equal.items() if side != OURS)
    notes = [
        f"{settings['parameters'] / 1e6:.1f} M parameters; {count:,} texts of {lengths['least']:.0f} to "
        f"{lengths['greatest']:.0f} tokens, {lengths['median']:.0f} in the middle."
    ]
    if shown:
        notes.append(f"Texts that equal ours, token by token, of {count:,}: {shown}.")
    return Measured(turns, {"parameters": settings["parameters"], "equal": equal, "lengths": lengths}, tuple(notes))


def write_model(settings: Settings) -> Result:
    """Write the folders that all sides read, and draw the sources."""
    from bench import decoding_models as models

    folder, vocabulary, seed = Path(settings["folder"]), settings["vocabulary"], settings["seed"]
    parameters = models.write_marian(settings["size"], vocabulary, folder, seed)
    if settings["convert"]:
        models.convert(folder / "marian", folder)
    given = models.sources(settings["count"], vocabulary, seed)
    return {"parameters": parameters, "given": given, "end": models.END, "pad": vocabulary - 1}


TRIALS = {
    "model": write_model,
    OURS: partial(decode_all, make=unmask),
    "transformers": partial(decode_all, make=transformers, alone=True),
    "CTranslate2, fp32": partial(decode_all, make=ctranslate2),
    "CTranslate2, int8": partial(decode_all, make=ctranslate2),
}
