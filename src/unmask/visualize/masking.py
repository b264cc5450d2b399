"""Masking and cutting: how a text is cut into pieces, and how masked language modelling hides some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives import MaskedLM
from unmask.types import Batch
from unmask.visualize.numbers import Data


def masking(
    tokenizer: Tokenizer,
    text: str,
    *,
    seed: int = 0,
    draws: int = 5,
    rate: float = 0.15,
    whole_words: bool = False,
    model: Model | None = None,
) -> Data:
    """How `objectives.MaskedLM` would hide tokens of a text, in several draws, one seed after the other.

    model  guesses what stood there, where it has a head for that

    Each draw lists the places that were chosen: {"place", "was", "became", "fate": "mask" (80 %), "random" (10 %),
    "same" (10 %), "guess", "probability"}. A random token may happen to be the same. Raises UnmaskError for an empty
    text and numbers out of range.
    """
    if not (1 <= draws <= 100 and 0 < rate < 1 and seed >= 0):
        raise UnmaskError("Draw 1 to 100 times, at a rate between 0 and 1, from a seed of at least 0.")
    tokens, _ = tokenizer.join(tokenizer.encode(text).ids)
    if len(tokens) == len(tokenizer.join(np.array([], np.int32))[0]):
        raise UnmaskError("There is nothing to hide: give a text.")
    objective = MaskedLM(
        mask=tokenizer.mask,
        specials=tokenizer.specials,
        vocabulary=tokenizer.size,
        rate=rate,
        continuation=tokenizer.continuation if whole_words else None,
    )
    batch = Batch(torch.from_numpy(tokens)[None])
    found = [objective.corrupt(batch, np.random.default_rng(seed + i)) for i in range(draws)]
    return {
        "view": "masking",
        "tokens": tokenizer.pieces(tokens),
        "special": [int(i) in tokenizer.specials for i in tokens],
        "rate": rate,
        "seed": seed,
        "whole_words": whole_words,
        "draws": [_draw(tokenizer, tokens, one, model) for one in found],
    }


def _draw(tokenizer: Tokenizer, tokens: np.ndarray, corrupted: Batch, model: Model | None) -> list[dict[str, Any]]:
    target = corrupted.targets["mlm"]
    places, now = target.places.tolist(), corrupted.tokens[0].numpy()
    became, was = tokenizer.pieces(now[places]), tokenizer.pieces(tokens[places])
    fates = ["mask" if now[p] == tokenizer.mask else "random" if now[p] != tokens[p] else "same" for p in places]
    found = [
        {"place": place, "was": a, "became": b, "fate": fate}
        for place, a, b, fate in zip(places, was, became, fates, strict=True)
    ]
    if model is not None and "mlm" in model.heads:
        with torch.no_grad():
            there = corrupted.to(model.device)
            logits_MV = model.answer("mlm", model(there), there.targets["mlm"].places)[:, : tokenizer.size]
            likeliest = logits_MV.float().softmax(-1).max(-1)
        guesses = tokenizer.pieces(likeliest.indices.tolist())
        for one, guess, p in zip(found, guesses, likeliest.values.tolist(), strict=True):
            one |= {"guess": guess, "probability": p}
    return found


def wordpiece(tokenizer: Tokenizer, text: str) -> Data:
    """How a text is cut: each word with its pieces, their ids, and where they lie in the characters of the text."""
    encoding = tokenizer.encode(text)
    if not len(encoding):
        raise UnmaskError("There is nothing to cut: give a text.")
    words: list[Data] = []
    previous = None
    names = tokenizer.pieces(encoding.ids)
    for name, i, (begin, end), word in zip(
        names, encoding.ids.tolist(), encoding.offsets.tolist(), encoding.words.tolist(), strict=True
    ):
        if not words or word != previous or word < 0:
            words.append({"begin": begin, "pieces": []})
        words[-1]["end"] = end
        words[-1]["pieces"].append(
            {"piece": name, "id": i, "begin": begin, "end": end, "unknown": i == tokenizer.unknown}
        )
        previous = word
    for one in words:
        one["text"] = text[one["begin"] : one["end"]]
    return {
        "view": "wordpiece",
        "text": text,
        "words": words,
        "pieces": len(encoding),
        "unknown": int((encoding.ids == tokenizer.unknown).sum()),
        "vocabulary": tokenizer.size,
    }
