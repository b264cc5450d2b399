"""Tokenization and masking: the tokens of a text, and those that masked language modelling or a T5 masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unmask.data.bitext.batching import collate_pairs
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.objectives import registry
from unmask.objectives.span_corruption import cut_out
from unmask.types import Batch
from unmask.visualize.numbers import Data
from unmask.visualize.reading import read_source, shown


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
    """The tokens that masked language modelling masks in a text, in several draws with consecutive seeds.

    model  predicts the original tokens, if it has the head "mlm"

    Each draw lists the chosen positions: {"place", "was", "became", "fate": "mask" (80 %), "random" (10 %), "same" (10
    %), "guess", "probability"}. A random token may be the original one. Raises UnmaskError for an empty text and
    numbers out of range.
    """
    _check_draws(seed, draws, rate)
    tokens, _ = tokenizer.join(tokenizer.encode(text).ids)
    if len(tokens) == len(tokenizer.join(np.array([], np.int32))[0]):
        raise UnmaskError("There is nothing to mask: give a text.")
    given = {"sentences": "none", "rate": rate, "whole_words": whole_words}
    objective = registry.chosen(registry.default(), given).build(tokenizer)
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


def spans(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    seed: int = 0,
    draws: int = 5,
    rate: float = 0.15,
    mean: float = 3.0,
) -> Data:
    """The spans that span corruption masks in a text, in several draws with consecutive seeds; `rate` and `mean`
    default to those of a run.

    Each draw has the tokens "read" and "written": {"token", "sentinel": whether it replaces a span}, and for those
    written "guess" and "probability", the model's prediction from the target tokens before it. Raises UnmaskError for a
    model without sentinels, an empty text, one with sentinels in it, one that is too long, and numbers out of range.
    """
    _check_draws(seed, draws, rate)
    if not tokenizer.sentinels:
        raise UnmaskError("This model was trained on pairs of texts, without masked tokens: use the view attention.")
    ids = read_source(model, tokenizer, text)
    if np.isin(ids, tokenizer.sentinels).any():
        raise UnmaskError("The text already has sentinels: give a text without them.")
    rngs = [np.random.default_rng(seed + i) for i in range(draws)]
    found = [cut_out(ids, tokenizer.sentinels, rng, rate=rate, mean=mean) for rng in rngs]
    return {
        "view": "spans",
        "tokens": shown(tokenizer.pieces(ids)),
        "rate": rate,
        "mean": mean,
        "seed": seed,
        "draws": [
            {"read": _named(tokenizer, read), "written": _written(model, tokenizer, read, written)}
            for read, written in found
        ],
    }


def _written(model: Model, tokenizer: Tokenizer, read: np.ndarray, written: np.ndarray) -> list[Data]:
    """The tokens of a target, each with the model's prediction in its place."""
    batch = collate_pairs([read], [written], tokenizer.pad, tokenizer.start, tokenizer.end).to(model.device)
    with torch.no_grad():
        logits_MV = model.answer("next", model(batch), batch.targets["next"].places)[:, : tokenizer.size]
        likeliest = logits_MV.float().softmax(-1).max(-1)
    guesses = shown(tokenizer.pieces(likeliest.indices.tolist()))
    said = zip(_named(tokenizer, written), guesses, likeliest.values.tolist(), strict=False)  # the end has no name
    return [{**one, "guess": guess, "probability": p} for one, guess, p in said]


def _named(tokenizer: Tokenizer, ids: np.ndarray) -> list[Data]:
    sentinels = np.isin(ids, tokenizer.sentinels).tolist()
    return [
        {"token": token, "sentinel": sentinel}
        for token, sentinel in zip(shown(tokenizer.pieces(ids)), sentinels, strict=True)
    ]


def _check_draws(seed: int, draws: int, rate: float) -> None:
    if not (1 <= draws <= 100 and 0 < rate < 1 and seed >= 0):
        raise UnmaskError("Choose 1 to 100 draws, a rate between 0 and 1, and a seed of at least 0.")


def wordpiece(tokenizer: Tokenizer, text: str) -> Data:
    """The tokens of a text: each word with its pieces, their ids and their characters in the text. Raises UnmaskError
    for an empty text."""
    words = _words(tokenizer, text)
    if not words:
        raise UnmaskError("There is nothing to tokenize: give a text.")
    pieces = [piece for word in words for piece in word["pieces"]]
    return {
        "view": "wordpiece",
        "text": text,
        "words": words,
        "pieces": len(pieces),
        "unknown": sum(piece["unknown"] for piece in pieces),
        "vocabulary": tokenizer.size,
    }


def _words(tokenizer: Tokenizer, text: str) -> list[Data]:
    encoding = tokenizer.encode(text)
    words: list[Data] = []
    previous = None
    names = shown(tokenizer.pieces(encoding.ids))
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
    return words
