"""Opened: a model folder of any kind, ready to be looked into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models.model import Model
from unmask.serve.continuation import Continuer
from unmask.serve.predictor import Predictor, reach
from unmask.serve.translator import Translator
from unmask.visualize import beam
from unmask.visualize.masking import masking, spans
from unmask.visualize.numbers import Data
from unmask.visualize.reading import Read, read, read_pair, shown
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
    def model(self) -> Model:
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
        raise UnmaskError(
            "This view is not for models that write a text for a text: of this one take attention, beam, wordpiece, "
            "masks, or embeddings without sentences."
        )

    @property
    def vocabulary(self) -> Tokenizer:
        """What cuts the texts that the model reads. Raises UnmaskError for vectors of words."""
        return self.tokenizer if self.translator is None else self.translator.tokenizer

    def pieces(self, text: str) -> list[str]:
        """Names of the tokens of a text, special ones around it left out."""
        pieces = self.vocabulary.pieces(self.vocabulary.encode(text).ids)
        return pieces if self.translator is None else shown(pieces)

    def reading(self, text: str, pair: str | None = None) -> Read:
        """A text, or a pair, as the model reads it; of one that translates with a translation, its own where none is
        given."""
        if self.translator is None:
            return read(self._reader, self.tokenizer, text, pair)
        model, tokenizer = self.translator.model, self.translator.tokenizer
        if pair is not None:
            return read_pair(model, tokenizer, text, pair)
        [answer] = self.translator.stream([text])
        pieces = answer.translations[0].pieces if answer.translations else []
        return read_pair(model, tokenizer, text, [tokenizer.target.vocabulary[piece] for piece in pieces])

    def masking(self, text: str, *, whole_words: bool = False, mean_span: float | None = None, **how: Any) -> Data:
        """How tokens of a text are hidden for such a model to learn; see `visualize.masking`, of a T5 its `spans`."""
        if self.translator is None:
            if mean_span is not None:
                raise UnmaskError("Spans of a mean length are cut out for a T5 alone: leave the mean span out.")
            self.reading(text)  # it must be as long as the model takes
            return masking(self.tokenizer, text, whole_words=whole_words, model=self._reader, **how)
        if whole_words:
            raise UnmaskError("Spans are cut out of tokens, whatever their words are: leave whole words out.")
        if mean_span is not None:
            how["mean"] = mean_span
        return spans(self.translator.model, self.translator.tokenizer, text, **how)

    @property
    def _reader(self) -> Model:
        return self.model

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
        vocabulary = translator.tokenizer
        [ids] = vocabulary.ids([text])
        if not len(ids):
            raise UnmaskError("There is nothing to translate: give a text.")

        def pieces(ids: Sequence[int]) -> list[str]:
            return shown(vocabulary.target.pieces(ids))

        source = vocabulary.closed(ids, translator.longest)
        return beam.tree(translator.model, source, search, end=vocabulary.end, names=pieces)
    if opened.continuer is not None:
        continuer: Continuer = opened.continuer
        tokenizer = continuer.tokenizer
        search = _narrow(continuer.how, beam_size, length)
        beginning = [tokenizer.cls, *tokenizer.ids([text])[0].tolist()]
        return beam.tree(continuer.model, beginning, search, end=tokenizer.sep, names=tokenizer.pieces)
    raise UnmaskError("A beam is for models that write: those that translate or continue with a text.")


def _narrow(how: Any, beam_size: int, length: int) -> Search:
    """The search of the folder, with this width; one that samples, or greedy, is searched all the same."""
    base = how if isinstance(how, Search) else Search(blocking=how.blocking)
    limits = Limits(max_length=length, min_length=min(base.limits.min_length, length))
    return base.replace(beam_size=beam_size, n_best=min(beam_size, 4), groups=1).replace(limits=limits.to_dict())


def open_model(folder: Path | str) -> Opened:
    """Open a folder as what it is. Raises UnmaskError for one that holds no model."""
    folder = Path(folder)
    if huggingface.holds_encoder_decoder(folder):
        return Opened(folder, translator=Translator(folder, precision="fp32"))
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    if loaded.model.writes:
        return Opened(folder, continuer=Continuer(loaded))
    try:
        return Opened(folder, predictor=Predictor(loaded, length=reach(loaded.model, folder), precision="fp32"))
    except UnmaskError:
        loaded.require_tokenizer(folder)
        return Opened(folder, inner=loaded)
