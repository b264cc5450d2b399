"""Samples: what a model guesses for a few hidden words, noted as a run goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.data import collate
from unmask.data.corpus import Split
from unmask.data.tokenizer import Tokenizer
from unmask.files import write_text
from unmask.generate import Limits, Search, generate_all
from unmask.kernels.formats import exactly
from unmask.models.model import Model
from unmask.objectives import SpanCorruption
from unmask.types import Example

FILE = "samples.jsonl"
SHOWN = 48  # tokens of a text with holes, and of what is written into them


@dataclass(frozen=True)
class Prompt:
    """A text with one hidden word.

    text      as shown, with the mask
    tokens    [T] ids with special tokens
    expected  answers that a reader would give
    """

    text: str
    tokens: np.ndarray
    expected: tuple[str, ...] = ()


def prompts(tokenizer: Tokenizer, texts: Mapping[str, Sequence[str]], length: int) -> list[Prompt]:
    """Prompts out of texts that contain `[MASK]` and the answers that a reader would give."""
    return [
        Prompt(text, tokenizer.join(tokenizer.encode(text).ids, None, length)[0], tuple(expected))
        for text, expected in texts.items()
    ]


def hidden_words(split: Split, tokenizer: Tokenizer, count: int, length: int, seed: int = 0) -> list[Prompt]:
    """Sentences of held-out documents with one whole word hidden, the same for every run on the corpus."""
    rng = np.random.default_rng(seed)
    found: list[Prompt] = []
    units = split.units(length)
    for row in rng.permutation(len(units)):
        sentences = [s for s in split.read(units[row].item()).sentences if 6 <= len(s) <= min(30, length - 2)]
        for sentence in sentences[:1]:
            follows = np.append(tokenizer.continuation[sentence[1:]], False)
            letters = np.array([tokenizer.pieces([i])[0].isalpha() for i in sentence.tolist()])
            whole = np.flatnonzero(letters & ~follows & ~tokenizer.continuation[sentence])
            if not len(whole):
                continue
            place = int(rng.choice(whole))
            ids = sentence.astype(np.int64)
            answer = tokenizer.pieces([ids[place]])[0]
            ids[place] = tokenizer.mask
            before, after = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :])
            found.append(Prompt(f"{before} [MASK] {after}", tokenizer.join(ids, None, length)[0], (answer,)))
        if len(found) == count:
            break
    return found


def cut_out(
    split: Split, tokenizer: Tokenizer, objective: SpanCorruption, count: int, length: int, seed: int = 0
) -> list[Prompt]:
    """Beginnings of held-out documents out of which spans were cut, the same for every run on the corpus."""
    rng = np.random.default_rng(seed)
    found: list[Prompt] = []
    units = split.units(length)
    for row in rng.permutation(len(units))[:count]:
        text = np.concatenate(split.read(units[row].item()).sentences)[: min(SHOWN, length - 1)]
        read, written = objective.hide(text, objective.noise(len(text), rng))
        shown, answer = (tokenizer.decode(ids, special=True) for ids in (read, written))
        found.append(Prompt(shown, np.append(read, objective.end), (answer,)))
    return found


def written(model: Model, tokenizer: Tokenizer, given: Sequence[Prompt]) -> list[list[tuple[str, float]]]:
    """What the model writes for each prompt, and the probability of all of it."""
    search = Search(limits=Limits(max_length=SHOWN))
    sources = [prompt.tokens.tolist() for prompt in given]
    with exactly(model.device):
        found = list(generate_all(model, sources, search, end=tokenizer.sep, pad=tokenizer.pad, device=model.device))
    return [[(tokenizer.decode(best.tokens, special=True), math.exp(best.log_probability))] for best, *_ in found]


def guesses(model: Model, tokenizer: Tokenizer, given: Sequence[Prompt], top: int = 3) -> list[list[tuple[str, float]]]:
    """The likeliest pieces and their probabilities for the first mask of each prompt; call it without gradients."""
    if not given:
        return []
    batch = collate.pad([Example(prompt.tokens) for prompt in given], tokenizer.pad).to(model.device)
    width = batch.tokens.shape[1]
    places = [i * width + int(np.flatnonzero(p.tokens == tokenizer.mask)[0]) for i, p in enumerate(given)]
    logits_MV = model.answer("mlm", model(batch), torch.tensor(places, device=model.device)).float()
    best = logits_MV.softmax(-1).topk(top, dim=-1)
    return [
        list(zip(tokenizer.pieces(ids), ps, strict=True))
        for ids, ps in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def note(folder: Path, step: int, given: Sequence[Prompt], found: Sequence[Sequence[tuple[str, float]]]) -> None:
    """Append what was guessed at a step; what an earlier run noted from that step on is dropped."""
    earlier = [line for line in read(folder) if line["step"] < step]
    rows = [
        {"text": p.text, "expected": list(p.expected), "guesses": [[w, round(x, 5)] for w, x in g]}
        for p, g in zip(given, found, strict=True)
    ]
    lines = [*earlier, {"step": step, "samples": rows}]
    write_text(folder / FILE, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read(folder: Path) -> list[dict[str, Any]]:
    """What was noted so far: {"step", "samples": [{"text", "expected", "guesses"}]}; a torn line is left out."""
    path = folder / FILE
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # a text may hold other ends of lines
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found += [value] if isinstance(value, dict) else []
    return found
