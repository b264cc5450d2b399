"""TokenizerFile: a tokenizer.json of any kind as a splitter, so that models that write can use it; sentinels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from unmask.data.text.splitters import SPACE
from unmask.data.text.tokenizer import Tokenizer
from unmask.data.text.vocabulary import clean
from unmask.errors import UnmaskError

SENTINELS = 100
"""Sentinels of a published T5: as many places of a text can be cut out, less one."""
SENTINEL = re.compile(r"(<extra_id_[0-9]{1,4}>)")


class TokenizerFile:
    """Cuts texts as a `tokenizers.Tokenizer` does: WordPiece, byte-level BPE, unigram; see `splitters.Splitter`.

    A text is plain characters: a special token in it is spelled.
    """

    kind = "tokenizer"

    def __init__(self, raw: RawTokenizer) -> None:
        self.raw = raw
        self.controls = frozenset(t.content for t in raw.get_added_tokens_decoder().values() if t.special)
        self._plain = RawTokenizer.from_str(raw.to_str())
        self._plain.encode_special_tokens = True
        self._plain.no_truncation()
        self._plain.no_padding()

    def normalize(self, text: str) -> str:
        return self.join(self.split([text])[0])

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        cleaned = [clean(text) for text in texts]
        return [one.tokens for one in self._plain.encode_batch(cleaned, add_special_tokens=False)]

    def join(self, pieces: Sequence[str]) -> str:
        ids = [self._plain.token_to_id(piece) for piece in pieces]
        return self._plain.decode([i for i in ids if i is not None], skip_special_tokens=False)

    def begins(self, piece: str) -> bool:
        model = self.raw.model
        if isinstance(model, WordPiece):
            return not piece.startswith(model.continuing_subword_prefix) or piece == model.continuing_subword_prefix
        return piece.startswith(("Ġ", SPACE, " "))  # byte-level BPE; unigram; characters

    def units(self, piece: str) -> Sequence[str]:
        return [piece]

    def facts(self) -> Any:
        return {"kind": self.kind, "tokenizer": self.raw.to_str()}


def sentinel(number: int) -> str:
    """The piece that stands for the span of this number that was cut out of a text: <extra_id_0> …"""
    return f"<extra_id_{number}>"


def sentinel_ids(vocabulary: Mapping[str, int]) -> list[int]:
    """Ids of the sentinels of a vocabulary, that of <extra_id_0> first; there may be none."""
    ids: list[int] = []
    while (piece := sentinel(len(ids))) in vocabulary:
        ids.append(vocabulary[piece])
    return ids


def with_sentinels(tokenizer: Tokenizer, count: int = SENTINELS) -> Tokenizer:
    """The same tokenizer with `count` sentinels behind its vocabulary, <extra_id_0> the last of all, as T5 has them.

    Around a text then stands nothing but the token that ends it. A tokenizer that has sentinels already is given back.
    Raises UnmaskError for a vocabulary in which the one that ends a text is also the padding.
    """
    if sentinel_ids(tokenizer.raw.get_vocab()):
        return tokenizer
    if tokenizer.sep == tokenizer.pad:
        raise UnmaskError("This vocabulary has one token for the end of a text and for padding; T5 needs one for each.")
    raw = RawTokenizer.from_str(tokenizer.raw.to_str())
    pieces = [sentinel(number) for number in reversed(range(count))]
    raw.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in pieces])
    end = tokenizer.pieces([tokenizer.sep])[0]
    raw.post_processor = TemplateProcessing(
        single=f"$A:0 {end}:0", pair=f"$A:0 {end}:0 $B:0 {end}:0", special_tokens=[(end, tokenizer.sep)]
    )
    roles = ("pad", "unknown", "cls", "sep", "mask")
    names = tokenizer.pieces([getattr(tokenizer, role) for role in roles])
    return Tokenizer(raw, dict(zip(("pad", "unk", "cls", "sep", "mask"), names, strict=True)))
