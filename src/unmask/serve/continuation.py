"""Continuer: continues texts with a language model from a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Hypothesis, Limits, Sampling, Search, generate_all
from unmask.huggingface import Loaded
from unmask.models.model import Model

LONGEST = 100  # tokens to write, by default

Name = Callable[[int], str]
NUMBERED = "Beginning {}".format


def sampling() -> Sampling:
    """Sampling from the whole distribution, at most LONGEST tokens."""
    return Sampling(limits=Limits(max_length=LONGEST))


def searching() -> Search:
    """Greedy search, at most LONGEST tokens."""
    return Search(limits=Limits(max_length=LONGEST))


@dataclass(frozen=True)
class Continuation:
    """A text that continues a beginning.

    beginning        the given text, unchanged
    text             the whole text: the beginning and what the model wrote
    log_probability  of the written tokens, in nats
    tokens           number of written tokens
    finished         whether the model ended the text itself
    unknown          tokens of the beginning that the vocabulary lacks
    """

    beginning: str
    text: str
    log_probability: float
    tokens: int
    finished: bool
    unknown: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def language_model(loaded: Loaded[Model]) -> Model:
    """The language model of a folder. Raises UnmaskError if its model does not predict the next token."""
    if not loaded.model.continues_prompt:
        raise UnmaskError(
            "This model has no head that predicts the next token: use a language model, such as `unmask pretrain "
            "gpt-tiny` or `lstm-lm` makes."
        )
    return loaded.model


class Continuer:
    """Continues texts: `Continuer("lm")(["the film"])`.

    model  a folder, or what `huggingface.load` returned for it
    how    sampling or search; the only special token that is ever written is the end of a text

    Raises UnmaskError for a folder whose model does not predict the next token.
    """

    def __init__(self, model: Path | str | Loaded, how: Sampling | Search | None = None) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        self.model: Model = language_model(loaded)
        self.tokenizer: Tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)
        how = sampling() if how is None else how
        never = (self.tokenizer.specials - {self.tokenizer.sep}) | set(how.blocking.forbidden)
        self.how = how.replace(blocking={"forbidden": tuple(sorted(never))})

    def __call__(self, beginnings: Sequence[str]) -> list[list[Continuation]]:
        """For each beginning, which may be empty, its samples or the best hypotheses of the search."""
        return list(self.stream(beginnings))

    def read(self, beginnings: Sequence[str], name: Name = NUMBERED) -> list[np.ndarray]:
        """The token ids of each beginning. Raises UnmaskError for one that is too long; `name` turns its number (from
        1) into its name in the message."""
        read = self.tokenizer.ids(list(beginnings))
        for number, ids in enumerate(read, 1):
            if self.model.positions is not None and len(ids) >= self.model.positions:  # [CLS] takes a position
                raise UnmaskError(
                    f"{name(number)} has {len(ids):,} tokens, and the model reads at most "
                    f"{self.model.positions - 1:,}; shorten it."
                )
        return read

    def stream(self, beginnings: Sequence[str], name: Name = NUMBERED) -> Iterator[list[Continuation]]:
        """Yield the continuations of each beginning, in order. Raises UnmaskError as `read` does, before the first."""
        read = self.read(beginnings, name)
        sources = [[self.tokenizer.cls, *ids.tolist()] for ids in read]
        found = generate_all(
            self.model,
            sources,
            self.how,
            end=self.tokenizer.sep,
            pad=self.tokenizer.pad,
            device=self.model.device,
        )
        for beginning, ids, hypotheses in zip(beginnings, read, found, strict=True):
            unknown = int((ids == self.tokenizer.unknown).sum())
            yield [self._continuation(beginning, ids.tolist(), unknown, one) for one in hypotheses]

    def _continuation(self, beginning: str, ids: list[int], unknown: int, one: Hypothesis) -> Continuation:
        before, whole = self.tokenizer.decode(ids), self.tokenizer.decode([*ids, *one.tokens])
        # Tokens decoded alone lose the space before them, or get one in the middle of a word.
        new = whole[len(before) :] if whole.startswith(before) else " " + self.tokenizer.decode(one.tokens)
        return Continuation(beginning, beginning + new, one.log_probability, len(one.tokens), one.finished, unknown)
