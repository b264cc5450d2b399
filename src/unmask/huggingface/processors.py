"""The files of a processor in a model folder: their names, how to open them, and whether they belong to the model."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from unmask.data.bitext.numbers import Numbers
from unmask.data.pictures.captions import Captions
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.processor import Processor
from unmask.data.recordings.processor import RecordingProcessor
from unmask.data.signals.processor import SignalProcessor
from unmask.data.text.sentence_tokenizer import SentenceTokenizer
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError

GENERATION = "generation_config.json"
P = TypeVar("P")
Q = TypeVar("Q", bound=Processor[Any])
NOT_TOGETHER = "they do not belong together. Use the tokenizer that the model was trained with."


class ProcessorFiles(ABC, Generic[P]):
    """How model folders store a processor P.

    processor  the class of the processor
    files      names that its files may have        signs  a folder with one of these files has a processor
    loader     the class of `transformers` that opens it; "" if there is none
    call       the arguments of that class for one item, as code in an example
    """

    processor: type[P]
    files: tuple[str, ...]
    signs: tuple[str, ...]
    loader: str = ""
    call: str = ""

    def load(self, folder: Path, config: Any) -> P | None:
        """The processor of a folder, or None. Raises UnmaskError for the processor of another model."""
        if not any((folder / name).is_file() for name in self.signs):
            return None
        found = self.open(folder, config)
        self.check(found, config, folder)
        return found

    @abstractmethod
    def open(self, folder: Path, config: Any) -> P:
        """The processor of a folder that has one. Raises UnmaskError if its files are damaged."""

    def of(self, processor: Any) -> P:
        """Convert a processor to the form that these models use. Raises UnmaskError for another class."""
        if not isinstance(processor, self.processor):
            found, wanted = type(processor).__name__, self.processor.__name__
            raise UnmaskError(f"The processor of this model must be a {wanted}, not a {found}.")
        return processor

    def check(self, processor: P, config: Any, folder: Path) -> None:
        """Raises UnmaskError for a processor that does not belong to a model of this config."""
        return

    @abstractmethod
    def save(self, processor: P, folder: Path, model: Any) -> list[str]:
        """Write the processor of a model. Returns the names of its files."""

    def fitted(self, processor: P, config: Any) -> P:
        """The processor with the settings that the config of a model decides."""
        return processor

    def fields(self, processor: P, model: Any) -> Mapping[str, Any]:
        """The fields of config.json that depend on the processor."""
        return {}

    def beside(self, processor: P, model: Any) -> Mapping[str, str]:
        """Further files, for `transformers`: name -> content."""
        return {}

    def check_ids(self, config: Any, folder: Path) -> None:
        """Raises UnmaskError if the ids of the start, the end or the padding are not in the model's vocabulary."""
        return


class OwnFiles(ProcessorFiles[Q]):
    """For a processor that reads and writes its own files.

    processor  the class      files  names of its files; a folder with the first one has this processor
    """

    def __init__(self, processor: type[Q], files: tuple[str, ...]) -> None:
        self.processor, self.files, self.signs = processor, files, files[:1]

    def open(self, folder: Path, config: Any) -> Q:
        return self.processor.load(folder)

    def save(self, processor: Q, folder: Path, model: Any) -> list[str]:
        return processor.save(folder)


class Tokens(ProcessorFiles[Tokenizer]):
    """For models with a single stack: a `Tokenizer`."""

    processor = Tokenizer
    files = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
    loader, call = "AutoTokenizer", '"A text."'
    signs = ("tokenizer.json", "vocab.txt", "merges.txt")

    def open(self, folder: Path, config: Any) -> Tokenizer:
        return Tokenizer.load(folder)

    def check(self, tokenizer: Tokenizer, config: Any, folder: Path) -> None:
        vocabulary = getattr(config, "vocabulary", None)
        if vocabulary is not None and tokenizer.size > vocabulary:
            raise UnmaskError(
                f"The tokenizer in {folder} has {tokenizer.size} entries, but the model has only {vocabulary}: "
                f"{NOT_TOGETHER}"
            )

    def save(self, tokenizer: Tokenizer, folder: Path, model: Any) -> list[str]:
        segments, continues = model.config.segments > 1, "next" in model.heads
        return tokenizer.save(folder, length=model.positions, segments=segments, continues=continues)

    def beside(self, tokenizer: Tokenizer, model: Any) -> Mapping[str, str]:
        """For a language model, the special tokens that `generate` never writes, as here."""
        fields = self.fields(tokenizer, model)
        if not fields:
            return {}
        never = sorted(tokenizer.specials - {tokenizer.sep})
        values = {**fields, "pad_token_id": tokenizer.pad, "bad_words_ids": [[token] for token in never]}
        return {GENERATION: json.dumps(values, indent=2) + "\n"}

    def fields(self, tokenizer: Tokenizer, model: Any) -> Mapping[str, Any]:
        """For a language model, the start and end tokens that other programs use for generation."""
        return {"bos_token_id": tokenizer.cls, "eos_token_id": tokenizer.sep} if "next" in model.heads else {}


class Sentences(Tokens):
    """For models that read a text sentence by sentence: a `SentenceTokenizer`."""

    def open(self, folder: Path, config: Any) -> Tokenizer:
        return self.fitted(super().open(folder, config), config)

    def fitted(self, processor: Tokenizer, config: Any) -> Tokenizer:
        return SentenceTokenizer(processor.side)


