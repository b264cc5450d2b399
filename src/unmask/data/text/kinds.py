"""The kinds of tokens that a tokenizer can be trained to have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from unmask.data.text import byte_pairs, characters, spelling, whole_words
from unmask.data.text.tokenizer import Tokenizer

KINDS: Mapping[str, Callable[..., Tokenizer]] = {
    "wordpiece": Tokenizer.train,
    "bpe": byte_pairs.train,
    "character": characters.train,
    "spelled": spelling.train,
    "word": whole_words.train,
}
"""Kind -> function of texts and the largest number of tokens that trains a tokenizer."""
