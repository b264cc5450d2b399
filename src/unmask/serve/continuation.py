"""Continuer: beginnings of texts in, texts out, by a folder that learned to say the next token."""

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

LONGEST = 100  # tokens that are written, unless a number is given

Name = Callable[[int], str]
NUMBERED = "Beginning {}".format


def sampling() -> Sampling:
    """Draws from the whole distribution, of at most LONGEST tokens."""
    return Sampling(limits=Limits(max_length=LONGEST))


def searching() -> Search:
    """The most probable text, greedily, of at most LONGEST tokens."""
    return Search(limits=Limits(max_length=LONGEST))


@dataclass(frozen=True)
class Continuation:
    """A text that continues from a beginning.

    beginning, text  as it was given; the whole, which begins with it
    log_probability  of what was written, in nats
    tokens           that were written
    finished         whether the model ended the text itself
    unknown          tokens of the beginning that the model has no entry for, and so could not read
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
    """The model of a folder, which says the next token. Raises UnmaskError where it does not."""
    if not loaded.model.continues_prompt:
        raise UnmaskError(
            "This model has no head that says the next token: take one of a language model, such as `unmask pretrain "
            "gpt-tiny` or `lstm-lm` makes."
        )
    return loaded.model


class Continuer:
    """Goes on with texts: `Continuer("lm")(["the film"])`.

    model  a folder, or one that `huggingface.load` opened
    how    sampling or search; special tokens but the one that ends a text are never written, whatever it says

    Raises UnmaskError for a folder whose model does not say the next token.
    """

    def __init__(self, model: Path | str | Loaded, how: Sampling | Search | None = None) -> None:
        loaded = huggingface.opened(model, huggingface.SINGLE_STACK)
        self.model: Model = language_model(loaded)
        self.tokenizer: Tokenizer = loaded.require_tokenizer("The model" if loaded is model else model)
        how = sampling() if how is None else how
        never = (self.tokenizer.specials - {self.tokenizer.sep}) | set(how.blocking.forbidden)
        self.how = how.replace(blocking={"forbidden": tuple(sorted(never))})

    def __call__(self, beginnings: Sequence[str]) -> list[list[Continuation]]:
        """For each beginning, which may be empty, its samples or the best of the search."""
        return list(self.stream(beginnings))

    def read(self, beginnings: Sequence[str], name: Name = NUMBERED) -> list[np.ndarray]:
        """The tokens of each. Raises UnmaskError for one that is too long, which `name` calls by its number."""
        read = self.tokenizer.ids(list(beginnings))
        for number, ids in enumerate(read, 1):
            if self.model.positions is not None and len(ids) >= self.model.positions:  # one is that of the first token
                raise UnmaskError(
                    f"{name(number)} has {len(ids):,} tokens, and no more than "
                    f"{self.model.positions - 1:,} fit the model; shorten it."
                )
        return read

    def stream(self, beginnings: Sequence[str], name: Name = NUMBERED) -> Iterator[list[Continuation]]:
        """The same, as they come; for `name` and what is raised, before any comes, see `read`."""
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
        # What is decoded alone would lose the space before it, or get one in the middle of a word.
        new = whole[len(before) :] if whole.startswith(before) else " " + self.tokenizer.decode(one.tokens)
        return Continuation(beginning, beginning + new, one.log_probability, len(one.tokens), one.finished, unknown)
