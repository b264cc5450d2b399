"""Opened: a model folder of any kind, opened for the views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from unmask import huggingface
from unmask.config import read_json
from unmask.data.pictures.captions import UnreadPicture
from unmask.data.pictures.decoding import decode
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.processor import Processor
from unmask.data.recordings import decoding
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.recordings.reading import Recording
from unmask.data.signals.processor import SignalProcessor
from unmask.data.signals.reading import SignalRow
from unmask.data.signals.series import series_of
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generate import Limits, Search
from unmask.models.model import Model
from unmask.objectives import registry
from unmask.serve.anomalies import SETTING, AnomalyPredictor
from unmask.serve.continuation import Continuer
from unmask.serve.predictor import Predictor, reach
from unmask.serve.translator import Translator
from unmask.tasks.recordings import RecordingTask
from unmask.tasks.signals import SignalForm, SignalTask
from unmask.visualize import attention, beam
from unmask.visualize.captions import over_words
from unmask.visualize.forecasts import forecast, forecasts
from unmask.visualize.masking import masking, spans
from unmask.visualize.numbers import Data
from unmask.visualize.picture_attention import over_picture
from unmask.visualize.reading import Read, read, read_pair, shown
from unmask.visualize.recording_attention import over_recording
from unmask.visualize.recording_features import Entries, Masking, features
from unmask.visualize.recordings import WHOLE, Part, spoken
from unmask.visualize.signals import anomalies, attention_along, signal
from unmask.visualize.words import Vectors

AnyProcessor = TypeVar("AnyProcessor", bound=Processor[Any])


@dataclass
class Opened:
    """A folder, opened as a predictor, a translator or a continuer; the fields that do not apply are None.

    inner    the model and its tokenizer, if the model has no head that answers
    vectors  word vectors, for a folder that holds them instead of a model
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
        raise UnmaskError("This folder holds word vectors, and this view needs a model.")

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a single-stack model. Raises UnmaskError for a translator and for word vectors."""
        for one in (self.predictor, self.continuer):
            if one is not None:
                return one.tokenizer
        if self.inner is not None:
            return self.inner.require_tokenizer(self.folder)
        if self.vectors is not None:
            raise UnmaskError("This view needs a model that reads a text, and this folder holds word vectors.")
        raise UnmaskError(
            "This view does not support encoder–decoder models: use attention, beam, wordpiece, masks, or embeddings "
            "without sentences."
        )

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer of the texts that the model reads. Raises UnmaskError for word vectors."""
        return self.tokenizer if self.translator is None else self.translator.tokenizer

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, without the special tokens around it."""
        pieces = self.vocabulary.pieces(self.vocabulary.encode(text).ids)
        return pieces if self.translator is None else shown(pieces)

    def reading(self, text: str, pair: str | None = None) -> Read:
        """A text, or a pair, as the model reads it. For a translator the pair is the translation; None: the model
        writes it."""
        if self.translator is None:
            return read(self._reader, self.tokenizer, text, pair)
        model, tokenizer = self.translator.model, self.translator.tokenizer
        if pair is not None:
            return read_pair(model, tokenizer, text, pair)
        [answer] = self.translator.stream([text])
        pieces = answer.translations[0].pieces if answer.translations else []
        return read_pair(model, tokenizer, text, [tokenizer.target.vocabulary[piece] for piece in pieces])

    def masking(self, text: str, *, whole_words: bool = False, mean_span: float | None = None, **how: Any) -> Data:
        """How pre-training masks the tokens of a text: `visualize.masking.masking`, or `spans` for a T5. Raises
        UnmaskError for an option that the model does not have."""
        if self.translator is None:
            if mean_span is not None:
                raise UnmaskError("Only a T5 masks spans of a mean length: leave the mean span out.")
            self.reading(text)  # raises for a text that is too long
            return masking(self.tokenizer, text, whole_words=whole_words, model=self._reader, **how)
        if whole_words:
            raise UnmaskError("A T5 masks spans of tokens, not whole words: leave whole words out.")
        if mean_span is not None:
            how["mean"] = mean_span
        return spans(self.translator.model, self.translator.tokenizer, text, **how)

    @property
    def _reader(self) -> Model:
        return self.model

    @property
    def reads_texts(self) -> bool:
        """Whether the model reads texts, and no pictures, recordings, records or vectors."""
        if self.translator is not None:
            return self.translator.tokenizer.reads_texts and not self.captions
        return not (self.reads_pictures or self.reads_recordings or self.reads_signals)

    @property
    def reads_pictures(self) -> bool:
        """Whether the model reads pictures in place of texts."""
        return "pictures" in self.model.config.offers

    @property
    def captions(self) -> bool:
        """Whether the model writes texts on pictures."""
        return self.translator is not None and self.translator.model.config.reads_pictures

    @property
    def reads_recordings(self) -> bool:
        """Whether the model reads recordings in place of texts."""
        return "recordings" in self.model.config.offers

    @property
    def reads_signals(self) -> bool:
        """Whether the model reads records of sensors in place of texts."""
        return "signals" in self.model.config.offers

    @property
    def image_processor(self) -> ImageProcessor:
        """The processor of a model of pictures. Raises UnmaskError for other models, and for a folder without one."""
        return self._processor(ImageProcessor, "pictures", self.reads_pictures)

    @property
    def recording_processor(self) -> RecordingProcessor:
        """The same for a model of recordings."""
        return self._processor(RecordingProcessor, "recordings", self.reads_recordings)

    def _processor(self, kind: type[AnyProcessor], items: str, reads: bool) -> AnyProcessor:
        if not reads:
            raise UnmaskError(f"This view needs a model that reads {items}, unlike {self.folder}.")
        processor = self.predictor.processor if self.predictor else self.inner.processor if self.inner else None
        if not isinstance(processor, kind):
            raise UnmaskError(f"{self.folder} has no preprocessor_config.json, which {items} need.")
        return processor

    def attention(self, text: str, pair: str | None = None, kind: str | None = None, part: Part | None = None) -> Data:
        """All attention weights of the model for a text, a pair, or the picture or recording in a file, or a part of
        the recording.

        Raises UnmaskError for an input that the model cannot read, and for a model without attention.
        """
        if part is not None and not self.reads_recordings:
            raise UnmaskError("Only a recording has a begin and an end in seconds: leave --begin and --end out.")
        if self.captions:
            return self.captioned(text, pair)
        if not (self.reads_pictures or self.reads_recordings):
            return attention.whole(self.model, self.reading(text, pair), kind)
        if pair is not None:
            raise UnmaskError(
                f"This model reads one {'picture' if self.reads_pictures else 'recording'}: leave --pair out."
            )
        if self.reads_recordings:
            part = part or WHOLE
            samples_N = self.samples(Path(text), part)
            return over_recording(self.model, self.recording_processor, samples_N, begin=part.begin)
        return self.over_picture(Path(text))

    def over_picture(self, source: Path | bytes) -> Data:
        """The attention over a picture. Raises UnmaskError for one that cannot be read, and for other models."""
        processor = self.image_processor
        return over_picture(self.model, processor, decode(source, processor.channels))

    def captioned(self, source: str, caption: str | None = None) -> Data:
        """The patches of a picture that each word of its caption attends to.

        source   as for `Captions`
        caption  None: the model writes it

        Raises UnmaskError for a picture that cannot be read.
        """
        assert self.translator is not None
        [picture] = self.translator.tokenizer.ids([source])
        caption = self.translator([source])[0] if caption is None else caption
        found = self.translator.alignment(source, caption)
        assert isinstance(picture, UnreadPicture)
        return over_words(picture.read(), caption, found.target, np.array(found.weights))

    def samples(self, source: Path | bytes, part: Part = WHOLE) -> np.ndarray:
        """[N] float32: a part of a recording, somewhat more than the views show. Raises UnmaskError if it cannot be
        decoded."""
        return decoding.decode(source, self.recording_processor.rate, part.begin, part.last)

    @property
    def masks_frames(self) -> Masking | None:
        """How the objective of this folder masks the frames of recordings; None for others."""
        run = read_json(self.folder / "run.json") if (self.folder / "run.json").is_file() else None
        config = registry.trained_by(self.model.config, tuple(self.model.heads), run)
        fields = {} if config is None else config.leaves()
        return Masking(fields["share"], fields["span"]) if {"share", "span"} <= fields.keys() else None

    def features(
        self, source: Path | bytes, *, seed: int = 0, part: Part = WHOLE, entries: Sequence[Entries] = ()
    ) -> Data:
        """A recording as the model reads it, with what its task recognises along the time axis: see
        `visualize.recording_features`. Raises UnmaskError for a model that reads something else."""
        processor, samples_N, lanes = self.recording_processor, self.samples(source, part), list[Data]()
        if self.predictor is not None and isinstance(task := self.predictor.task, RecordingTask):
            row = Recording(place="The recording", source=source, begin=part.begin, end=part.last)
            [found] = self.predictor.found([row])
            lanes = spoken(task.along(found))
        return features(
            self.model, processor, samples_N, masking=self.masks_frames, lanes=lanes, entries=entries, seed=seed,
            begin=part.begin,
        )  # fmt: skip

    def signal(self, source: Path | bytes, **given: Any) -> Data:
        """A record as the model reads it: see `visualize.signals`.

        given  "rate" of a file that does not say it, and "lead" of one with several

        Raises UnmaskError for a model that reads something else, and for a record that it cannot read.
        """
        processor = self._processor(SignalProcessor, "signals", self.reads_signals)
        row = SignalForm(**given).completed(SignalRow(place="The record", source=source))
        assert isinstance(row, SignalRow)
        samples_NL, task = row.signal(processor.rate).samples, self.predictor and self.predictor.task
        if self.predictor is None or not isinstance(task, SignalTask) or task.series:
            return signal(samples_NL, processor.rate, more=self._anomalies(row))
        [found] = self.predictor.found([row])
        window = task.encode([row], processor, self.predictor.length).length
        shown = {**task.along(task.answer(row, found)), "labels": task.labels}
        if task.name in self.model.of_sequences:  # other heads do not read what attention sums up
            shown["attention"] = attention_along(self.model, processor, samples_NL, window)
        return signal(samples_NL, processor.rate, **shown)

    def forecasts(self, path: Path) -> Data:
        """What follows the series in a file, with quantiles: see `visualize.forecasts`. Raises UnmaskError for a model
        of something else, and for a file without series."""
        if self.predictor is None or not isinstance(task := self.predictor.task, SignalTask) or not task.series:
            raise UnmaskError(f"{self.folder} forecasts no series: train a model that does, with --task forecasting.")
        rows = task.rows_in(path)
        if rows is None:
            raise UnmaskError(f"{path} has no series: give a .csv, .tsv or .parquet file, or a record.")
        answers = self.predictor.answer(rows)
        pairs = zip(series_of(rows), answers, strict=True)
        return forecasts([forecast(row.id, row.values, answer["forecast"]) for row, answer in pairs])

    def _anomalies(self, row: SignalRow) -> list[Data]:
        """The lane of anomaly scores of a record; none for a model that was not pre-trained for them."""
        if self.inner is None or SETTING not in self.inner.settings:
            return []
        found = AnomalyPredictor(self.folder, precision="fp32")
        return [anomalies(found.scores(row), found.step)]

    def beam(self, text: str, beam_size: int = 4, length: int = 30) -> Data:
        """The tree of a beam search for a text. Raises UnmaskError for a model that does not write."""
        return tree_of(self, text, beam_size, length)


def tree_of(opened: Any, text: str, beam_size: int, length: int) -> Data:
    """The tree of a search by the translator or the continuer of `opened`; see `visualize.beam.tree`.

    Raises UnmaskError for a beam that is not from 1 to 16, a length that is not from 1 to 200, and a model that does
    not write.
    """
    if not (1 <= beam_size <= 16 and 1 <= length <= 200):
        raise UnmaskError("The tree needs a beam size from 1 to 16 and a length from 1 to 200 tokens.")
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
    raise UnmaskError("Beam search needs a model that writes: one that translates or continues a text.")


def _narrow(how: Any, beam_size: int, length: int) -> Search:
    """The search of the folder with this beam size; sampling becomes a beam search."""
    base = how if isinstance(how, Search) else Search(blocking=how.blocking)
    limits = Limits(max_length=length, min_length=min(base.limits.min_length, length))
    return base.replace(beam_size=beam_size, n_best=min(beam_size, 4), groups=1).replace(limits=limits.to_dict())


def open_model(folder: Path | str) -> Opened:
    """Open a folder as a translator, a continuer, a predictor, or a model without a head that answers. Raises
    UnmaskError for a folder that holds no model."""
    folder = Path(folder)
    if huggingface.holds_encoder_decoder(folder):
        return Opened(folder, translator=Translator(folder, precision="fp32"))
    loaded = huggingface.load(folder, huggingface.SINGLE_STACK)
    if loaded.model.writes:
        return Opened(folder, continuer=Continuer(loaded))
    try:
        return Opened(folder, predictor=Predictor(loaded, length=reach(loaded.model, folder), precision="fp32"))
    except UnmaskError:
        loaded.require_processor(folder)
        return Opened(folder, inner=loaded)
