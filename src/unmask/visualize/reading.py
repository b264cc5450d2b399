"""Reading: texts as a batch, with names for its tokens; a twin of a model, to record from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from unmask.data.bitext.batching import collate_pairs
from unmask.data.text.tokenizer import Encoding, Tokenizer
from unmask.errors import UnmaskError
from unmask.models.model import Model
from unmask.types import Batch

LONGEST = 512  # most tokens, for models without a limit
AnyModel = TypeVar("AnyModel", bound=nn.Module)


@dataclass(frozen=True)
class Read:
    """One row of a batch, with names.

    batch    [1, T]; for an encoder–decoder with its source [1, S]
    tokens   names of the T tokens
    guessed  names of the tokens that an encoder–decoder predicts at the T places
    source   names of the S tokens of the source
    words    [T] index of the word of each token, over the whole row; -1 for special tokens
    """

    batch: Batch
    tokens: list[str]
    guessed: list[str]
    source: list[str]
    words: list[int]


def read(model: Model, tokenizer: Tokenizer, text: str, pair: str | None = None) -> Read:
    """A text, or a pair, with its special tokens. A literal [MASK] is the mask.

    Raises UnmaskError for a text without tokens, and for one that is longer than the model can read.
    """
    encodings = [tokenizer.encode(part) for part in (text, pair) if part is not None]
    if not len(encodings[0]):
        raise UnmaskError("There is nothing to read: give a text.")
    tokens, segments = tokenizer.join(encodings[0].ids, encodings[1].ids if pair is not None else None)
    longest = model.positions or LONGEST
    if len(tokens) > longest:
        raise UnmaskError(f"The text has {len(tokens)} tokens, and the model takes {longest}; shorten it.")
    batch = Batch(torch.from_numpy(tokens)[None], segments=torch.from_numpy(segments)[None])
    return Read(batch.to(model.device), tokenizer.pieces(tokens), [], [], _words(tokenizer, encodings))


def read_pair(model: Model, tokenizer: Tokenizer, source: str, target: str | Sequence[int]) -> Read:
    """A text and its translation, with teacher forcing: each place reads the target tokens before the one it predicts.

    target  a text, or ids that the model wrote, which are cut if there are too many

    Raises UnmaskError for an empty text, and for one that is longer than the model can read.
    """
    ids = read_source(model, tokenizer, source)
    if isinstance(target, str):
        written = tokenizer.target.ids([target])[0]
        _fits(model, len(written), "second text")
    else:
        written = np.array(target[: _longest(model) - 1], np.int32)
    last = "…" if len(written) < len(target) and not isinstance(target, str) else "</s>"  # the name of the end
    batch = collate_pairs([ids], [written], tokenizer.pad, tokenizer.start, tokenizer.end)
    pieces = shown(tokenizer.target.pieces(written))
    return Read(batch.to(model.device), ["<s>", *pieces], [*pieces, last], [*shown(tokenizer.pieces(ids)), "</s>"], [])


def read_source(model: Model, tokenizer: Tokenizer, text: str) -> np.ndarray:
    """Ids [S] of the source text of an encoder–decoder. Raises UnmaskError as `read_pair` does."""
    ids = tokenizer.ids([text])[0]
    if not len(ids):
        raise UnmaskError("There is nothing to read: give a text.")
    _fits(model, len(ids), "text")
    return ids


def shown(pieces: Sequence[str]) -> list[str]:
    """Pieces with their spaces as dots."""
    return [piece.replace("▁", "·").replace(" ", "·") for piece in pieces]


def twin(model: AnyModel) -> AnyModel:
    """A copy of the modules that shares all parameters, in evaluation mode, so that recording does not affect other
    users of the model."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, shared).eval()


def _longest(model: Model) -> int:
    """Most tokens of the source or target of an encoder–decoder, with the start or end token."""
    return min(model.positions or LONGEST, LONGEST)


def _fits(model: Model, tokens: int, name: str) -> None:
    most = _longest(model) - 1
    if tokens > most:
        raise UnmaskError(f"The {name} has {tokens} tokens, and the view shows at most {most}; shorten it.")


def _words(tokenizer: Tokenizer, encodings: Sequence[Encoding]) -> list[int]:
    """The word index of each token of the joined row. Joining negative numbers shows which tokens are special."""
    numbered, first = [], 0
    for encoding in encodings:
        words = encoding.words.astype(np.int64)
        numbered.append(np.where(words < 0, -1, -(words + first) - 2))  # below -1, so that it is no token id
        first += int(words.max(initial=-1)) + 1
    joined, _ = tokenizer.join(numbered[0], numbered[1] if len(numbered) > 1 else None)
    return [-int(i) - 2 if i < -1 else -1 for i in joined]
