"""Replaced tokens: the probability, by an ELECTRA, that each word of a text was replaced.

Shapes: T tokens.
"""

from __future__ import annotations

import torch

from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.visualize.numbers import Data
from unmask.visualize.reading import read


@torch.no_grad()
def replaced(model: Model, tokenizer: Tokenizer, text: str) -> Data:
    """The probability that each word of a text was replaced: the largest over its tokens.

    It is the sigmoid of the head "rtd" (Clark et al. 2020, section 2), trained on texts in which a small generator
    replaced about one token in seven. Words are {"word", "begin", "end", "probability"}, with begin and end in
    characters of the text. Raises UnmaskError for a model without that head, an empty text, and one that is too long.
    """
    if "rtd" not in model.heads:
        raise UnmaskError("This model does not find replaced words: use a pre-trained ELECTRA.")
    reading = read(model, tokenizer, text)
    device, T = model.device, len(reading.tokens)
    logits_T = model.answer("rtd", model(reading.batch), torch.arange(T, device=device)).squeeze(-1)
    probabilities = logits_T.float().sigmoid().cpu().tolist()
    encoding = tokenizer.encode(text)
    words: dict[int, Data] = {}
    at = [place for place, word in enumerate(reading.words) if word >= 0]  # without the special tokens
    for place, (begin, end), number in zip(at, encoding.offsets.tolist(), encoding.words.tolist(), strict=True):
        word = words.setdefault(number, {"begin": begin, "end": end, "probability": 0.0})
        word["end"] = end
        word["probability"] = max(word["probability"], probabilities[place])
    return {
        "view": "replaced",
        "text": text,
        "words": [{"word": text[one["begin"] : one["end"]], **one} for one in words.values()],
    }