class Sides(ProcessorFiles[Tokenizer]):
    """For encoder–decoders: a `Tokenizer` with one vocabulary, or with one for each side."""

    processor = Tokenizer
    loader, call = "AutoTokenizer", '"A text."'
    files: tuple[str, ...] = (
        *("spiece.model", "tokenizer.json", "vocab.txt"),
        *("subwords.json", "source.spm", "target.spm", "vocab.json", "target_vocab.json", "tokenizer_config.json"),
        *("special_tokens_map.json", "added_tokens.json"),
    )
    signs = ("subwords.json", "source.spm", "spiece.model", "tokenizer.json")

    def open(self, folder: Path, config: Any) -> Tokenizer:
        return Tokenizer.load(folder, written=True)

    def of(self, processor: Any) -> Tokenizer:
        """The tokenizer in the form for an encoder–decoder; that of a corpus may add other special tokens."""
        return super().of(processor).written()

    def check(self, tokenizer: Tokenizer, config: Any, folder: Path) -> None:
        """Raises UnmaskError if the tokenizer has more entries than the model, or another id for padding or the end."""
        read = getattr(config, "source_vocabulary", None) or config.vocabulary
        for side, own, most in (("source", tokenizer, read), ("target", tokenizer.target, config.vocabulary)):
            if own.size > most:
                raise UnmaskError(
                    f"The tokenizer of {folder} has {own.size} entries for the {side}, but the model has only {most}: "
                    f"{NOT_TOGETHER}"
                )
        ids = (("padding", tokenizer.pad, config.padding), ("end", tokenizer.target.end, config.end))
        for name, found, wanted in ids:
            if found != wanted:
                raise UnmaskError(
                    f"The tokenizer of {folder} has the id {found} for the {name}, but the model has {wanted}: "
                    f"{NOT_TOGETHER}"
                )

    def save(self, tokenizer: Tokenizer, folder: Path, model: Any) -> list[str]:
        return tokenizer.save(folder, length=model.positions)

    def check_ids(self, config: Any, folder: Path) -> None:
        for name in ("start", "end", "padding"):
            if not 0 <= getattr(config, name) < config.vocabulary:
                raise UnmaskError(
                    f"{folder / 'config.json'}: the id of its {name} must be at least 0 and below {config.vocabulary}."
                )


class Vectors(Sides):
    """For decoders of vectors: the source is a line of numbers."""

    def open(self, folder: Path, config: Any) -> Tokenizer:
        return Numbers(super().open(folder, config).side, config.features)


class Images(ProcessorFiles[ImageProcessor]):
    """For models of pictures: an `ImageProcessor`."""

    processor = ImageProcessor
    loader, call = "AutoImageProcessor", 'Image.open("picture.png").convert("RGB")'
    files = signs = ("preprocessor_config.json", "processor_config.json")

    def open(self, folder: Path, config: Any) -> ImageProcessor:
        return ImageProcessor.load(folder).for_model(config)

    def check(self, processor: ImageProcessor, config: Any, folder: Path) -> None:
        processor.for_model(config)

    def fitted(self, processor: ImageProcessor, config: Any) -> ImageProcessor:
        """The size of pictures, and the places before the patches."""
        return replace(processor.resized(config.size), summaries=tuple(map(int, config.summaries)))

    def save(self, processor: ImageProcessor, folder: Path, model: Any) -> list[str]:
        return processor.for_model(model.config).save(folder)


class Recordings(ProcessorFiles[RecordingProcessor]):
    """For models of recordings: a `RecordingProcessor`."""

    processor = RecordingProcessor
    loader, call = "AutoFeatureExtractor", "samples, sampling_rate=processor.sampling_rate"
    files = signs = ("preprocessor_config.json", "processor_config.json")

    def open(self, folder: Path, config: Any) -> RecordingProcessor:
        return RecordingProcessor.load(folder).for_model(config)

    def fitted(self, processor: RecordingProcessor, config: Any) -> RecordingProcessor:
        """The hop and the window of the model's first layers."""
        return processor.for_model(config)

    def save(self, processor: RecordingProcessor, folder: Path, model: Any) -> list[str]:
        return processor.for_model(model.config).save(folder)


class Signals(ProcessorFiles[SignalProcessor]):
    """For models of signals: a `SignalProcessor`."""

    processor = SignalProcessor
    files = signs = ("preprocessor_config.json",)

    def open(self, folder: Path, config: Any) -> SignalProcessor:
        return SignalProcessor.load(folder).for_model(config)

    def fitted(self, processor: SignalProcessor, config: Any) -> SignalProcessor:
        """The rate, the segments and the leads of the model."""
        return processor.for_model(config)

    def save(self, processor: SignalProcessor, folder: Path, model: Any) -> list[str]:
        return processor.for_model(model.config).save(folder)


class PicturesAndTexts(Sides):
    """For models that write on pictures: the source is a picture. The files are those of an `ImageProcessor` and of a
    tokenizer."""

    loader, call = Images.loader, Images.call
    files = (*Sides.files, *Images.files)

    def open(self, folder: Path, config: Any) -> Tokenizer:
        return Captions(super().open(folder, config).side, ImageProcessor.load(folder).for_model(config))

    def save(self, tokenizer: Tokenizer, folder: Path, model: Any) -> list[str]:
        assert isinstance(tokenizer, Captions)
        return [*super().save(tokenizer, folder, model), *tokenizer.images.for_model(model.config).save(folder)]


TOKENS, SENTENCES, SIDES, VECTORS = Tokens(), Sentences(), Sides(), Vectors()
PICTURES, RECORDINGS, SIGNALS = Images(), Recordings(), Signals()
CAPTIONS = PicturesAndTexts()
