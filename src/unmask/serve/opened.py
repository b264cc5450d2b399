"""Opened: a model folder of any kind, ready to be looked into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unmask import huggingface
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models.model import Model
from unmask.serve.continuation import Continuer
from unmask.serve.predictor import Predictor
from unmask.serve.translator import Translator
from unmask.visualize import beam
from unmask.visualize.numbers import Data
from unmask.visualize.reading import shown
from unmask.visualize.words import Vectors


@dataclass
class Opened:
    """A folder, and what it can do: of the three, those that it cannot are None.

    inner    the model, where none of the three takes it (it has no head that answers), with its tokenizer
    vectors  in the place of a model: vectors of words
    """

    folder: Path
    predictor: Predictor | None = None
    translator: Translator | None = None
    continuer: Continuer | None = None
    inner: huggingface.Loaded | None = None
    vectors: Vectors | None = None

    @property
    def model(self) -> nn.Module:
        for one in (self.predictor, self.translator, self.continuer, self.inner):
            if one is not None:
                return one.model
        raise UnmaskError("There are vectors of words here, and no model to look into.")

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises UnmaskError for a translator, whose vocabulary is of another kind."""
        for one in (self.predictor, self.continuer):
            if one is not None:
                return one.tokenizer
        if self.inner is not None:
            return self.inner.require_tokenizer(self.folder)
        if self.vectors is not None:
            raise UnmaskError("This view is for models that read a text, and here are vectors of words.")
        raise UnmaskError("This view is for models that read a text, and this one translates.")

    def beam(self, text: str, beam_size: int = 4, length: int = 30) -> Data:
        """The tree of a search of this width for a text. Raises UnmaskError for a model that does not write."""
        return tree_of(self, text, beam_size, length)


def tree_of(opened: Any, text: str, beam_size: int, length: int) -> Data:
    """The tree of a search by the translator or the continuer of `opened`; see `visualize.beam.tree`."""
    if not (1 <= beam_size <= 16 and 1 <= length <= 200):
        raise UnmaskError("A tree is drawn for a beam of 1 to 16 and up to 200 tokens.")
    if opened.translator is not None:
        translator: Translator = opened.translator
        search = _narrow(translator.search, beam_size, length)
        subwords = translator.tokenizer
        ids = subwords.encode(text).tolist()[: translator.longest - 1]
        if not ids:
            raise UnmaskError("There is nothing to translate: give a text.")

        def pieces(ids: Sequence[int]) -> list[str]:
            return shown(subwords.target.pieces(ids))

        return beam.tree(translator.model, [*ids, subwords.end], search, end=subwords.end, names=pieces)
    if opened.continuer is not None:
        continuer: Continuer = opened.continuer
        tokenizer = continuer.tokenizer
        search = _narrow(continuer.how, beam_size, length)
        source = [tokenizer.cls, *tokenizer.ids([text])[0].tolist()]
        return beam.tree(continuer.model, source, search, end=tokenizer.sep, names=tokenizer.pieces)
    raise UnmaskError("A beam is for models that write: those that translate or go on with a text.")


def _narrow(how: Any, beam_size: int, length: int) -> Search:
    """The search of the folder, with this width; one that samples, or greedy, is searched all the same."""
    base = how if isinstance(how, Search) else Search(blocking=how.blocking)
    limits = Limits(max_length=length, min_length=min(base.limits.min_length, length))
    return base.replace(beam_size=beam_size, n_best=min(beam_size, 4), groups=1).replace(limits=limits.to_dict())


def open_model(folder: Path | str) -> Opened:
    """Open a folder as what it is. Raises UnmaskError for one that holds no model."""
    folder = Path(folder)
    if huggingface.holds_writer(folder):
        return Opened(folder, translator=Translator(folder))
    loaded = huggingface.load(folder)
    if isinstance(loaded.model, Model) and "next" in loaded.model.heads:
        return Opened(folder, continuer=Continuer(loaded))
    try:
        return Opened(folder, predictor=Predictor(loaded))
    except UnmaskError:
        loaded.require_tokenizer(folder)
        return Opened(folder, inner=loaded)
