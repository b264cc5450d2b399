"""What a system reads, texts, vectors or pictures: its embedded pairs and its vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmask import huggingface
from unmask.data.bitext import numbers
from unmask.data.bitext.numbers import Numbers
from unmask.data.bitext.pairs import Bitext
from unmask.data.pictures.captions import Captions
from unmask.data.pictures.processor import ImageProcessor
from unmask.data.text import subwords
from unmask.data.text.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.models.encoder_decoder import EncoderDecoderConfig
from unmask.runs.translation.config import Translation, Vocabulary
from unmask.runs.translation.texts import DATE_VECTORS, DATES, DIGITS


class Sources:
    """Texts, with the vocabulary of the targets.

    embedded  name of the pairs that need no files
    """

    embedded = DATES

    def learned(self, train: Bitext, wanted: Vocabulary, model: EncoderDecoderConfig) -> Tokenizer:
        """A vocabulary learned from the training pairs. Raises UnmaskError for sources that the model cannot read."""
        return _trained([*train.sources, *train.targets], wanted)

    def kept(self, checkpoint: Path) -> Tokenizer:
        """The vocabulary that a run has saved in one of its checkpoints."""
        return Tokenizer.load(checkpoint, written=True)

    def on_embedded(self, config: Translation) -> Translation:
        """The same system for the embedded pairs: a small model of characters, about two minutes."""
        return _small(config, min(1e-3, config.training.optimizer.rate), tokens=2_048)


class Vectors(Sources):
    embedded = DATE_VECTORS

    def learned(self, train: Bitext, wanted: Vocabulary, model: EncoderDecoderConfig) -> Tokenizer:
        first = numbers.vector(train.sources[0])
        if first is None:
            raise UnmaskError(
                f"This system reads vectors, but line {train.lines[0]:,} of the sources of {train.report.name} is no "
                "vector: give numbers separated by spaces, or an array in a .npy file."
            )
        return Numbers(_trained(train.targets, wanted).side, len(first))

    def kept(self, checkpoint: Path) -> Tokenizer:
        return vocabulary(checkpoint)

    def on_embedded(self, config: Translation) -> Translation:
        """Better in the same time than 1e-3 with 2,048 tokens, and than steps of 512."""
        return _small(config, 5e-3, tokens=1_024)


class Pictures(Sources):
    embedded = DIGITS

    def learned(self, train: Bitext, wanted: Vocabulary, model: Any) -> Tokenizer:
        half = (0.5,) * model.channels
        images = ImageProcessor(size=model.size, patch=model.patch, mean=half, std=half)
        return Captions(_trained(train.targets, wanted).side, images)

    def kept(self, checkpoint: Path) -> Tokenizer:
        return vocabulary(checkpoint)

    def on_embedded(self, config: Translation) -> Translation:
        """As it is: the recipe is one for the embedded pictures."""
        return config


TEXTS, VECTORS, PICTURES = Sources(), Vectors(), Pictures()


def sources_of(model: EncoderDecoderConfig) -> Sources:
    """What a model reads."""
    return PICTURES if model.reads_pictures else TEXTS if model.features is None else VECTORS


def vocabulary(folder: Path | str) -> Tokenizer:
    """The vocabulary of a folder. Raises UnmaskError if it has none."""
    tokenizer = huggingface.load(folder, huggingface.ENCODER_DECODER).tokenizer
    if tokenizer is None:
        raise UnmaskError(f"{folder} has no tokenizer: put the files of its vocabulary into the folder.")
    return tokenizer


def _trained(texts: list[str], wanted: Vocabulary) -> Tokenizer:
    return subwords.train(texts, wanted.size, wanted.kind, normalization=wanted.normalization)


def _small(config: Translation, rate: float, tokens: int) -> Translation:
    small = {"dim": 128, "dropout": 0.1}
    if hasattr(config.model, "cell"):
        small["hidden"] = 256
    return config.replace(
        model=small,
        texts={"tokens": tokens, "longest": 64},
        vocabulary={"kind": "character", "size": 2_000},
        learning={"label_smoothing": 0.0, "average": 0},
        training={"minutes": 1.5, "evaluate_every": 0.25, "optimizer": {"lr": rate}},
        search={"limits": {"max_length": 64}},
    )
